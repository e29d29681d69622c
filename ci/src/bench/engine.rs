//! `--cases engine`: several sequences that decode together, and the ratio to the peer that is aimed at.

use super::cases::Case;

/// The set's name.
pub const NAME: &str = "engine";

/// Types and threads, where none are given.
pub const DEFAULTS: (&str, &str) = ("q4_0", "2");

/// Tokens of each sequence's prompt.
const DEPTH: usize = 128;

/// How many sequences there are.
const SEQUENCES: [usize; 5] = [1, 4, 8, 16, 32];

/// Of these, the number that has a target.
pub const TARGET_SEQUENCES: usize = 16;

/// The cases.
pub fn cases() -> Vec<Case> {
    SEQUENCES.map(|n| Case::Together { n, depth: DEPTH }).to_vec()
}

/// The ratio aimed at on this machine, and what it is for.
pub fn target() -> (f64, &'static str) {
    let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let isa = std::env::var("LLMRT_CPU_ISA").ok();
    match uses_vnni(&flags, isa.as_deref()) {
        true => (2.0, "with VNNI"),
        false => (1.5, "without VNNI"),
    }
}

/// Whether dot products of bytes have instructions, by `/proc/cpuinfo` and the instruction set that was requested.
fn uses_vnni(cpuinfo: &str, isa: Option<&str>) -> bool {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")).unwrap_or_default();
    let mut flags = flags.split_whitespace();
    !matches!(isa, Some("scalar" | "avx2" | "avx512"))
        && flags.any(|flag| matches!(flag, "avx512_vnni" | "avx_vnni"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vnni_counts_where_the_cpu_has_it_and_it_is_used() {
        let check = |flags: &str, isa, expected| {
            let text = format!("processor\t: 0\nflags\t\t: fpu {flags} sse\nbugs\t\t: none\n");
            assert_eq!(uses_vnni(&text, isa), expected, "{flags} {isa:?}");
        };
        check("avx2", None, false);
        check("avx2 avx512_vnni", None, true);
        check("avx2 avx_vnni", Some("avxvnni"), true);
        check("avx2 avx512_vnni", Some("avx2"), false);
        check("avx2 avx512_vnni", Some("avx512"), false);
        check("avx2 avx512_vnni", Some("avx512vnni"), true);
        assert!(!uses_vnni("", None));
    }
}
