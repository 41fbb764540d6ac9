"""A run is a folder: config, metrics by round, audit log, checkpoints, result, model and report."""

from __future__ import annotations

import json
import shutil
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from grandrounds.config.schema import Config, make_config
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.files import LOCK, disk_error, lock, write_whole
from grandrounds.runs.results import (
    METRICS,
    PARTICIPANTS,
    PRESENCE,
    RESULT,
    Participants,
    Result,
    Round,
    read_result,
    read_rounds,
)

# All that a run leaves which ended before round 1: by a kill, or by a mistake in its config.
BEGUN = (LOCK, "vocabulary", "start.safetensors", "spool", "registrations.json", PRESENCE, ".*.part")


class RunFolder:
    """A folder that one process at a time may write to."""

    def __init__(self, path: Path, config: Config, resume: bool) -> None:
        self.path, self._planned = path, config.federation.rounds
        occupied = (path / "config.toml").exists()
        if path.exists() and not path.is_dir():
            raise GrandRoundsError(f"'{path}' is a file; choose a folder with --out")
        if not occupied and path.exists() and not all(map(_begun, path.iterdir())):
            raise GrandRoundsError(f"'{path}' is not empty and holds no run; choose another folder with --out")
        if occupied and not resume:
            raise GrandRoundsError(
                f"'{path}' holds another run; go on with it by --resume, or choose another folder with --out"
            )
        if occupied:
            self._same_run(config)
        try:
            path.mkdir(parents=True, exist_ok=True)
            held = lock(path / LOCK)
        except OSError as error:
            raise disk_error(error, path) from error
        if held is None:
            raise GrandRoundsError(f"another process is running in '{path}'; wait for it, or choose another folder")
        self._lock = held
        if not occupied:
            for left in path.iterdir():
                if left.name != LOCK:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()

    def claim(self, config: Config) -> None:
        """From here on the folder holds this run and no other: its data could be read and partitioned."""
        write_whole(self.path / "config.toml", config.to_toml().encode())

    def _same_run(self, config: Config) -> None:
        import tomllib

        try:
            held = make_config(tomllib.loads((self.path / "config.toml").read_text(encoding="utf-8")))
        except (OSError, ValueError, ConfigError) as error:
            raise GrandRoundsError(
                f"'{self.path}/config.toml' is not that of a run ({error}); choose another folder with --out"
            ) from error
        if held.digest() != config.digest():
            ours, theirs = _flat(config.decisive()), _flat(held.decisive())
            changed = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
            raise ConfigError(
                f"'{self.path}' holds a run with another config ({', '.join(changed[:3])} differ); "
                "resume it with its own config.toml, or choose another folder with --out"
            )

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def finished(self) -> Result | None:
        """The result, where all planned rounds have been run; a run may be prolonged."""
        result = read_result(self.path) if (self.path / RESULT).exists() else None
        return result if result and result.rounds_planned >= self._planned else None

    def rounds(self) -> list[Round]:
        return read_rounds(self.path)[0]

    def rewind(self, round: int) -> None:
        """Forget the metrics of rounds after this one: they will be run again."""
        kept = [_line(past) for past in self.rounds() if past.round <= round]
        write_whole(self.path / METRICS, "".join(kept).encode())

    def write_participants(self, participants: Participants) -> None:
        write_whole(self.path / PARTICIPANTS, (json.dumps(participants.to_dict(), indent=1) + "\n").encode())

    def add_round(self, round: Round) -> None:
        try:
            with (self.path / METRICS).open("a", encoding="utf-8") as file:
                file.write(_line(round))
        except OSError as error:
            raise disk_error(error, self.path / METRICS) from error

    def finish(self, result: Result) -> None:
        write_whole(self.path / RESULT, (json.dumps(result.to_dict(), indent=1) + "\n").encode())

    def close(self) -> None:
        self._lock.close()


def _line(round: Round) -> str:
    return json.dumps(round.to_dict()) + "\n"


def _begun(item: Path) -> bool:
    return any(fnmatchcase(item.name, pattern) for pattern in BEGUN)


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out = {}
    for key, value in content.items():
        if isinstance(value, dict):
            out.update(_flat(value, f"{prefix}{key}."))
        else:
            out[prefix + key] = value
    return out
