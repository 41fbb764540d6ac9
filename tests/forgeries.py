"""What a hostile site makes of its replies: each forgery changes an honest one, and is known by what is said of it.

The same ones are played over the in-memory Grid (tests/deployment/test_forgeries.py) and between real processes
(tests/real/test_attacks.py).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from safetensors import torch as safetensors

from grandrounds.deployment.flower.records import from_records, to_records
from grandrounds.deployment.protocol import AskMethod, Request, decode
from grandrounds.federation.payloads import MOST_LAYOUT, OF_ROWS, Packed, Predictions
from grandrounds.federation.scaled import SCALES
from grandrounds.models.lora import LORA_A, LORA_B
from grandrounds.simulation.attackers import unbounded

MARKUP = "\\[/bold] [red]\x1b[2J\x1b[31mhello\x07\u202e[/b]\r\n" + "ha" * 500


@dataclass
class Reply:
    """An honest reply, and the one before it."""

    message: bytes
    payloads: list[bytes]
    last: RecordDict | None = None

    @property
    def packed(self) -> Packed:
        """Of several the last one: `Adapters` and `Tensors` travel behind the weights."""
        return Packed.from_bytes(self.payloads[-1])

    @property
    def first(self) -> str:
        return min(name for name, tensor in self.packed.tensors.items() if tensor.is_floating_point())

    def with_tensors(self, change: Callable[[dict[str, torch.Tensor]], Any], header: Any = None) -> RecordDict:
        packed, tensors = self.packed, dict(self.packed.tensors)
        change(tensors)
        forged = Packed(packed.kind, packed.header if header is None else header, tensors)
        return self.with_payloads(*self.payloads[:-1], forged.to_bytes())

    def with_header(self, text: str) -> RecordDict:
        """A header as no code of ours would write it."""
        return self.with_payloads(safetensors.save(dict(self.packed.tensors), {self.packed.kind: text}))

    def with_payloads(self, *payloads: bytes) -> RecordDict:
        return to_records(self.message, payloads)

    def saying(self, **changes: Any) -> RecordDict:
        """With another response; without payloads where it says why there are none."""
        content = json.loads(self.message)
        inner = content["message"] | changes.pop("answer", {})
        payloads = [] if inner.get("lost") else self.payloads
        return to_records(json.dumps({**content, "message": inner, **changes}).encode(), payloads)


Forge = Callable[[Reply], RecordDict | None]


@dataclass
class Script:
    """One forgery a round, by the round that a request names; None: silence."""

    rounds: Mapping[int, str]
    last: RecordDict | None = field(default=None)

    def __call__(self, asked: Message, reply: Message) -> RecordDict | None:
        honest = reply.content
        if not (name := self.attack(asked)):
            return honest
        forged = FORGERIES[name][0](Reply(*from_records(honest), self.last))
        self.last = honest
        return forged

    def attack(self, asked: Message) -> str:
        request = decode(Request, from_records(asked.content)[0])
        return self.rounds.get(request.message.round, "") if isinstance(request.message, AskMethod) else ""


FORGERIES: dict[str, tuple[Forge, str]] = {}
"""Each with how it is named."""


def _scaled(value: float) -> Forge:
    def forge(reply: Reply) -> RecordDict:
        return reply.with_tensors(lambda t: t.update({reply.first: torch.full_like(t[reply.first], value)}))

    return forge


CUT = "rejected: a payload can't be decoded: it is cut short or not ours"
UNREADABLE = "rejected: a message can't be read"
FORGERIES |= {
    "random bytes": (
        lambda r: r.with_payloads(np.random.default_rng(0).bytes(9999)),
        "rejected: a payload's layout of",
    ),
    "cut short": (lambda r: r.with_payloads(r.payloads[0][:-9]), CUT),
    "empty payload": (lambda r: r.with_payloads(b""), CUT),
    "layout of 2^60 bytes": (
        lambda r: r.with_payloads((1 << 60).to_bytes(8, "little") + r.payloads[0][8:]),
        f"rejected: a payload's layout of {1 << 60} bytes is over the limit of {MOST_LAYOUT}",
    ),
    "header nested 50 deep": (
        lambda r: r.with_header('{"a":' * 50 + "1" + "}" * 50),
        "rejected: a payload's header is nested deeper than any kind needs",
    ),
    "header nested 972 deep": (lambda r: r.with_header('{"a":' * 972 + "1" + "}" * 972), "rejected: a payload"),
    "header nested 100,000 deep": (lambda r: r.with_header('{"a":' * 10**5 + "1" + "}" * 10**5), CUT),
    "header of 2 MB": (
        lambda r: r.with_header(json.dumps({"a": "x" * (2 << 20)})),
        "rejected: a payload's header of 2097161 letters is over the limit of 1048576",
    ),
    "text in the header": (
        lambda r: r.with_tensors(lambda t: None, {"notes": "the patient said " * 60}),
        "rejected: the header of 'parameters' has the undeclared 'notes'",
    ),
    "not a number": (_scaled(float("nan")), "rejected: '{first}' has values that are not finite"),
    "infinity": (_scaled(float("-inf")), "rejected: '{first}' has values that are not finite"),
    "another shape": (
        lambda r: r.with_tensors(lambda t: t.update({r.first: torch.zeros(5, 7, 11)})),
        "rejected: '{first}' has shape (5, 7, 11), declared was",
    ),
    "doubles": (
        lambda r: r.with_tensors(lambda t: t.update({r.first: t[r.first].double()})),
        "rejected: '{first}' has the type torch.float64",
    ),
    "bfloat16": (
        lambda r: r.with_payloads(safetensors.save({"w": torch.zeros(2).bfloat16()}, {"parameters": "{}"})),
        "rejected: 'w' has the type torch.bfloat16, which does not travel",
    ),
    "a weight is missing": (lambda r: r.with_tensors(lambda t: t.pop(r.first)), "rejected: a payload lacks '{first}'"),
    "a weight too many": (
        lambda r: r.with_tensors(lambda t: t.update({"smuggled": torch.ones(99)})),
        "rejected: a payload has the undeclared 'smuggled'",
    ),
    "a name of 10,000 letters": (
        lambda r: r.with_tensors(lambda t: t.update({"n" * 10_000: torch.ones(1)})),
        "rejected: a payload has a name of 10000 letters; 200 are the limit",
    ),
    "a name of control characters": (
        lambda r: r.with_tensors(lambda t: t.update({"\x1b[2J[/b]\x07": torch.ones(1)})),
        "rejected: a payload has the undeclared '\\x1b[2J[/b]\\x07'",
    ),
    "differences in place of weights": (
        lambda r: r.with_tensors(lambda t: t.update({SCALES: torch.zeros(0)})),
        "rejected: differences came where weights were expected",
    ),
    "another kind": (
        lambda r: r.with_payloads(Packed("scores", {"values": {"f1": 1.0}}, {}).to_bytes()),
        "rejected: a payload of kind 'scores' came where 'parameters' was declared",
    ),
    "a kind called [/b]": (
        lambda r: r.with_payloads(Packed("[/b]", {}, {}).to_bytes()),
        "rejected: unknown payload kind '[/b]'",
    ),
    "two payloads for one": (
        lambda r: r.with_payloads(*r.payloads, *r.payloads),
        "rejected: 2 payloads came where 1 were declared",
    ),
    "no payload and no reason": (
        lambda r: r.with_payloads(),
        "rejected: an answer is a payload, or a reason why there is none",
    ),
    "a payload of 64 MB": (lambda r: r.with_payloads(bytes(64 << 20)), "rejected: a payload"),
    "150 payloads": (lambda r: r.with_payloads(*(b"%d" % i for i in range(150))), "rejected: "),
    "markup and control characters": (
        lambda r: r.saying(answer={"lost": f"refused: {MARKUP}", "version": None}),
        "refused: \\[/bold] [red][2J[31mhello[/b] haha",
    ),
    "a refusal of 8 MB": (
        lambda r: r.saying(answer={"lost": "refused: " + "x" * (8 << 20), "version": None}),
        "refused: xxxx",
    ),
    "not JSON": (lambda r: to_records(b"\x00\xff" * 50, r.payloads), UNREADABLE),
    "JSON nested 100,000 deep": (lambda r: to_records(b"[" * 10**5 + b"]" * 10**5, r.payloads), UNREADABLE),
    "a weight of its own": (lambda r: r.saying(answer={"weight": 1e9, "counts": {"examples": 10**9}}), UNREADABLE),
    "negative work": (lambda r: r.saying(answer={"work": [-5, 3]}), "rejected: the work of an answer is"),
    "work of 10^30 steps": (lambda r: r.saying(answer={"work": [10**30, 3]}), "rejected: the work of an answer is"),
    "a state that nobody named": (
        lambda r: r.saying(answer={"version": "../../" + "x" * 5000}),
        "rejected: it calls its private state by a name that the server did not give",
    ),
    "an introduction for an answer": (lambda r: r.saying(message={"what": "done"}), "rejected: it is not an answer"),
    "no records": (lambda r: RecordDict(), UNREADABLE),
    "records of others": (
        lambda r: RecordDict(
            {"message": ConfigRecord({"json": [1, 2]}), "x": MetricRecord({"f1": 1.0}), "payloads": ArrayRecord()}
        ),
        UNREADABLE,
    ),
    "an array that is none": (
        lambda r: RecordDict(
            {
                "message": ConfigRecord({"json": r.message}),
                "payloads": ArrayRecord({"0": Array("float32", (10**9, 10**9), "numpy.ndarray", b"pickle")}),
            }
        ),
        "rejected: ",
    ),
    "the reply to another request": (lambda r: r.saying(id="0123456789abcdef.1"), "rejected: its reply is to another"),
    "the last round's reply": (lambda r: r.last, "rejected: its reply is to another request"),
}
AFTER_HANDSHAKE: dict[str, tuple[Forge, str]] = {
    "other data than registered": (
        lambda r: r.saying(registration="0" * 64),
        "rejected: it holds other data than it registered before round 1",
    ),
    "a log that it did not sign": (
        lambda r: r.saying(log="0" * 64),
        "rejected: the head of its log is not signed with its key",
    ),
}
"""What a coordinator sees that knows the site's key and registration."""
FORGERIES |= AFTER_HANDSHAKE
WEIGHTS = [*FORGERIES]
"""For an algorithm that sends weights."""
SILENT: dict[str, tuple[Forge, str]] = {"silence": (lambda r: None, "late: no answer within")}
FORGERIES |= SILENT


