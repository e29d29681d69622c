"""Writes a GGUF of a real model's shape with random weights and a real tokenizer, for speed measurements.

    pip install gguf numpy
    python synthesise.py --tokenizer VOCAB.gguf --out qwen2-0.5b-q4_0.gguf [--type q4_0] [--layers 24]

The shape is Qwen2-0.5B's. The tokenizer's metadata is taken from VOCAB.gguf (any vocabulary-only file of qwen2).
"""
import argparse

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants

SHAPE = dict(embd=896, heads=14, kv_heads=2, ff=4864, ctx=32768)


def copy_tokenizer(path, writer):
    """Copies every `tokenizer.*` key; returns the vocabulary's size."""
    for field in GGUFReader(path).fields.values():
        if not field.name.startswith("tokenizer."):
            continue
        kind = field.types[0]
        if kind == GGUFValueType.ARRAY:
            writer.add_array(field.name, field.contents())
            if field.name == "tokenizer.ggml.tokens":
                n_vocab = len(field.contents())
        else:
            writer.add_key_value(field.name, field.contents(), kind)
    return n_vocab


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--tokenizer", required=True)
    args.add_argument("--out", required=True)
    args.add_argument("--type", default="q4_0")
    args.add_argument("--layers", type=int, default=24)
    args = args.parse_args()

    embd, ff = SHAPE["embd"], SHAPE["ff"]
    kv = embd // SHAPE["heads"] * SHAPE["kv_heads"]
    kind = GGMLQuantizationType[args.type.upper()]
    rng = np.random.default_rng(1)
    w = GGUFWriter(args.out, "qwen2")
    n_vocab = copy_tokenizer(args.tokenizer, w)
    w.add_name("random weights in Qwen2-0.5B's shape")
    w.add_context_length(SHAPE["ctx"])
    w.add_embedding_length(embd)
    w.add_block_count(args.layers)
    w.add_feed_forward_length(ff)
    w.add_head_count(SHAPE["heads"])
    w.add_head_count_kv(SHAPE["kv_heads"])
    w.add_rope_freq_base(1e6)
    w.add_layer_norm_rms_eps(1e-6)

    def matrix(name, rows, cols, std=0.02):
        x = rng.standard_normal((rows, cols), dtype=np.float32) * np.float32(std)
        w.add_tensor(name, quants.quantize(x, kind), raw_dtype=kind)

    def vector(name, value):
        w.add_tensor(name, value.astype(np.float32))

    matrix("token_embd.weight", n_vocab, embd)
    vector("output_norm.weight", np.ones(embd))
    for i in range(args.layers):
        b = f"blk.{i}."
        vector(b + "attn_norm.weight", np.ones(embd))
        vector(b + "ffn_norm.weight", np.ones(embd))
        for name, rows in (("attn_q", embd), ("attn_k", kv), ("attn_v", kv)):
            matrix(b + name + ".weight", rows, embd)
            vector(b + name + ".bias", rng.standard_normal(rows) * 0.1)
        matrix(b + "attn_output.weight", embd, embd)
        matrix(b + "ffn_gate.weight", ff, embd)
        matrix(b + "ffn_up.weight", ff, embd)
        matrix(b + "ffn_down.weight", embd, ff)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main()
