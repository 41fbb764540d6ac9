"""When two names are the same but for how they are written, and how alike they are otherwise."""

from __future__ import annotations

import re
import unicodedata

_SPELT_OUT = """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi
    psi omega
"""
_GREEK = dict(zip("αβγδεζηθικλμνξοπρστυφχψω", _SPELT_OUT.split(), strict=True))
_LETTERS = re.compile("(?<![α-ω])[α-ω]{1,2}(?![α-ω])")  # TNF-α and αβ; three or more are a Greek word
_APOSTROPHE = re.compile("['’ʼ`´]")
_OPPOSITES = re.compile("hyper|hypo|tachy|brady|increas|decreas|[0-9]+")
ACCENTS = 10
"""Combining classes from here on are accents and points; those below (nukta, voicing, virama) make other letters."""


def normalise(name: str) -> str:
    """The name without what spelling varies: equal for "Infarction, Myocardial" and "myocardial infarctions".

    Case, accents, punctuation, a plural -s and the order of a name inverted at a comma go; Greek letters are spelt out.
    Not for display: "diabetes" becomes "diabete".
    """
    if ", " in name:
        name = " ".join(reversed(name.split(", ")))
    if name.isascii():
        text = name.lower()
    else:
        split = unicodedata.normalize("NFKD", name.casefold())
        text = "".join(c for c in split if unicodedata.combining(c) < ACCENTS).casefold()
        text = _LETTERS.sub(lambda found: "".join(f" {_GREEK.get(c, c)} " for c in found.group()), text)
    text = _APOSTROPHE.sub("", text)
    if not (text.isascii() and text.isalnum()):
        text = "".join(c if c.isalnum() or unicodedata.category(c)[0] == "M" else " " for c in text)
    return " ".join(_singular(word) for word in text.split())


def _singular(word: str) -> str:
    """Harman's S-stemmer (1991); short words are more often abbreviations than plurals."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return word[:-3] + "y"
    return word[:-1]


def trigrams(key: str) -> frozenset[str]:
    """The different strings of three characters in a normalised name, with a space before and after it."""
    padded = f" {key} "
    return frozenset(padded[i : i + 3] for i in range(len(padded) - 2))


def contradict(key: str, other: str) -> bool:
    """Whether two normalised names differ in a number or in an opposite: alike in letters, not in meaning."""
    return _OPPOSITES.findall(key) != _OPPOSITES.findall(other)
