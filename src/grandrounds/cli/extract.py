"""`grandrounds extract`: what models find in text."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from grandrounds.cli.console import DocumentBar, err, out, show_warnings
from grandrounds.cli.options import (
    FORMAT_HELP,
    BatchOption,
    DeviceOption,
    ImportOption,
    ReaderOptions,
    ReadingProcesses,
    reader_options,
)
from grandrounds.errors import ConfigError, GrandRoundsError, unknown
from grandrounds.registry import FORMATS, load_modules

if TYPE_CHECKING:
    from grandrounds.data.documents import Document
    from grandrounds.pipeline.pipeline import Pipeline

STDIN = "-"
WRITTEN = ("html", "pubtator", "brat", "conll", "opennre", "json", "dict")
"""Built in; one's own may be added with --import."""


def extract(
    words: Annotated[
        list[str],
        typer.Argument(
            help="One or more model folders, taggers and relation models, or a saved pipeline; then files or folders, "
            "or - for standard input.",
            metavar="MODEL... INPUT...",
        ),
    ],
    format: Annotated[
        Optional[str],
        typer.Option(
            "--format",
            help=f"{FORMAT_HELP} By default text for standard input, .txt files and folders of them, else json.",
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help=f"How to write what is found: {', '.join(WRITTEN)}. dict is for programs: JSON lines with the text of "
            "each mention, numeric scores and evidence; json can be read again.",
        ),
    ] = "json",
    out_path: Annotated[
        Optional[Path],
        typer.Option("--out", help="The output file or folder; by default JSON goes to standard output."),
    ] = None,
    threshold: Annotated[
        Optional[float],
        typer.Option(
            help="Leave out what scores lower. For a document_re model, 0.5 is the threshold chosen on validation "
            "data; lower values change nothing.",
            min=0,
            max=1,
        ),
    ] = None,
    window: Annotated[
        Optional[int],
        typer.Option(
            help="Sentences of a window in which a document_re model relates entities, by default 40; windows overlap "
            "by half.",
            min=1,
        ),
    ] = None,
    dictionary: Annotated[
        Optional[Path],
        typer.Option(help="Names and their concepts, as `grandrounds link build` writes them: link mentions by it."),
    ] = None,
    assertions: Annotated[
        bool,
        typer.Option(
            help="Mark mentions that are negated, possible, of the family, historical or conditional (ConText)."
        ),
    ] = True,
    batch: BatchOption = 64,
    device: DeviceOption = "cpu",
    processes: ReadingProcesses = 1,
    option: ReaderOptions = None,
    imports: ImportOption = None,
) -> None:
    """Read text: find mentions, and relations between them; each has a score and points to characters.

    A ner model finds mentions in text, and a joint model mentions and the relations between them. The other models
    relate mentions: those that a model before them finds, or those that the documents come with. Relations have the
    sentences that say so as evidence.

    Raw text is split into sentences and words as the first model's training data were. If those had one sentence per
    line but your text is wrapped, add --option breaks=paragraph.

    Example: `grandrounds extract ner/model re/model note.txt --to html --out found.html`
    """
    from grandrounds.pipeline.processes import Models
    from grandrounds.pipeline.processes import extract as extract_all

    load_modules(imports or [])
    folders, inputs = _parted(words)
    written = [*WRITTEN, *(name for name in FORMATS if FORMATS.at_hand(name) and FORMATS[name].writer)]
    if to not in written or to == "lines":
        raise ConfigError(unknown("output format", to, written))
    if out_path is None and to not in ("json", "dict"):
        raise ConfigError(f"--to {to} writes to a file or folder; name it with --out")
    settings = {"threshold": threshold, "window": window, "dictionary": dictionary}
    settings["assertions"] = None if assertions else False
    models = Models(folders, settings, device, imports or ())
    pipeline = models.load()
    source = Source([Path(name) for name in inputs if name != STDIN], STDIN in inputs, format, reader_options(option))
    with DocumentBar(source.count(pipeline)) as bar:
        found = extract_all(models, pipeline, source.documents(pipeline, pipeline.warnings), batch, processes)
        _write(pipeline, _counted(found, pipeline, bar), to, out_path)


