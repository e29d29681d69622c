"""Seeded mistakes in the kernels for attention of few tokens, packed tiles and products with BF16 weights.

A row: a name, a file under plugins/cuda, a text that is in it once, what stands there instead, and the test that catches it.
tools/mutations/runner.py runs them; not part of CI, each row builds the simulator's kernels again.

    python3 tools/cuda/attention_mutations.py [PART_OF_A_NAME…]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mutations"))
import runner

MUTATIONS = [
    # Attention of few tokens.
    ("the block of the turn before", "kernels/attention.cu",
     "        spot = spot_ahead(key + turn);\n        block = block_of(p.paging, view.sequence, spot);\n",
     "        spot = spot_ahead(key + turn);\n", "attention keys_in_parts"),
    ("the place in the block of the turn before", "kernels/attention.cu",
     "        spot = spot_ahead(key + turn);\n        block = block_of(p.paging, view.sequence, spot);",
     "        block = block_of(p.paging, view.sequence, spot_ahead(key + turn));", "attention keys_in_parts"),
    ("a block looked up past the last key", "kernels/attention.cu",
     "first + lane < end ? first + lane : end - 1", "first + lane", "attention every_cache"),
    ("keys past the end of what a token sees", "kernels/attention.cu",
     "lane < batch && key + lane < end ?", "lane < batch ?", "attention every_cache"),
    ("the next KV head", "kernels/attention.cu",
     "int kv_head = shares == 1 ? (int)BLOCK_X :", "int kv_head = shares == 1 ? ((int)BLOCK_X + 1) % (int)p.n_kv_heads :",
     "attention every_cache"),
    ("the first share of heads for all", "kernels/attention.cu",
     "share = ((int)BLOCK_X - kv_head * shares) * (int)p.per_share;", "share = 0;", "attention every_cache"),
    ("heads past those of the block", "kernels/attention.cu",
     "n_here = group - share < (int)p.per_share ? group - share : (int)p.per_share;", "n_here = HEADS;",
     "attention every_cache"),
    ("q read before all of it is there", "kernels/attention.cu",
     "    sync_block();\n    float q[HEADS][NUMBERS]", "    float q[HEADS][NUMBERS]", "attention every_cache"),
    ("maxima of warps read before they are there", "kernels/attention.cu",
     "        if (lane == 0) maxima[warp * HEADS + g] = all;\n    }\n    sync_block();",
     "        if (lane == 0) maxima[warp * HEADS + g] = all;\n    }", "attention every_cache"),
    ("warps add at once", "kernels/attention.cu",
     "                }\n        }\n        sync_block();\n    }\n    for (int g = 0, i",
     "                }\n        }\n    }\n    sync_block();\n    for (int g = 0, i", "attention every_cache"),
    ("lanes' keys put together without their maxima", "kernels/attention.cu",
     "float keep = scaled_by(most[g], all);", "float keep = 1.0f;", "attention scores_are"),
    ("sums that are not rescaled", "kernels/attention.cu",
     "for (int n = 0; n < NUMBERS; n++) sums[g][n] *= keep;\n            UNROLL for (int s = 0;",
     "for (int n = 0; n < NUMBERS; n++) sums[g][n] *= 1.0f;\n            UNROLL for (int s = 0;", "attention scores_are"),
    ("parts put together without their maxima", "kernels/attention.cu",
     "weight = most == -INF_F ? 0.0f : scaled_by(most, base);", "weight = most == -INF_F ? 0.0f : 1.0f;",
     "attention keys_in_parts"),
    ("parts that saw nothing added", "kernels/attention.cu",
     "own != 0.0f ? own * x[t] : 0.0f", "own * x[t]", "attention keys_in_parts"),
    ("parts past the last added", "kernels/attention.cu",
     "weight = most == -INF_F ? 0.0f : scaled_by(most, base);", "weight = most == -INF_F && THREAD < n_parts ? 0.0f : scaled_by(most, base) + (THREAD < n_parts ? 0.0f : 1.0f);",
     "attention keys_in_parts"),
    ("the sink once per part", "kernels/attention.cu",
     "block_sum(total * weight) + scaled_by(sink, base);", "block_sum(total * weight + scaled_by(sink, base));",
     "attention keys_in_parts"),
    ("the last keys of the last part left out", "kernels/attention.cu",
     "per_part = (per_part + turn - 1) & ~(turn - 1);", "per_part = per_part & ~(turn - 1);", "attention keys_in_parts"),
    ("blocks of 16 taken for blocks of any power of two", "src/ops/attention.rs",
     "block_size.ilog2() as usize", "block_size.ilog2().min(3) as usize", "attention every_cache"),
    ("a window one key too wide", "kernels/paged.cuh",
     "v.position - p.window + 1;", "v.position - p.window;", "attention scores_are"),
    ("the sequence before", "kernels/paged.cuh", "v.sequence = number - 1;", "v.sequence = number > 1 ? number - 2 : 0;",
     "attention a_token_finds"),
    ("starts of the first 32 sequences alone", "kernels/paged.cuh",
     "first < n_starts && number == n_starts; first += 32", "first < 32 && number == n_starts; first += 32",
     "attention a_token_finds"),
    ("tokens counted from the wrong sequence", "kernels/attention.cu",
     "        reached = shuffle(next, 31);\n", "", "attention a_token_finds"),
    ("words of a block of Q8_0 that are not shifted", "kernels/cached.cuh",
     "x.words[3] = 8 * (u32)(bytes & 3);", "x.words[3] = 0;", "attention every_cache"),
    ("sixteen bytes from any address", "src/ops/attention_heads.rs",
     "_ if !is_aligned || !slots_in_sixteens(&k) || !slots_in_sixteens(&v) => None,", "_ if !slots_in_sixteens(&k) || !slots_in_sixteens(&v) => None,",
     "attention what_cannot"),
    ("sixteen bytes of rows at any distance", "src/ops/attention_heads.rs",
     "t.nb()[1].is_multiple_of(16)", "t.nb()[1].is_multiple_of(2)", "attention what_cannot"),
    ("a verdict without the parts of unaligned caches", "src/ops/attention_heads.rs",
     "(dim_v(node, p)? + 2) * 4 }", "dim_v(node, p)? * 4 }", "driver attention_over_many"),

    # Packed tiles.
    ("x of a stage read before its copies are there", "kernels/mul_mat_tile.cu",
     "        wait_for_copies<0>();\n        sync_block();", "        sync_block();", "tiles columns_of_an_expert"),
    ("a barrier of packed tiles left out", "kernels/mul_mat_tile.cu",
     "        wait_for_copies<0>();\n        sync_block();", "        wait_for_copies<0>();",
     "tiles columns_of_an_expert"),
    ("the next weights in the stage that is multiplied", "kernels/mul_mat_tile.cu",
     "if (!is_last) keep(step + 1, next);", "if (!is_last) keep(step, next);", "cases tiles_of_every_type"),
    ("the group past a row's last", "kernels/mul_mat_tile.cu",
     "row0 + mine < p.w.ne[1] && step * GROUPS + own < groups", "row0 + mine < p.w.ne[1]", "tiles columns_of_an_expert"),
    ("one scale for both halves", "kernels/mul_mat_tile.cu",
     "type != Q2_K && type != Q3_K && type != Q6_K;", "type != Q2_K && type != Q3_K;", "cases tiles_of_every_type"),

    # x in one part.
    ("two parts multiplied where there is one", "src/ops/tiles.rs",
     "if is_bf16 { gpu.bf16_parts } else { 1 }", "if is_bf16 { 2 } else { 1 }", "bf16_parts tiles_multiply"),
    ("one part that is cut off", "kernels/mul_mat_half.cu",
     "            to[i] = float_to_bf16(x);\n", "            to[i] = (u16)(float_to_bits(x) >> 16);\n",
     "bf16_parts tiles_multiply"),
]


if __name__ == "__main__":
    sys.exit(runner.main(MUTATIONS, "llmrt-cuda", "plugins/cuda"))
