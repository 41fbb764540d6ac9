"""Sentences of biomedical and clinical text, by rules: a full stop ends one unless its surroundings object.

Trained splitters would be a model to carry and to federate; these rules need none, and give every site
the same sentences. `tests/real/test_formats.py` holds how often they agree with the sentences published
with BC5CDR.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Literal

from grandrounds.data.documents import Span

Breaks = Literal["line", "paragraph", "none"]


def split_sentences(text: str, keep: Iterable[Span] = (), *, breaks: Breaks = "paragraph") -> tuple[Span, ...]:
    """The sentences of a text: in order, apart, without white space at either end.

    No span of `keep` (mentions, as a rule) is cut: sentences that share one are joined. `breaks` says which
    line ends also end a sentence: each ("line"), those before a blank line ("paragraph", for notes wrapped
    at a width), or none.
    """
    kept = list(keep)
    cuts = sorted({*_stops(text), *_hard_breaks(text, breaks)})
    ends = [*_outside(cuts, kept), len(text)]
    solid = _fill(text, kept)  # what is kept is not trimmed either, even where it starts with a space
    spans = (_trim(solid, start, end) for start, end in zip([0, *ends], ends, strict=False))
    return tuple(span for span in spans if span.start < span.end)


def join_sentences(sentences: Sequence[Span], keep: Iterable[Span]) -> tuple[Span, ...]:
    """The same sentences, with those joined that share a span of `keep`."""
    if not sentences:
        return ()
    starts = [sentence.start for sentence in sentences[1:]]
    uncut = set(_outside(starts, list(keep)))
    joined = [sentences[0]]
    for sentence in sentences[1:]:
        if sentence.start in uncut:
            joined.append(sentence)
        else:
            joined[-1] = Span(joined[-1].start, sentence.end)
    return tuple(joined)


# A stop, its closing quotes and brackets, white space, then the next word with what opens it.
_STOP = re.compile(r"(?<![.!?])([.!?]+[\"'”’)\]]*)\s+(?=[\"'“‘(\[]*([^\s\"'“‘(\[][^\s]*))")
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘/,;]*$")
_INITIALS = re.compile(r"(?:[A-Z]\.)*[A-Z]")  # J  U.S
_DOTTED = re.compile(r"(?:[a-z]\.)+[a-z]")  # i.v  b.i.d
_BEFORE_LETTER = re.compile(r"(?:degrees|factor|grade|group|hepatitis|phase|stage|type|vitamin) $", re.I)
_LIST_NUMBER = re.compile(r"(?:^|\n)[ \t]*(?:\d{1,2}|[A-Za-z])$")
_TORN_DECIMAL = re.compile(r"(?:^|\D)\d{1,2}$")  # "0. 05", as many abstracts have it
# Lower case that opens sentences all the same: mRNA, p53, c-Fos, beta4, alpha-methyldopa.
_NAME = re.compile(r"[a-z]{0,3}-?[A-Z]|[a-z]+\d|(?:alpha|beta|gamma|delta|kappa)[-\d(]")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# After these a name or a number follows, never a new sentence.
_NEVER_LAST = _words("""
    dr drs mr mrs ms prof v vs e.g i.e eg ie cf fig figs eq eqs ref refs approx ca resp st viz nos vol incl
""")
# These may end a sentence; they do where the next word is one that opens sentences.
_MAYBE_LAST = _words("""
    al etc sp spp subsp inc ltd co corp jr sr pt pts dept max dx hx rx tx
""")
_OPENERS = _words("""
    a after all although among an and as at because before both but by conclusion conclusions despite during
    each finally first for four from furthermore he her his however if in interestingly it its methods
    moreover most neither no none nor objective of on one only other our overall patient patients recently
    results second she similarly since six some such ten that the their then there therefore these they this
    those three thus to two under until we what when whereas whether which while with without
""")


def _stops(text: str) -> Iterator[int]:
    for match in _STOP.finditer(text):
        if _ends_sentence(text, match.start(1), match.group(1), match.group(2)):
            yield match.end(1)


def _ends_sentence(text: str, at: int, stop: str, following: str) -> bool:
    if following[0].islower() and not _NAME.match(following):
        return False
    if stop[0] != ".":
        return True
    found = _LAST_WORD.search(text, max(0, at - 40), at)
    word = found.group() if found else ""
    if word.lower() in _NEVER_LAST or _LIST_NUMBER.search(text, max(0, at - 12), at):
        return False
    if following[0].isdigit() and (word.lower() == "no" or _TORN_DECIMAL.search(word)):
        return False
    if _DOTTED.fullmatch(word):
        return stop == "." and following[0].isupper()
    if word.lower() in _MAYBE_LAST or _INITIALS.fullmatch(word):
        named = _BEFORE_LETTER.search(text, max(0, at - 20), at - len(word)) is not None  # hepatitis C
        return named or _opens(following)
    return True


def _opens(following: str) -> bool:
    return following[0].isupper() and re.split(r"\W", following, maxsplit=1)[0].lower() in _OPENERS


def _hard_breaks(text: str, breaks: Breaks) -> Iterator[int]:
    if breaks != "none":
        pattern = r"\n" if breaks == "line" else r"\n(?=[^\S\n]*\n)"
        for match in re.finditer(pattern, text):
            yield match.start()


def _outside(cuts: Sequence[int], kept: Sequence[Span]) -> list[int]:
    """The cuts, which are in order, that lie inside no kept span; touching one is no harm."""
    opened = [0] * (len(cuts) + 1)  # how many more spans are open from this cut on: overlapping ones cost no more
    for start, end in kept:
        first, last = bisect_right(cuts, start), bisect_left(cuts, end)
        if first < last:
            opened[first] += 1
            opened[last] -= 1
    return [cut for cut, open_here in zip(cuts, accumulate(opened), strict=False) if not open_here]


def _fill(text: str, kept: Sequence[Span]) -> str:
    characters, done = list(text), 0
    for start, end in sorted(kept):
        first, last = max(start, done), min(end, len(text))
        if first < last:
            characters[first:last] = "x" * (last - first)
            done = last
    return "".join(characters)


def _trim(text: str, start: int, end: int) -> Span:
    piece = text[start:end]
    return Span(start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip()))
