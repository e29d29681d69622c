//! What attention computes: which keys each query sees, and where they are stored.

use super::check::*;
use super::norm::softmax;
use crate::args::Args;
use crate::fault::Answer;
use crate::sys::*;
use crate::tensor::Tensor;
use crate::view::Run;

/// Which keys a query sees.
pub struct Rule {
    /// Queries of each sequence.
    pub q_lens: Option<Vec<i64>>,
    /// Keys of each sequence.
    pub kv_lens: Option<Vec<i64>>,
    /// The mode of the mask.
    pub sparse: i64,
    /// Tokens before and after that are seen.
    pub reach: (i64, i64),
    /// Rows that see nothing are 0.
    pub repair: bool,
    /// Whether the logarithms of the sums are an output.
    pub lse: bool,
}

/// Sizes, and where heads and positions stand in q and out.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Sequences.
    pub batch: i64,
    /// Queries of a sequence.
    pub q_len: i64,
    /// Heads of the query.
    pub heads: i64,
    /// Heads of keys and values.
    pub kv_heads: i64,
    /// Elements of a head.
    pub head_dim: i64,
    /// Heads stand before positions.
    pub heads_first: bool,
}

impl Shape {
    /// From the query and the numbers of heads.
    pub fn of(a: &Args) -> Answer<Shape> {
        let (q, heads) = (a.whole("query")?, a.int("n_heads")?);
        let kv_heads = match a.int("n_kv_heads")? {
            0 => heads,
            n => n,
        };
        let good =
            heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && heads <= 256 && heads / kv_heads <= 64;
        tiles(good, || format!("{heads} heads over {kv_heads}"))?;
        let (dims, layout) = (&q.dims, a.text("layout")?);
        let (q_len, head_dim, heads_first) = match (layout, dims.as_slice()) {
            ("BSND", [_, s, n, d]) if *n == heads => (*s, *d, false),
            ("BNSD", [_, n, s, d]) if *n == heads => (*s, *d, true),
            ("BSH", [_, s, h]) if h % heads == 0 => (*s, h / heads, false),
            _ => {
                return crate::fault::fault(
                    ACLNN_ERR_PARAM_INVALID,
                    format!("layout {layout} with {dims:?}"),
                );
            }
        };
        tiles(head_dim <= 512 && head_dim % 16 == 0, || format!("heads of {head_dim}"))?;
        Ok(Shape { batch: dims[0], q_len, heads, kv_heads, head_dim, heads_first })
    }

    /// Place of a query's head.
    fn at(&self, b: i64, i: i64, head: i64) -> usize {
        let row = match self.heads_first {
            true => (b * self.heads + head) * self.q_len + i,
            false => (b * self.q_len + i) * self.heads + head,
        };
        (row * self.head_dim) as usize
    }
}

/// Rows of a mask per sequence, and whether each sequence has its own.
pub fn mask_rows(mask: &Tensor, s: &Shape) -> Option<bool> {
    match mask.dims[..] {
        [q, _] if q == s.q_len => Some(false),
        [b, _] if s.q_len == 1 && b == s.batch => Some(true),
        [b, q, _] | [b, 1, q, _] if q == s.q_len && (b == 1 || b == s.batch) => Some(b > 1),
        _ => None,
    }
}