def _answers(change: Callable[[torch.Tensor], torch.Tensor]) -> Forge:
    """Predictions whose rows are changed."""

    def forge(reply: Reply) -> RecordDict:
        ((name, values),) = reply.packed.tensors.items()
        return reply.with_tensors(lambda t: t.update({name: change(values)}))

    return forge


def _bomb(reply: Reply) -> RecordDict:
    """100 MB of zeros, deflated."""
    data = torch.frombuffer(bytearray(zlib.compress(bytes(100 << 20), 9)), dtype=torch.uint8)
    return reply.with_payloads(Packed(reply.packed.kind, reply.packed.header, {"p": data}).to_bytes())


def _off(values: torch.Tensor) -> torch.Tensor:
    return values + 1.0


PREDICTIONS: dict[str, tuple[Forge, str]] = {
    "rows off the simplex": (_answers(_off), "rejected: predictions are not on the simplex"),
    "negative probabilities": (
        _answers(lambda v: torch.cat([v[:, :1] + 1e6, v[:, 1:] - 1e6], dim=1)),
        "rejected: predictions are not on the simplex",
    ),
    "a row is missing": (_answers(lambda v: v[:-1]), "rejected: "),
    "a class too many": (_answers(lambda v: torch.cat([v, v[:, :1] * 0], dim=1)), "rejected: "),
    "predictions that are not numbers": (_answers(lambda v: v * float("nan")), "rejected: "),
    "predictions of another public set": (
        lambda r: r.with_tensors(lambda t: None, {"public": "[/b]\x1b[2J" + "0" * 900}),
        "rejected: predictions are about version [/b][2J000",
    ),
    "a deflate bomb": (_bomb, "rejected: predictions "),
}
FORGERIES |= PREDICTIONS


