"""Notes and payloads as Flower's records: JSON in a ConfigRecord, each payload's bytes as one array.

Arrays travel in pieces of a few megabytes, so a payload may have any size; the bytes are those of `Packed.to_bytes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from grandrounds.federation.payloads import PayloadError

FORM = "safetensors"


def to_records(
    note: Mapping[str, Any], payloads: Sequence[bytes] = (), made: dict[int, Array] | None = None
) -> RecordDict:
    """`made` remembers arrays between calls: what goes to all sites is hashed once."""
    records, made = (
        RecordDict({"note": ConfigRecord({"json": json.dumps(note).encode()})}),
        {} if made is None else made,
    )
    for data in payloads:
        if id(data) not in made:
            made[id(data)] = Array("uint8", (len(data),), FORM, data)
    if payloads:
        records["payloads"] = ArrayRecord({str(i): made[id(data)] for i, data in enumerate(payloads)})
    return records


def from_records(records: RecordDict) -> tuple[dict[str, Any], list[bytes]]:
    """PayloadError where they are not ours."""
    try:
        note = json.loads(bytes(records.config_records["note"]["json"]))  # type: ignore[arg-type]  # TypeError is caught
        arrays = records.array_records.get("payloads", ArrayRecord())
        payloads = [bytes(arrays[str(i)].data) for i in range(len(arrays))]
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise PayloadError("a message can't be decoded: it is not ours") from error
    if not isinstance(note, dict):
        raise PayloadError("a message can't be decoded: its note is not an object")
    return note, payloads