def _write(pipeline: Pipeline, found: Iterable[Document], to: str, out_path: Path | None) -> None:
    """As it comes, where the format allows."""
    from grandrounds.data.formats import write
    from grandrounds.reports.extraction import extraction_page

    if out_path is not None:
        out_path.parent.mkdir(parents=True, exist_ok=True)
    if out_path is None or to in ("json", "dict"):
        _write_lines(found, to, out_path)
    elif to == "html":
        out_path.write_text(
            extraction_page(list(found), f"{pipeline.finds.capitalize()} found", pipeline.finds), "utf-8"
        )
    else:
        pipeline.warnings.update(write(to, found, out_path))
    show_warnings(pipeline.warnings)
    if out_path is not None:
        out.print(str(out_path), soft_wrap=True)


def _parted(words: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Models come first; the first word that is none begins the inputs."""
    from grandrounds.pipeline.load import is_model

    models: list[Path] = []
    for word in words:
        if word == STDIN or not is_model(Path(word)):
            break
        models.append(Path(word))
    inputs = list(words[len(models) :])
    if not models:
        raise GrandRoundsError(
            f"'{words[0]}' is not a saved model: it has no grandrounds.json; give the model/ folder of a finished run"
        )
    if not inputs:
        raise GrandRoundsError("nothing to read: name files or folders after the models, or - for standard input")
    return models, inputs


@dataclass(frozen=True)
class Source:
    """Files and standard input, read as the training data of the first model were."""

    paths: Sequence[Path]
    stdin: bool
    format: str | None
    options: Mapping[str, Any]

    def documents(self, pipeline: Pipeline, warnings: Counter[str]) -> Iterator[str | Document]:
        """One at a time."""
        format = self.format or ("text" if all(map(_is_text, self.paths)) else "json")
        if format == "text" and not pipeline.taggers:
            raise GrandRoundsError(
                f"a {pipeline.relaters[0].task.name} model relates mentions, and text has none: give it documents with "
                "mentions (--format), or a ner model before it: grandrounds extract NER_MODEL RE_MODEL note.txt"
            )
        if self.stdin:
            if format != "text":
                raise ConfigError(f"standard input is read as text, not as '{format}'; give a file")
            yield sys.stdin.buffer.read().decode("utf-8", errors="replace").removeprefix("\ufeff")
        if self.paths:
            yield from (*pipeline.taggers, *pipeline.relaters)[0].each(self.paths, format, self.options, warnings)

    def count(self, pipeline: Pipeline) -> int | None:
        """How many documents there are, for someone who watches: reading files twice costs little beside a model."""
        if not err.is_terminal or not all(path.is_file() or path.is_dir() for path in self.paths):
            return None
        files = replace(self, stdin=False).documents(pipeline, Counter())
        return self.stdin + sum(1 for _ in files)


def _is_text(path: Path) -> bool:
    """A .txt file, or a folder that has such files and no JSON."""
    return path.suffix == ".txt" or (any(path.rglob("*.txt")) and not any(path.rglob("*.json*")))


def _counted(documents: Iterable[Document], pipeline: Pipeline, bar: DocumentBar) -> Iterator[Document]:
    """The same, with a bar; at the end, how much was found."""
    from grandrounds.reports.wording import plural

    kinds = [*(["mentions"] if pipeline.taggers else []), *(["relations"] if pipeline.finds == "relations" else [])]
    number, found, began = 0, dict.fromkeys(kinds, 0), time.monotonic()
    for document in documents:
        number += 1
        for kind in kinds:
            found[kind] += len(getattr(document, kind))
        bar.read(number)
        yield document
    rate = number / max(time.monotonic() - began, 1e-3)
    counts = ", ".join(plural(n, kind.removesuffix("s")) for kind, n in found.items())
    err.print(f"  {counts} in {plural(number, 'document')}, {rate:.1f} a second")


def _write_lines(documents: Iterable[Document], to: str, path: Path | None) -> None:
    from grandrounds.data.formats.documents_json import render

    lines = (json.dumps(d.to_dict(), ensure_ascii=False) + "\n" if to == "dict" else render([d]) for d in documents)
    if path is None:
        sys.stdout.writelines(lines)
        return
    part = path.with_name(f".{path.name}.part")  # the input may be the same file, and is read while this is written
    try:
        with part.open("w", encoding="utf-8") as file:
            file.writelines(lines)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
