"""`grandrounds extract`: what a model finds in documents."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import bars, err, out, show_warnings
from grandrounds.cli.options import FORMAT_HELP, ImportOption, ModelPath
from grandrounds.data.documents import Document
from grandrounds.errors import ConfigError, unknown
from grandrounds.registry import FORMATS, load_modules

WRITTEN = ("html", "pubtator", "brat", "conll", "opennre", "json")
"""Built in; one's own may be added with --import."""


def extract(
    model: ModelPath,
    source: Annotated[
        list[Path], typer.Argument(help="Text for a ner model, documents with mentions for others.", metavar="INPUT")
    ],
    format: Annotated[
        Optional[str], typer.Option("--format", help=f"{FORMAT_HELP} By default text for .txt files, else json.")
    ] = None,
    to: Annotated[str, typer.Option("--to", help=f"The output format: {', '.join(WRITTEN)}.")] = "json",
    out_path: Annotated[
        Optional[Path],
        typer.Option("--out", help="The output file or folder; by default JSON goes to standard output."),
    ] = None,
    threshold: Annotated[
        float,
        typer.Option(
            help="Leave out what scores lower. A document_re model finds nothing up to 0.5, which stands for the "
            "threshold chosen on validation data.",
            min=0,
            max=1,
        ),
    ] = 0.0,
    imports: ImportOption = None,
) -> None:
    """Find mentions in text, or relations in documents with mentions; each has a score and points to characters.

    A ner model finds mentions, the others relations between mentions that are there. Those of a document_re model join
    entities and have as evidence the numbers of the sentences that weighed most.

    Example: `grandrounds extract runs/demo/fedavg/model notes/ --format brat --to html --out found.html`
    """
    from grandrounds.data.formats import read, write
    from grandrounds.data.formats.documents_json import render
    from grandrounds.reports.extraction import extraction_page
    from grandrounds.tasks.saved import load

    load_modules(imports or [])
    written = [*WRITTEN, *(name for name in FORMATS if FORMATS.at_hand(name) and FORMATS[name].writer)]
    if to not in written or to == "lines":
        raise ConfigError(unknown("output format", to, written))
    if out_path is None and to != "json":
        raise ConfigError(f"--to {to} writes to a file or folder; name it with --out")
    corpus = read(source, format or ("text" if all(path.suffix == ".txt" for path in source) else "json"))
    show_warnings(corpus.warnings)
    extractor, found = load(model), list[Document]()
    finds = extractor.extraction.finds
    show_warnings(extractor.left_out(corpus.documents))
    with bars() as progress:
        task = progress.add_task("documents", total=len(corpus.documents), word="")
        for document in corpus.documents:
            found.append(extractor.extract(document, threshold))
            progress.advance(task)
    if out_path is None:
        sys.stdout.write(render(found))
        return
    if to == "html":
        out_path.write_text(
            extraction_page(found, f"{finds.capitalize()} in {', '.join(path.name for path in source)}", finds),
            encoding="utf-8",
        )
    else:
        show_warnings(write(to, found, out_path))
    err.print(f"  {sum(len(getattr(document, finds)) for document in found)} {finds} in {len(found)} documents")
    out.print(str(out_path), soft_wrap=True)
