"""`grandrounds reproduce`: a paper's tables and figures, its numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from grandrounds.cli.arms import LiveArms
from grandrounds.cli.console import err, out, show_json
from grandrounds.cli.options import JsonOption, ProcessesOption
from grandrounds.config.overrides import parse_override
from grandrounds.errors import ConfigError, GrandRoundsError, unknown

if TYPE_CHECKING:
    from grandrounds.papers.options import ReproduceOptions
    from grandrounds.papers.paper import PaperTable
    from grandrounds.papers.protocol import Paper
    from grandrounds.simulation.sweep import Arm

NAMES = ("feded", "fedlcc", "fedds", "fedner", "fedbert")


def reproduce(
    paper: Annotated[str, typer.Argument(help=f"Which paper: {', '.join(NAMES)}.", metavar="PAPER")],
    words: Annotated[
        Optional[list[str]],
        typer.Argument(
            help="Tables and figures, by default all of the paper's; config keys to change.",
            metavar="[TARGET] [KEY=VALUE]...",
        ),
    ] = None,
    data: Annotated[Optional[Path], typer.Option("--data", help="The folder with the corpora.")] = None,
    corpus: Annotated[
        Optional[str], typer.Option(help="Run on this corpus instead of the paper's; an unknown name lists them.")
    ] = None,
    encoder: Annotated[
        Optional[str],
        typer.Option(
            help="A hub name or a folder; by default the paper's, words for fedds, and tiny for synthetic. For "
            "fedner the frozen language model, such as ELMo's folder; by default none. For fedbert a BERT, by default "
            "the paper's on its own corpora, else new."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many runs of each arm, with seeds 1 to N.", min=1)] = 1,
    rounds: Annotated[
        Optional[int],
        typer.Option(
            help="Rounds of a federation; by default the paper's number, or ours if the paper gives none.",
            min=1,
        ),
    ] = None,
    target_f1: Annotated[
        Optional[float],
        typer.Option(help="The F1 to which rounds are counted; by default the paper's.", min=0, max=1),
    ] = None,
    cells: Annotated[
        Optional[int],
        typer.Option(
            help="Only the first N rows of a grid, fractions C of fedds or values of a sweep of fedner; for fedbert, N "
            "many.",
            min=1,
        ),
    ] = None,
    out_folder: Annotated[
        Optional[Path],
        typer.Option(
            "--out",
            help="The folder for runs, Markdown, JSON and SVG; with the same folder, a stopped command continues.",
        ),
    ] = None,
    search: Annotated[
        bool,
        typer.Option(
            "--search",
            help="First try three learning rates for each arm, with one seed, and take the best on validation data.",
        ),
    ] = False,
    processes: ProcessesOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Run a paper's protocol and show its numbers beside the measured ones.

    Example: `grandrounds reproduce feded table3 --data DIR --seeds 9`
    """
    from grandrounds.papers import PAPERS
    from grandrounds.papers.options import ReproduceOptions

    if paper not in PAPERS:
        raise ConfigError(unknown("paper", paper, PAPERS))
    chosen = PAPERS[paper]
    overrides = dict(parse_override(word) for word in words or [] if "=" in word)
    folder = out_folder or Path("runs") / f"reproduce-{paper}"
    if target_f1 is None:
        target_f1 = ReproduceOptions.target_f1 if chosen.target_f1 is None else chosen.target_f1
    options = ReproduceOptions(
        folder, data, corpus, encoder, seeds, rounds or chosen.rounds, target_f1, cells, overrides, search
    )
    names = _possible(chosen, [word for word in words or [] if "=" not in word], options)
    targets = {name: rounds or chosen.targets[name].rounds or chosen.rounds for name in names}
    _reproduce(chosen, targets, options, processes, as_json)


def _reproduce(
    paper: Paper, targets: Mapping[str, int], options: ReproduceOptions, processes: int, as_json: bool
) -> None:
    """Each target with its number of rounds."""
    from grandrounds.papers.protocol import reproduce as reproduce_target
    from grandrounds.simulation.sweep import run_arms

    def run(arms: Sequence[Arm], base: Path) -> None:
        with LiveArms() as live:
            run_arms(arms, base, processes, live)

    tables = {}
    for name, rounds in targets.items():
        err.print(f"  {name}: {paper.targets[name].title}", soft_wrap=True)
        tables[name] = reproduce_target(paper, name, replace(options, rounds=rounds), run)
        if not as_json:
            _show(tables[name])
    if as_json:
        show_json({name: table.to_dict() for name, table in tables.items()})
    else:
        out.print(f"Markdown, JSON and runs are in {options.out}", soft_wrap=True)


def _possible(paper: Paper, named: Sequence[str], options: ReproduceOptions) -> list[str]:
    """The targets to run. Of those that nobody named, the ones without a corpus are said and passed over."""
    from grandrounds.papers.protocol import places

    for name in named:
        if name not in paper.targets:
            raise ConfigError(unknown(f"target of {paper.name}", name, paper.targets))
    possible, problems = [], dict[str, list[str]]()
    for name in named or [name for name, target in paper.targets.items() if not target.asked]:
        try:
            places(paper, name, options)
            possible.append(name)
        except GrandRoundsError as problem:
            problems.setdefault(str(problem), []).append(name)
    if problems and (named or not possible):
        raise GrandRoundsError(next(iter(problems)))
    for sentence, names in problems.items():
        err.print(f"  not run: {', '.join(names)}: {sentence}", soft_wrap=True)
    return possible


def _show(table: PaperTable) -> None:
    out.print(table.to_rich())
    footnotes = [*table.footnotes]
    if table.differences:
        footnotes.append(
            f"Differs from the paper's protocol, as {table.target}.md tells: {', '.join(table.differences)}."
        )
    for note in footnotes:
        out.print(f"  {note}", soft_wrap=True)
