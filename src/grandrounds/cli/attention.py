"""`grandrounds attention`: what changed in the attention of models, over the same texts."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from grandrounds.cli.console import counting, out, show_json, show_warnings
from grandrounds.cli.options import FORMAT_HELP, JsonOption
from grandrounds.errors import DataError

if TYPE_CHECKING:
    from grandrounds.metrics.attention import Heads


def attention(
    models: Annotated[
        list[Path],
        typer.Argument(help="Two or more: Hugging Face folders, or the model/ folders of runs.", metavar="MODEL..."),
    ],
    text: Annotated[list[Path], typer.Option("--text", help="Files or folders that the models read; may be repeated.")],
    format: Annotated[
        Optional[str], typer.Option("--format", help=f"{FORMAT_HELP} By default text for .txt files, else json.")
    ] = None,
    most: Annotated[Optional[int], typer.Option(help="Read only this many documents, the first ones.", min=1)] = None,
    length: Annotated[
        int, typer.Option(help="How many word pieces of each document to read, at most what every model can.", min=3)
    ] = 128,
    out_folder: Annotated[
        Optional[Path], typer.Option("--out", help="A folder for attention.json, the tables and the pictures.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the attention heads of models: how widely each looks, how differently every two look, and how far apart
    that puts the models.

    Example: `grandrounds attention bert-base clinical-bert federated-bert --text notes/ --out attention`
    """
    from grandrounds.models.attention import attentions
    from grandrounds.reports.attention import rich_tables, summary
    from grandrounds.reports.heads import heads_of, network_of, readers_of, texts_of, write_heads

    readers = readers_of(models)
    longest = min(length, *(encoder.window for encoder in readers.values()))
    chosen = format or ("text" if all(path.suffix in (".txt", "") for path in text) else "json")
    warnings: Counter[str] = Counter()
    found: dict[str, Heads] = {}
    for (name, encoder), path in zip(readers.items(), models, strict=True):
        warnings.clear()
        texts = islice(texts_of(chosen, text, warnings), most)
        total = next((heads.documents for heads in found.values()), None)
        with counting(name, total) as step:
            found[name] = heads_of(attentions(network_of(path, encoder), encoder, texts, longest), step, warnings)
        if not found[name].documents:
            show_warnings(warnings)
            problem = f"there is no document with text to read in the format '{chosen}'; name another with --format"
            raise DataError(problem, path=text[0])
    show_warnings(warnings)
    if out_folder is not None:
        write_heads(out_folder, found)
    if as_json:
        show_json(summary(found))
        return
    for table in rich_tables(found):
        out.print(table)
    if out_folder is not None:
        out.print(f"attention.json, attention.md and the pictures are in {out_folder}", soft_wrap=True)
