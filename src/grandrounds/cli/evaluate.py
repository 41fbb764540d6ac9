"""`grandrounds evaluate`: a saved model on an annotated corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grandrounds.cli.console import out, score_table, show_json, show_notes, waiting
from grandrounds.cli.run import JsonOption
from grandrounds.data.formats import FORMATS, read
from grandrounds.tasks.saved import load

FORMAT_HELP = f"How the files are written: {', '.join(FORMATS)}."
ModelPath = Annotated[Path, typer.Argument(help="The model/ folder of a run.", metavar="MODEL")]


def evaluate(
    model: ModelPath,
    corpus: Annotated[list[Path], typer.Argument(help="Annotated files or folders.", metavar="CORPUS")],
    format: Annotated[str, typer.Option("--format", help=FORMAT_HELP)] = "json",
    as_json: JsonOption = False,
) -> None:
    """Score a model on a corpus, per class and beside the trivial baseline.

    Example: `grandrounds evaluate runs/gad/model gad/2/test.tsv --format biobert-tsv`
    """
    with waiting("reading and scoring"):
        extractor = load(model)
        documents = read(format, corpus)
        score, left = extractor.evaluate(documents.documents)
    show_notes({**documents.notes, **left})
    if as_json:
        show_json(score)
    else:
        out.print(score_table(f"{model} on {', '.join(str(path) for path in corpus)}", score))
