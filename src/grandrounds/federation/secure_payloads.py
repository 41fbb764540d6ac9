"""What travels for a secure sum: keys, sealed shares, masked words, who stayed, signatures of that, opened shares.

Up, a payload is of one site; down, it holds what several sites sent, or what they sent to one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import torch
from torch import Tensor

from grandrounds.federation.payloads import (
    KINDS,
    MOST_NAME,
    Compression,
    Expected,
    Packed,
    Payload,
    PayloadError,
    unpack,
)

P = TypeVar("P", bound=Payload)
SIZE, KEY = 32, 32
"""Bytes of a share and of a key."""
BOX, MOST_SIGNATURE, MOST_TEXT = 12 + 2 * SIZE + 16, 200, 1000
"""Bytes of a box with two shares (nonce, shares, tag), of a signature, and letters of an enrolment key's text."""
MOST_WEIGHT, MOST_SITES = 10**12, 1 << 16


class SiteKeys(NamedTuple):
    """What a site advertises for one attempt."""

    masking: bytes
    """X25519: pairs of sites agree on masks with it."""
    sharing: bytes
    """X25519: shares are sealed with it."""
    commitment: bytes
    """Of the secret of the site's own mask."""
    weight: int
    """What it registered, by federation.weight_by."""
    key: str
    """The public half of its enrolment key; empty where there are none."""
    signature: bytes
    """Of all of these, with the site's name and the attempt, under its enrolment key."""


@dataclass(frozen=True)
class MaskKeys(Payload):
    """Public keys of one attempt to sum: a site's own, signed, and those of all sites on their way down."""

    kind: ClassVar[str] = "mask_keys"
    fields: ClassVar[frozenset[str]] = frozenset(SiteKeys._fields)
    sites: Mapping[str, SiteKeys]

    def pack(self, compression: Compression) -> Packed:
        columns: dict[str, dict[str, Any]] = {}
        for field in SiteKeys._fields:
            values = {site: getattr(keys, field) for site, keys in self.sites.items()}
            columns[field] = {site: _text(v) if isinstance(v, bytes) else v for site, v in values.items()}
        return Packed(self.kind, columns, {})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        _no_tensors(packed)
        columns = {field: _named(packed, field) for field in SiteKeys._fields}
        names = columns["masking"].keys()
        if not names or any(column.keys() != names for column in columns.values()):
            raise PayloadError("keys for masks come with all that belongs to each")
        for weight in columns["weight"].values():
            if type(weight) is not int or not 1 <= weight <= MOST_WEIGHT:
                raise PayloadError(f"a site's weight is a whole number from 1 to {MOST_WEIGHT}")
        for text in columns["key"].values():
            if not isinstance(text, str) or len(text) > MOST_TEXT:
                raise PayloadError("a site's public key is a line of text")
        found = {}
        for site in names:
            masking, sharing, commitment = (
                _bytes(columns[field][site], KEY) for field in ("masking", "sharing", "commitment")
            )
            weight, key, signature = columns["weight"][site], columns["key"][site], columns["signature"][site]
            found[site] = SiteKeys(masking, sharing, commitment, weight, key, _bytes(signature, None))
        return cls(found)


@dataclass(frozen=True)
class KeyShares(Payload):
    """Shares of a site's two secrets, sealed to each peer: the coordinator carries them and can't open them."""

    kind: ClassVar[str] = "key_shares"
    fields: ClassVar[frozenset[str]] = frozenset({"boxes"})
    boxes: Mapping[str, bytes]
    """Up: by who shall open it; down: by who sealed it."""

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {"boxes": {site: _text(box) for site, box in self.boxes.items()}}, {})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        _no_tensors(packed)
        return cls({site: _bytes(box, BOX) for site, box in _named(packed, "boxes").items()})


