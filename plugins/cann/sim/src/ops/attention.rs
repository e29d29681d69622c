//! softmax(q · kᵀ · scale + shift, masked) · v, with a cache in pieces or in blocks.

use super::check::*;
use super::norm::softmax;
use super::*;
use crate::args::Args;
use crate::fault::Answer;
use crate::object::Tensor;
use crate::plan::Kernel;
use crate::view::Run;

ops! { cann_transformer;
    #[cube] aclnnFusedInferAttentionScoreV2(
        query: In, key: List, value: List, pse_shift_opt: In, mask_opt: In, seq_lens_opt: Ints, seq_lens_kv_opt: Ints,
        dequant_scale1_opt: In, quant_scale1_opt: In, dequant_scale2_opt: In, quant_scale2_opt: In, quant_offset2_opt: In,
        antiquant_scale_opt: In, antiquant_offset_opt: In, block_table_opt: In, query_padding_opt: In, kv_padding_opt: In,
        key_antiquant_scale_opt: In, key_antiquant_offset_opt: In, value_antiquant_scale_opt: In,
        value_antiquant_offset_opt: In, key_prefix_opt: In, value_prefix_opt: In, prefix_len_opt: Ints, n_heads: i64,
        scale: f64, pre_tokens: i64, next_tokens: i64, layout: Text, n_kv_heads: i64, sparse_mode: i64, inner_precise: i64,
        block_size: i64, antiquant_mode: i64, lse_flag: bool, key_antiquant_mode: i64, value_antiquant_mode: i64, out: Out,
        lse_opt: Out,
    ) "" => |a| {
        let lens = |name: &str| a.ints(name).ok().map(<[i64]>::to_vec);
        let rule = Rule {
            q_lens: lens("seq_lens_opt"),
            kv_lens: lens("seq_lens_kv_opt"),
            sparse: a.int("sparse_mode")?,
            reach: (a.int("pre_tokens")?, a.int("next_tokens")?),
            repair: a.int("inner_precise")? & 2 != 0,
            lse: a.int("lse_flag")? != 0,
        };
        let unused = ["query_padding_opt", "kv_padding_opt", "key_prefix_opt", "value_prefix_opt", "antiquant_scale_opt"];
        tiles(unused.iter().all(|name| a.opt(name).is_none()), || "the simulator has none of the quantised forms".into())?;
        tiles((0..=4).contains(&rule.sparse), || format!("sparse_mode {}", rule.sparse))?;
        attend(a, rule)
    };
    #[cube] aclnnIncreFlashAttentionV4(
        query: In, key: List, value: List, pse_shift_opt: In, mask_opt: In, seq_lens_opt: Ints, dequant_scale1_opt: In,
        quant_scale1_opt: In, dequant_scale2_opt: In, quant_scale2_opt: In, quant_offset2_opt: In, antiquant_scale_opt: In,
        antiquant_offset_opt: In, block_table_opt: In, kv_padding_opt: In, n_heads: i64, scale: f64, layout: Text,
        n_kv_heads: i64, block_size: i64, inner_precise: i64, out: Out,
    ) "P" => |a| {
        let shared = a.int("n_kv_heads")? != 0;
        tiles(a.world.chip.bf16 || !shared, || "n_kv_heads has to be 0 on this chip".into())?;
        let kv_lens = a.ints("seq_lens_opt").ok().map(<[i64]>::to_vec);
        let repair = a.int("inner_precise")? & 2 != 0;
        let rule = Rule { q_lens: None, kv_lens, sparse: 0, reach: (i64::MAX / 2, i64::MAX / 2), repair, lse: false };
        let shape = Shape::of(a)?;
        tiles(shape.q_len == 1, || format!("{} queries, expected 1", shape.q_len))?;
        attend(a, rule)
    };
}

/// Which keys a query sees.
struct Rule {
    q_lens: Option<Vec<i64>>,
    kv_lens: Option<Vec<i64>>,
    sparse: i64,
    reach: (i64, i64),
    repair: bool,
    lse: bool,
}

/// Sizes, and where heads and positions stand in q and out.
#[derive(Clone, Copy)]
struct Shape {
    batch: i64,
    q_len: i64,
    heads: i64,
    kv_heads: i64,
    head_dim: i64,
    heads_first: bool,
}

