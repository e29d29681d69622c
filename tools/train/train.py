"""Trains the network of model.py on the corpus: AdamW, warm-up then cosine, the same result for the same seed."""

import argparse
import json
import time

import jax
import jax.numpy as jnp
import numpy as np
import sentencepiece

import model

N_HELD_OUT = 300  # stories at the end of the corpus that are only used to report a loss


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("corpus", help="stories, one JSON string a line")
    args.add_argument("tokenizer", help="sentencepiece model")
    args.add_argument("out", help="checkpoint to write (.npz)")
    args.add_argument("--steps", type=int, default=2800)
    args.add_argument("--batch", type=int, default=6, help="rows of n_ctx tokens a step")
    args.add_argument("--lr", type=float, default=5e-3, help="highest learning rate")
    args.add_argument("--start", help="checkpoint to go on from, instead of random numbers")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--n-ff", type=int, default=model.Config.n_ff, help="neurons of a layer")
    args.add_argument("--ffn", choices=model.ACTIVATIONS, default=model.Config.ffn, help="activation of the neurons")
    args.add_argument("--penalty", type=float, default=0.0, help="weight of the penalty on neurons that are not zero")
    args = args.parse_args()

    sp = sentencepiece.SentencePieceProcessor(model_file=args.tokenizer)
    cfg = model.Config(n_vocab=sp.get_piece_size(), n_ff=args.n_ff, ffn=args.ffn)
    with open(args.corpus, encoding="ascii") as f:
        stories = [[sp.bos_id(), *sp.encode(json.loads(line)), sp.eos_id()] for line in f]
    train, held_out = rows(stories[:-N_HELD_OUT], cfg.n_ctx), rows(stories[-N_HELD_OUT:], cfg.n_ctx)

    params = load(args.start, cfg) if args.start else model.init(cfg, args.seed)
    params = jax.tree.map(jnp.asarray, params)
    print(f"{sum(v.size for v in params.values())} parameters, {len(train)} rows of {cfg.n_ctx} tokens", flush=True)
    state = {"params": params, "m": jax.tree.map(jnp.zeros_like, params), "v": jax.tree.map(jnp.zeros_like, params)}
    step = jax.jit(lambda state, batch, t, lr: adamw(cfg, state, batch, t, lr, args.penalty), donate_argnums=0)

    order, begin = np.random.default_rng(args.seed), time.time()
    epoch, mean = [], None
    for t in range(args.steps):
        if len(epoch) < args.batch:
            epoch = list(order.permutation(len(train)))
        batch = train[[epoch.pop() for _ in range(args.batch)]]
        state, value, dense = step(state, batch, t + 1.0, learning_rate(t, args.steps, args.lr))
        mean = float(value) if mean is None else 0.98 * mean + 0.02 * float(value)
        if (t + 1) % 100 == 0 or t + 1 == args.steps:
            seconds = time.time() - begin
            print(f"step {t + 1}/{args.steps}  loss {mean:.4f}  density {dense:.3f}  {seconds:.0f} s", flush=True)
        if (t + 1) % 500 == 0 or t + 1 == args.steps:
            np.savez(args.out, config=json.dumps(cfg.asdict()), **state["params"])

    measure = jax.jit(lambda params, batch: loss_and_zeros(cfg, params, batch))
    loss, *zeros = np.mean([measure(state["params"], row[None]) for row in held_out], axis=0)
    print(f"held-out loss {loss:.4f} nats a token, zeros by layer {np.round(zeros, 3)}")


def load(path, cfg):
    """The parameters of a checkpoint, which must be of the same sizes."""
    params = dict(np.load(path))
    found = json.loads(str(params.pop("config")))
    if found != cfg.asdict():
        raise SystemExit(f"{path}: has sizes {found}, expected {cfg.asdict()}")
    return params


def rows(stories, n_ctx):
    """Rows of n_ctx + 1 tokens. Each begins with a new story, as a prompt does, and is filled up with the next ones."""
    out, row = [], []
    for story in stories:
        row += story
        if len(row) > n_ctx:
            out.append(row[: n_ctx + 1])
            row = []
    return np.array(out, np.int32)


def next_token_loss(cfg, params, batch):
    """Mean cross entropy of every token given those before it, in nats; and what the neurons of each layer gave."""
    logits, neurons = model.logits_and_neurons(cfg, params, batch[:, :-1])
    log_p = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(log_p, batch[:, 1:, None], axis=-1)), neurons


def density(neurons):
    """|h|_1 / (|h|_2 sqrt(n)) of each token, a mean over layers: sqrt(k / n) where k of n neurons give the same and the others
    zero (Hoyer 2004, jmlr.org/papers/v5/hoyer04a). It does not change with the scale of h, so small weights do not lower it."""
    of_layer = lambda h: jnp.mean(jnp.sum(jnp.abs(h), -1) * jax.lax.rsqrt((jnp.sum(h * h, -1) + 1e-12) * h.shape[-1]))
    return sum(of_layer(h) for h in neurons) / len(neurons)


def loss_and_zeros(cfg, params, batch):
    """The loss, then the share of zeros of each layer's neurons."""
    loss, neurons = next_token_loss(cfg, params, batch)
    return jnp.stack([loss, *(jnp.mean(h == 0) for h in neurons)])


def learning_rate(t, n_steps, highest, n_warm=100):
    """Linear over n_warm steps, then half a cosine down to a hundredth."""
    if t < n_warm:
        return highest * (t + 1) / n_warm
    return highest * (0.01 + 0.99 * 0.5 * (1 + np.cos(np.pi * (t - n_warm) / (n_steps - n_warm))))


def adamw(cfg, state, batch, t, lr, penalty, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1, clip=1.0):
    """One step of Adam with gradients clipped to norm `clip`; only matrices decay. Gives the loss and the density too."""

    def penalised(params):
        loss, neurons = next_token_loss(cfg, params, batch)
        dense = density(neurons)
        return loss + penalty * dense, (loss, dense)

    (_, (value, dense)), grad = jax.value_and_grad(penalised, has_aux=True)(state["params"])
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grad.values()))
    grad = jax.tree.map(lambda g: g * jnp.minimum(1.0, clip / norm), grad)
    m = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state["m"], grad)
    v = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["v"], grad)

    def update(p, m, v):
        towards = (m / (1 - beta1**t)) / (jnp.sqrt(v / (1 - beta2**t)) + eps)
        return p - lr * (towards + (decay * p if p.ndim == 2 else 0.0))

    return {"params": jax.tree.map(update, state["params"], m, v), "m": m, "v": v}, value, dense


if __name__ == "__main__":
    main()
