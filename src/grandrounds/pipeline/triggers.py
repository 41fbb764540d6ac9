"""The phrases of `context_triggers.toml`, and where they stand in a sentence."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from grandrounds.data.documents import ASSERTIONS, Span

CATEGORIES = ASSERTIONS
Side = Literal["forward", "backward"]
SIDES: tuple[Side, ...] = ("forward", "backward")

_WORD = re.compile(r"[^\W_]+|[^\w\s]|_")
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")


@dataclass(frozen=True)
class Rule:
    """What a trigger says, of which side, and of how many words at most."""

    category: str
    direction: Side | Literal["both"]
    reach: int


@dataclass
class Node:
    """A beginning of phrases, by word; what a phrase that ends here does. A pseudo-trigger does nothing."""

    next: dict[str, Node] = field(default_factory=dict)
    phrase: bool = False
    rules: list[Rule] = field(default_factory=list)
    ends: dict[Side, set[str]] = field(default_factory=lambda: {side: set() for side in SIDES})


@dataclass(frozen=True)
class Match:
    """A phrase in a sentence, as positions of words: what it says, and whose scope it ends in which direction."""

    words: Span
    rules: Sequence[Rule]
    ends: Mapping[Side, AbstractSet[str]]


def words(text: str, window: Span) -> list[Span]:
    """Words and single marks."""
    return [Span(*found.span()) for found in _WORD.finditer(text, window.start, window.end)]


def matches(text: str, tokens: Sequence[Span]) -> Iterator[Match]:
    """From left to right, the longest phrase at each place; none overlaps another."""
    spelled = (text[token.start : token.end].lower().replace("’", "'") for token in tokens)
    kinds = [(word, *_kinds(word)) for word in spelled]
    at = 0
    while at < len(kinds):
        end, node = _longest(kinds, at, len(kinds))
        for place in range(at + 1, end):
            later, _ = _longest(kinds, place, len(kinds))
            if later > end and later - place >= end - at:
                # "was negative for": of two that overlap, the second if it is no shorter; the first makes room
                end, node = _longest(kinds, at, place)
                break
        if node is not None:
            yield Match(Span(at, end), node.rules, node.ends)
        at = end


def _longest(kinds: Sequence[Sequence[str]], at: int, limit: int) -> tuple[int, Node | None]:
    """Where the longest phrase from `at` on ends, at the limit or before; without one, the next word."""
    found: tuple[int, Node | None] = at + 1, None
    alive, place = [_phrases()], at
    while alive and place < limit:
        alive = [node.next[kind] for node in alive for kind in kinds[place] if kind in node.next]
        place += 1
        ended = [node for node in alive if node.phrase]
        if ended:
            found = place, ended[0]  # as it is written comes before its classes
    return found


def _kinds(word: str) -> Iterator[str]:
    yield from _classes().get(word, ())
    if word.isdecimal():
        yield "NUMBER"
        if _YEAR.fullmatch(word):
            yield "YEAR"


@lru_cache(maxsize=1)
def _read() -> dict[str, Any]:
    return tomllib.loads((files("grandrounds.pipeline") / "context_triggers.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _classes() -> Mapping[str, tuple[str, ...]]:
    """The classes of each word that has some."""
    found: dict[str, tuple[str, ...]] = {}
    for name, members in _read()["classes"].items():
        for word in members:
            found[word] = (*found.get(word, ()), name)
    return found


@lru_cache(maxsize=1)
def headings() -> Mapping[str, str]:
    """What the headings of sections say, by their text in lower case."""
    return {name: category for category, names in _read()["headings"].items() for name in names}


@lru_cache(maxsize=1)
def _phrases() -> Node:
    start, given = Node(), _read()
    for rule in given["triggers"]:
        for phrase in rule["phrases"]:
            _leaf(start, phrase).rules.append(Rule(rule["category"], rule["direction"], rule["reach"]))
    for terminators in given["terminators"]:
        for phrase in terminators["phrases"]:
            for side in terminators.get("sides", SIDES):
                _leaf(start, phrase).ends[side].update(terminators["categories"])
    for phrases in given["pseudo"].values():
        for phrase in phrases:
            _leaf(start, phrase)
    return start


def _leaf(node: Node, phrase: str) -> Node:
    for word in _WORD.findall(phrase):
        node = node.next.setdefault(word, Node())
    node.phrase = True
    return node
