"""The colour of a type of mention: the same on every page, whatever else is on it.

Seven hues that people with colour blindness tell apart (Okabe and Ito's, less black and yellow, and a violet). Common
clinical and biomedical types have one each; others get one by their name, with a dashed line. Two types may share a
hue, so pages write the type beside the colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import sha256

HUES = 7
_TYPES = (
    ("treatment", "drug", "chemical", "medication", "substance", "compound"),
    ("problem", "disease", "disorder", "diagnosis", "symptom", "finding", "adr", "condition", "phenotype"),
    ("test", "procedure", "lab", "measurement", "labvalue"),
    ("anatomy", "bodypart", "cell", "cellline", "organ", "location"),
    ("dose", "dosage", "strength", "frequency", "duration", "route", "form"),
    ("time", "date", "age", "temporal"),
    ("gene", "protein", "geneorgeneproduct", "species", "organism", "variant"),
)
_HUE = {name: hue for hue, names in enumerate(_TYPES) for name in names}


@cache
def colour(type: str) -> str:
    """The classes of an element of this type: t0 to t6, and dashed for a type that is not one of the common ones."""
    return f"t{_hue(type)}{' dashed' if _known(type) is None else ''}"


def distinct(types: Sequence[str]) -> list[int]:
    """Hues of at most seven types that no two share: each its own, unless a commoner type or an earlier one has it."""
    chosen: dict[str, int] = {}
    for type in sorted(types, key=lambda type: _known(type) is None):
        free = [hue for hue in range(HUES) if hue not in chosen.values()]
        chosen[type] = _hue(type) if _hue(type) in free else free[0]
    return [chosen[type] for type in types]


def _hue(type: str) -> int:
    known = _known(type)
    return sha256(type.encode("utf-8", "surrogatepass")).digest()[0] % HUES if known is None else known


def _known(type: str) -> int | None:
    name = "".join(letter for letter in type.casefold() if letter.isalnum())
    return _HUE.get(name, _HUE.get(name.removesuffix("s")))
