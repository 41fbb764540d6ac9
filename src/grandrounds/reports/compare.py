"""`grandrounds.compare`, and what the command of that name shares with it: arms on equal setup, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grandrounds.config.schema import Config, read_settings
from grandrounds.errors import ConfigError, unknown
from grandrounds.registry import ALGORITHMS, not_registered
from grandrounds.reports.comparison import write_comparison
from grandrounds.reports.tables import ComparisonRow
from grandrounds.simulation.run import opened
from grandrounds.simulation.sweep import Arm, arms_of, run_arms


def compare(
    config: str | Path | Mapping[str, Any] | Config,
    algorithms: Sequence[str],
    seeds: int = 1,
    overrides: Mapping[str, Any] | None = None,
    *,
    out: str | Path,
    data: str | Path | None = None,
    baseline: str | None = None,
    settings: str | Path | None = None,
    processes: int = 1,
    watch: Callable[[Sequence[Arm]], None] = lambda arms: None,
) -> list[ComparisonRow]:
    """Run several arms on one config and compare them, as `grandrounds compare` does.

    `algorithms` are names of algorithms or of `[compare.NAME]` tables; each runs with `seeds` seeds, the config's and
    the next ones. `settings` is a file with further such tables. The rows have means over seeds with 95% intervals and
    the difference from `baseline`, by default the first arm; `out` gets the runs, compare.csv, compare.json and
    report.html. Runs that are finished are not run again. A script that calls this needs
    `if __name__ == "__main__":`, since each run is a process of its own.
    """
    loaded, base = opened(config, overrides)
    if settings is not None:
        loaded = read_settings(loaded, Path(settings))
    check_arms(loaded, algorithms)
    if baseline is not None and baseline not in algorithms:
        raise ConfigError(unknown("arm for the baseline", baseline, algorithms))
    arms = arms_of(loaded, algorithms, [loaded.seed + i for i in range(seeds)], Path(out))
    run_arms(arms, base if data is None else Path(data), processes, watch)
    return write_comparison([(arm.name, arm.folder) for arm in arms], baseline or arms[0].name, Path(out))


def check_arms(config: Config, names: Sequence[str]) -> None:
    """ConfigError where a name is neither an algorithm nor a [compare.NAME] table."""
    known = {*ALGORITHMS, *config.compare}
    for name in names:
        if name not in known:
            raise ConfigError(not_registered("algorithm", name, known))
    if not names:
        raise ConfigError(f"there is no algorithm to compare; known: {', '.join(sorted(known))}")
