"""The default runtime: sites run one after the other in this process, or in `workers` single-threaded processes.

One working model serves all sites of a process, and weights pass by reference, so that a simulated site costs what
its computation costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.runner import SiteRunner


class InProcess:
    """Sites in this process; each runs when its reply is read."""

    def __init__(self, runner: SiteRunner) -> None:
        self._runner = runner

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        return map(self._runner.answer, asks)

    def flush(self) -> None:
        self._runner.flush()

    def close(self) -> None:
        pass
