"""`grandrounds vocabulary`: one vocabulary for sites whose text nobody may see."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.table import Table

from grandrounds.cli.console import counting, out, show_json, show_notes, waiting
from grandrounds.cli.data import FormatOption, ReaderOptions, read_files
from grandrounds.cli.run import JsonOption
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.files import write_whole
from grandrounds.federation.payloads import Expected, Packed, PayloadError, VocabularyCounts, unpack
from grandrounds.federation.policy import Policy
from grandrounds.models.word_pieces import by_person, count_strings, cut, words_in, write_pieces

app = typer.Typer(help="Learn word pieces from all sites' text, which stays where it is.", no_args_is_help=True)


@app.command()
def count(
    files: Annotated[list[Path], typer.Argument(help="The site's own documents: files or folders.")],
    policy: Annotated[Path, typer.Option(help="The site's policy; a line vocabulary = 5 lets such strings leave.")],
    out_path: Annotated[Path, typer.Option("--out", help="Where the counts go, to be sent to the coordinator.")],
    documents: Annotated[
        Optional[int], typer.Option(help="A string leaves if so many documents have it; the policy's number otherwise.")
    ] = None,
    format: FormatOption = "json",
    option: ReaderOptions = None,
    as_json: JsonOption = False,
) -> None:
    """At a site: count the words, and parts of rare words, that enough of its documents have.

    A word that few documents have is counted by its longest parts that many have; no other string is in the file.

    Example: `grandrounds vocabulary count notes/ --format text --policy policy.toml --out charity.counts`
    """
    allowed = Policy.load(policy)
    least = allowed.vocabulary if documents is None else documents
    corpus = read_files(files, format, option)
    with waiting("counting"):
        texts = by_person((document.attributes.get("patient"), document.text) for document in corpus.documents)
        counts = count_strings(texts, least or 1)
    packed = VocabularyCounts(least or 1, counts).pack("fp32")
    allowed.check(packed)
    write_whole(out_path, packed.to_bytes())
    about = {"documents": len(corpus.documents), "least": least, "strings": len(counts), "bytes": packed.nbytes}
    if as_json:
        show_json(about)
        return
    show_notes(corpus.notes)
    out.print(
        f"{len(counts):,} strings, each in at least {least} of {len(corpus.documents):,} documents, are in "
        f"'{out_path}' ({packed.nbytes:,} bytes); look through it, then send it to the coordinator",
        soft_wrap=True,
        markup=False,
    )


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(help="What the sites counted.")],
    out_path: Annotated[Path, typer.Option("--out", help="Where the vocabulary goes, a word piece a line.")],
    size: Annotated[int, typer.Option(help="How many word pieces, at most.", min=100)] = 8000,
    as_json: JsonOption = False,
) -> None:
    """At the coordinator: one vocabulary from the counts of all sites, for model.vocabulary.

    Example: `grandrounds vocabulary merge *.counts --size 8000 --out vocab.txt`
    """
    total: Counter[str] = Counter()
    with counting("reading", len(files)) as step:
        for file in files:
            total.update(_read(file).counts)
            step()
    with waiting("learning word pieces"):
        pieces = write_pieces(out_path, total, size)
    if as_json:
        show_json({"sites": len(files), "strings": len(total), "pieces": len(pieces)})
    else:
        out.print(
            f"{len(pieces):,} word pieces of {len(files)} sites are in '{out_path}'", soft_wrap=True, markup=False
        )


@app.command()
def compare(
    one: Annotated[Path, typer.Argument(help="A vocabulary.")],
    other: Annotated[Path, typer.Argument(help="Another one.")],
    files: Annotated[list[Path], typer.Argument(help="Text to cut into pieces.")],
    format: FormatOption = "json",
    option: ReaderOptions = None,
    as_json: JsonOption = False,
) -> None:
    """What two vocabularies have in common, and into how many pieces each cuts a word of some text."""
    vocabularies = [(path, frozenset(_pieces(path))) for path in (one, other)]
    words = Counter(
        word for document in read_files(files, format, option).documents for word in words_in(document.text)
    )
    if not words:
        raise GrandRoundsError("the text has no word to cut into pieces")
    rows, total = [], sum(words.values())
    for path, known in vocabularies:
        parts = {word: cut(word, known) for word in words}
        rows.append(
            {
                "vocabulary": path.name,
                "pieces": len(known),
                "pieces_per_word": sum(len(parts[word] or ("",)) * times for word, times in words.items()) / total,
                "unknown_words": sum(times for word, times in words.items() if parts[word] is None) / total,
            }
        )
    (_, ours), (_, theirs) = vocabularies
    shared = len(ours & theirs) / max(len(ours), len(theirs))
    if as_json:
        show_json({"in_common": shared, "words": total, "vocabularies": rows})
        return
    out.print(f"{shared:.1%} of the pieces are in common", markup=False)
    table = Table("vocabulary", "pieces", "pieces a word", "words unknown")
    for row in rows:
        table.add_row(
            str(row["vocabulary"]), f"{row['pieces']:,}", f"{row['pieces_per_word']:.3f}", f"{row['unknown_words']:.2%}"
        )
    out.print(table)


def _read(path: Path) -> VocabularyCounts:
    try:
        found = unpack(Packed.from_bytes(path.read_bytes()), Expected())
    except (OSError, PayloadError) as error:
        raise GrandRoundsError(f"'{path}' can't be read as vocabulary counts: {error}") from error
    if not isinstance(found, VocabularyCounts):
        raise GrandRoundsError(
            f"'{path}' holds no vocabulary counts; a site makes them with: grandrounds vocabulary count"
        )
    return found


def _pieces(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise GrandRoundsError(f"'{path}' can't be read as a vocabulary: {error}") from error
