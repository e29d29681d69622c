"""A GGUF model whose every token determines the next, so that its answers are known: calls of tools, reasoning, text.

Embeddings are one-hot, the layer adds zero, and the output matrix maps each token to its successor. The chat template ends
with a token for what is requested, which begins that answer."""

import struct
import sys
from array import array

ANSWERS = {
    "<|text|>": ["The answer", " to that", " is a fixed", " one."],
    "<|think|>": ["<think>\n", "Two and", " two.", "\n</think>\n\n", "Four", "."],
    "<|call|>": [
        "I look it up.\n", "<tool_", 'call>\n{"name": "get_weather", ', '"arguments": {"city": "Par', 'is"}}\n</tool_',
        'call>', '\n<tool_call>{"name": "get_time", "arguments": ', '{"zone": "UTC"}}</tool_call>',
    ],
    "<|result|>": ["It is", " 18 degrees", " in Paris."],
}

TEMPLATE = """
{%- if tools %}<|tools|>{{ tools | tojson }}{% endif %}
{%- for message in messages %}<|{{ message.role }}|>
{%- if message.role == "assistant" %}{{ message.content.split("</think>")[-1] }}{% else %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}
{%- endfor %}
{%- if add_generation_prompt %}
{%- if messages[-1].role == "tool" %}<|result|>
{%- elif tools %}<|call|>
{%- elif enable_thinking %}<|think|>
{%- else %}<|text|>
{%- endif %}
{%- endif %}"""

ROLES = ["<|tools|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
N_EMBD, N_FF, HEAD_DIM = 320, 32, 64
UNKNOWN, BOS, EOS = 0, 1, 2
NORMAL, UNKNOWN_TYPE, CONTROL, BYTE = 1, 2, 3, 6


def vocabulary():
    """Tokens with their types, and the successor of each token of an answer."""
    tokens = [("<unk>", UNKNOWN_TYPE), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    tokens += [("▁", NORMAL)] + [(role, CONTROL) for role in ROLES]
    successors = {}
    for begin, pieces in ANSWERS.items():
        chain = [len(tokens) + i for i in range(len(pieces) + 1)] + [EOS]
        successors.update(zip(chain, chain[1:]))
        tokens += [(begin, CONTROL)] + [(piece.replace(" ", "▁"), NORMAL) for piece in pieces]
    texts = [text for text, _ in tokens]
    assert len(set(texts)) == len(texts) <= N_EMBD
    return tokens, successors


def tensors(n_vocab, successors):
    """Names, shapes with the row first, and the places that are not zero."""
    ones = lambda n: {i: 1.0 for i in range(n)}
    block = {
        "attn_norm": [N_EMBD], "ffn_norm": [N_EMBD],
        "attn_q": [N_EMBD, N_EMBD], "attn_k": [N_EMBD, HEAD_DIM], "attn_v": [N_EMBD, HEAD_DIM],
        "attn_output": [N_EMBD, N_EMBD], "ffn_gate": [N_EMBD, N_FF], "ffn_up": [N_EMBD, N_FF], "ffn_down": [N_FF, N_EMBD],
    }
    yield "token_embd.weight", [N_EMBD, n_vocab], {token * N_EMBD + token: 1.0 for token in range(n_vocab)}
    for name, shape in block.items():
        yield f"blk.0.{name}.weight", shape, ones(N_EMBD) if len(shape) == 1 else {}
    yield "output_norm.weight", [N_EMBD], ones(N_EMBD)
    # What no answer has ends at once.
    following = {token: successors.get(token, EOS) for token in range(n_vocab)}
    yield "output.weight", [N_EMBD, n_vocab], {to * N_EMBD + token: 1.0 for token, to in following.items()}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, value):
    """A key with its type: text, unsigned, float, bool, or a list of one of them."""
    kinds = {str: (8, text), int: (4, lambda n: struct.pack("<I", n)), float: (6, lambda x: struct.pack("<f", x)),
             bool: (7, lambda b: struct.pack("<?", b))}
    if not isinstance(value, list):
        kind, write = kinds[type(value)]
        return text(key) + struct.pack("<I", kind) + write(value)
    kind, write = kinds[type(value[0])]
    if kind == 4:
        kind, write = 5, lambda n: struct.pack("<i", n)
    return text(key) + struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(write, value))


def write(path):
    """Writes the model as GGUF, version 3, with weights of F32."""
    tokens, successors = vocabulary()
    metadata = {
        "general.architecture": "llama", "general.name": "scripted",
        "llama.context_length": 2048, "llama.embedding_length": N_EMBD, "llama.block_count": 1,
        "llama.feed_forward_length": N_FF, "llama.attention.head_count": N_EMBD // HEAD_DIM,
        "llama.attention.head_count_kv": 1, "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": HEAD_DIM, "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": [token for token, _ in tokens],
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": [kind for _, kind in tokens],
        "tokenizer.ggml.unknown_token_id": UNKNOWN, "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS, "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": TEMPLATE,
    }
    head, data = b"", b""
    all_tensors = list(tensors(len(tokens), successors))
    for name, shape, places in all_tensors:
        n = shape[0] * (shape[1] if len(shape) == 2 else 1)
        values = array("f", bytes(4 * n))
        for place, value in places.items():
            values[place] = value
        if sys.byteorder == "big":
            values.byteswap()
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += values.tobytes() + bytes(-4 * n % 32)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(all_tensors), len(metadata)) + b"".join(
        entry(key, value) for key, value in metadata.items()) + head
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + data)
