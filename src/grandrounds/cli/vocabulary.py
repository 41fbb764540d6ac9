"""`grandrounds vocabulary`: one vocabulary for sites whose text nobody may see."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich.table import Table
from rich.text import Text

from grandrounds.cli.console import counting, out, show_json, show_warnings, waiting
from grandrounds.cli.data import FormatOption, source_of
from grandrounds.cli.options import ImportOption, JsonOption, ReaderOptions
from grandrounds.data.corpora import GENERATED, stream_source
from grandrounds.errors import ConfigError, GrandRoundsError

if TYPE_CHECKING:
    from grandrounds.federation.payloads import VocabularyCounts

NOBODYS = (
    "documents do not name their patient: a patient with several is counted several times, so that the threshold "
    "protects less; give each a 'patient' (notes-json, mimic-notes), or set a higher --documents"
)
app = typer.Typer(help="Learn word pieces from the text of all sites without moving it.", no_args_is_help=True)


@app.command()
def count(
    files: Annotated[list[Path], typer.Argument(help="The site's own documents: files or folders.")],
    policy: Annotated[
        Path, typer.Option(help="The site's policy file; a line such as vocabulary = 5 allows the counts to leave.")
    ],
    out_path: Annotated[Path, typer.Option("--out", help="Where the counts go, to be sent to the coordinator.")],
    documents: Annotated[
        Optional[int],
        typer.Option(
            help="A string leaves if it occurs in at least this many documents; by default the policy's number.", min=1
        ),
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Only whole words, for the encoder 'words'.")] = False,
    format: FormatOption = "json",
    option: ReaderOptions = None,
    imports: ImportOption = None,
    as_json: JsonOption = False,
) -> None:
    """At a site: count the words, and parts of rare words, that occur in enough of its documents.

    A word that occurs in few documents is counted by its longest parts that occur in many. The file has no other
    string.

    Example: `grandrounds vocabulary count notes/ --format text --policy policy.toml --out charity.counts`
    """
    from grandrounds.federation.files import write_whole
    from grandrounds.federation.payloads import VocabularyCounts
    from grandrounds.federation.policy import Policy
    from grandrounds.models.word_pieces import by_person, count_strings

    allowed = Policy.load(policy)
    least = documents or allowed.vocabulary or 1
    allowed.check(VocabularyCounts(least, {}).pack("fp32"))  # before hours of counting
    if format in GENERATED:
        raise ConfigError(f"a site counts documents of its own, and '{format}' ones are made here; name their format")
    source, warnings = source_of(files, format, option, imports), Counter[str]()
    with waiting("counting"):
        texts = [(read.attributes.get("patient"), read.text) for read in stream_source(source, "train", warnings)]
        held = by_person(texts)
        counts = count_strings(held, least, whole=words)
    if nobodys := sum(patient is None for patient, _ in texts):
        warnings[NOBODYS] += nobodys
    show_warnings(warnings)
    if not counts:
        raise GrandRoundsError(
            f"no word, nor a part of one, is in {least} of {len(held):,} documents; count more of them together, or "
            "take a lower number that the policy allows"
        )
    packed = VocabularyCounts(least, counts).pack("fp32")
    allowed.check(packed)
    write_whole(out_path, packed.to_bytes())
    if as_json:
        reported = {"documents": len(texts), "counted": len(held), "without_patient": nobodys}
        show_json({**reported, "least": least, "strings": len(counts), "bytes": packed.nbytes})
        return
    joined = "" if len(held) == len(texts) else f" (of {len(texts):,}: a patient's are one, and equal ones)"
    out.print(
        f"{len(counts):,} strings, each in at least {least} of {len(held):,} documents{joined}, are in '{out_path}' "
        f"({packed.nbytes:,} bytes); look through them with 'grandrounds vocabulary show {out_path}', then send the "
        "file to the coordinator",
        soft_wrap=True,
    )


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="The counts of a site.")],
    as_json: JsonOption = False,
) -> None:
    """Show everything in a file of counts: every string and how often it occurs, most common first.

    Example: `grandrounds vocabulary show charity.counts`
    """
    found = _read(file)
    counts = dict(sorted(found.counts.items(), key=lambda item: (-item[1], item[0])))
    if as_json:
        show_json({"least": found.least, "counts": counts})
        return
    table = Table(title=f"strings that at least {found.least} documents have")
    table.add_column("string")
    table.add_column("count", justify="right")
    for string, times in counts.items():
        table.add_row(Text(string), f"{times:,}")
    out.print(table)


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(help="The counts of the sites.")],
    out_path: Annotated[
        Path, typer.Option("--out", help="Where to write the vocabulary, one word piece or word per line.")
    ],
    size: Annotated[
        Optional[int],
        typer.Option(
            help="The size of the vocabulary, at most; by default 8,000 word pieces, or 50,000 words.", min=100
        ),
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="Whole words, as the encoder 'words' reads them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """At the coordinator: make one vocabulary from the counts of all sites, for model.vocabulary.

    Beside VOCAB.txt of word pieces goes VOCAB.usage.json: how often each is used, with which a new BERT begins.

    Example: `grandrounds vocabulary merge *.counts --size 8000 --out vocab.txt`
    """
    from grandrounds.models.word_pieces import write_pieces, write_words

    total, seen = Counter[str](), dict[bytes, Path]()
    with counting("reading", len(files)) as step:
        for file in files:
            total.update(_read(file).counts)
            first = seen.setdefault(sha256(file.read_bytes()).digest(), file)
            if first is not file:
                raise GrandRoundsError(f"'{file}' holds the same counts as '{first}'; give those of each site once")
            step()
    if not total:
        raise GrandRoundsError("the counts hold no string to learn word pieces from; ask the sites to count again")
    if words:
        pieces = write_words(out_path, total, size or 50_000)
    else:
        with waiting("learning word pieces"):
            pieces = write_pieces(out_path, total, size or 8000)
    if as_json:
        show_json({"sites": len(files), "strings": len(total), "pieces": len(pieces)})
    else:
        out.print(
            f"{len(pieces):,} {'words' if words else 'word pieces'} of {len(files)} sites are in '{out_path}'",
            soft_wrap=True,
        )


def _read(path: Path) -> VocabularyCounts:
    from grandrounds.federation.payloads import Expected, Packed, PayloadError, VocabularyCounts, unpack

    try:
        found = unpack(Packed.from_bytes(path.read_bytes()), Expected())
    except (OSError, PayloadError) as error:
        raise GrandRoundsError(f"'{path}' can't be read as vocabulary counts: {error}") from error
    if not isinstance(found, VocabularyCounts):
        raise GrandRoundsError(
            f"'{path}' holds no vocabulary counts; a site makes them with: grandrounds vocabulary count"
        )
    return found
