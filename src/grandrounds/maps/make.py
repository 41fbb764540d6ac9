"""From a declaration to its files: run, judge, and write JSON, picture and page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from grandrounds.federation.files import write_whole
from grandrounds.maps.declaration import Map
from grandrounds.maps.grid import RunAll, arms_of, cells, choose_rates, middle, runs_of
from grandrounds.maps.page import page
from grandrounds.maps.picture import picture
from grandrounds.maps.result import OFTEN, Axis, CellResult, ChosenRate, MapResult, RealCorpus, read_map
from grandrounds.maps.sentence import sentence
from grandrounds.maps.verdicts import judge
from grandrounds.reports.wording import plural
from grandrounds.runs.provenance import provenance
from grandrounds.runs.results import read_result
from grandrounds.simulation.sweep import Arm as Run

WHOLE, QUICK = "map", "quick"
"""How the files of a map and of a quick look are called."""


def make_map(map: Map, out: Path, seeds: int, run_all: RunAll, quick: bool = False) -> MapResult:
    """Run what is not finished yet, and write the files; `quick`: the corners with one seed."""
    used = [1] if quick else list(range(1, seeds + 1))
    rates = choose_rates(map, out, run_all)
    runs = {cell: runs_of(map, cell, used, rates, out) for cell in cells(map, corners=quick)}
    every = [run for members in runs.values() for run in members]
    run_all("cells", every)
    made = _assembled(map, used, rates, [judge(map, cell, members) for cell, members in runs.items()], every)
    write(made, out, QUICK if quick else WHOLE)
    return made


def redraw(out: Path, quick: bool = False) -> MapResult:
    """Write sentence, picture and page again, from the JSON alone."""
    stem = QUICK if quick else WHOLE
    held = read_map(out / f"{stem}.json")
    made = held.model_copy(update={"sentence": sentence(held)})
    write(made, out, stem)
    return made


def write(made: MapResult, out: Path, stem: str) -> None:
    write_whole(out / f"{stem}.json", made.to_json().encode())
    write_whole(out / f"{stem}.svg", picture(made).encode())
    write_whole(out / f"{stem}.md", page(made, f"{stem}.svg").encode())


def _assembled(
    map: Map,
    seeds: Sequence[int],
    rates: Mapping[str, ChosenRate],
    found: Sequence[CellResult],
    runs: Sequence[Run],
) -> MapResult:
    place, made_by, results = middle(map), provenance(), [read_result(run.folder) for run in runs]
    made = MapResult(
        system=map.system,
        system_arm=map.arm.name,
        question=map.question,
        sentence="",
        warnings=tuple(_warnings(seeds, rates, found)),
        score=results[0].objective.name,
        seeds=tuple(seeds),
        x=Axis(name=map.x.name, values=tuple(v for v in map.x.values if any(cell.x == v for cell in found))),
        y=Axis(name=map.y.name, values=tuple(v for v in map.y.values if any(cell.y == v for cell in found))),
        arms={arm.name: dict(arm.overrides) for arm in arms_of(map)},
        references=tuple(arm.name for arm in map.references),
        learning_rates=dict(rates),
        learning_rates_at=(place.x, place.y),
        cells=tuple(found),
        points=tuple(RealCorpus(**asdict(point)) for point in map.points),
        config=dict(map.config),
        commit=made_by["commit"],
        command=made_by["command"],
        versions=made_by["versions"],
        run_commits=tuple(sorted({str(result.commit) for result in results})),
    )
    return made.model_copy(update={"sentence": sentence(made)})


def _warnings(seeds: Sequence[int], rates: Mapping[str, ChosenRate], found: Sequence[CellResult]) -> Iterator[str]:
    """What limits what the map can say."""
    if len(seeds) == 1:
        yield "There was one seed: the intervals are those of the test set alone, and another seed may change verdicts."
    for name, rate in rates.items():
        if rate.at_edge:
            yield f"{name}: the learning rate {rate.chosen:g} is at the edge of those tried; a better one may exist."
    for name in rates:
        last = sum(cell.arms[name].best_is_last for cell in found)
        of = sum(len(cell.arms[name].rounds) for cell in found)
        if last >= OFTEN * of:
            yield f"{name}: the best round was the last in {last} of {plural(of, 'run')}; it may have stopped too soon."
    unpaired = sum(not cell.same_units for cell in found)
    if unpaired:
        yield f"In {plural(unpaired, 'cell')} the two were not tested on the same units, so their draws are not paired."
