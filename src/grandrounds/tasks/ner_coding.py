"""How mentions become what a tagger learns, and what it answers becomes mentions: as tags of words, or as spans.

Tags say mentions that don't overlap. Spans say all but those that are too long, and of several types of the same words
one. Gold mentions that a coding can't say are counted, and missed when a model is scored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from grandrounds.metrics.spans import Span as WordSpan
from grandrounds.metrics.spans import spans_of, tag_names, tags_of
from grandrounds.tasks.task import NONE

Overlaps = Literal["types", "nested", "any", "none"]
Scored = tuple[WordSpan, float]
OVERLAPPING = (
    "mentions that overlap a longer or an earlier one, which alone has tags: one of them will be missed "
    "(task.tagger = 'spans' can find both)"
)
MERGED = "mentions beside another of their type, which the scheme IO can't part"
SAME_WORDS = "mentions of the same words as another of another type: one of them will be missed"
CLASHING = "mentions that overlap another in a way that task.overlaps excludes: one of them will be missed"


class Coding(ABC):
    """Of a sentence's mentions."""

    classes: tuple[str, ...]
    """What the top of a model tells apart; the first is no mention."""

    @abstractmethod
    def targets(self, gold: Sequence[WordSpan], words: int) -> NDArray[np.int32]:
        """[words, ...]: what a model learns of the mentions of a sentence of so many words."""

    @abstractmethod
    def mentions(self, outputs: NDArray[np.float32]) -> list[Scored]:
        """The mentions of a sentence and their scores, in order, from the outputs for its words."""

    @abstractmethod
    def unsaid(self, gold: Sequence[WordSpan], words: int) -> Counter[str]:
        """How many mentions within the sentence it can't say, by why."""


class TagCoding(Coding):
    """A tag a word; outputs are the word's tag in the best sequence, then the probability of each tag."""

    def __init__(self, types: Sequence[str], scheme: str) -> None:
        self.scheme, self.classes = scheme, tuple(tag_names(types, scheme))
        self._ids = {tag: i for i, tag in enumerate(self.classes)}

    def targets(self, gold: Sequence[WordSpan], words: int) -> NDArray[np.int32]:
        tags = tags_of(apart(gold, words), words, self.scheme)
        return np.array([self._ids[tag] for tag in tags], dtype=np.int32)

    def mentions(self, outputs: NDArray[np.float32]) -> list[Scored]:
        """A mention's score is the lowest probability among its tags."""
        best = outputs[:, 0].astype(np.int64)
        probability = outputs[np.arange(len(outputs)), 1 + best]
        found = spans_of([self.classes[i] for i in best.tolist()])
        return [(span, float(probability[span[0] : span[1]].min())) for span in found]

    def unsaid(self, gold: Sequence[WordSpan], words: int) -> Counter[str]:
        kept = apart(gold, words)
        merged = len(kept) - len(spans_of(tags_of(kept, words, "IO"))) if self.scheme == "IO" else 0
        return Counter({OVERLAPPING: len(_within(gold, words)) - len(kept), MERGED: merged})


class SpanCoding(Coding):
    """A class for each span of up to so many words; outputs are as models/spans.py has them."""

    def __init__(self, types: Sequence[str], longest: int, overlaps: Overlaps) -> None:
        self.longest, self.overlaps = longest, overlaps
        self.classes = (NONE, *types)

    def targets(self, gold: Sequence[WordSpan], words: int) -> NDArray[np.int32]:
        targets = np.zeros((words, self.longest), dtype=np.int32)
        for first, past, type in self._of_a_kind(gold, words):
            targets[first, past - first - 1] = self.classes.index(type)
        return targets

    def mentions(self, outputs: NDArray[np.float32]) -> list[Scored]:
        """The likeliest first; one that clashes with a likelier one is left out, as Yu et al. do."""
        best = outputs[:, : self.longest].astype(np.int64)
        probability = outputs[:, self.longest :]
        found = [
            ((first, first + length + 1, self.classes[best[first, length]]), float(probability[first, length]))
            for first, length in np.argwhere(best > 0).tolist()
        ]
        found.sort(key=lambda mention: (-mention[1], mention[0]))
        kept = set(without_clashes([span for span, _ in found], self.overlaps))
        return sorted(mention for mention in found if mention[0] in kept)

    def unsaid(self, gold: Sequence[WordSpan], words: int) -> Counter[str]:
        within = _within(gold, words)
        short = [span for span in within if span[1] - span[0] <= self.longest]
        single = self._of_a_kind(short, words)
        kept = without_clashes(sorted(single, key=_longer_first), self.overlaps)
        return Counter(
            {
                too_long(self.longest): len(within) - len(short),
                SAME_WORDS: len(short) - len(single),
                CLASHING: len(single) - len(kept),
            }
        )

    def _of_a_kind(self, gold: Sequence[WordSpan], words: int) -> list[WordSpan]:
        """Those that have a class; of the same words the first type."""
        fitting = [span for span in sorted(_within(gold, words)) if span[1] - span[0] <= self.longest]
        return list({span[:2]: span for span in reversed(fitting)}.values())


def too_long(longest: int) -> str:
    return f"mentions of more than {longest} words (task.span_words), which no span can say: they count as missed"


def apart(gold: Iterable[WordSpan], words: int) -> list[WordSpan]:
    """Those that tags can say together: of overlapping ones the longer, then the earlier."""
    return sorted(without_clashes(sorted(_within(gold, words), key=_longer_first), "none"))


def without_clashes(spans: Iterable[WordSpan], overlaps: Overlaps) -> list[WordSpan]:
    """Each unless it clashes with an earlier one that is kept."""
    kept: list[WordSpan] = []
    for span in spans:
        if not any(clash(span, other, overlaps) for other in kept):
            kept.append(span)
    return kept


def clash(one: WordSpan, other: WordSpan, overlaps: Overlaps) -> bool:
    """Whether at most one of the two can be found."""
    if overlaps == "any" or one[1] <= other[0] or other[1] <= one[0]:
        return False
    crossing = one[0] < other[0] < one[1] < other[1] or other[0] < one[0] < other[1] < one[1]
    return overlaps == "none" or crossing or (overlaps == "types" and one[2] == other[2])


def _within(gold: Iterable[WordSpan], words: int) -> list[WordSpan]:
    return [span for span in gold if span[1] <= words]


def _longer_first(span: WordSpan) -> tuple[int, WordSpan]:
    return span[0] - span[1], span
