"""`grandrounds data distant`: label sentences by a knowledge base."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.table import Table

from grandrounds.cli.console import counting, out, show_json, show_warnings, waiting
from grandrounds.cli.data import FormatOption, read_files
from grandrounds.cli.options import ImportOption, JsonOption, ReaderOptions
from grandrounds.data.distant import label
from grandrounds.data.formats import write
from grandrounds.data.knowledge_base import COLUMNS, read_facts
from grandrounds.data.pairs import Pair
from grandrounds.errors import ConfigError


def distant(
    kb: Annotated[Path, typer.Option(help="Facts: head id, relation, tail id, tab-separated; gzip too.")],
    corpus: Annotated[list[Path], typer.Option(help="A file or folder with mentions; may be repeated.")],
    out_path: Annotated[Path, typer.Option("--out", help="Where the instances go, as OpenNRE's JSON lines.")],
    format: FormatOption = "json",
    option: ReaderOptions = None,
    columns: Annotated[
        Optional[str], typer.Option(help="The columns of head, relation and tail in the facts, such as 4,2,3.")
    ] = None,
    header: Annotated[
        bool, typer.Option("--header", help="Skip the first line of the facts, which has headings.")
    ] = False,
    ignore_prefixes: Annotated[
        bool,
        typer.Option("--ignore-prefixes", help="Ignore what comes before a colon in ids: MESH:D001241 is D001241."),
    ] = False,
    types: Annotated[
        Optional[list[str]],
        typer.Option(help="Types that may be related, such as Chemical:Disease; may be repeated. By default all."),
    ] = None,
    na_ratio: Annotated[
        float, typer.Option(help="Instances without a relation (NA) for each instance of a fact.", min=0)
    ] = 1.0,
    max_per_fact: Annotated[
        Optional[int], typer.Option(help="Keep at most this many instances of a fact, drawn by the seed.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same instances.")] = 1,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Label sentences by a knowledge base: distant supervision, done where the text is.

    Two mentions in a sentence are an instance of every relation that a fact states between their concepts. Unrelated
    pairs of the same types are NA. A mention with several ids (D001|D002) counts for each of them. Relations that the
    corpus itself states are ignored. Nothing leaves this machine.

    Example: `grandrounds data distant --kb ctd.tsv --corpus notes.txt --format pubtator --out labelled.jsonl`

    With ChemDisGene's table of CTD's facts (document, relation, tail, head):
    `--kb train_relationships.tsv.gz --columns 4,2,3 --corpus dev_abstracts.txt.gz --format pubtator
    --types Chemical:Gene --types Chemical:Disease --types Gene:Disease`, since a gene may have the number of a species.
    """
    where = _columns(columns)
    allowed = _types(types)
    warnings: Counter[str] = Counter()
    with waiting("reading facts"):
        facts = read_facts(kb, warnings, columns=where, header=header, ignore_prefixes=ignore_prefixes)
    read = read_files(corpus, format, option, imports)
    with counting("labelling", 2 * len(read.documents)) as step:
        labelled = label(
            read.documents,
            facts,
            warnings,
            na_ratio=na_ratio,
            seed=seed,
            types=allowed,
            max_per_fact=max_per_fact,
            step=step,
        )
    warnings.update(write("opennre", labelled.documents(read.documents), out_path))
    reported = labelled.statistics
    compared = "compared without prefixes" if ignore_prefixes else "compared as written, with prefixes if any"
    if as_json:
        show_json({**reported, "ids": compared, "warnings": {**read.warnings, **warnings}})
        return
    out.print(_table(reported))
    out.print(f"{reported['instances']} instances in {out_path}; ids were {compared}", soft_wrap=True)
    show_warnings({**read.warnings, **warnings})


def _columns(text: str | None) -> list[int] | None:
    if text is None:
        return None
    numbers = [part.strip() for part in text.split(",")]
    if len(numbers) != len(COLUMNS) or not all(number.isascii() and number.isdigit() for number in numbers):
        raise ConfigError("--columns takes the numbers of the columns of head, relation and tail, from 1 on: 4,2,3")
    return [int(number) for number in numbers]


def _types(texts: list[str] | None) -> list[Pair] | None:
    pairs = [text.partition(":")[::2] for text in texts or []]
    if not all(head and tail for head, tail in pairs):
        raise ConfigError("--types takes the types of head and tail with a colon between them: Chemical:Disease")
    return [(head, tail) for head, tail in pairs] or None


def _table(reported: dict[str, Any]) -> Table:
    table = Table(title="distant labels")
    table.add_column("what")
    table.add_column("count", justify="right")
    for name, value in reported.items():
        if isinstance(value, dict):
            table.add_section()
            for key, count in value.items():
                table.add_row(f"{name}: {key}", _figure(count))
            table.add_section()
        else:
            table.add_row(name, _figure(value))
    return table


def _figure(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
