"""Abbreviations that a text defines: Schwartz and Hearst, A simple algorithm for identifying abbreviation definitions
in biomedical text (PSB 2003).

    "hypertension (HTN)" and "HTN (hypertension)"

A short form has at most two words and ten characters, a letter among them, and begins with a letter or digit. Its long
form stands beside it in the same sentence, in at most min(|A| + 5, 2|A|) words. From right to left, each letter and
digit of the short form must be found in the long form, the first one at the start of a word.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from grandrounds.data.documents import Span
from grandrounds.pipeline.names import normalise

_PARENTHESES = re.compile(r"(?<=\s)\(([^()]{2,200})\)")
_WORD = re.compile(r"\S+")
_BORDER = re.compile(r"[.!?;]\s|\n\s*\n")
"""What ends a sentence, or a part of one; a long form never crosses it, nor other parentheses."""
_WINDOW = 400
"""Characters before a parenthesis that are looked at, so that the whole is linear; fifteen words fit."""


def abbreviations(text: str) -> dict[Span, Span]:
    """The span of each short form where it is defined -> the span of its long form, in order of the text."""
    found: dict[Span, Span] = {}
    for match in _PARENTHESES.finditer(text):
        inner = _first_part(text, Span(match.start(1), match.end(1)))
        before = _words_before(text, match.start())
        if not before:
            continue
        pair = _long_before(text, inner, before) or _long_inside(text, before[-1], inner)
        if pair:
            found[pair[0]] = pair[1]
    return found


class LongForms:
    """What the short forms of a text stand for, wherever they occur in it."""

    def __init__(self, text: str) -> None:
        self._defined: dict[str, list[tuple[int, Span]]] = {}
        for short, long in abbreviations(text).items():
            self._defined.setdefault(normalise(text[short.start : short.end]), []).append((short.start, long))

    def of(self, name: str, start: int) -> Span | None:
        """The long form of a name that stands at `start`: by the last definition up to there, else by the first."""
        definitions = self._defined.get(normalise(name)) if self._defined else None
        if not definitions:
            return None
        last = bisect_right(definitions, start, key=lambda definition: definition[0]) - 1
        return definitions[max(last, 0)][1]


def _first_part(text: str, inside: Span) -> Span:
    """What parentheses hold up to a comma or semicolon: "(HTN, n = 12)"."""
    content = re.split(r"[,;]\s", text[inside.start : inside.end], maxsplit=1)[0]
    start = inside.start + len(content) - len(content.lstrip())
    return Span(start, start + len(content.strip()))


def _words_before(text: str, end: int) -> list[Span]:
    """The words of the same sentence before `end`."""
    start = max(0, end - _WINDOW)
    start = max(start, text.rfind("(", start, end) + 1, text.rfind(")", start, end) + 1)
    for border in _BORDER.finditer(text, start, end):
        start = border.end()
    words = [Span(*word.span()) for word in _WORD.finditer(text, start, end)]
    cut = words and start and start == words[0].start and not text[start - 1].isspace() and text[start - 1] not in "()"
    return words[1:] if cut else words


def _long_before(text: str, short: Span, before: list[Span]) -> tuple[Span, Span] | None:
    if not _is_short_form(text[short.start : short.end]):
        return None
    length = short.end - short.start
    words = before[-min(length + 5, 2 * length) :]
    long = _best_long_form(text, short, Span(words[0].start, words[-1].end))
    return (short, long) if long else None


def _long_inside(text: str, short: Span, inside: Span) -> tuple[Span, Span] | None:
    name, length = text[short.start : short.end], short.end - short.start
    # Any word may stand before parentheses; one without a capital is hardly an abbreviation (as in the authors' code).
    if not _is_short_form(name) or not any(c.isupper() for c in name):
        return None
    if len(text[inside.start : inside.end].split()) > min(length + 5, 2 * length):
        return None
    long = _best_long_form(text, short, inside)
    return (short, long) if long else None


def _is_short_form(name: str) -> bool:
    return 2 <= len(name) <= 10 and len(name.split()) <= 2 and name[0].isalnum() and any(c.isalpha() for c in name)


def _best_long_form(text: str, short: Span, within: Span) -> Span | None:
    """The paper's Figure 1: the shortest end of `within` that has all characters of the short form, in order."""
    at = within.end
    for s in range(short.end - 1, short.start - 1, -1):
        wanted = text[s].lower()
        if not wanted.isalnum():
            continue
        at -= 1
        while at >= within.start and (
            text[at].lower() != wanted or (s == short.start and at > within.start and text[at - 1].isalnum())
        ):
            at -= 1
        if at < within.start:
            return None
    while at > within.start and not text[at - 1].isspace():
        at -= 1
    long, name = text[at : within.end], text[short.start : short.end]
    if len(long) <= len(name) or name in long.split():
        return None
    return Span(at, within.end)
