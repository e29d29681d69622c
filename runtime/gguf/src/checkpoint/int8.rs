//! x[i] = q[i] · scale[i / group]

/// The numbers that int8 `values` stand for; `scales` are little-endian f32, one per `group` values.
///
/// A value without a scale is left out, so the result is as long as both arguments allow.
pub fn dequantise(values: &[u8], scales: &[u8], group: usize) -> Vec<f32> {
    let (scales, _) = scales.as_chunks();
    let mut out = Vec::with_capacity(values.len());
    for (values, &scale) in values.chunks(group.max(1)).zip(scales) {
        let scale = f32::from_le_bytes(scale);
        out.extend(values.iter().map(|&q| f32::from(q as i8) * scale));
    }
    out
}