@dataclass(frozen=True)
class Masked(Payload):
    """Numbers that are averaged, hidden by masks: random to everyone but the site, and only their sum can be read."""

    kind: ClassVar[str] = "masked"
    fields: ClassVar[frozenset[str]] = frozenset({"of", "form"})
    words: Tensor
    """[numbers + 1] of 32 bits; the last one counts what was clipped."""
    of: str
    """The kind of payload that is masked."""
    form: str = ""
    """Of predictions."""

    def pack(self, compression: Compression) -> Packed:
        form = {"form": self.form} if self.form else {}
        return Packed(self.kind, {"of": self.of, **form}, {"words": self.words})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        words, of, form = packed.tensors.get("words"), packed.header.get("of"), packed.header.get("form", "")
        if words is None or words.dtype != torch.int32 or words.ndim != 1 or len(packed.tensors) != 1:
            raise PayloadError("what is masked is a row of 32-bit words")
        if not isinstance(of, str) or not isinstance(form, str) or of not in KINDS:
            raise PayloadError("what is masked says of what kind it is")
        return cls(words, of, form)


@dataclass(frozen=True)
class Stayed(Payload):
    """The sites whose masked numbers arrived: what their sum is of."""

    kind: ClassVar[str] = "stayed"
    fields: ClassVar[frozenset[str]] = frozenset({"sites"})
    sites: frozenset[str]

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {"sites": dict.fromkeys(sorted(self.sites), 1)}, {})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        _no_tensors(packed)
        return cls(frozenset(_named(packed, "sites")))


@dataclass(frozen=True)
class Agreement(Payload):
    """Signatures of who stayed: a site's own, and those of all on their way down. Nobody opens a sum before enough
    sites have signed the same."""

    kind: ClassVar[str] = "agreement"
    fields: ClassVar[frozenset[str]] = frozenset({"signatures"})
    signatures: Mapping[str, bytes]

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {"signatures": {site: _text(one) for site, one in self.signatures.items()}}, {})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        _no_tensors(packed)
        return cls({site: _bytes(one, None) for site, one in _named(packed, "signatures").items()})


@dataclass(frozen=True)
class OpenedShares(Payload):
    """A site's shares of its peers' secrets, one for each peer: of the own mask of a peer that stayed, or of the
    masking key of one that dropped out."""

    kind: ClassVar[str] = "opened_shares"
    fields: ClassVar[frozenset[str]] = frozenset({"own", "pair"})
    own: Mapping[str, int]
    pair: Mapping[str, int]

    def pack(self, compression: Compression) -> Packed:
        columns = {"own": self.own, "pair": self.pair}
        return Packed(
            self.kind,
            {name: {s: _text(v.to_bytes(SIZE, "big")) for s, v in column.items()} for name, column in columns.items()},
            {},
        )

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        _no_tensors(packed)
        own, pair = (
            {site: int.from_bytes(_bytes(share, SIZE), "big") for site, share in _named(packed, name).items()}
            for name in ("own", "pair")
        )
        if own.keys() & pair.keys():
            raise PayloadError("of each site one share is opened, not two")
        return cls(own, pair)


def the_only(parts: Sequence[object], kind: type[P]) -> P:
    """The one payload of a message; PayloadError where it is something else."""
    if len(parts) != 1 or not isinstance(parts[0], Packed):
        raise PayloadError(f"where one '{kind.kind}' should be, something else came")
    return cast("P", unpack(parts[0], Expected(), kind))


for _cls in (MaskKeys, KeyShares, Masked, Stayed, Agreement, OpenedShares):
    KINDS[_cls.kind] = _cls


def _named(packed: Packed, field: str) -> dict[str, Any]:
    """A value for each of some sites."""
    found = packed.header.get(field)
    if not isinstance(found, dict) or len(found) >= MOST_SITES or any(len(name) > MOST_NAME for name in found):
        raise PayloadError(f"the {field!r} of '{packed.kind}' are by site")
    return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: object, length: int | None) -> bytes:
    try:
        data = base64.b64decode(text if isinstance(text, str) else "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise PayloadError("keys and shares are base64") from error
    if len(data) != length and (length is not None or len(data) > MOST_SIGNATURE):
        raise PayloadError("a key, a share or a signature has another length than it can have")
    return data


def _no_tensors(packed: Packed) -> None:
    if packed.tensors:
        raise PayloadError(f"'{packed.kind}' carries no tensors")
