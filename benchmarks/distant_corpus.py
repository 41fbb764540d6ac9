"""Sentences as distant supervision gives them, in NYT 10's shape: pairs of a relation in bags of about 8, many more
pairs of none in bags of 1 or 2; a median of 25 words with a long tail, drawn from a vocabulary as Zipf has it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WORDS, WIDTH = 50_000, 50
RELATIONS = [f"relation {i}" for i in range(1, 53)]
SHORTEST, LONGEST = 6, 128
RELATED = 0.3  # of the sentences
BAG = 8
LETTERS = "etaoinshrdlucmfwygpbvkxqjz"


def distant_lines(count: int, seed: int) -> Iterator[str]:
    """So many lines in OpenNRE's format; one in so many pairs is related, and its bag stands together."""
    rng = np.random.default_rng(seed)
    words = [*map(word, range(WORDS))]
    common = (1 / np.arange(1, WORDS + 1)).cumsum()
    made = 0
    for pair in range(count):
        related = rng.random() < RELATED / BAG / (RELATED / BAG + (1 - RELATED) / 1.5)
        size = min(int(rng.geometric(1 / BAG)) if related else int(rng.integers(1, 3)), count - made)
        relation = RELATIONS[rng.integers(len(RELATIONS))] if related else "NA"
        lengths = np.exp(rng.normal(np.log(25), 0.5, size)).astype(int).clip(SHORTEST, LONGEST)
        for length in lengths.tolist():
            drawn = np.searchsorted(common, rng.random(length - 3) * common[-1])
            text = [words[i] for i in drawn.tolist()]
            yield _line(text, sorted(rng.integers(0, length - 2, 2).tolist()), pair, relation, bool(rng.random() < 0.5))
        made += size
        if made == count:
            return


def _line(text: list[str], places: list[int], pair: int, relation: str, turned: bool) -> str:
    """The words with the two names put in, the tail first if turned, and a full stop."""
    first, second = places
    names = [(f"head{pair}", "h"), (f"tail{pair}", "t")]
    before, middle = " ".join([*text[:first], ""]), " ".join(["", *text[first:second], ""])
    (one, key), (other, last) = reversed(names) if turned else names
    start = len(before) + len(one) + len(middle)
    ends = {
        key: {"id": one, "name": one, "pos": [len(before), len(before) + len(one)]},
        last: {"id": other, "name": other, "pos": [start, start + len(other)]},
    }
    whole = before + one + middle + other + " ".join(["", *text[second:], "."])
    return json.dumps({"text": whole, **ends, "relation": relation}) + "\n"


def word(rank: int) -> str:
    """The commoner, the shorter."""
    letters = ""
    while True:
        rank, letter = divmod(rank, len(LETTERS))
        letters = LETTERS[letter] + letters
        if not rank:
            return letters
        rank -= 1


def write_corpus(path: Path, count: int, seed: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        file.writelines(distant_lines(count, seed))
    return path


def write_vectors(path: Path, seed: int) -> Path:
    """Of all words, as a GloVe file has them."""
    rng = np.random.default_rng(seed)
    with path.open("w") as file:
        for i in [*range(WORDS), "."]:
            values = " ".join(f"{value:.3f}" for value in rng.normal(size=WIDTH))
            file.write(f"{i if i == '.' else word(int(i))} {values}\n")
    return path
