"""Where a mention is whose offsets may be wrong: there, or nearby, if the text that is stated with it is.

For corpora that are known to have such offsets, and that no one may publish mended. White space, case and XML's
entities (the text may have &apos; where an attribute has ') are no difference.
"""

from __future__ import annotations

import re
from xml.sax.saxutils import unescape

from grandrounds.data.documents import Span
from grandrounds.data.formats.source import Warnings

MOVED = "mentions whose text is not at their offsets but nearby, moved there"
LOST = "mentions whose text is neither at their offsets nor nearby, left out"

NEAR = 100
"""How many characters away a mention is still looked for."""

_ENTITIES = {"&": "amp", "'": "apos|#39", '"': "quot", "<": "lt", ">": "gt"}


def place(text: str, start: int, end: int, stated: str, warnings: Warnings, *, near: int = NEAR) -> Span | None:
    """The characters of a mention; what is moved, and what can't be placed at all, is noted."""
    if fits(text, (Span(start, end),), stated):
        return Span(start, end)
    found = nearest(text, start, stated, near)
    warnings[LOST if found is None else MOVED] += 1
    return found


def fits(text: str, spans: tuple[Span, ...], stated: str) -> bool:
    """Whether these pieces of the text, none of which may start or end with white space, are what is stated."""
    pieces = [text[start:end] for start, end in spans]
    inside = all(0 <= start < end <= len(text) for start, end in spans)
    return inside and all(piece == piece.strip() for piece in pieces) and _same(" ".join(pieces)) == _same(stated)


def nearest(text: str, start: int, stated: str, near: int = NEAR) -> Span | None:
    """The nearest place of what is stated; inside of a word only where it is nowhere else."""
    wanted = r"\s+".join("".join(map(_sign, word)) for word in unescaped(stated).split())
    for pattern in (rf"(?<!\w){wanted}(?!\w)", wanted) if wanted else ():
        found = [Span(*match.span()) for match in re.finditer(pattern, text, re.IGNORECASE)]
        close = [span for span in found if abs(span.start - start) <= near]
        if close:
            return min(close, key=lambda span: abs(span.start - start))
    return None


def unescaped(text: str) -> str:
    """With XML's own entities as the signs that they are, and no others."""
    return unescape(text, {"&apos;": "'", "&#39;": "'", "&quot;": '"'})


def _sign(sign: str) -> str:
    entity = _ENTITIES.get(sign)
    return f"(?:&(?:{entity});|{re.escape(sign)})" if entity else re.escape(sign)


def _same(text: str) -> str:
    return " ".join(unescaped(text).split()).casefold()
