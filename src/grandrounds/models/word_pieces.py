"""One vocabulary of word pieces for silos whose text nobody may see.

A site counts strings that at least so many of its documents have: whole words where they are common enough, and the
rest of its text as the longest of their parts that are. What it gives away are these strings and their counts; of
words that few documents have, only parts that are cut from such words of many. Where it is known whose documents they
are, all of a patient are one. The counts of all sites are summed, and pieces are learnt from
them as BERT's were: the commonest pair of neighbours is joined, again and again.

A part that does not begin a word is written with '##' before it.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from heapq import heapify, heappop, heappush
from itertools import pairwise
from pathlib import Path

from tokenizers import normalizers, pre_tokenizers

from grandrounds.errors import ConfigError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
INSIDE = "##"
LONGEST = 20
"""Letters of a part of a rare word."""
LONGEST_WORD = 100
"""Beyond this a word is noise, as it is to BERT's tokenizer."""
_normalizers = {lowercase: normalizers.BertNormalizer(lowercase=lowercase) for lowercase in (True, False)}
_splitter = pre_tokenizers.BertPreTokenizer()


def words_in(text: str, lowercase: bool = True) -> list[str]:
    """The words that word pieces are pieces of."""
    return [word for word, _ in _splitter.pre_tokenize_str(_normalizers[lowercase].normalize_str(text))]


def by_person(texts: Iterable[tuple[str | None, str]]) -> list[str]:
    """What a threshold of documents counts: the texts of each patient as one, and duplicate texts once, even across
    patients."""
    seen, held = set[str](), dict[str | tuple[str], list[str]]()
    for patient, text in texts:
        if text not in seen:
            seen.add(text)
            held.setdefault((text,) if patient is None else patient, []).append(text)
    return ["\n".join(own) for own in held.values()]


def count_strings(documents: Iterable[str], least: int, whole: bool = False) -> dict[str, int]:
    """Words, and parts of words unless only whole ones are wanted, that at least so many documents have, and how often
    the text is made of each."""
    counts, places = Counter[str](), defaultdict[str, list[int]](list)
    for number, document in enumerate(documents):
        words = Counter(word for word in words_in(document) if len(word) <= LONGEST_WORD)
        counts.update(words)
        for word in words:
            places[word].append(number)
    rare = {word: numbers for word, numbers in places.items() if len(numbers) < least}
    out = Counter({word: counts[word] for word in counts.keys() - rare.keys()})
    for word, parts in ({} if whole else _cut_rare(rare, least)).items():
        for part in parts:
            out[part] += counts[word]
    return {string: out[string] for string in sorted(out)}


def _cut_rare(rare: Mapping[str, Sequence[int]], least: int) -> dict[str, list[str]]:
    """Each rare word as its longest parts, of which every one is cut from such words of enough documents: else its
    count would tell of a word that few have. Parts that turn out to be cut too seldom make room for shorter ones."""
    known = _common_parts(rare, least)
    parts = {word: _longest_parts(word, known) for word in rare}
    while True:
        documents = defaultdict[str, set[int]](set)
        for word, own in parts.items():
            for part in own:
                documents[part].update(rare[word])
        seldom = {part for part, numbers in documents.items() if len(numbers) < least}
        if not seldom:
            return parts
        known -= seldom
        for word, own in parts.items():
            if not seldom.isdisjoint(own):
                parts[word] = _longest_parts(word, known)


def _part(word: str, start: int, end: int) -> str:
    return word[start:end] if start == 0 else INSIDE + word[start:end]


def _common_parts(rare: Mapping[str, Sequence[int]], least: int) -> set[str]:
    """Parts of rare words that enough documents have. A part can be common only if both its ends are, so the next
    longer ones are looked for among those alone."""
    found = set[str]()
    for length in range(1, LONGEST + 1):
        documents = defaultdict[str, set[int]](set)
        for word, numbers in rare.items():
            for start in range(len(word) - length + 1):
                ends = (_part(word, start, start + length - 1), _part(word, start + 1, start + length))
                if length == 1 or all(end in found for end in ends):
                    documents[_part(word, start, start + length)].update(numbers)
        found |= {part for part, own in documents.items() if len(own) >= least}
    return found


def cut(word: str, pieces: Collection[str]) -> list[str] | None:
    """The word as word pieces, the longest first, as BERT cuts it; None: it has no such pieces."""
    found = _longest_parts(word, pieces, LONGEST_WORD)
    return found if sum(len(part.removeprefix(INSIDE)) for part in found) == len(word) else None


def _longest_parts(word: str, known: Collection[str], longest: int = LONGEST) -> list[str]:
    """The word as the longest parts that are known, from its start; letters that are not are left out."""
    parts, start = list[str](), 0
    while start < len(word):
        ends = range(min(len(word), start + longest), start, -1)
        end = next((end for end in ends if _part(word, start, end) in known), None)
        if end is not None:
            parts.append(_part(word, start, end))
        start = start + 1 if end is None else end
    return parts


