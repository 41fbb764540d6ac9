"""What is fuzzed: three groups of targets; a group has its time, which its targets share."""

from __future__ import annotations

import random
from typing import Protocol


class Target(Protocol):
    def seeds(self) -> list[bytes]: ...

    def run(self, data: bytes) -> None:
        """Any exception that comes out is a crash."""
        ...

    def mutate(self, data: bytes, draw: random.Random) -> bytes:
        """A change that keeps most of what makes it well formed."""
        ...


GROUPS = ("payloads", "messages", "readers")


def names(group: str) -> list[str]:
    if group == "readers":
        from tests.fuzz.readers import READERS

        return list(READERS)
    return ["payloads"] if group == "payloads" else ["requests", "responses"]


def make(group: str, name: str) -> Target:
    """Imports what it needs and no more: readers do without torch."""
    if group == "readers":
        from tests.fuzz.readers import READERS

        return READERS[name]
    if group == "payloads":
        from tests.fuzz.payloads import Payloads

        return Payloads()
    from tests.fuzz.messages import Requests, Responses

    return Requests() if name == "requests" else Responses()
