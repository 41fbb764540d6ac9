"""`grandrounds.compare`, and what the command of that name shares with it: arms on equal setup, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grandrounds.config.schema import Config, read_settings
from grandrounds.errors import ConfigError, unknown
from grandrounds.registry import ALGORITHMS, not_registered
from grandrounds.reports.comparison import write_cells, write_comparison
from grandrounds.reports.tables import ComparisonRow
from grandrounds.simulation.cells import cells_of, check_cells, read_corpora
from grandrounds.simulation.run import opened
from grandrounds.simulation.sweep import Arm, run_arms


def compare(
    config: str | Path | Mapping[str, Any] | Config,
    algorithms: Sequence[str],
    seeds: int = 1,
    overrides: Mapping[str, Any] | None = None,
    *,
    out: str | Path,
    data: str | Path | None = None,
    baseline: str | None = None,
    settings: str | Path | Sequence[str | Path] = (),
    partitions: Sequence[str] = (),
    corpora: Sequence[str | Path] = (),
    processes: int = 1,
    watch: Callable[[Sequence[Arm]], None] = lambda arms: None,
) -> list[ComparisonRow]:
    """Run several arms on one config and compare them, as `grandrounds compare` does.

    `algorithms` are names of algorithms or of `[compare.NAME]` tables; each runs with `seeds` seeds, the config's and
    the next ones. `settings` are files with further such tables. The rows have means over seeds with 95% intervals and
    the difference from `baseline`, by default the first arm; `out` gets the runs, compare.csv, compare.json and
    report.html. `partitions` ("iid", "dirichlet:0.1", "by:hospital") and `corpora`, files whose sections take the place
    of the config's, repeat the comparison for each of them, and the rows say for which. Runs that are finished are not
    run again. A script that calls this needs `if __name__ == "__main__":`, since each run is a process of its own.
    """
    loaded, own = opened(config, None if corpora else overrides)
    base = own if data is None else Path(data)
    found = read_corpora(loaded, [Path(path) for path in corpora], overrides or {}) or {None: loaded}
    for path in [settings] if isinstance(settings, str | Path) else settings:
        found = {name: read_settings(one, Path(path)) for name, one in found.items()}
    for one in found.values():
        check_arms(one, algorithms)
    if baseline is not None and baseline not in algorithms:
        raise ConfigError(unknown("arm for the baseline", baseline, algorithms))
    wanted = range(loaded.seed, loaded.seed + seeds)
    cells = cells_of(found, algorithms, wanted, Path(out), partitions)
    if several := bool(corpora or partitions):
        check_cells(cells, base)
    arms = list({arm.folder: arm for cell in cells for arm in cell.arms}.values())
    run_arms(arms, base, processes, watch, reuse=several)
    base_arm = baseline or algorithms[0]
    return write_cells(cells, base_arm, Path(out)) if several else write_comparison(cells[0].runs, base_arm, Path(out))


def check_arms(config: Config, names: Sequence[str]) -> None:
    """ConfigError where a name is neither an algorithm nor a [compare.NAME] table."""
    known = {*ALGORITHMS, *config.compare}
    for name in names:
        if name not in known:
            raise ConfigError(not_registered("algorithm", name, known))
    if not names:
        raise ConfigError(f"there is no algorithm to compare; known: {', '.join(sorted(known))}")