/// The kernel.
pub fn run(r: &Run<'_>, s: &Shape, rule: &Rule, scale: f64, capacity: i64) -> Answer {
    let (q, mut out) = (r.read("query")?, Vec::new());
    out.resize(q.len(), f64::NAN);
    let opt = |name: &str| r.args.opt(name).map(|t| r.numbers(t).map(|v| (v, t.dims.clone()))).transpose();
    let (pse, mask) = (opt("pse_shift_opt")?, opt("mask_opt")?);
    let each = mask.as_ref().and_then(|_| mask_rows(r.args.tensor("mask_opt").ok()?, s)).unwrap_or(false);
    let mut lse = vec![f64::NEG_INFINITY; (s.batch * s.heads * s.q_len) as usize];
    let d = s.head_dim as usize;
    for b in 0..s.batch {
        let of = |lens: &Option<Vec<i64>>, or| {
            lens.as_ref().map_or(or, |l| l[if l.len() == 1 { 0 } else { b as usize }])
        };
        let (n_q, n_kv) = (of(&rule.q_lens, s.q_len), of(&rule.kv_lens, capacity));
        let (keys, values) = (cached(r, "key", s, b, n_kv)?, cached(r, "value", s, b, n_kv)?);
        for (i, head) in (0..n_q).flat_map(|i| (0..s.heads).map(move |head| (i, head))) {
            let (at, kv_head) = (s.at(b, i, head), head / (s.heads / s.kv_heads));
            let row = |j: i64| (j * s.kv_heads + kv_head) as usize * d;
            let mut p: Vec<f64> = (0..n_kv)
                .map(|j| {
                    let shift = pse.as_ref().map_or(0.0, |(v, dims)| {
                        let b = if dims[0] == 1 { 0 } else { b };
                        v[(((b * s.heads + head) * s.q_len + i) * dims[3] + j) as usize]
                    });
                    let masked = mask.as_ref().is_some_and(|(v, dims)| {
                        let width = dims.last().copied().unwrap_or(0);
                        let first = if each { b * s.q_len } else { 0 };
                        rule.hides(i, j, n_q, n_kv, || v[((first + i) * width + j) as usize] != 0.0)
                    });
                    let dot: f64 = q[at..][..d].iter().zip(&keys[row(j)..]).map(|(q, k)| q * k).sum();
                    if masked { f64::NEG_INFINITY } else { dot * scale + shift }
                })
                .collect();
            let largest = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            lse[((b * s.heads + head) * s.q_len + i) as usize] =
                largest + p.iter().map(|x| (x - largest).exp()).sum::<f64>().ln();
            let y = &mut out[at..][..d];
            // Without a key to see, the result is whatever was there, unless the caller requests 0.
            match (n_kv, largest == f64::NEG_INFINITY) {
                (0, _) => y.fill(0.0),
                (_, true) => y.fill(if rule.repair { 0.0 } else { f64::NAN }),
                _ => {
                    softmax(&mut p);
                    y.fill(0.0);
                    for (j, p) in p.iter().enumerate() {
                        y.iter_mut().zip(&values[row(j as i64)..]).for_each(|(y, v)| *y += p * v);
                    }
                }
            }
        }
    }
    if rule.lse && r.args.opt("lse_opt").is_some() {
        r.write("lse_opt", &lse)?;
    }
    r.write("out", &out)
}

impl Rule {
    /// Whether a query does not see a key, where there is a mask.
    fn hides(&self, i: i64, j: i64, n_q: i64, n_kv: i64, masked: impl Fn() -> bool) -> bool {
        let (pre, next) = self.reach;
        match self.sparse {
            0 if n_q == 1 => masked(),
            0 => masked() || j > i.saturating_add(next) || j < i.saturating_sub(pre),
            1 => masked(),
            2 => j > i,
            3 => j > i + n_kv - n_q,
            _ => j > (i + n_kv - n_q).saturating_add(next) || j < (i + n_kv - n_q).saturating_sub(pre),
        }
    }
}

/// [n_kv, kv_heads, head_dim] of a sequence. Numbers of blocks are not checked: a wrong one reads elsewhere.
fn cached(r: &Run<'_>, name: &str, s: &Shape, b: i64, n_kv: i64) -> Answer<Vec<f64>> {
    let t = &r.args.list(name)?[0];
    let heads = |mut t: Tensor, heads_first: bool, n: i64| {
        let (h, d) = (s.kv_heads, s.head_dim);
        let room = t.dims[if heads_first { 2 } else { 1 }];
        t.strides = if heads_first { vec![d, room * d, 1] } else { vec![h * d, d, 1] };
        t.dims = vec![n, h, d];
        t
    };
    let Some(table) = r.args.opt("block_table_opt") else {
        let mut piece = t.clone();
        piece.offset += b * t.strides[0];
        return r.numbers(&heads(piece, s.heads_first, n_kv));
    };
    let (ids, size) = (r.numbers(table)?, r.args.int("block_size")?);
    let mut all = Vec::new();
    for (n, start) in (0..n_kv).step_by(size as usize).enumerate() {
        let id = ids[b as usize * table.dims[1] as usize + n] as i64;
        if id < 0 {
            return Err(r.fault(&format!("block {id}")));
        }
        let mut block = t.clone();
        block.offset += id * t.strides[0];
        all.extend(r.numbers(&heads(block, t.dims.len() == 4, size.min(n_kv - start)))?);
    }
    Ok(all)
}
