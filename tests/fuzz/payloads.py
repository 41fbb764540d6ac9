"""Payload decoders: bytes of a stranger, to be unpacked as any kind."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import replace

import torch

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.differences import update
from grandrounds.federation.payloads import Expected, Packed, Parameters, Predictions, largest_upload, unpack
from grandrounds.federation.rows import Rows
from tests.data.formats.samples import CHANGES
from tests.federation.samples import EXPECTED, PAYLOADS, PROBABILITIES, WEIGHTS

BASE = {name: torch.zeros_like(value) for name, value in WEIGHTS.items()}
ROWS = Expected({"w": (9, 2)}, trained=frozenset({"w"}), tables=frozenset({"w"}))
VALUES = ("0", "-1", "1e999", "NaN", "null", "[]", "{}", '""', "9" * 400, "18446744073709551615", '"\\ud800"', "true")


class Payloads:
    def seeds(self) -> list[bytes]:
        made = [payload.pack(form) for payload in PAYLOADS.values() for form in ("fp32", "fp16")]
        some = Rows(torch.tensor([1, 4]), torch.ones(2, 2), "0123456789abcdef")
        made += [Parameters({}, {"w": some}).pack("fp32")]
        many = PROBABILITIES.repeat(40, 1)  # enough to be deflated
        made += [Predictions(many, "probabilities", "d1").pack("int8")]
        made += [Predictions(PROBABILITIES.clamp(min=1e-3).log(), "log_probabilities", "d1").pack("int8")]
        made += [update(payload, BASE, frozenset(), {})[0] for payload in (Parameters(WEIGHTS), PAYLOADS["gradients"])]
        return [packed.to_bytes() for packed in made]

    def run(self, data: bytes) -> None:
        """As a reply that arrives: measured, logged, unpacked as what it says it is, and written again."""
        with suppress(GrandRoundsError):
            packed = Packed.from_bytes(data, largest_upload(EXPECTED, 100))
            assert packed.nbytes >= 8
            assert len(packed.digest) == 64
            for expected in (replace(EXPECTED, base=BASE), ROWS):
                with suppress(GrandRoundsError):
                    again = unpack(packed, expected).pack("fp32")
                    unpack(Packed.from_bytes(again.to_bytes()), expected)

    def mutate(self, data: bytes, draw: random.Random) -> bytes:
        """Break the layout and frame it anew, so that what is behind the frame is reached."""
        length = int.from_bytes(data[:8], "little")
        layout, body = data[8 : 8 + length], data[8 + length :]
        if not layout or draw.random() < 0.2:
            return _broken(data, draw)
        if draw.random() < 0.3:
            return data[:8] + layout + _broken(body, draw)
        layout = _broken(layout, draw) if draw.random() < 0.5 else _revalued(layout, draw)
        return len(layout).to_bytes(8, "little") + layout + body


def _revalued(layout: bytes, draw: random.Random) -> bytes:
    """With another value in the header or in a tensor's place."""
    with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        plain = json.loads(layout)
        entry = plain[draw.choice(list(plain))]
        key = draw.choice(list(entry))
        if key in ("dtype", "shape", "data_offsets"):
            others = ["F64", "I64", "U8", "BF16", "BOOL", "F16"]
            entry[key] = draw.choice(others) if key == "dtype" else [draw.choice([0, 1, 2, 3, 8, 1 << 62])] * 2
        else:
            header = json.loads(entry[key])
            held = draw.choice([header, *(value for value in header.values() if isinstance(value, dict))])
            mark = "to be replaced"
            held[draw.choice([*held, "new"])] = mark
            entry[key] = json.dumps(header).replace(f'"{mark}"', draw.choice(VALUES))
        return json.dumps(plain).encode()
    return _broken(layout, draw)


def _broken(data: bytes, draw: random.Random) -> bytes:
    return draw.choice(CHANGES)(data, draw.randrange(2**16), draw.randrange(2**16)) if data else data
