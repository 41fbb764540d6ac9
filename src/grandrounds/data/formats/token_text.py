"""A text made of tokens, for formats that point at tokens while a Document points at characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from grandrounds.data.documents import Mention, Span


@dataclass(frozen=True)
class TokenText:
    """Tokens, and so sentences, joined by single spaces; a sentence has at least one token."""

    text: str
    sentences: tuple[Span, ...]
    tokens: tuple[tuple[Span, ...], ...]
    """The characters of each sentence's tokens."""

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]]) -> TokenText:
        spans: list[tuple[Span, ...]] = []
        words: list[str] = []
        start = 0
        for sentence in sentences:
            here = []
            for word in sentence:
                here.append(Span(start, start + len(word)))
                start += len(word) + 1
            spans.append(tuple(here))
            words += sentence
        return cls(" ".join(words), tuple(Span(s[0].start, s[-1].end) for s in spans), tuple(spans))


@dataclass
class SharedMentions:
    """Mentions by what they cover: one that several entities list, or one entity twice, is held once.

    So it is in PubTator, where a mention of several concepts has them all.
    """

    _found: dict[tuple[Span, str], list[str]] = field(default_factory=dict)
    _places: dict[tuple[Span, str], int] = field(default_factory=dict)

    def place(self, span: Span, type: str, concept: str | None = None) -> int:
        """The index of the mention, old or new; a concept is added to those it has."""
        concepts = self._found.setdefault((span, type), [])
        if concept is not None and concept not in concepts:
            concepts.append(concept)
        return self._places.setdefault((span, type), len(self._places))

    def mentions(self) -> tuple[Mention, ...]:
        return tuple(
            Mention(span.start, span.end, type, f"T{i}", "|".join(concepts) or None)
            for i, ((span, type), concepts) in enumerate(self._found.items(), start=1)
        )
