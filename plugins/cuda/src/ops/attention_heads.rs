//! Which of the kernels in kernels/attention.cu has a node's tokens, and into how many parts their keys fall.

use super::attention::dim_v;
use super::source;
use llmrt_plugin::abi::op::AttentionParams;
use llmrt_plugin::{DType, NodeView, Result, TensorView};

/// Numbers of a head that kernels have registers for, and those that the kernel for any cache has.
const LARGEST: usize = 768;
const NARROW: usize = 256;
/// Tokens of a sequence up to which larger heads are taken, on average: for prompts the plain ops have tensor cores.
const FEW: usize = 8;
/// Blocks that a multiprocessor shall have, if there are keys for them.
const BLOCKS_PER_SM: usize = 8;
/// Blocks that it holds at a time, of the kernels for 4 and 8 heads. Others have room for more, and may end in a round of a few.
const RESIDENT: usize = 3;
/// Keys below which a part does not pay: two turns of a block's four warps, for heads of 128 numbers.
const KEYS_PER_PART: usize = 64;
/// As in the kernel that puts parts together: a thread has one.
const MAX_PARTS: usize = 128;

/// Tokens that parts are made of, and of how many of them the work is.
pub type Tokens = (usize, usize);

/// The kernel, and its blocks for a token without parts: for each KV head as many as shares of the group of heads that share
/// it.
pub struct Heads {
    pub kernel: String,
    pub blocks: usize,
    pub group: usize,
    pub shares: usize,
}

/// Whether a kernel has registers for heads of so many numbers, of tokens of so many sequences.
pub fn has_room(
    [k, v]: [&TensorView<'_>; 2],
    [dim, dim_v]: [usize; 2],
    n_tokens: usize,
    n_seqs: usize,
) -> bool {
    let in_eights = dim.is_multiple_of(8) && dim_v.is_multiple_of(8) && k.dtype() == v.dtype();
    let starts = |t: &TensorView<'_>| slots_in_sixteens(t) && t.offset().is_multiple_of(16);
    let is_even = in_eights && (k.dtype() == Some(DType::Q8_0) || starts(k) && starts(v));
    let largest = if is_even && n_tokens <= FEW * n_seqs { LARGEST } else { NARROW };
    dim.max(dim_v) <= largest
}

impl Heads {
    /// For a node whose halves begin where 16 bytes can be read at once, or not.
    pub fn new(node: &NodeView<'_>, p: &AttentionParams, is_aligned: bool) -> Result<Heads> {
        let (q, k, v) = (source(node, 0)?, source(node, 1)?, source(node, 2)?);
        let ([dim, n_heads, ..], n_kv_heads) = (q.ne(), p.n_kv_heads.max(1) as usize);
        let (dim_v, group) = (dim_v(node, p)?, n_heads / n_kv_heads);
        let name = match k.dtype() {
            _ if k.dtype() != v.dtype() || !dim.is_multiple_of(8) || !dim_v.is_multiple_of(8) => None,
            Some(DType::Q8_0) => Some("q8_0"),
            _ if !is_aligned || !slots_in_sixteens(&k) || !slots_in_sixteens(&v) => None,
            Some(DType::F16) => Some("f16"),
            Some(DType::BF16) => Some("bf16"),
            Some(DType::F32) => Some("f32"),
            _ => None,
        };
        let (kernel, together) = match name {
            // Of larger heads `supports` takes none that is not for 16 bytes at once.
            None => ("attention_any".into(), 1),
            Some(name) if dim.max(dim_v) > NARROW => (format!("attention_{name}_wide"), 2),
            Some(name) => {
                let together = group.clamp(1, 8).next_power_of_two();
                (format!("attention_{name}_{together}"), together)
            }
        };
        let shares = group.div_ceil(together);
        Ok(Heads { kernel, blocks: n_kv_heads * shares, group, shares })
    }

    /// Into how many parts the keys of a node fall, and bytes of their results, which it takes for a while.
    pub fn parts(
        &self,
        node: &NodeView<'_>,
        p: &AttentionParams,
        (n_tokens, n_busy): Tokens,
        n_sms: usize,
    ) -> Result<(usize, usize)> {
        let n_heads = source(node, 0)?.ne()[1];
        let mut n_keys = source(node, 3)?.ne()[0].saturating_mul(p.block_size as usize);
        if p.window > 0 {
            n_keys = n_keys.min(p.window as usize);
        }
        let n_parts = n_parts(self.blocks * n_busy, n_keys, n_sms);
        // Sums, and a maximum and a sum of weights.
        let bytes = if n_parts > 1 { n_parts * n_heads * n_tokens * (dim_v(node, p)? + 2) * 4 } else { 0 };
        Ok((n_parts, bytes))
    }
}

/// Whether heads of each slot begin at multiples of 16 bytes if the cache does: there are 8 numbers, or as many more, in each.
fn slots_in_sixteens(t: &TensorView<'_>) -> bool {
    t.nb()[1].is_multiple_of(16)
}

/// So many that few heads and tokens give every multiprocessor work, and that none is left for a round of a few blocks.
fn n_parts(n_blocks: usize, n_keys: usize, n_sms: usize) -> usize {
    let (n_blocks, room) = (n_blocks.max(1), RESIDENT * n_sms);
    let parts = (BLOCKS_PER_SM * n_sms).div_ceil(n_blocks).min(n_keys / KEYS_PER_PART);
    let rounds = (n_blocks * parts / room).max(1);
    parts.min(rounds * room / n_blocks).clamp(1, MAX_PARTS)
}

#[cfg(test)]
mod tests {
    use super::n_parts;

    #[test]
    fn keys_are_split_where_there_are_many_and_few_blocks() {
        assert_eq!(n_parts(8, 4096, 132), 49);
        assert_eq!(n_parts(32, 4096, 132), 24);
        assert_eq!(n_parts(128, 4096, 132), 6);
        assert_eq!(n_parts(8, 512, 132), 8);
        assert_eq!(n_parts(8, 100, 132), 1);
        assert_eq!(n_parts(8 * 512, 4096, 132), 1);
        assert_eq!(n_parts(1, 1 << 20, 132), 128);
        assert_eq!(n_parts(0, 4096, 132), 64);
    }
}
