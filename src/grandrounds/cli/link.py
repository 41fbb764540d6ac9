"""`grandrounds link`: a dictionary of concepts and their names, compiled and tried."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.table import Table
from rich.text import Text

from grandrounds.cli.console import out, show_json, show_warnings, waiting
from grandrounds.cli.options import JsonOption

app = typer.Typer(help="Link mentions to the concepts of a dictionary of your own.", no_args_is_help=True)


@app.command()
def build(
    tsv: Annotated[
        Path,
        typer.Argument(help="A line a concept, tab-separated: id, name, synonyms joined by '|'.", metavar="TSV"),
    ],
    out_path: Annotated[Path, typer.Option("--out", help="Where the compiled dictionary goes.")],
    as_json: JsonOption = False,
) -> None:
    """Compile a dictionary, so that it starts at once however many names it has.

    A concept may have several lines; a header and lines that start with '#' are skipped. A name of several concepts
    means the one whose preferred name it is, then the one listed first.

    Example: `grandrounds link build concepts.tsv --out concepts.dictionary`
    """
    from grandrounds.pipeline.linking import Dictionary

    with waiting("compiling"):
        dictionary = Dictionary.build(tsv, out_path)
    counts, warnings = dictionary.counts, dictionary.warnings
    dictionary.close()
    show_warnings(warnings)
    if as_json:
        show_json({**counts, "bytes": out_path.stat().st_size, "notes": warnings})
        return
    out.print(
        f"{counts['names']:,} names of {counts['concepts']:,} concepts are in '{out_path}'; try it with: grandrounds "
        f"link show {out_path} NAME",
        soft_wrap=True,
        markup=False,
    )


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="A compiled dictionary.")],
    names: Annotated[list[str], typer.Argument(help="What to look up.", metavar="NAME...")],
    threshold: Annotated[
        Optional[float],
        typer.Option(help="How alike, up to 1, a name must be that is spelt otherwise: 0.8 by default; 1 takes none."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show which concept each name is linked to, and how.

    Example: `grandrounds link show concepts.dictionary "heart attacks" HTN`
    """
    from grandrounds.pipeline.linking import THRESHOLD, Dictionary

    with Dictionary.open(file) as dictionary:
        links = dictionary.link(names, THRESHOLD if threshold is None else threshold)
    if as_json:
        show_json(
            [{"text": name, "link": asdict(link) if link else None} for name, link in zip(names, links, strict=True)]
        )
        return
    table = Table()
    for heading in ("text", "concept", "name", "how", "score", "concepts of that name"):
        table.add_column(heading, justify="right" if heading.startswith(("score", "concepts")) else "left")
    for name, link in zip(names, links, strict=True):
        cells = (link.concept, link.name, link.how, f"{link.score:.4f}", f"{link.concepts}") if link else ("none",)
        table.add_row(*(Text(cell) for cell in (name, *cells)))
    out.print(table)
