"""The llama network in JAX. Parameters carry their GGUF names and their GGUF layout: a matrix is [n_out, n_in]."""

from dataclasses import asdict, dataclass

import jax
import jax.numpy as jnp
import numpy as np


# Of a network's gate and of its other half, by the name that GGUF's `ARCH.hidden_activation` has for both.
ACTIVATIONS = {
    "silu": (jax.nn.silu, lambda x: x),
    "relu": (jax.nn.relu, lambda x: x),
    "drelu": (jax.nn.relu, jax.nn.relu),
}


@dataclass(frozen=True)
class Config:
    """Sizes of the network; every row length is a multiple of 32, so that Q8_0 can hold it."""

    n_vocab: int = 1024
    n_ctx: int = 384
    n_embd: int = 192
    n_layer: int = 4
    n_head: int = 6
    n_head_kv: int = 3
    n_ff: int = 448
    ffn: str = "silu"
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self):
        return self.n_embd // self.n_head

    asdict = asdict


def shapes(cfg):
    """Name -> shape of every tensor. The output head is the transposed token embedding, so it has no tensor."""
    n_kv = cfg.n_head_kv * cfg.head_dim
    out = {"token_embd.weight": (cfg.n_vocab, cfg.n_embd), "output_norm.weight": (cfg.n_embd,)}
    for i in range(cfg.n_layer):
        out |= {
            f"blk.{i}.attn_norm.weight": (cfg.n_embd,),
            f"blk.{i}.attn_q.weight": (cfg.n_embd, cfg.n_embd),
            f"blk.{i}.attn_k.weight": (n_kv, cfg.n_embd),
            f"blk.{i}.attn_v.weight": (n_kv, cfg.n_embd),
            f"blk.{i}.attn_output.weight": (cfg.n_embd, cfg.n_embd),
            f"blk.{i}.ffn_norm.weight": (cfg.n_embd,),
            f"blk.{i}.ffn_gate.weight": (cfg.n_ff, cfg.n_embd),
            f"blk.{i}.ffn_up.weight": (cfg.n_ff, cfg.n_embd),
            f"blk.{i}.ffn_down.weight": (cfg.n_embd, cfg.n_ff),
        }
    return out


def init(cfg, seed):
    """Norms are one; matrices are normal with sd 1/sqrt(n_in), the two that write to the residual scaled down."""
    rng = np.random.default_rng(seed)
    params = {}
    for name, shape in shapes(cfg).items():
        if len(shape) == 1:
            params[name] = np.ones(shape, np.float32)
            continue
        sd = 0.02 if name.startswith("token_embd") else shape[1] ** -0.5
        if "attn_output" in name or "ffn_down" in name:
            sd /= (2 * cfg.n_layer) ** 0.5
        params[name] = (rng.standard_normal(shape) * sd).astype(np.float32)
    return params


def logits(cfg, params, tokens):
    """tokens [batch, n_tokens] -> logits [batch, n_tokens, n_vocab]; every row starts at position 0."""
    return logits_and_neurons(cfg, params, tokens)[0]


def logits_and_neurons(cfg, params, tokens):
    """The logits, and what the neurons of all layers give: [batch, n_tokens, n_ff] each."""
    of_gate, of_up = ACTIVATIONS[cfg.ffn]
    neurons = []
    x = params["token_embd.weight"][tokens]  # [batch, n_tokens, n_embd]
    cos, sin = rope_table(cfg, tokens.shape[1])
    for i in range(cfg.n_layer):
        w = {k.split(".")[2]: v for k, v in params.items() if k.startswith(f"blk.{i}.")}

        h = rms_norm(x, w["attn_norm"], cfg.eps)
        x = x + attention(cfg, w, h, cos, sin)

        h = rms_norm(x, w["ffn_norm"], cfg.eps)
        neurons.append(of_gate(h @ w["ffn_gate"].T) * of_up(h @ w["ffn_up"].T))
        x = x + neurons[-1] @ w["ffn_down"].T

    x = rms_norm(x, params["output_norm.weight"], cfg.eps)
    return x @ params["token_embd.weight"].T, neurons


def attention(cfg, w, h, cos, sin):
    """Causal attention; n_head/n_head_kv neighbouring query heads share one key and value head."""
    b, t, _ = h.shape
    group = cfg.n_head // cfg.n_head_kv
    q = rope((h @ w["attn_q"].T).reshape(b, t, cfg.n_head_kv, group, cfg.head_dim), cos, sin)
    k = rope((h @ w["attn_k"].T).reshape(b, t, cfg.n_head_kv, 1, cfg.head_dim), cos, sin)[:, :, :, 0]
    v = (h @ w["attn_v"].T).reshape(b, t, cfg.n_head_kv, cfg.head_dim)

    scores = jnp.einsum("bqhgd,bkhd->bhgqk", q, k) * cfg.head_dim**-0.5
    scores = jnp.where(np.tril(np.ones((t, t), bool)), scores, -jnp.inf)
    out = jnp.einsum("bhgqk,bkhd->bqhgd", jax.nn.softmax(scores), v)
    return out.reshape(b, t, cfg.n_embd) @ w["attn_output"].T


def rms_norm(x, w, eps):
    """y = x / sqrt(mean(x^2) + eps) * w"""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * w


def rope_table(cfg, n_tokens):
    """cos and sin of position * base^(-2i/head_dim), each [n_tokens, head_dim / 2]."""
    freq = cfg.rope_base ** (-np.arange(0, cfg.head_dim, 2) / cfg.head_dim)
    angle = np.arange(n_tokens)[:, None] * freq[None, :]
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rope(x, cos, sin):
    """Turns every pair (x[2i], x[2i+1]) by its angle; x is [batch, n_tokens, n_head_kv, group, head_dim]."""
    cos, sin = cos[None, :, None, None, :], sin[None, :, None, None, :]
    a, b = x[..., 0::2], x[..., 1::2]
    return jnp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1).reshape(x.shape)
