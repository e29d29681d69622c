"""Puts seeded mistakes into the CUDA plugin and its kernels, one at a time, and sees whether a test on the emulated machine
catches each: tools/mutations/runner.py. They are of the kinds that a card punishes: addresses, barriers, lanes, layouts. Not part
of CI: each row builds the plugin or the kernels again.

    python3 tools/cuda/mutations.py [PART_OF_A_NAME…]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "mutations"))
import runner

MUTATIONS = [
    # Addresses.
    ("16 bytes that begin between multiples of 16", "kernels/raw.cuh",
     "return {vector_at(eight + 16 + 16 * (n & 7)), at<const u16>(eight)[n & 7]};",
     "return {vector_at(eight + 14 + 16 * (n & 7)), at<const u16>(eight)[n & 7]};", "few rows_of_every"),
    ("words that begin between multiples of 4", "kernels/quant.cuh",
     "int a = p[0], b = p[1], c = p[2], d = p[3];",
     "p = at<const int>(address);\n    int a = p[0], b = p[1], c = p[2], d = p[3];", "few rows_of_every"),
    ("a half past the last block", "kernels/quant.cuh", "(is_between ? address : address + 16)[0];",
     "(is_between ? address : address + 18)[0];", "few rows_of_every"),
    ("a part past the last of a row", "kernels/few.cuh", "if (first + n + 32 < groups) raw[r]", "raw[r]",
     "few rows_of_every"),
    ("the first part of rows that have fewer than lanes", "kernels/few.cuh", "if (lane < groups) raw[r]", "raw[r]",
     "few rows_of_every"),
    ("x of the next column", "kernels/few.cuh", "((j < last ? j : last) * groups + first)",
     "((j < last ? j + 1 : last) * groups + first)", "few rows_of_every"),
    ("rows of weights that are not there", "kernels/mul_mat.cu",
     "for (int r = 0; r < R; r++) rows[r] = c.w + at_most(row + r, p.w.ne[1] - 1) * p.w.nb[1];\n    float sums[R * N];\n"
     "    multiply_rows",
     "for (int r = 0; r < R; r++) rows[r] = c.w + (row + r) * p.w.nb[1];\n    float sums[R * N];\n    multiply_rows",
     "few rows_of_every"),
    ("floats read 16 bytes at once wherever they begin", "src/ops/mul_mat.rs",
     "!(tiles::in_pieces(w) && tiles::is_aligned(w)?)", "!tiles::in_pieces(w)", "few floats_at_any"),
    ("a piece of x from the wrong number on", "kernels/few_floats.cuh", "first * P * p.x.nb[0];", "first * p.x.nb[0];",
     "few rows_of_every"),

    ("columns of the group before", "kernels/few.cuh", "BLOCK_Y * p.y.ne[1] + BLOCK_Z * N", "BLOCK_Y * p.y.ne[1]",
     "few a_column_has"),
    ("rows of a product counted from the one before it", "kernels/mul_mat.cu", "n == 0 ? BLOCK_X : BLOCK_X - p.ends[n - 1]",
     "BLOCK_X", "fuse_products products_of_one"),

    # Barriers and lanes.
    ("x written while other warps read it", "kernels/few.cuh", "if (first > 0) sync_block();", "", "few rows_of_every"),
    ("x read before it is there", "kernels/few.cuh", "sync_block();\n        ROLLED", "ROLLED", "few rows_of_every"),
    ("floats of x written while other warps read them", "kernels/few_floats.cuh", "if (first > 0) sync_block();", "",
     "few rows_of_every"),
    ("a barrier that warps without rows do not reach", "kernels/mul_mat.cu",
     "i64 row = first_row<R>(block), groups = p.w.ne[0] / 32;",
     "i64 row = first_row<R>(block), groups = p.w.ne[0] / 32;\n    if (row >= p.w.ne[1]) return;", "few rows_of_every"),
    ("halves of sums exchanged the wrong way", "kernels/few.cuh", "is_upper ? x[i + M / 2] : x[i], given",
     "is_upper ? x[i] : x[i + M / 2], given", "few rows_of_every"),
    ("one step of a sum left out", "kernels/few.cuh", "return sum_of_lane<1, LANES / 2>(x);",
     "return sum_of_lane<1, LANES / 4>(x);", "few rows_of_every"),
    ("numbers of columns that are not there stored", "kernels/few.cuh",
     "if (lane % LANES == 0 && j <= last && row < p.w.ne[1]) store_result", "if (lane % LANES == 0 && j <= last + N && row < p.w.ne[1]) store_result",
     "few rows_of_every"),
    ("numbers of rows that are not there stored", "kernels/few.cuh",
     "if (lane % LANES == 0 && j <= last && row < p.w.ne[1]) store_result", "if (lane % LANES == 0 && j <= last) store_result",
     "few rows_of_every"),

    # What numbers mean.
    ("the scale of the next block", "kernels/raw.cuh",
     "return {vector_at(qs), vector_at(qs + 16), at<const u16>(eight)[n & 7]};",
     "return {vector_at(qs), vector_at(qs + 16), at<const u16>(eight)[(n + 1) & 7]};", "few rows_of_every"),
    ("scales of another pair of groups", "kernels/raw.cuh", "int shift = 16 * ((n >> 1) & 1);", "int shift = 16 * (n & 1);",
     "few rows_of_every"),
    ("the block's scale for its minimum", "kernels/raw.cuh", "half_to_float((u16)((u32)head.w[0] >> 16))",
     "half_to_float((u16)head.w[0])", "few rows_of_every"),
    ("the other half of a group of x", "kernels/few.cuh", "numbers[(2 * j + of.half[0]) * PLANE + of.group[0]]",
     "numbers[(2 * j + of.half[1]) * PLANE + of.group[0]]", "few rows_of_every"),
    ("fifth bits of another group", "kernels/raw.cuh", "g.q[i + 4] |= (high >> 1 & 0x01010101) << 4;",
     "g.q[i + 4] |= (high & 0x01010101) << 4;", "few rows_of_every"),
    ("BF16 numbers of a pair the other way around", "kernels/few_floats.cuh", "bits_to_float(pair << 16)",
     "bits_to_float(pair & 0xffff0000u)", "few rows_of_every"),
    ("the up of another row", "kernels/mul_mat_gated.cu", "rows[r + 1] = up_row(p, c, n);",
     "rows[r + 1] = up_row(p, c, 0);", "fuse_products gate_up"),
    ("sums that depend on the number of columns", "kernels/few.cuh", "int high = HAS_ONE_SCALE ? low : 0;",
     "int high = HAS_ONE_SCALE ? low : 0;\n                    if (N == 4) sums[r * N + j] += 1e-6f;", "few a_column_has"),

    # Tensor cores.
    ("parts in shared memory overwritten while they are multiplied", "kernels/mul_mat_eight.cu",
     "if (left < groups) sync_block();", "", "few rows_of_every"),
    ("copies of x that are not waited for", "kernels/mul_mat_eight.cu", "wait_for_copies<0>();", "", "few rows_of_every"),
    ("parts multiplied before all warps have them", "kernels/mul_mat_eight.cu",
     "wait_for_copies<0>();\n        sync_block();", "wait_for_copies<0>();", "few rows_of_every"),
    ("sums read before all warps have them", "kernels/mul_mat_eight.cu", "    sync_block();\n}\n// Number e", "}\n// Number e",
     "few rows_of_every"),
    ("x copied past its last group", "kernels/mul_mat_eight.cu", "x + from[j], THREAD < 3 * left);", "x + from[j], true);",
     "few rows_of_every"),
    ("weights read past the last part", "kernels/mul_mat_eight.cu", "if (lane + PARTS < left) raw[r]", "raw[r]",
     "few rows_of_every"),
    ("rows of tensor cores that are not there", "kernels/mul_mat_eight.cu", "at_most(row + R * warp + r, p.w.ne[1] - 1)",
     "(row + R * warp + r)", "few rows_of_every"),
    ("the lower half of a tile's rows twice", "kernels/mul_mat_eight.cu", "row += lane / 4 + warp / 2 * 8;",
     "row += lane / 4;", "few rows_of_every"),
    ("x's other half of a part", "kernels/mul_mat_eight.cu", "own.half[0] * 8 :", "own.half[1] * 8 :",
     "few rows_of_every"),
    ("totals of x's other half", "kernels/mul_mat_eight.cu", "is_k(TYPE) || TYPE == Q6_K ? k : h;", "h;", "few a_column_has"),
    ("chains put together in another order", "kernels/mul_mat_eight.cu",
     "(chains[0][k][e] + chains[2][k][e]) + (chains[1][k][e] + chains[3][k][e])",
     "(chains[0][k][e] + chains[1][k][e]) + (chains[2][k][e] + chains[3][k][e])", "few a_column_has"),
    ("ups of the gates' rows", "kernels/mul_mat_eight.cu", ": up_row(p, c, n);", ": c.w + n * p.gate.w.nb[1];",
     "fuse_products gate_up"),
    ("rows read on from the wrong byte", "kernels/mul_mat_eight.cu", "PARTS / 8 * bytes_of_256", "PARTS / 4 * bytes_of_256",
     "few rows_of_every"),
    ("an integer read one too high", "kernels/mul_mat_eight.cu", "0x4b400000", "0x4b400001", "few a_column_has"),

    # The layout, and the host's half of a launch.
    ("scales of a sealed weight in another order", "src/layout.rs",
     "scales[i * SCALE..][..SCALE].copy_from_slice(&block[..SCALE]);",
     "scales[(7 - i) * SCALE..][..SCALE].copy_from_slice(&block[..SCALE]);", "few rows_of_sealed"),
    ("sealed nibbles without a sign", "src/layout.rs", "byte ^ 0x88", "byte", "few rows_of_sealed"),
    ("rows sealed that are no whole eights", "src/layout.rs", "row.is_multiple_of(BLOCKS * dtype.block_elems())",
     "row.is_multiple_of(dtype.block_elems())", "few weights_that"),
    ("a part of a sealed weight from its eights' first byte", "src/buffer.rs", "&bytes[off - first..]", "&bytes[..]",
     "few sealed_weights"),
    ("a sealed weight read by an op that has not its layout", "src/ops/mod.rs",
     "if check::layouts(node).is_err() {", "if false {", "few other_ops"),
    ("a sealed weight multiplied as the file has it", "src/ops/mul_mat.rs",
     "if w.layout_id() == layout::EIGHTS { format!", "if false { format!", "few rows_of_sealed"),
    ("a grid for twice as many rows of a warp", "src/ops/mul_mat.rs", "if at_once <= 2 { 2 } else { 4 }",
     "if at_once <= 2 { 4 } else { 4 }", "few rows_of_every"),
]

if __name__ == "__main__":
    sys.exit(runner.main(MUTATIONS, "llmrt-cuda", "plugins/cuda"))
