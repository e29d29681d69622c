"""Runs a llama GGUF file in numpy, float32, one token at a time: written from the file's own keys and tensors only.

`python reference.py MODEL.gguf "prompt" [-n 200] [--temp 0.8] [--seed 1]` prints the continuation.
"""

import argparse

import gguf
import numpy as np


class Model:
    """The dequantised tensors and hyper-parameters of a file."""

    def __init__(self, path):
        self.file = gguf.GGUFReader(path)
        self.w = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in self.file.tensors}
        self.n_layer = self.key("llama.block_count")
        self.n_head = self.key("llama.attention.head_count")
        self.n_head_kv = self.key("llama.attention.head_count_kv")
        self.head_dim = self.key("llama.embedding_length") // self.n_head
        self.n_ctx = self.key("llama.context_length")
        self.base = self.key("llama.rope.freq_base")
        self.eps = np.float32(self.key("llama.attention.layer_norm_rms_epsilon"))
        self.restart()

    def key(self, name):
        return self.file.get_field(name).contents()

    def restart(self):
        """Forgets the tokens seen so far."""
        self.k = [[] for _ in range(self.n_layer)]
        self.v = [[] for _ in range(self.n_layer)]

    def next_logits(self, token):
        """Takes one more token; returns the logits [n_vocab] of the one after it."""
        x = self.w["token_embd.weight"][token]  # [n_embd]
        for i in range(self.n_layer):
            h = self.rms_norm(x, self.w[f"blk.{i}.attn_norm.weight"])
            x = x + self.attention(i, h)

            h = self.rms_norm(x, self.w[f"blk.{i}.ffn_norm.weight"])
            gate, up = (self.w[f"blk.{i}.ffn_{n}.weight"] @ h for n in ("gate", "up"))  # [n_ff]
            x = x + self.w[f"blk.{i}.ffn_down.weight"] @ (gate / (1 + np.exp(-gate)) * up)

        x = self.rms_norm(x, self.w["output_norm.weight"])
        return self.w["token_embd.weight"] @ x

    def attention(self, i, h):
        """Attention of the newest token over all tokens so far, [n_embd]."""
        q, k, v = (
            (self.w[f"blk.{i}.attn_{n}.weight"] @ h).reshape(-1, self.head_dim) for n in "qkv"
        )  # q [n_head, head_dim]; k, v [n_head_kv, head_dim]
        pos = len(self.k[i])
        self.k[i].append(self.rope(k, pos))
        self.v[i].append(v)
        keys, values = np.stack(self.k[i], 1), np.stack(self.v[i], 1)  # [n_head_kv, n_tokens, head_dim]

        q = self.rope(q, pos).reshape(self.n_head_kv, -1, self.head_dim)
        scores = q @ keys.transpose(0, 2, 1) / np.float32(np.sqrt(self.head_dim))
        p = np.exp(scores - scores.max(-1, keepdims=True))
        out = p / p.sum(-1, keepdims=True) @ values
        return self.w[f"blk.{i}.attn_output.weight"] @ out.reshape(-1)

    def rope(self, x, pos):
        """Turns every pair (x[2i], x[2i+1]) by pos * base^(-2i/head_dim)."""
        angle = pos * self.base ** (-np.arange(0, self.head_dim, 2) / self.head_dim)
        turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angle)
        return np.stack([turned.real, turned.imag], -1).reshape(x.shape).astype(np.float32)

    def rms_norm(self, x, w):
        return x / np.sqrt(np.mean(x * x) + self.eps) * w


class Tokenizer:
    """The file's SPM vocabulary: the adjacent pair with the best score is merged, until no pair is a token."""

    def __init__(self, model):
        self.pieces = model.key("tokenizer.ggml.tokens")
        self.scores = model.key("tokenizer.ggml.scores")
        self.ids = {p: i for i, p in enumerate(self.pieces)}
        self.bos, self.eos = (model.key(f"tokenizer.ggml.{n}_token_id") for n in ("bos", "eos"))

    def encode(self, text):
        parts = list((" " + text).replace(" ", "\u2581"))
        while True:
            pairs = [(self.ids.get(a + b), at) for at, (a, b) in enumerate(zip(parts, parts[1:]))]
            pairs = [(-self.scores[i], at) for i, at in pairs if i is not None]
            if not pairs:
                break
            at = min(pairs)[1]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids = [self.bos]
        for part in parts:
            ids += [self.ids[part]] if part in self.ids else [self.ids[f"<0x{b:02X}>"] for b in part.encode()]
        return ids

    def decode(self, ids):
        """The text of a continuation: a first space stays."""
        out = b""
        for i in ids:
            piece = self.pieces[i]
            is_byte = piece.startswith("<0x") and len(piece) == 6
            out += bytes([int(piece[3:5], 16)]) if is_byte else piece.replace("\u2581", " ").encode()
        return out.decode(errors="replace")


def generate(model, tokenizer, prompt, n, temp=0.0, seed=1):
    """Continues `prompt` by up to n tokens, ended by EOS. Returns the ids and, for each, best minus second-best logit."""
    rng = np.random.default_rng(seed)
    model.restart()
    for token in tokenizer.encode(prompt):
        logits = model.next_logits(token)
    ids, margins = [], []
    while len(ids) < n and len(model.k[0]) < model.n_ctx:
        second, best = np.sort(logits)[-2:]
        token = int(np.argmax(logits))
        if temp > 0:
            p = np.exp((logits - best).astype(np.float64) / temp)
            token = int(rng.choice(len(p), p=p / p.sum()))
        margins.append(float(best - second))
        if token == tokenizer.eos:
            break
        ids.append(token)
        logits = model.next_logits(token)
    return ids, margins


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("model")
    args.add_argument("prompt")
    args.add_argument("-n", type=int, default=400, help="tokens at most")
    args.add_argument("--temp", type=float, default=0.0)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()

    model = Model(args.model)
    tokenizer = Tokenizer(model)
    ids, _ = generate(model, tokenizer, args.prompt, args.n, args.temp, args.seed)
    print(args.prompt + tokenizer.decode(ids))


if __name__ == "__main__":
    main()
