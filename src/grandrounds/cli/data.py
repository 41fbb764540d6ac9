"""`grandrounds data`: look at corpora, convert them, partition them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.table import Table

from grandrounds.cli.console import out, show_json, show_warnings, waiting
from grandrounds.cli.options import FORMAT_HELP, ImportOption, JsonOption, ReaderOptions, reader_options
from grandrounds.data.corpora import GENERATED, Source, read_source
from grandrounds.data.documents import Document
from grandrounds.data.formats import FORMATS, Corpus, count_repeated, each, nothing_found, write
from grandrounds.data.formats.source import Lenient, cure, kind
from grandrounds.data.partition import SCHEMES, UNITS, SiteRow
from grandrounds.data.partition import partition as partition_units
from grandrounds.data.structural_entropy import READINGS
from grandrounds.errors import ConfigError, unknown
from grandrounds.registry import TASKS, load_modules

app = typer.Typer(help="Check corpora, convert them, and partition them over sites.", no_args_is_help=True)
Files = Annotated[
    Optional[list[Path]],
    typer.Argument(help="Files or folders; not needed with --format synthetic or synthetic-bags.", metavar="FILES"),
]
FormatOption = Annotated[
    str, typer.Option("--format", help=f"{FORMAT_HELP} Or synthetic or synthetic-bags, which need no files.")
]
LenientOption = Annotated[
    bool, typer.Option("--lenient", help="Leave out what breaks the format, and count it, as data.lenient does.")
]


def source_of(
    files: list[Path] | None,
    format: str,
    options: list[str] | None,
    imports: list[str] | None = None,
    lenient: bool = False,
) -> Source:
    load_modules(imports or [])
    if not files and format not in GENERATED:
        raise ConfigError("name the files to read, or take --format synthetic")
    return Source(format, files or [], reader_options(options), lenient)


def read_files(
    files: list[Path] | None,
    format: str,
    options: list[str] | None,
    imports: list[str] | None = None,
    lenient: bool = False,
) -> Corpus:
    source, warnings = source_of(files, format, options, imports, lenient), Counter[str]()
    with waiting("reading"):
        documents = read_source(source, "train", warnings)
    return Corpus(documents, dict(warnings))


@app.command()
def check(
    files: Files = None,
    format: FormatOption = "json",
    option: ReaderOptions = None,
    imports: ImportOption = None,
    lenient: LenientOption = False,
    show: Annotated[int, typer.Option(help="How many problems to list, before they are counted by kind.", min=0)] = 20,
    as_json: JsonOption = False,
) -> None:
    """Read files as a training run would: list all that breaks the format, and say what was found and left out.

    Exits with 1 where there are problems, unless they are to be left out (--lenient).

    Example: `grandrounds data check cdr/train.txt --format pubtator`
    """
    source = source_of(files, format, option, imports)
    found = Lenient()
    with waiting("reading"):
        if format in GENERATED:
            documents = read_source(source, "train", found)
        else:
            documents = tuple(each(format, source.paths, found, **source.options))
    count_repeated(documents, found)
    if not documents and not found.problems:
        raise nothing_found(format, source.paths, found)
    brief = _brief(documents)
    cures = [] if format in GENERATED else _cures(source, found, brief)
    if as_json:
        listed = [{"file": str(e.path), "line": e.line, "problem": e.problem} for e in found.problems[:show]]
        left_out = {"problems": listed, "left_out": dict(found.kinds), "cures": cures}
        show_json({**brief, "warnings": found.warnings, **left_out})
    else:
        _show_problems(found, show)
        counts = ", ".join(f"{count} {name}" for name, count in brief.items())
        out.print(f"{'without them' if found.kinds else 'good'}: {counts}", soft_wrap=True)
        show_warnings(found.warnings)
        for tried in cures:
            options = " ".join(f"--option {name}={value}" for name, value in tried["options"].items())
            changes = ", ".join(f"{now} {name} instead of {brief[name]}" for name, now in tried["changes"].items())
            out.print(f"with {options}: {changes or 'the same counts'}", soft_wrap=True, markup=False)
    if found.kinds and not lenient:
        raise typer.Exit(1)


def _brief(documents: tuple[Document, ...]) -> dict[str, int]:
    facts = _facts(documents)
    return {name: facts[name] for name in ("documents", "sentences", "mentions", "entities", "relations")}


def _cures(source: Source, found: Lenient, brief: dict[str, int]) -> list[dict[str, Any]]:
    """The options that may read what was left out, each with the counts that it changes."""
    tried = []
    for warning, options in FORMATS[source.format].cures.items():
        if warning in found and not options.items() <= source.options.items():
            documents = tuple(each(source.format, source.paths, Lenient(), **{**source.options, **options}))
            changes = {name: now for name, now in _brief(documents).items() if now != brief[name]}
            tried.append({"options": dict(options), "changes": changes})
    return tried


def _show_problems(found: Lenient, show: int) -> None:
    for error in found.problems[:show]:
        out.print(str(error), soft_wrap=True, markup=False)
    if found.kinds:
        cures = {kind(error.problem): cure(error.problem) for error in reversed(found.problems)}
        total = found.kinds.total()
        out.print(f"{total} problem{'s' * (total > 1)}; --lenient, or data.lenient = true, leaves out:", soft_wrap=True)
        for name, count in found.kinds.most_common():
            hint = f" ({cures[name]})" if cures.get(name) else ""
            out.print(f"  {count} x {name}{hint}", soft_wrap=True, markup=False)


@app.command()
def stats(
    files: Files = None,
    format: FormatOption = "json",
    option: ReaderOptions = None,
    imports: ImportOption = None,
    lenient: LenientOption = False,
    as_json: JsonOption = False,
) -> None:
    """Count documents, mentions and relations by type, and the attributes that a partition can use.

    Example: `grandrounds data stats notes/ --format brat`
    """
    corpus = read_files(files, format, option, imports, lenient)
    facts = _facts(corpus.documents)
    if as_json:
        show_json({**facts, "warnings": dict(corpus.warnings)})
        return
    table = Table(title=", ".join(str(path) for path in files or [Path(format)]))
    table.add_column("what")
    table.add_column("count", justify="right")
    for name, value in facts.items():
        if isinstance(value, dict):
            table.add_section()
            for key, count in value.items():
                table.add_row(f"{name}: {key}", str(count))
        else:
            table.add_row(name, str(value))
    out.print(table)
    show_warnings(corpus.warnings)


@app.command()
def convert(
    files: Annotated[Optional[list[Path]], typer.Argument(help="Files or folders.", metavar="FILES")] = None,
    format: FormatOption = "json",
    option: ReaderOptions = None,
    lenient: LenientOption = False,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="pubtator, brat, bioc, bioc-json, pubannotation, conll, opennre, lines, json, or one of your own.",
        ),
    ] = "json",
    out_path: Annotated[Path, typer.Option("--out", help="A file, or for brat a folder.")] = Path("converted.jsonl"),
    imports: ImportOption = None,
) -> None:
    """Write documents in another format, and count what it can't store.

    Example: `grandrounds data convert cdr/train.txt --format pubtator --to brat --out cdr-brat`
    """
    corpus = read_files(files, format, option, imports, lenient)
    show_warnings(corpus.warnings)
    show_warnings(write(to, corpus.documents, out_path))
    out.print(f"{len(corpus.documents)} documents in {out_path}", soft_wrap=True)


@app.command()
def partition(
    files: Files = None,
    format: FormatOption = "json",
    option: ReaderOptions = None,
    lenient: LenientOption = False,
    scheme: Annotated[str, typer.Option(help=f"How to partition: {', '.join(SCHEMES)}.")] = "iid",
    sites: Annotated[Optional[int], typer.Option(help="How many sites.", min=1)] = None,
    by: Annotated[
        Optional[str],
        typer.Option(
            help="With --scheme by: hospital, patient, specialty ... With time: the attribute that has the date."
        ),
    ] = None,
    alpha: Annotated[
        Optional[float], typer.Option(help="With --scheme dirichlet or quantity: smaller is more skewed.", min=0)
    ] = None,
    entropy: Annotated[
        Optional[str], typer.Option(help=f"With --scheme structural_entropy, which H: {', '.join(READINGS)}.")
    ] = None,
    edges: Annotated[
        Optional[str],
        typer.Option(help="With --scheme structural_entropy: the boundaries of H between sites, such as 6,8,10."),
    ] = None,
    unit: Annotated[Optional[str], typer.Option(help=f"What is never split between sites: {', '.join(UNITS)}.")] = None,
    task: Annotated[
        Optional[str],
        typer.Option(
            help=f"The task whose examples are counted: {', '.join(TASKS)}; by default what --scheme needs, or "
            "sentence_re."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same partition.")] = 1,
    picture: Annotated[Optional[Path], typer.Option(help="Also draw what each site holds, as an HTML page.")] = None,
    plot: Annotated[Optional[Path], typer.Option(help="Also draw documents and H by site, as SVG.")] = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """Partition a corpus over sites and show what each site holds.

    Example: `grandrounds data partition --format synthetic --scheme dirichlet --sites 6 --alpha 0.3`
    """
    from grandrounds.tasks.task import no_example, without_patient

    load_modules(imports or [])
    task = task or ("document_re" if scheme == "structural_entropy" else "sentence_re")
    for what, name, known in (("task", task, TASKS), ("unit", unit or UNITS[0], UNITS)):
        if name not in known:
            raise ConfigError(unknown(what, name, known))
    if plot is not None and plot.suffix != ".svg":
        raise ConfigError(f"--plot writes SVG; name a file that ends in .svg, not '{plot.name}'")
    corpus = read_files(files, format, option, imports, lenient)
    made = TASKS[task].of(TASKS[task].Options(), corpus.documents)
    examples, left = made.examples(corpus.documents)
    if not examples:
        raise no_example(made, "the corpus holds", left)
    left = {**left, **without_patient(corpus.documents, unit or made.unit)}
    parts = partition_units(
        made.units(examples, corpus.documents, unit or made.unit),
        scheme,
        sites=sites,
        seed=seed,
        by=by,
        alpha=alpha,
        entropy=entropy,
        edges=_numbers(edges),
    )
    rows = parts.table([made.answers(example) for example in examples], [str(example.document) for example in examples])
    if picture is not None:
        from grandrounds.reports.report import write_partition

        write_partition(rows, parts.left_out, f"{scheme}: who holds what", picture)
    if plot is not None:
        from grandrounds.federation.files import write_whole
        from grandrounds.reports.plots import PartitionRows, documents_and_entropy

        drawn = documents_and_entropy(f"{scheme}: documents by site", PartitionRows(rows, parts.left_out))
        write_whole(plot, drawn.encode())
    show_warnings({**corpus.warnings, **left})
    if as_json:
        show_json({"sites": [row.to_dict() for row in rows], "left_out": list(parts.left_out)})
        return
    out.print(_partition_table(rows, made.labels))
    if parts.left_out:
        out.print(f"left out, since they got nothing: {', '.join(parts.left_out)}", soft_wrap=True)


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(number) for number in text.split(",")]
    except ValueError:
        raise ConfigError("--edges takes numbers with commas between them: 6,8,10") from None


_COLUMNS = 9  # more labels than these leave no room in a terminal
_COMMONEST = 5


def _partition_table(rows: list[SiteRow], labels: Any) -> Table:
    from grandrounds.reports.wording import H_COLUMN, spread

    by_entropy = [H_COLUMN] if any(row.entropy for row in rows) else []
    held = sum((Counter(row.labels) for row in rows), Counter[str]())
    common = {label for label, _ in held.most_common(_COMMONEST)} if len(labels) > _COLUMNS else set(labels)
    shown = [label for label in labels if label in common]
    rest = [f"{len(labels) - len(shown)} others"] if len(shown) < len(labels) else []
    title = f"who holds what; the {len(shown)} commonest of {len(labels)} labels, all with --json"
    table = Table(title=title if rest else "who holds what")
    for name in ("site", "documents", "examples", *shown, *rest, *by_entropy):
        kept_whole = name == "site" or name in by_entropy
        table.add_column(name, justify="left" if name == "site" else "right", overflow="fold", no_wrap=kept_whole)
    for row in rows:
        counts = [row.documents, row.examples, *(row.labels.get(label, 0) for label in shown)]
        others = [sum(row.labels.values()) - sum(counts[2:])] if rest else []
        table.add_row(row.name, *map(str, counts + others), *(spread(row.entropy) for _ in by_entropy))
    return table


def _facts(documents: tuple[Document, ...]) -> dict[str, Any]:
    return {
        "documents": len(documents),
        "characters": sum(len(document.text) for document in documents),
        "sentences": sum(len(document.sentences) for document in documents),
        "mentions": sum(len(document.mentions) for document in documents),
        "entities": sum(len(document.entities) for document in documents),
        "relations": sum(len(document.relations) for document in documents),
        "mention type": dict(sorted(Counter(m.type for d in documents for m in d.mentions).items())),
        "relation type": dict(sorted(Counter(r.type for d in documents for r in d.relations).items())),
        "distinct values of attribute": _attributes(documents),
    }


def _attributes(documents: tuple[Document, ...]) -> dict[str, int]:
    values: dict[str, set[str]] = {}
    for document in documents:
        for name, value in document.attributes.items():
            values.setdefault(name, set()).add(value)
    return {name: len(found) for name, found in sorted(values.items())}
