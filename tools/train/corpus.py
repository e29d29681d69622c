"""Writes the training text: short children's stories put together from our own words and plots, the same for a seed.

A line of the output is one story as a JSON string. Notation of the templates: `{slot}` is a value chosen once a
story, `[a|b]` an alternative chosen on the spot; capitals and a/an are put right at the end.
"""

import argparse
import json
import random
import re

import words
from plots import PLOTS


def story(rng):
    """One story of two to five paragraphs."""
    plot = pick(rng, PLOTS, flat=True)
    slots = cast(rng, plot)
    bind_lists(rng, slots, plot.get("pick", {}))
    openings = words.FRIEND_OPENINGS if plot.get("friends") and rng.random() < 0.25 else words.OPENINGS
    if slots["kind"] in words.CHILDREN:
        openings = [o for o in openings if "the {kind}" not in o]  # nobody says "Mia the girl"
    opening = pick(rng, openings)
    closing = pick(rng, words.CLOSINGS)
    end = " The end." if rng.random() < 0.15 else ""
    text = f"{opening}\n\n{plot['text'].strip()} {closing}{end}"
    return tidy(expand(rng, text, slots))


def cast(rng, plot):
    """The slots every story has: hero, friend, home, habits."""
    heroes = plot.get("hero") or (words.CHILDREN if rng.random() < 0.3 else words.ANIMALS)
    kind = pick(rng, heroes)
    friend = rng.choice([k for k in plot.get("friend", words.ANIMALS) if k != kind])
    name, he, him, his = person(rng, kind, words.HERO_NAMES, made_up=0.4 if kind in words.CHILDREN else 0.2)
    f_name, f_he, f_him, f_his = person(rng, friend, words.FRIEND_NAMES)
    place, where = pick(rng, words.PLACES)
    love, love2 = sample(rng, words.LOVES, 2)
    trait, trait2 = sample(rng, words.TRAITS, 2)
    slots = {
        "h": name, "he": he, "him": him, "his": his, "His": his.capitalize(), "kind": kind,
        "f": f_name, "fhe": f_he, "fhim": f_him, "fhis": f_his, "fkind": friend,
        "trait": trait, "trait2": trait2, "place": place, "where": where, "home": f"{place} {where}",
        "weather": pick(rng, words.WEATHER), "love": love, "love2": love2,
    }  # fmt: skip
    slots["habit"], slots["habits"] = pick(rng, words.HABITS), pick(rng, words.FRIEND_HABITS)
    return slots


def person(rng, kind, names, made_up=0.0):
    """A name and its pronouns. The share `made_up` of the names is made of syllables: the model learns to copy names."""
    female = {"girl": True, "boy": False}.get(kind, rng.random() < 0.5)
    sex = "female" if female else "male"
    name = pick(rng, names[sex])
    if rng.random() < made_up:
        part = {k: rng.choice(v) for k, v in words.SYLLABLES.items()}
        name = (part["start"] + part["middle"] + part["join"] + part[sex]).capitalize()
    return (name, "she", "her", "her") if female else (name, "he", "him", "his")


def bind_lists(rng, slots, lists):
    """Binds a plot's own slots: `"a,b": [(..), ..]` draws one row, `"x*2": [..]` draws x1 and x2, all different."""
    for key, values in lists.items():
        if "*" in key:
            name, n = key.split("*")
            drawn = {f"{name}{i + 1}": v for i, v in enumerate(sample(rng, values, int(n)))}
        elif "," in key:
            drawn = dict(zip(key.split(","), pick(rng, values), strict=True))
        else:
            drawn = {key: pick(rng, values)}
        for name, value in drawn.items():
            slots[name] = expand(rng, value, slots)


def pick(rng, values, flat=False):
    """Draws one value; entry i has weight 1/(i+4), or every entry the same weight when `flat`."""
    return rng.choice(values) if flat else rng.choices(values, [1 / (i + 4) for i in range(len(values))])[0]


def sample(rng, values, n):
    """Draws n different values in the order drawn."""
    drawn = []
    while len(drawn) < n:
        value = pick(rng, values)
        if value not in drawn:
            drawn.append(value)
    return drawn


def expand(rng, text, slots):
    """Puts in the slots, then takes one side of every alternative, innermost first; the first side is likeliest."""
    while "{" in text:
        text = re.sub(r"\{(\w+)\}", lambda m: slots[m[1]], text)
    while "[" in text:
        text = re.sub(r"\[([^\[\]]*)\]", lambda m: side(rng, m[1].split("|")), text)
    return text


def side(rng, sides):
    return rng.choices(sides, [1 / (i + 1) for i in range(len(sides))])[0]


def tidy(text):
    """Single spaces, blank lines between paragraphs, capitals at sentence starts, `an` before a vowel."""
    paragraphs = [" ".join(p.split()) for p in text.split("\n\n")]
    text = "\n\n".join(p for p in paragraphs if p)
    text = re.sub(r"\b([Aa]) (?=[aeiouAEIOU])", r"\1n ", text)
    return re.sub(r'(^|\n\n|[.!?] )("?)([a-z])', lambda m: m[1] + m[2] + m[3].upper(), text)


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("out", help="file to write, one JSON string a line")
    args.add_argument("-n", type=int, default=30000, help="stories")
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()

    rng = random.Random(args.seed)
    stories = {story(rng): None for _ in range(args.n)}
    with open(args.out, "w", encoding="ascii") as f:
        f.writelines(json.dumps(s) + "\n" for s in stories)
    lengths = sorted(len(s.split()) for s in stories)
    vocabulary = {w for s in stories for w in re.findall(r"\b[a-z]+", s)}
    print(
        f"{len(stories)} different stories, {sum(lengths)} words, {len(vocabulary)} lower-case words; words a story: "
        f"min {lengths[0]}, median {lengths[len(lengths) // 2]}, max {lengths[-1]}"
    )


if __name__ == "__main__":
    main()
