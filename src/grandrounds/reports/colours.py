"""The colour of a type of mention: the same on every page, whatever else is on it.

Seven hues that people with colour blindness tell apart (Okabe and Ito's, less black and yellow, and a violet). Common
clinical and biomedical types have one each; others get one by their name, with a dashed line. Two types may share a
hue, so pages write the type beside the colour.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256

HUES = 7
_KNOWN = (
    ("treatment", "drug", "chemical", "medication", "substance", "compound"),
    ("problem", "disease", "disorder", "diagnosis", "symptom", "finding", "adr", "condition", "phenotype"),
    ("test", "procedure", "lab", "measurement", "labvalue"),
    ("anatomy", "bodypart", "cell", "cellline", "organ", "location"),
    ("dose", "dosage", "strength", "frequency", "duration", "route", "form"),
    ("time", "date", "age", "temporal"),
    ("gene", "protein", "geneorgeneproduct", "species", "organism", "variant"),
)
_HUE = {name: hue for hue, names in enumerate(_KNOWN) for name in names}


@cache
def colour(type: str) -> str:
    """The classes of an element of this type: t0 to t6, and dashed for a type that is not one of the common ones."""
    name = "".join(letter for letter in type.casefold() if letter.isalnum())
    hue = _HUE.get(name, _HUE.get(name.removesuffix("s")))
    if hue is not None:
        return f"t{hue}"
    return f"t{sha256(type.encode('utf-8', 'surrogatepass')).digest()[0] % HUES} dashed"