impl Shape {
    fn of(a: &Args) -> Answer<Shape> {
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

fn attend(a: &Args, rule: Rule) -> Answer<Kernel> {
    let halves: Types = if a.world.chip.bf16 { &[ACL_FLOAT16, ACL_BF16] } else { &[ACL_FLOAT16] };
    let (shape, q) = (Shape::of(a)?, a.of("query", halves)?);
    a.whole("out")?;
    valid(a.shaped("out", halves, &q.dims)?.dtype == q.dtype, || "`out` has another dtype".into())?;
    let (keys, values) = (a.list("key")?, a.list("value")?);
    let same = keys.iter().chain(values).all(|t| t.dtype == q.dtype && t.is_contiguous());
    valid(same && keys.len() == values.len() && !keys.is_empty(), || {
        "keys and values with gaps, or of another dtype".into()
    })?;
    let paged = a.opt("block_table_opt").is_some();
    let capacity = if paged { check_blocks(a, &shape, &rule)? } else { check_pieces(keys, &shape)? };
    let longest = rule.kv_lens.as_ref().map_or(capacity, |lens| lens.iter().copied().max().unwrap_or(0));
    let in_range = longest <= capacity
        && [&rule.q_lens, &rule.kv_lens]
            .into_iter()
            .flatten()
            .all(|l| l.len() == 1 || l.len() as i64 == shape.batch);
    valid(in_range, || format!("lengths {:?} with room for {capacity}", rule.kv_lens))?;
    if let Some(pse) = a.opt("pse_shift_opt") {
        let fits = matches!(pse.dims[..], [b, n, s, l] if (b == 1 || b == shape.batch) && n == shape.heads && s == shape.q_len && l >= longest);
        valid(fits && pse.dtype == q.dtype, || format!("`pse_shift` is {:?}", pse.dims))?;
    }
    if let Some(mask) = a.opt("mask_opt") {
        valid(matches!(mask.dtype, ACL_BOOL | ACL_INT8 | ACL_UINT8), || {
            format!("`mask` has dtype {}", mask.dtype)
        })?;
        let fits = match rule.sparse {
            0 | 1 => {
                mask.dims.ends_with(&[])
                    && mask_rows(mask, &shape).is_some()
                    && mask.dims.last().is_some_and(|l| *l >= longest)
            }
            _ => mask.dims.ends_with(&[2048, 2048]),
        };
        valid(fits, || format!("`mask` is {:?}", mask.dims))?;
    }
    let scale = a.double("scale")?;
    Ok(kernel(move |r| run(r, &shape, &rule, scale, capacity)))
}

/// Rows of a mask per sequence, and whether each sequence has its own.
fn mask_rows(mask: &Tensor, s: &Shape) -> Option<bool> {
    match mask.dims[..] {
        [q, _] if q == s.q_len => Some(false),
        [b, _] if s.q_len == 1 && b == s.batch => Some(true),
        [b, q, _] | [b, 1, q, _] if q == s.q_len && (b == 1 || b == s.batch) => Some(b > 1),
        _ => None,
    }
}

fn check_pieces(keys: &[Tensor], s: &Shape) -> Answer<i64> {
    let dims = &keys[0].dims;
    let len = match (s.heads_first, dims.as_slice()) {
        (false, [_, l, n, d]) if (*n, *d) == (s.kv_heads, s.head_dim) => Some(*l),
        (true, [_, n, l, d]) if (*n, *d) == (s.kv_heads, s.head_dim) => Some(*l),
        (false, [_, l, h]) if *h == s.kv_heads * s.head_dim => Some(*l),
        _ => None,
    };
    let batches = keys.len() == 1 && dims[0] == s.batch;
    valid(len.is_some() && batches, || {
        format!("`key` is {dims:?} with {} heads of {}", s.kv_heads, s.head_dim)
    })?;
    Ok(len.unwrap_or(0))
}

fn check_blocks(a: &Args, s: &Shape, rule: &Rule) -> Answer<i64> {
    let (table, size) = (a.of("block_table_opt", &[ACL_INT32])?, a.int("block_size")?);
    valid(rule.kv_lens.is_some(), || "a block table without lengths".into())?;
    let good = if s.q_len > 1 { size % 128 == 0 } else { size % 16 == 0 };
    tiles(good && (16..=512).contains(&size), || format!("blocks of {size} with {} queries", s.q_len))?;
    let cache = &a.list("key")?[0].dims;
    let fits = match cache.as_slice() {
        [_, n, h] => *n == size && *h == s.kv_heads * s.head_dim,
        [_, heads, n, d] => (*heads, *n, *d) == (s.kv_heads, size, s.head_dim),
        _ => false,
    };
    valid(fits, || format!("a cache of {cache:?} with blocks of {size}"))?;
    tiles(s.kv_heads * s.head_dim <= 65_535, || "rows of the cache over 65535".into())?;
    valid(matches!(table.dims[..], [b, _] if b == s.batch), || format!("`block_table` is {:?}", table.dims))?;
    Ok(table.dims[1] * size)
}

fn run(r: &Run<'_>, s: &Shape, rule: &Rule, scale: f64, capacity: i64) -> Answer {
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
            // Without a key to see, the result is whatever was there, unless it is asked to be 0.
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
