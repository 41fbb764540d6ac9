"""`grandrounds privacy attack`: what a coordinator could find out about a site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.table import Table
from rich.text import Text

from grandrounds.cli.console import Live, err, out, show_json
from grandrounds.cli.options import ConfigPath, DataOption, ImportOption, JsonOption


def attack(
    config: ConfigPath,
    overrides: Annotated[
        Optional[list[str]],
        typer.Argument(help="Config keys to change: federation.rounds=5 algorithm.name=feded", metavar="KEY=VALUE"),
    ] = None,
    out_folder: Annotated[
        Path, typer.Option("--out", help="A new folder for the runs, attack.json and attack.html.")
    ] = Path("runs/attack"),
    protect: Annotated[
        Optional[list[str]],
        typer.Option(
            "--protect",
            help="A setting to compare with: the run is repeated with it. May be repeated; all hold together.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    site: Annotated[str, typer.Option("--site", help="The site that is looked at; by default the first.")] = "",
    canaries: Annotated[
        int, typer.Option(help="Test examples that are planted at the site; a quarter of them at most.", min=4)
    ] = 32,
    repeated: Annotated[int, typer.Option("--repeat", help="How often each canary is planted.", min=1)] = 8,
    data: DataOption = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what an honest but curious coordinator finds out about a site, before the site joins: the words of its
    notes, the examples that it trains on, and canaries that are planted among them.

    Everything runs on this machine. A hospital takes its own notes as the site's corpus.

    Example: `grandrounds privacy attack experiments/synthetic.toml --protect model.freeze='["embeddings"]'`
    """
    from grandrounds.config.schema import load_config
    from grandrounds.errors import GrandRoundsError
    from grandrounds.reports.leakage import basis, figures, write_page
    from grandrounds.runs.provenance import provenance
    from grandrounds.simulation.curious import attack as attacked

    if out_folder.exists() and (not out_folder.is_dir() or any(out_folder.iterdir())):
        raise GrandRoundsError(f"'{out_folder}' is not empty; choose another folder with --out")
    given = overrides or []
    loaded = {"as configured": load_config(config, given, imports or [])}
    if protect:
        loaded["protected"] = load_config(config, [*given, *protect], imports or [])
    leaks = {}
    for name, one in loaded.items():
        with Live() as live:
            folder = out_folder / name.replace(" ", "-")
            leaks[name] = attacked(one, data or config.parent, folder, live, site, canaries, repeated)
    settings, where = protect or [], provenance()
    found = {
        "attacks": {name: leak.to_dict() for name, leak in leaks.items()},
        "settings": settings,
        "commit": where["commit"],
        "versions": where["versions"],
    }
    (out_folder / "attack.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    page = write_page(leaks, settings, out_folder / "attack.html")
    if as_json:
        show_json(found)
        return
    head, rows = figures(leaks)
    table = Table(title=Text(f"What a curious coordinator finds out about {next(iter(leaks.values())).site}"))
    for place, name in enumerate(head):
        table.add_column(name, overflow="fold", justify="right" if place else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    out.print(table)
    for sentence in basis(leaks):
        err.print(Text(f"  {sentence}"), soft_wrap=True)
    out.print(Text(f"The page is {page}"), soft_wrap=True)
