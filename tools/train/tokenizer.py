"""Trains the tokenizer on the corpus: sentencepiece BPE with byte fallback, ids as llama has them."""

import argparse
import io
import json

import sentencepiece


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("corpus", help="stories, one JSON string a line")
    args.add_argument("out", help="sentencepiece model to write")
    args.add_argument("--pieces", type=int, default=1024)
    args.add_argument("--stories", type=int, default=20000, help="how many stories to learn from")
    args = args.parse_args()

    with open(args.corpus, encoding="ascii") as f:
        stories = [json.loads(line) for _, line in zip(range(args.stories), f)]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(p for s in stories for p in s.split("\n\n")),
        model_writer=model,
        model_type="bpe",
        vocab_size=args.pieces,
        byte_fallback=True,  # ids 3..258; the line feed is one of them
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        split_digits=True,
        character_coverage=1.0,
        required_chars="0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.,!?;:'\"-()",
        num_threads=1,
        minloglevel=1,
    )
    with open(args.out, "wb") as f:
        f.write(model.getvalue())

    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    sample = stories[:2000]
    assert all(sp.decode(sp.encode(s)) == s for s in sample), "a story does not survive encode and decode"
    lengths = sorted(len(sp.encode(s)) for s in sample)
    words = sum(len(s.split()) for s in sample)
    print(
        f"{sp.get_piece_size()} pieces; tokens a story: median {lengths[len(lengths) // 2]}, max {lengths[-1]}; "
        f"{sum(lengths) / words:.2f} tokens a word"
    )


if __name__ == "__main__":
    main()
