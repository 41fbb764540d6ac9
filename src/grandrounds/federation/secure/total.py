"""What the coordinator holds: a sum of masked words, from which it takes the masks when it knows them, and which it
reads only then."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import numpy as np

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.payloads import Expected, Packed, Payload, PayloadError, Predictions
from grandrounds.federation.secure.fixed_point import FixedPoint, Words
from grandrounds.federation.secure.layout import from_row, length_of
from grandrounds.federation.secure.masks import add_mask
from grandrounds.federation.secure_payloads import Masked, the_only


class GivenUpError(GrandRoundsError):
    """Nothing was learnt in this attempt."""


class Total:
    """The sum modulo 2^32, part by part, one site at a time."""

    def __init__(self, kinds: Sequence[type[Payload]], expected: Expected) -> None:
        self._kinds, self._expected = kinds, expected
        self._words: list[Words] = []
        self._forms: list[str] = []
        """What the first site says of the form of its predictions holds for all."""

    def add(self, site: str, parts: tuple[Packed, ...]) -> None:
        if len(parts) != len(self._kinds):
            raise PayloadError(f"{len(parts)} payloads came where {len(self._kinds)} were declared")
        found = [self._checked(part, kind) for part, kind in zip(parts, self._kinds, strict=True)]
        forms = [one.form for one in found]
        if self._forms and forms != self._forms:
            raise PayloadError("predictions come in the form of the first site's, 'probabilities' or not")
        words = [cast("Words", one.words.numpy().view(np.uint32)) for one in found]
        if not self._words:
            self._words, self._forms = [some.copy() for some in words], forms
            return
        for total, some in zip(self._words, words, strict=True):
            np.add(total, some, out=total)

    def _checked(self, part: Packed, kind: type[Payload]) -> Masked:
        masked = the_only((part,), Masked)
        if masked.of != kind.kind or len(masked.words) != length_of(kind, self._expected) + 1:
            raise PayloadError(f"{len(masked.words)} masked words of '{masked.of}' came, which was not declared")
        known = ("probabilities", "log_probabilities") if kind is Predictions else ("",)
        if masked.form not in known:
            raise PayloadError("predictions are probabilities or their logarithms")
        return masked

    def take_out(self, seed: bytes, *, subtract: bool = True) -> None:
        """A mask that a site added, or subtracted."""
        for part, words in enumerate(self._words):
            add_mask(words, seed, part, subtract=subtract)

    def means(self, numbers: FixedPoint, weights: Collection[int]) -> tuple[tuple[Payload, ...], int]:
        """The weighted means, and how many values were clipped. GivenUpError where what is left is no sum of so many
        sites' values: masks are still in it, since a site masked wrongly."""
        means, clipped = list[Payload](), 0
        for kind, words, form in zip(self._kinds, self._words, self._forms, strict=True):
            counted = int(words[-1:].view(np.int32)[0])
            most = len(weights) * numbers.most_clipped
            if not numbers.possible(words[:-1], len(weights)) or not 0 <= counted <= most:
                raise GivenUpError("what is left without the masks is no sum of the sites: one of them masked wrongly")
            means.append(from_row(kind, numbers.mean(words[:-1], weights), self._expected, form))
            clipped += counted
        return tuple(means), clipped
