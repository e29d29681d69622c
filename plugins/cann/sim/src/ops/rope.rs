//! y = x · cos + turned(x) · sin, with halves (mode 0) or neighbours (mode 1) turned.

use super::check::*;
use super::*;

ops! { cann_transformer;
    aclnnRotaryPositionEmbedding(x: In, cos: In, sin: In, mode: i64, out: Out) "" => |a| {
        let (x, mode) = (a.of("x", FLOATS)?, a.int("mode")?);
        let d = x.dims.last().copied().unwrap_or(0);
        valid((3..=4).contains(&x.dims.len()) && (0..=1).contains(&mode), || format!("mode {mode}, {:?}", x.dims))?;
        a.whole("out")?;
        valid(a.shaped("out", FLOATS, &x.dims)?.dtype == x.dtype, || "`out` has another dtype".into())?;
        for name in ["cos", "sin"] {
            let t = a.of(name, &[x.dtype])?;
            valid(t.dims.last() == Some(&d) && t.dims.len() == x.dims.len(), || format!("`{name}` is {:?}", t.dims))?;
            crate::view::broadcast(t, &x.dims)?;
            let varies = t.dims[..t.dims.len() - 1].iter().filter(|n| **n > 1).count();
            tiles(mode == 0 || varies <= 1, || format!("`{name}` is {:?} in mode 1", t.dims))?;
        }
        tiles(d < 896 && d % 2 == 0, || format!("rows of {d}"))?;
        let limited = !a.world.chip.bf16;
        tiles(!limited || (mode == 0 && d <= 128 && d % 32 == 0), || format!("mode {mode} with rows of {d} on this chip"))?;
        let (dims, d) = (x.dims.clone(), d as usize);
        Ok(kernel(move |r| {
            let (x, cos, sin) = (r.read("x")?, r.read_as("cos", &dims)?, r.read_as("sin", &dims)?);
            let turned = |i: usize| {
                let (row, j) = (i / d * d, i % d);
                match mode {
                    0 if j < d / 2 => -x[row + j + d / 2],
                    0 => x[row + j - d / 2],
                    _ if j % 2 == 0 => -x[i + 1],
                    _ => x[i - 1],
                }
            };
            r.write("out", &(0..x.len()).map(|i| x[i] * cos[i] + turned(i) * sin[i]).collect::<Vec<_>>())
        }))
    };
}