def _scales(change: Callable[[torch.Tensor], torch.Tensor]) -> Forge:
    return lambda reply: reply.with_tensors(lambda t: t.update({SCALES: change(t[SCALES])}))


def _rows(change: Callable[[torch.Tensor], torch.Tensor]) -> Forge:
    """Differences of other rows of an embedding."""

    def forge(tensors: dict[str, torch.Tensor]) -> None:
        name = min(name for name in tensors if name.endswith(OF_ROWS))
        tensors[name] = change(tensors[name])

    return lambda reply: reply.with_tensors(forge)


def _coded(tensors: Mapping[str, torch.Tensor]) -> str:
    """The first weight, of which rows of no table come."""
    return min(n for n, t in tensors.items() if t.dtype == torch.int8 and n + OF_ROWS not in tensors)


def _least(tensors: dict[str, torch.Tensor]) -> None:
    """127 times the scale is a number, 128 times is none."""
    tensors[SCALES] = torch.full_like(tensors[SCALES], torch.finfo(torch.float32).max / 127.1)
    tensors[_coded(tensors)] = torch.full_like(tensors[_coded(tensors)], -128)


BAD_SCALE = "rejected: a scale is negative or not finite, or larger than any number"
BAD_SCALES = "rejected: the scales of numbers in bytes are one for each row"
IN_BYTES: dict[str, tuple[Forge, str]] = {
    "a scale that is not a number": (_scales(lambda s: s * float("nan")), BAD_SCALE),
    "an infinite scale": (_scales(lambda s: s + float("inf")), BAD_SCALE),
    "a negative scale": (_scales(lambda s: -1 - s), BAD_SCALE),
    "a scale whose multiples are no numbers": (_scales(lambda s: s * 0 + 3e38), BAD_SCALE),
    "a scale too few": (_scales(lambda s: s[1:]), BAD_SCALES),
    "scales for a million rows": (_scales(lambda s: torch.ones(1_000_000)), BAD_SCALES),
    "scales in a table": (_scales(lambda s: s[None]), BAD_SCALES),
    "scales in halves": (_scales(lambda s: s.half()), BAD_SCALES),
    "no scales": (lambda r: r.with_tensors(lambda t: t.pop(SCALES)), "rejected: '"),
    "minus 128": (lambda r: r.with_tensors(_least), "rejected: '{first}' has values that are not finite"),
    "bytes of another shape": (
        lambda r: r.with_tensors(lambda t: t.update({_coded(t): t[_coded(t)][None]})),
        "rejected: '{first}' has shape",
    ),
    "a weight of rows without end": (
        lambda r: r.with_tensors(lambda t: t.update({_coded(t): torch.zeros(1 << 40, 0, dtype=torch.int8)})),
        BAD_SCALES,
    ),
    "a row beyond the table": (_rows(lambda index: index + 10**6), "rejected: '"),
    "a negative row": (_rows(lambda index: index - 10**6), "rejected: '"),
    "a row twice": (_rows(lambda index: index * 0), "rejected: the rows of '"),
    "rows as fractions": (_rows(lambda index: index.float()), "rejected: '"),
    "more rows than differences": (_rows(lambda index: torch.arange(len(index) + 1)), "rejected: '"),
    "rows of a matrix that is no table": (
        lambda r: r.with_tensors(lambda t: t.update({_coded(t) + OF_ROWS: torch.tensor([0])})),
        "rejected: a payload has the undeclared '{first} rows'",
    ),
    "text for a digest": (
        lambda r: r.with_tensors(lambda t: None, {"since": "the patient said " * 60}),
        "rejected: differences come with a digest of what they differ from, or with none",
    ),
}
"""For weights that travel in bytes."""
FORGERIES |= IN_BYTES


