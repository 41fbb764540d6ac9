"""A message and its payloads as Flower's records: JSON in a ConfigRecord, each payload's bytes as one array.

Arrays travel in pieces of a few megabytes, so a payload may have any size; the bytes are those of `Packed.to_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from grandrounds.federation.payloads import PayloadError

FORM = "safetensors"
TOO_LARGE = "too large"
"""Stands for a reply of which nobody fetched the rest."""


def to_records(message: bytes, payloads: Sequence[bytes] = (), made: dict[int, Array] | None = None) -> RecordDict:
    """`made` remembers arrays between calls: what goes to all sites is hashed once."""
    records, made = RecordDict({"message": ConfigRecord({"json": message})}), {} if made is None else made
    for data in payloads:
        if id(data) not in made:
            made[id(data)] = Array("uint8", (len(data),), FORM, data)
    if payloads:
        records["payloads"] = ArrayRecord({str(i): made[id(data)] for i, data in enumerate(payloads)})
    return records


def from_records(records: RecordDict) -> tuple[bytes, list[bytes]]:
    """PayloadError where they are not ours."""
    if TOO_LARGE in records:
        raise PayloadError("it has more bytes, or more pieces, than a reply can have")
    try:
        message = records.config_records["message"]["json"]
        arrays = records.array_records.get("payloads", ArrayRecord())
        payloads = [bytes(arrays[str(i)].data) for i in range(len(arrays))]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise PayloadError("a message can't be read (it is not ours)") from error
    if not isinstance(message, bytes):
        raise PayloadError("a message can't be read (it is not JSON)")
    return message, payloads
