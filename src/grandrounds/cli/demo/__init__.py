"""`grandrounds demo`: all five systems on synthetic hospitals, and a raw note through the models that come out."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.text import Text

from grandrounds.cli.arms import LiveArms
from grandrounds.cli.compare import show
from grandrounds.cli.console import out
from grandrounds.cli.demo.chapters import CHAPTERS, Chapter
from grandrounds.cli.options import JsonOption
from grandrounds.errors import ConfigError, unknown

if TYPE_CHECKING:
    from grandrounds.config.schema import Config
    from grandrounds.data.documents import Document
    from grandrounds.reports.tables import ComparisonRow
    from grandrounds.simulation.sweep import Arm

TAGGER = "st-anne"
"""The hospital whose tagger reads the note at the end: it annotates all types."""
UNSEEN = 40
"""The number of a synthetic hospital that takes part in nothing."""


def demo(
    words: Annotated[
        Optional[list[str]],
        typer.Argument(
            help=f"One system alone, with more arms to compare: {', '.join(CHAPTERS)}. Config keys to change: "
            "federation.rounds=2",
            metavar="[SYSTEM] [KEY=VALUE]...",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each arm: the config's seed and the next ones.", min=1)] = 1,
    out_folder: Annotated[Path, typer.Option("--out", help="Where the runs go.")] = Path("runs/demo"),
    as_json: JsonOption = False,
) -> None:
    """Synthetic hospitals train with each of the five systems, together and alone; then a raw note is read.

    Takes about four minutes on two cores and needs no data. Each chapter is an ordinary config, shown in its report.

    Example: `grandrounds demo feded --seeds 3`
    """
    from grandrounds.reports.comparison import write_comparison
    from grandrounds.runs.provenance import provenance
    from grandrounds.simulation.sweep import arms_of, run_arms

    system, overrides = _parted(words or [])
    chapters = CHAPTERS if system is None else {system: CHAPTERS[system]}
    arms: dict[str, list[Arm]] = {}
    for name, chapter in chapters.items():
        config = _config(name, overrides)
        wanted = chapter.arms if system is None else (*chapter.arms, *chapter.further)
        folder = out_folder if system else out_folder / name
        arms[name] = arms_of(config, wanted, [config.seed + i for i in range(seeds)], folder)
    every = [arm for some in arms.values() for arm in some]
    with LiveArms() as live:
        for chapter in chapters.values():
            live.bars.console.print(Text.assemble("  ", (chapter.title, "bold"), f": {chapter.story}"), soft_wrap=True)
        run_arms(every, Path(), min(os.cpu_count() or 1, len(every), 4), live)
    rows = {
        name: write_comparison([(arm.name, arm.folder) for arm in some], some[-1].name, some[0].folder.parent)
        for name, some in arms.items()
    }
    story = {
        **provenance(),
        "chapters": {name: {"rows": [vars(row) for row in found]} for name, found in rows.items()},
    }
    (out_folder / "story.json").write_text(json.dumps(story, indent=1) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(story))
        return
    for name, found in rows.items():
        if system is not None:
            show(found, "test scores over all hospitals' notes", seeds)
        out.print(summary(chapters[name], found), soft_wrap=True, highlight=False)
        out.print(f"  the report: {arms[name][0].folder.parent / 'report.html'}", soft_wrap=True, highlight=False)
    if system is None:
        _read_note(out_folder, arms)


def _parted(words: Sequence[str]) -> tuple[str | None, list[str]]:
    names = [word for word in words if "=" not in word]
    for name in names:
        if name not in CHAPTERS:
            raise ConfigError(unknown("system", name, CHAPTERS))
    if len(names) > 1:
        raise ConfigError("name one system, or none for all five")
    return names[0] if names else None, [word for word in words if "=" in word]


def _config(system: str, overrides: Sequence[str]) -> Config:
    from grandrounds.config.schema import load_config

    with as_file(files("grandrounds.cli.demo") / f"{system}.toml") as path:
        return load_config(path, overrides)


def summary(chapter: Chapter, rows: Sequence[ComparisonRow]) -> str:
    """What came of it, in a line."""
    from grandrounds.reports.wording import byte_size

    by_name = {row.name: row for row in rows}
    together, alone = (by_name[name] for name in chapter.arms)
    sent = byte_size(1e6 * (together.mb_up_per_site_round or 0.0))
    lower = "" if together.objective.direction == "higher" else " (lower is better)"
    return (
        f"{chapter.title}: {together.objective.name} {together.judged_mean:.3f} together, {alone.judged_mean:.3f} for "
        f"a hospital alone{lower}. What a hospital sent in a round: {chapter.travels}, {sent}."
    )


def _read_note(folder: Path, arms: dict[str, list[Arm]]) -> None:
    """A note that no hospital has seen, through a tagger of FedNER's and a relation model of FedED's."""
    from grandrounds.data.documents import Document
    from grandrounds.data.synthetic import synthesize
    from grandrounds.pipeline.load import load
    from grandrounds.reports.extraction import extraction_page

    (note, *_) = synthesize(hospitals=1, notes=1, first=UNSEEN).test
    tagger, relater = arms["fedner"][0].folder / "models" / TAGGER, arms["feded"][0].folder / "model"
    (folder / "note.txt").write_text(note.text, encoding="utf-8")
    found = load(tagger, relater)(Document("note.txt", note.text))
    page = folder / "note.html"
    page.write_text(extraction_page([found], "A note that no hospital has seen", "relations"), encoding="utf-8")
    out.print(
        f"A raw note of a hospital that took no part: {len(found.mentions)} mentions, {len(found.relations)} "
        "relations.",
        soft_wrap=True,
        highlight=False,
    )
    for line in _relations(found):
        out.print(f"  {line}", soft_wrap=True, highlight=False, markup=False)
    out.print(f"The page: {page}", soft_wrap=True, highlight=False)
    out.print(
        f"The same: grandrounds extract {tagger} {relater} {folder / 'note.txt'}", soft_wrap=True, highlight=False
    )
    if out.is_terminal and os.environ.get("DISPLAY"):
        typer.launch(str(page))


def _relations(document: Document, most: int = 5) -> list[str]:
    found = document.to_dict()["relations"]
    lines = [f"{one['head']['text']} - {one['type']} -> {one['tail']['text']} ({one['score']:.2f})" for one in found]
    return [*lines[:most], *([f"and {len(lines) - most} more"] if len(lines) > most else [])]
