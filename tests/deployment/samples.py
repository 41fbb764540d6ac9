"""A message of every kind that a coordinator and a site say to each other."""

from __future__ import annotations

from grandrounds.deployment.protocol import (
    Answered,
    Asked,
    AskMethod,
    Bye,
    Done,
    Hello,
    Introduction,
    Keys,
    Refused,
    Said,
    Sealed,
    Secret,
    Secrets,
)
from grandrounds.federation.exchange import Ask
from grandrounds.federation.payloads import Packed

SEALED = Sealed(box="Ym94", signature="c2lnbg==")
PACKED = Packed("scores", {"values": {"f1": 0.5}}, {})
ASK = Ask(
    "a", "fedprox", {"mu": 0.1}, "train", 2, 1, (PACKED, 1, 1.0, True, "x"), "digest", "00001.1", None, ("00001.1",)
)
ASKED = AskMethod.of(ASK, lambda packed: 0)
REQUESTS: list[Asked] = [
    Hello(),
    ASKED,
    Keys(keys={"a": "key"}),
    Secret(sealed=SEALED, sender="a", keys={"a": "key"}),
    Refused(why="another version"),
    Bye(),
]
RESPONSES: list[Said] = [
    Introduction(site="a", counts={"examples": 3}, labels=["x"], manifest={"w": (2, 3)}, version="1", secret=False),
    Answered(version="00001.1", work=(3, 24)),
    Answered(lost="refused: no"),
    Secrets(sealed={"a": SEALED}),
    Done(),
]