def _adapter(part: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Forge:
    """The first layer's."""

    def forge(tensors: dict[str, torch.Tensor]) -> None:
        name = min(name for name in tensors if name.endswith(part))
        tensors[name] = change(tensors[name])

    return lambda reply: reply.with_tensors(forge)


LAYER = "encoder.encoder.layer.0.attention.self.query"
"""The first of a small BERT with adapters."""
BAD_RANK = f"rejected: the adapter of '{LAYER}' must have a rank from 1 to"
ADAPTERS: dict[str, tuple[Forge, str]] = {
    "a rank of 10,000": (_adapter(LORA_A, lambda a: torch.ones(10_000, a.shape[1])), BAD_RANK),
    "rank zero": (_adapter(LORA_A, lambda a: a[:0]), BAD_RANK),
    "an adapter of three dimensions": (_adapter(LORA_A, lambda a: a[None]), BAD_RANK),
    "half of an adapter": (
        lambda r: r.with_tensors(lambda t: t.pop(min(name for name in t if name.endswith(LORA_B)))),
        f"rejected: a payload lacks '{LAYER}{LORA_B}'",
    ),
    "parts of two ranks": (_adapter(LORA_B, lambda b: b[:, 1:]), f"rejected: '{LAYER}{LORA_B}' has shape"),
    "an adapter for more inputs": (
        _adapter(LORA_A, lambda a: torch.cat([a, a], dim=1)),
        f"rejected: '{LAYER}{LORA_A}' has shape",
    ),
    "an adapter that is not a number": (
        _adapter(LORA_B, lambda b: b * float("nan")),
        f"rejected: '{LAYER}{LORA_B}' has values that are not finite",
    ),
    "parts whose product is infinite": (
        lambda r: r.with_tensors(lambda t: t.update({name: torch.full_like(t[name], 1e30) for name in t})),
        f"rejected: the adapter of '{LAYER}' has a product that may not be finite",
    ),
    "an adapter of a layer that has none": (
        lambda r: r.with_tensors(lambda t: t.update({"smuggled" + LORA_A: torch.ones(1, 9)})),
        "rejected: a payload has the undeclared 'smuggled",
    ),
    "an adapter in doubles": (
        _adapter(LORA_A, lambda a: a.double()),
        f"rejected: '{LAYER}{LORA_A}' has the type torch.float64",
    ),
    "text beside adapters": (
        lambda r: r.with_tensors(lambda t: None, {"notes": "the patient said " * 60}),
        "rejected: the header of 'adapters' has the undeclared 'notes'",
    ),
    "adapters without heads": (
        lambda r: r.with_payloads(r.payloads[-1]),
        "rejected: 1 payloads came where 2 were declared",
    ),
}
"""For an algorithm that sends adapters behind its weights."""
FORGERIES |= ADAPTERS
TENSORS: dict[str, tuple[Forge, str]] = {
    "a control variate that is not a number": (
        _scaled(float("nan")),
        "rejected: '{first}' has values that are not finite",
    ),
    "a control variate of another shape": (
        lambda r: r.with_tensors(lambda t: t.update({r.first: torch.zeros(5, 7, 11)})),
        "rejected: '{first}' has shape (5, 7, 11), declared was",
    ),
    "a control variate that nobody declared": (
        lambda r: r.with_tensors(lambda t: t.update({"smuggled": torch.ones(99)})),
        "rejected: a payload has the undeclared 'smuggled'",
    ),
    "weights without control variates": (
        lambda r: r.with_payloads(r.payloads[0]),
        "rejected: 1 payloads came where 2 were declared",
    ),
    "weights for control variates": (
        lambda r: r.with_payloads(r.payloads[0], r.payloads[0]),
        "rejected: a payload of kind 'parameters' came where 'tensors' was declared",
    ),
}
"""For an algorithm with tensors of its own."""
FORGERIES |= TENSORS


def _unbounded(reply: Reply) -> RecordDict:
    """As `attack = "unbounded"` in a simulation."""
    ((name, values),) = reply.packed.tensors.items()
    sent = Predictions(values, "log_probabilities" if name == "log p" else "probabilities", "")
    return reply.with_tensors(lambda t: t.update({name: unbounded(sent).values}))  # type: ignore[union-attr]


UNBOUNDED = "as sure as a number can say"
FORGERIES[UNBOUNDED] = _unbounded, ""
"""It is clamped, not rejected."""
REPOSITORY = Path(__file__).parent.parent
