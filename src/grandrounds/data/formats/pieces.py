"""Mentions in several pieces ("renal and liver failure" for renal failure), which a tag a token can't hold.

As the option `discontinuous` says, they are kept (in pieces, reaching from the first to the last), joined (all
characters from the first to the last) or left out. In every case they are counted.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from grandrounds.data.documents import Mention
from grandrounds.data.formats.source import Warnings
from grandrounds.errors import GrandRoundsError, unknown

KEEP = "keep"
CHOICES = {
    KEEP: "mentions in several pieces, kept so (discontinuous = keep)",
    "join": "mentions in several pieces, joined from the first to the last (discontinuous = join)",
    "drop": "mentions in several pieces, left out (discontinuous = drop)",
}
"""What can be done, and how it is noted."""
WHOLE = "mentions in pieces with only white space between them, made whole"


def check(choice: str) -> None:
    if choice not in CHOICES:
        raise GrandRoundsError(unknown("choice of discontinuous", choice, CHOICES))


def settle(mention: Mention, text: str, choice: str, warnings: Warnings) -> Mention | None:
    """The mention as the choice wants it, or None where it is left out."""
    if not mention.fragments:
        return mention
    gaps = (text[before.end : after.start] for before, after in pairwise(mention.fragments))
    if choice != KEEP and not any(gap.strip() for gap in gaps):  # BRAT parts a mention where a line ends
        warnings[WHOLE] += 1
        return replace(mention, fragments=())
    warnings[CHOICES[choice]] += 1
    if choice == "drop":
        return None
    return mention if choice == KEEP else replace(mention, fragments=())
