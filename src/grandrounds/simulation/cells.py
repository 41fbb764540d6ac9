"""A comparison over several corpora and partitions: a cell for each of both, with the same arms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grandrounds.config.schema import Config, make_config, with_sections
from grandrounds.data.partition import short_form
from grandrounds.errors import ConfigError
from grandrounds.simulation.prepare import check_partition
from grandrounds.simulation.sweep import Arm, arms_of


@dataclass(frozen=True)
class Cell:
    """One corpus, partitioned in one way."""

    corpus: str | None
    """The name of its file; None where there is one corpus only."""
    partition: str | None
    """In short form; None where it is the config's own."""
    arms: Sequence[Arm]
    folder: Path

    @property
    def runs(self) -> list[tuple[str, Path]]:
        return [(arm.name, arm.folder) for arm in self.arms]

    @property
    def name(self) -> str:
        return " · ".join(part for part in (self.corpus, self.partition) if part)


def cells_of(
    corpora: Mapping[str | None, Config],
    algorithms: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    partitions: Sequence[str] = (),
) -> list[Cell]:
    """A cell for each corpus and partition; without partitions, with the corpus's own. An arm whose data is all in one
    place is run once for a corpus: partitions make no difference to it."""
    cells, pooled = [], dict[tuple[str | None, str, int], Arm]()
    for corpus, own in corpora.items():
        for partition in partitions or (None,):
            folder = out.joinpath(*(_folder(part) for part in (corpus, partition) if part))
            arms = arms_of(own if partition is None else _partitioned(own, partition), algorithms, seeds, folder)
            arms = [
                pooled.setdefault((corpus, arm.name, arm.config.seed), arm) if _same_everywhere(arm) else arm
                for arm in arms
            ]
            cells.append(Cell(corpus, partition, arms, folder))
    _check_folders(cells)
    return cells


def read_corpora(config: Config, files: Sequence[Path], overrides: Mapping[str, Any]) -> dict[str | None, Config]:
    """By the name of its file: the config with that file's sections in place of its own, and then the overrides."""
    found = dict[str | None, Config]()
    for path in files:
        if path.stem in found:
            raise ConfigError(f"two corpora are called '{path.stem}'; rename one of the files")
        found[path.stem] = make_config(with_sections(config, path).model_dump(exclude_none=True), overrides)
    return found


def check_cells(cells: Sequence[Cell], base: Path) -> None:
    """DataError or ConfigError where a corpus can't be read or partitioned so, before the first cell is run."""
    for cell in cells:
        if any(not (arm.folder / "result.json").exists() for arm in cell.arms):
            check_partition(cell.arms[0].config, base)


def _partitioned(config: Config, partition: str) -> Config:
    """With the same number of sites, unless each value of an attribute is one."""
    if config.own_corpora:
        raise ConfigError("--partitions is for one corpus that is split, and here [sites] have corpora of their own")
    own, chosen = config.partition, short_form(partition)
    kept = {"unit": own.unit, "sites": None if chosen["scheme"] == "by" else own.sites}
    content = config.model_dump(exclude_none=True)
    content["partition"] = chosen | {key: value for key, value in kept.items() if value is not None}
    return make_config(content)


def _same_everywhere(arm: Arm) -> bool:
    """All data is in one place, and nothing in it follows from who has what."""
    config = arm.config
    return config.make_algorithm().pooled and not config.data.mask_overlap and config.model.vocabulary != "sites"


def _folder(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _check_folders(cells: Sequence[Cell]) -> None:
    by_folder = dict[Path, Cell]()
    for cell in cells:
        if (other := by_folder.setdefault(cell.folder, cell)) is not cell:
            raise ConfigError(f"'{other.name}' and '{cell.name}' would be written to one folder; leave one out")
