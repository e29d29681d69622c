//! Bytes for people.

/// `1536` bytes as `1.5 KiB`.
pub fn in_units(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (n.max(1).ilog2() / 10).min(5);
    match power {
        0 => format!("{n} B"),
        _ => format!("{:.1} {}", n as f64 / (1u64 << (10 * power)) as f64, UNITS[power as usize]),
    }
}

/// Bytes in GiB as options take them, rounded up to four decimals.
pub(crate) fn gib(n: u64) -> f64 {
    (n as f64 / (1u64 << 30) as f64 * 1e4).ceil() / 1e4
}
