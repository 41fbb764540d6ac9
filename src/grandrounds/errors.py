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


def foreign(words: str, most: int = 300) -> str:
    """Words that a stranger chose, for a sentence of ours: one line, no control characters, not too long."""
    start = words[: 10 * most]
    line = " ".join(printable(start).split())
    return line if len(line) <= most and len(start) == len(words) else f"{line[: most - 1]}…"


def printable(text: str) -> str:
    """Text for a terminal: whatever moves the cursor, changes colours or turns letters round is gone."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else " " if c.isspace() else "" for c in text)


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """A sentence on an unknown name: "unknown algorithm 'fedavgg'; did you mean 'fedavg'?"."""
    names = sorted(known)
    nearest = near(name, names)
    hint = f"did you mean '{nearest}'?" if nearest else f"known: {', '.join(names)}"
    return f"unknown {what} '{name}'; {hint}"


def near(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The known name that is most like this one, whatever its case, if any is like it at all."""
    folded = {other.lower(): other for other in sorted(known)}
    return next((folded[like] for like in get_close_matches(name.lower(), folded, n=1, cutoff=cutoff)), None)
