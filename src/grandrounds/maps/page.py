"""A map in Markdown: the sentence, the picture, a row a cell, and what a reader must know."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grandrounds.maps.result import ArmScore, CellResult, MapResult
from grandrounds.reports.wording import brief, interval, megabytes, score, signed


def page(map: MapResult, picture: str) -> str:
    """`picture` is the name of its file."""
    return (
        "\n".join([f"# {map.question}", "", map.sentence, "", f"![{map.question}]({picture})", "", *_parts(map)]) + "\n"
    )


def _parts(map: MapResult) -> Iterator[str]:
    yield from _table(map)
    yield ""
    yield (
        f"Test {map.score}, mean of {len(map.seeds)} seed{'s' if len(map.seeds) > 1 else ''}, with 95% intervals over "
        f"{'seeds and ' if len(map.seeds) > 1 else ''}units of the test set. The best rival of a cell is the one with "
        f"the best validation score; rivals: {', '.join(_rivals(map))}. Of {len(map.cells)} cells, "
        f"{len(map.cells) / 20:.2g} would show a difference by chance alone. Steps and MB are of a run, all sites and "
        "the server: the system / the rival."
    )
    yield ""
    yield from _rates(map)
    if map.warnings:
        yield ""
        yield from (f"- {warning}" for warning in map.warnings)
    if map.points:
        yield ""
        yield "Real corpora:"
        yield ""
        yield from (
            f"- {point.name}: {map.x.name} {point.x:g}, {map.y.name} {point.y:g}. {point.how}" for point in map.points
        )
    yield ""
    yield f"`{map.command}` at commit {map.commit or 'unknown'}."


def _rivals(map: MapResult) -> Sequence[str]:
    return [name for name in map.arms if name != map.system_arm and name not in map.references]


def _table(map: MapResult) -> Iterator[str]:
    heads = [
        map.x.name,
        map.y.name,
        f"{map.system_arm}",
        "best rival",
        "its score",
        "advantage",
        "95% interval",
        "verdict",
        *map.references,
        "steps",
        "MB up",
        "MB down",
    ]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for cell in map.cells:
        yield f"| {' | '.join(_row(map, cell))} |"


def _row(map: MapResult, cell: CellResult) -> Iterator[str]:
    own, rival = cell.arms[map.system_arm], cell.arms[cell.best_rival]
    yield from (f"{cell.x:g}", f"{cell.y:g}", _scored(own), cell.best_rival, _scored(rival))
    yield from (signed(cell.advantage), interval(cell.low, cell.high, signed), cell.verdict)
    yield from (_scored(cell.arms[name]) for name in map.references)
    yield f"{brief(own.steps)} / {brief(rival.steps)}"
    yield f"{megabytes(own.bytes_up)} / {megabytes(rival.bytes_up)}"
    yield f"{megabytes(own.bytes_down)} / {megabytes(rival.bytes_down)}"


def _scored(arm: ArmScore) -> str:
    return f"{score(arm.test)} ({interval(arm.low, arm.high)})"


def _rates(map: MapResult) -> Iterator[str]:
    chosen = {name: rate.chosen for name, rate in map.learning_rates.items() if rate.chosen is not None}
    if chosen:
        reported = ", ".join(f"{name} {rate:g}" for name, rate in chosen.items())
        x, y = map.learning_rates_at
        tried = ", ".join(next(iter(map.learning_rates.values())).tried)
        yield (
            f"Learning rates, the same in all cells: {reported}. Each was chosen on validation data out of {tried}, at "
            f"{map.x.name} {x:g} and {map.y.name} {y:g}, with a seed that the map does not use."
        )
