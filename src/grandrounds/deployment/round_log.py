"""What a site tells its people of each round, in one line: what left, how much, and how long it took here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grandrounds.errors import foreign
from grandrounds.federation.payloads import Packed


@dataclass
class _Sums:
    round: int
    kinds: Counter[str] = field(default_factory=Counter)
    up: int = 0
    down: int = 0
    seconds: float = 0.0
    refused: str = ""
    """Why the last ask that was not answered was not."""


class RoundLog:
    """Adds up the exchanges of a round, and says them when the next one begins or all is over."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._sums: _Sums | None = None

    def exchange(
        self, round: int, came: Sequence[Packed], left: Sequence[Packed], lost: str | None, seconds: float
    ) -> None:
        if self._sums is None or self._sums.round != round:
            self.end()
            self._sums = _Sums(round)
        sums = self._sums
        sums.kinds.update(part.kind for part in left)
        sums.up += sum(part.nbytes for part in left)
        sums.down += sum(part.nbytes for part in came)
        sums.seconds += seconds
        sums.refused = lost or sums.refused

    def end(self) -> None:
        """Nothing more comes of the round that was under way."""
        if self._sums is not None:
            self._say(_sentence(self._sums))
        self._sums = None


def _sentence(sums: _Sums) -> str:
    kinds = ", ".join(kind if n == 1 else f"{n} x {kind}" for kind, n in sorted(sums.kinds.items()))
    place = f"round {sums.round}" if sums.round else "before round 1"
    sent = f"sent {kinds} ({_size(sums.up)})" if kinds else "sent nothing"
    why = f"; {foreign(sums.refused)}" if sums.refused else ""
    return f"{place}: {sent}, received {_size(sums.down)}, {sums.seconds:.1f} s{why}"


def _size(number: int) -> str:
    return f"{number / 1e6:.2f} MB" if number >= 100_000 else f"{number / 1e3:.1f} kB"
