"""What users see when something is wrong: one sentence that names the thing, the place and the cure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class GrandRoundsError(Exception):
    """A mistake in input, config or surroundings that the user can mend; commands print it and exit with 1."""


class DataError(GrandRoundsError):
    """A document or a file of documents that cannot be used as it is."""

    def __init__(self, problem: str, *, path: str | Path | None = None, line: int | None = None) -> None:
        self.problem, self.path, self.line = problem, path, line
        place = "" if path is None else f"{path}:{line}: " if line is not None else f"{path}: "
        super().__init__(place + problem)

    def at(self, path: str | Path, line: int | None = None) -> DataError:
        """The same problem with its place, for a reader that knows the file."""
        return DataError(self.problem, path=path, line=line)


class ConfigError(GrandRoundsError):
    """A config that names something unknown or asks for something impossible."""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """A sentence on an unknown name: "unknown algorithm 'fedavgg'; did you mean 'fedavg'?"."""
    names = sorted(known)
    folded = {other.lower(): other for other in names}
    near = get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    hint = f"did you mean '{folded[near[0]]}'?" if near else f"known: {', '.join(names)}"
    return f"unknown {what} '{name}'; {hint}"