def learn_pieces(counts: Mapping[str, int], size: int, least: int = 2) -> list[str]:
    """At most so many word pieces: all letters, then joined pairs as they were joined, while they occur at least so
    often. Of pairs equally common the first in the alphabet is joined."""
    texts = [_letters(string) for string in counts]
    weights = list(counts.values())
    pieces = dict.fromkeys(sorted({letter for letters in texts for letter in letters}))
    if len(pieces) > size:
        raise ConfigError(
            f"a vocabulary of {size + len(SPECIAL):,} word pieces has no room for all letters, which without special "
            f"pieces are {len(pieces):,}, at the start of words and within; raise model.pieces, or --size"
        )
    pairs, where = Counter[tuple[str, str]](), defaultdict[tuple[str, str], set[int]](set)
    for i, (letters, weight) in enumerate(zip(texts, weights, strict=True)):
        for pair in pairwise(letters):
            pairs[pair] += weight
            where[pair].add(i)
    waiting = [(-number, pair) for pair, number in pairs.items()]
    heapify(waiting)
    while waiting and len(pieces) < size:
        number, pair = heappop(waiting)
        if -number != pairs[pair]:  # it has changed since, and waits again with what it has now
            continue
        if -number < least:
            break
        joined = pair[0] + pair[1].removeprefix(INSIDE)
        pieces[joined] = None
        changed = set[tuple[str, str]]()
        for i in where.pop(pair):
            changed |= _join(texts[i], pair, joined, weights[i], pairs, where, i)
        for other in sorted(changed):
            if pairs[other] > 0:
                heappush(waiting, (-pairs[other], other))
    return list(pieces)


def piece_counts(counts: Mapping[str, int], pieces: Sequence[str]) -> list[int]:
    """How often each of these pieces is used, where text is made of such words and parts of words."""
    known, found = frozenset(pieces), Counter[str]()
    for string, times in counts.items():
        inside = string.startswith(INSIDE)
        # A letter before an inner part stands for the rest of its word.
        word = f" {string.removeprefix(INSIDE)}" if inside else string
        for part in _longest_parts(word, known, LONGEST_WORD):
            found[part] += times
    return [found[piece] for piece in pieces]


def _letters(string: str) -> list[str]:
    inside = string.startswith(INSIDE)
    letters = list(string.removeprefix(INSIDE))
    return [INSIDE + letter if inside or place else letter for place, letter in enumerate(letters)]


def _join(
    letters: list[str],
    pair: tuple[str, str],
    joined: str,
    weight: int,
    pairs: Counter[tuple[str, str]],
    where: Mapping[tuple[str, str], set[int]],
    number: int,
) -> set[tuple[str, str]]:
    """Join the pair wherever the string has it; the pairs whose counts are others now."""
    before = Counter(pairwise(letters))
    place = 0
    while place < len(letters) - 1:
        if (letters[place], letters[place + 1]) == pair:
            letters[place : place + 2] = [joined]
        place += 1
    after = Counter(pairwise(letters))
    for one, times in before.items():
        pairs[one] -= times * weight
    for one, times in after.items():
        pairs[one] += times * weight
        where[one].add(number)
    return {one for one in before.keys() | after.keys() if before[one] != after[one]}


def read_pieces(path: Path) -> list[str]:
    """The lines of such a file; an empty one is a piece's number without a piece."""
    return path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")


def without_capitals(pieces: Iterable[str]) -> bool:
    """Whether text is to be read without, too."""
    return all(piece == piece.lower() for piece in pieces if not re.fullmatch(r"\[.*\]", piece))


def write_pieces(path: Path, counts: Mapping[str, int], size: int) -> list[str]:
    """A vocabulary file as BERT's: special pieces, then those learnt, one a line; beside it, how often each is used."""
    ordered = {string: counts[string] for string in sorted(counts)}
    pieces = [*SPECIAL, *learn_pieces(ordered, size - len(SPECIAL))]
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    content = {"pieces": _digest(path), "usage": piece_counts(ordered, pieces)}
    usage_beside(path).write_text(json.dumps(content) + "\n", encoding="utf-8")
    return pieces


def write_words(path: Path, counts: Mapping[str, int], size: int) -> list[str]:
    """At most so many words, the commonest first, one a line."""
    if any(string.startswith(INSIDE) for string in counts):
        raise ConfigError("these counts are of parts of words too: count whole words, with --words")
    words = sorted(counts, key=lambda word: (-counts[word], word))[:size]
    path.write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    return words


def usage_beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}.usage.json")


def read_usage(path: Path) -> list[int] | None:
    """How often each piece of a vocabulary file is used; None where nobody has counted."""
    beside = usage_beside(path)
    if not beside.exists():
        return None
    try:
        content = json.loads(beside.read_text(encoding="utf-8"))
        same, usage = content["pieces"] == _digest(path), [int(times) for times in content["usage"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"'{beside}' can't be read ({error}); merge the vocabulary again, or delete it") from error
    if not same or min(usage, default=0) < 0:
        raise ConfigError(f"'{beside}' is of another vocabulary than '{path.name}'; merge it again, or delete it")
    return usage


def _digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()
