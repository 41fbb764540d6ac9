"""How a corpus splits text into sentences and words, learnt from it, so that raw text can be split in the same way.

A word is a run of letters and digits or a single sign, unless documents say that their tokens stand between white
space, as CoNLL's do. Of such tokens a rule is learnt: which signs stay within a word (COVID-19, 0.5), and whether
signs side by side are one word. It holds no words of the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

from grandrounds.data.documents import Document, Span
from grandrounds.data.sentences import Breaks, split_sentences

WORD = re.compile(r"\w+|[^\w\s]")
BETWEEN_SPACES = re.compile(r"\S+")
_WITHIN = re.compile(r"(?<=\w)[^\w\s](?=\w)")
_SIGNS = re.compile(r"[^\w\s]+")
_CLOSES = r"[^\w\s]*[.,;:!?)\]]"
_CLOSING = re.compile(rf"(\s?){_CLOSES}(?=\s|$)")
_KINDS = {"0": r"\d", "a": r"[^\W\d]"}


@dataclass(frozen=True)
class TokenRule:
    """How tokens of a corpus end in running text."""

    within: tuple[str, ...] = ()
    """Signs that do not end a word, between what they do not: "a-0" is a hyphen after a letter and before a digit."""
    runs: bool = False
    """Whether signs side by side are one word."""

    @classmethod
    def learn(cls, texts: Iterable[str]) -> Self:
        """What most tokens show. Tokens beside a lone sign may have stood together in running text."""
        whole, parted, runs = Counter[str](), Counter[str](), 0
        for text in texts:
            tokens = text.split()
            for token in tokens:
                whole.update(_kind(token, at.start()) for at in _WITHIN.finditer(token))
                runs += len(token) > 1 and _SIGNS.fullmatch(token) is not None
            for before, sign, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
                joined = before[-1] + sign + after[0]
                if len(sign) == 1 and _WITHIN.search(joined):
                    parted[_kind(joined, 1)] += 1
            runs -= sum(
                _SIGNS.fullmatch(a) is not None and re.fullmatch(_CLOSES, b) is not None for a, b in pairwise(tokens)
            )
        return cls(tuple(sorted(kind for kind, count in whole.items() if count > parted[kind])), runs > 0)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        kept = "|".join(f"(?<={_KINDS[k[0]]}){re.escape(k[1])}(?={_KINDS[k[2]]})" for k in self.within)
        inside = rf"\w+(?:(?:{kept})\w+)*" if kept else r"\w+"
        return re.compile(rf"{inside}|[^\w\s]{'+' if self.runs else ''}")


@dataclass(frozen=True)
class TextRules:
    """Of documents that do not say where their sentences or words are."""

    breaks: Breaks = "paragraph"
    """Which line ends end a sentence."""
    tokens: TokenRule | None = None
    """Of a corpus whose tokens stand between white space."""

    @classmethod
    def learn(cls, documents: Sequence[Document]) -> Self:
        tokenized = bool(documents) and all(map(_tokenized, documents))
        rule = TokenRule.learn(d.text[a:b] for d in documents for a, b in d.sentences) if tokenized else None
        return cls(_breaks(documents, tokenized), rule)

    def sentences(self, document: Document) -> tuple[Span, ...]:
        """Its own, or those that the rules find: by the text alone, so that they are the same without mentions."""
        if document.sentences:
            return document.sentences
        if self.tokens and _reads_as_tokens(document.text):  # a sentence a line, whatever stops are in it
            return tuple(Span(*found.span()) for found in re.finditer(r"\S(?:.*\S)?", document.text))
        return split_sentences(document.text, breaks=self.breaks)

    def pattern(self, document: Document) -> re.Pattern[str]:
        """What a word of the document is."""
        if _tokenized(document) or (self.tokens and _reads_as_tokens(document.text)):
            return BETWEEN_SPACES
        return self.tokens.pattern if self.tokens else WORD

    def as_json(self) -> dict[str, Any]:
        tokens = self.tokens and {"within": self.tokens.within, "runs": self.tokens.runs}
        return {"breaks": self.breaks, "tokens": tokens}

    @classmethod
    def from_json(cls, rules: Mapping[str, Any]) -> Self:
        tokens = rules["tokens"] and TokenRule(tuple(rules["tokens"]["within"]), bool(rules["tokens"]["runs"]))
        return cls(rules["breaks"], tokens)


PLAIN = TextRules()


def _tokenized(document: Document) -> bool:
    return document.attributes.get("tokens") == "between white space"


def _reads_as_tokens(text: str) -> bool:
    """Whether full stops, commas and closing brackets stand by themselves, but for one in ten."""
    before = [found.group(1) for found in _CLOSING.finditer(text)]
    return bool(before) and sum(map(bool, before)) >= 0.9 * len(before)


def _breaks(documents: Sequence[Document], tokenized: bool) -> Breaks:
    """Whether line ends, or blank lines, lie within sentences; without any line end, as notes are mostly written."""
    if not documents or not all(document.sentences for document in documents):
        return "paragraph"
    inside = [document.text[start:end] for document in documents for start, end in document.sentences]
    if any(re.search(r"\n[^\S\n]*\n", text) for text in inside):
        return "none"
    if any("\n" in text for text in inside):
        return "paragraph"
    return "line" if tokenized or any("\n" in document.text.strip() for document in documents) else "paragraph"


def _kind(text: str, sign: int) -> str:
    """A sign with what it stands between: 0 for a digit, a for another letter."""
    before, after = ("0" if re.match(r"\d", text[i]) else "a" for i in (sign - 1, sign + 1))
    return before + text[sign] + after
