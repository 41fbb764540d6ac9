"""A document's sentences as words, and its mentions as stretches of these words.

What a word is, data/words.py says. Taggers can only say mentions that are whole words of one sentence:

    begins or ends within a word    it is widened to the whole word
    runs on into another sentence   no tagger says it; as gold it has the words of both: nothing found can equal it
    covers no word of a sentence    no tagger says it; as gold it lies past the sentence's end, out of reach

So whatever can't be said is still there to be missed; ner_coding.py has what tags or spans can't say besides.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from grandrounds.data.documents import Document, Mention, Span
from grandrounds.data.words import PLAIN, TextRules
from grandrounds.metrics.spans import Span as WordSpan

WIDENED = "mentions that begin or end within a word, widened to whole words"
ACROSS = "mentions across a sentence's end, which no tagger can say: they count as missed"
OUTSIDE = "mentions that are no words of a sentence: they count as missed"
TWICE = "mentions given twice, or the same once widened, counted once"
IN_PIECES = "mentions in several pieces, taken from the first to the last"


@dataclass(frozen=True)
class WordSentence:
    """A sentence of a document, its words, and the mentions that begin in it."""

    number: int
    span: Span
    words: tuple[Span, ...]
    """Characters of the document."""
    gold: tuple[WordSpan, ...]
    where: Mapping[int, WordSpan]
    """The words of each of the given mentions that begin in it, by the mention's place among those given."""


def word_sentences(
    document: Document, mentions: Iterable[Mention], warnings: Counter[str], rules: TextRules = PLAIN, size: int = 1
) -> list[WordSentence]:
    """All sentences with a word in them, or windows of so many sentences; what becomes of the mentions is counted."""
    pattern, every = rules.pattern(document), rules.sentences(document)
    joined = [every[first : first + size] for first in range(0, len(every), size)]
    words = [
        [Span(*found.span()) for span in inside for found in pattern.finditer(document.text, *span)]
        for inside in joined
    ]
    where = _places([word for inside in words for word in inside], list(map(len, words)), document, mentions, warnings)
    return [
        WordSentence(number, Span(spans[0].start, spans[-1].end), tuple(inside), tuple(sorted({*held.values()})), held)
        for number, (spans, inside, held) in enumerate(zip(joined, words, where, strict=True))
        if inside
    ]


def _places(
    words: Sequence[Span],
    counts: Sequence[int],
    document: Document,
    mentions: Iterable[Mention],
    warnings: Counter[str],
) -> list[dict[int, WordSpan]]:
    """For each sentence the mentions that begin in it, by its words. `counts` are the sentences' numbers of words."""
    starts, ends = [word.start for word in words], [word.end for word in words]
    begins = [0, *accumulate(counts)][:-1]
    where: list[dict[int, WordSpan]] = [{} for _ in counts]
    taken = set[tuple[int, WordSpan]]()
    for place, mention in enumerate(mentions):
        warnings[IN_PIECES] += bool(mention.fragments)
        first, past = bisect_right(ends, mention.start), bisect_left(starts, mention.end)
        inside = sum(min(mention.end, word.end) - max(mention.start, word.start) for word in words[first:past])
        # The last sentence that begins at or before this word has it: those without words begin there too.
        sentence = bisect_right(begins, min(first, len(words) - 1)) - 1
        if first >= past or inside < len("".join(document.surface(mention).split())):
            warnings[OUTSIDE] += 1
            if sentence >= 0 and counts[sentence]:
                free = counts[sentence] + len(words) + len(where[sentence])  # past what a mention across an end covers
                where[sentence][place] = (free, free + 1, mention.type)
            continue
        span = (first - begins[sentence], past - begins[sentence], mention.type)
        warnings[ACROSS] += span[1] > counts[sentence]
        warnings[WIDENED] += starts[first] < mention.start or mention.end < ends[past - 1]
        warnings[TWICE] += (sentence, span) in taken
        taken.add((sentence, span))
        where[sentence][place] = span
    return where
