"""`grandrounds evaluate`: a saved model on an annotated corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import DocumentBar, out, show_json, show_warnings, waiting
from grandrounds.cli.options import (
    FORMAT_HELP,
    BatchOption,
    DeviceOption,
    ImportOption,
    JsonOption,
    ModelPath,
    ReaderOptions,
    ReadingProcesses,
    reader_options,
)


def evaluate(
    model: ModelPath,
    corpus: Annotated[list[Path], typer.Argument(help="Annotated files or folders.", metavar="CORPUS")],
    format: Annotated[
        Optional[str],
        typer.Option("--format", help=f"{FORMAT_HELP} By default that of the training data, with its options."),
    ] = None,
    batch: BatchOption = 64,
    device: DeviceOption = "cpu",
    processes: ReadingProcesses = 1,
    option: ReaderOptions = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score a model on a corpus, per class and compared with the trivial baseline.

    Example: `grandrounds evaluate runs/gad/model gad/2/test.tsv --format biobert-tsv`
    """
    from grandrounds.cli.scores import score_table
    from grandrounds.metrics.score import Score
    from grandrounds.pipeline.processes import Models
    from grandrounds.pipeline.processes import evaluate as evaluate_all
    from grandrounds.registry import load_modules
    from grandrounds.tasks.saved import load

    load_modules(imports or [])
    with waiting("reading"):
        extractor = load(model)
        chosen = format or (extractor.trained.format if extractor.trained else "json")
        documents = extractor.read(corpus, chosen, reader_options(option))
    models = Models([model], {}, device, imports or ())
    with DocumentBar(len(documents.documents)) as bar:
        score, left = evaluate_all(models, extractor, documents.documents, batch, processes, bar.read)
    show_warnings({**documents.warnings, **left})
    if as_json:
        show_json(score)
    else:
        out.print(score_table(f"{model} on {', '.join(str(path) for path in corpus)}", Score.model_validate(score)))
