"""CoNLL: a token and its tag a line, a blank line between sentences, `-DOCSTART-` between documents.

The text is rebuilt with a space between tokens and a newline between sentences. A file without
`-DOCSTART-` does not say where documents start, so each sentence becomes one: a partition then can't be
misled by documents that never were. Tags are decoded as the shared task's conlleval does, which reads
BIO, IOB1 and BIOES alike and mends broken sequences; what it mends is counted. A tag without a type (B,
I, as in BioBERT's files) gets the type "Entity".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from grandrounds.data.documents import Document, Entity, Mention, Span
from grandrounds.data.formats.source import Format, Warnings, lines, load, placed, save
from grandrounds.errors import DataError, GrandRoundsError, unknown

SCHEMES = {"BIO": "BIO", "IOB1": "BIO", "BIOES": "BIOES"}
"""The letters of each scheme's tags."""


class Tag(NamedTuple):
    """A letter of BIOES, and a type unless the letter is O."""

    letter: str
    type: str


@dataclass
class _Sentence:
    line: int
    tokens: list[str] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)


def read(
    path: Path,
    warnings: Warnings,
    *,
    scheme: str = "auto",
    token_column: int = 0,
    tag_column: int = -1,
    separator: str | None = None,
    sentences_per_document: int = 1,
) -> Iterator[Document]:
    table = _Table(token_column, tag_column, separator)
    yield from parse(load(path), path, warnings, scheme, table, sentences_per_document)


def write(documents: Sequence[Document], path: Path, warnings: Warnings, *, scheme: str = "BIO") -> None:
    save(render(documents, warnings, scheme), path)


@dataclass(frozen=True)
class _Table:
    """Where in a line token and tag stand."""

    token_column: int = 0
    tag_column: int = -1
    separator: str | None = None

    def columns(self, line: str) -> list[str]:
        separator = self.separator or ("\t" if "\t" in line else None)
        return line.split(separator)


def parse(
    content: str,
    path: Path,
    warnings: Warnings,
    scheme: str = "auto",
    table: _Table = _Table(),
    sentences_per_document: int = 1,
) -> Iterator[Document]:
    """The documents of a file's content; `path` is for ids and messages."""
    if scheme != "auto" and scheme not in SCHEMES:
        raise GrandRoundsError(unknown("tag scheme", scheme, ["auto", *SCHEMES]))
    if sentences_per_document < 1:
        raise GrandRoundsError("sentences_per_document must be 1 or more")
    blocks = list(_blocks(content, path, table, sentences_per_document, warnings))
    sentences = [sentence for block in blocks for sentence in block]
    chosen = detect_scheme([s.tags for s in sentences]) if scheme == "auto" else scheme
    for sentence in sentences:
        _check_letters(sentence, chosen, path)
    for block in blocks:
        yield _document(block, path, chosen, warnings)


def _blocks(
    content: str, path: Path, table: _Table, sentences_per_document: int, warnings: Warnings
) -> Iterator[list[_Sentence]]:
    block: list[_Sentence] = []
    sentence: _Sentence | None = None
    marked, width = False, None
    for i, line in enumerate(lines(content), start=1):
        if not line.strip():
            sentence = None
        elif line.startswith("-DOCSTART-"):
            if block:
                yield block
            elif marked:
                warnings["documents without a sentence, left out"] += 1
            block, sentence, marked = [], None, True
        else:
            with placed(path, i, warnings):
                columns = table.columns(line)
                width = width or len(columns)
                if len(columns) != width:
                    raise DataError(f"{len(columns)} columns where the first line has {width}")
                token, tag = _token_and_tag(columns, table, path, i)
                if sentence is None:
                    if block and not marked and len(block) == sentences_per_document:
                        yield block
                        block = []
                    sentence = _Sentence(i)
                    block.append(sentence)
                if token.split() != [token]:
                    warnings["tokens with white space, which writing will part"] += 1
                if width > 2:
                    warnings["columns besides token and tag left out"] += width - 2
                sentence.tokens.append(token)
                sentence.tags.append(tag)
    if block:
        yield block
    elif marked:
        warnings["documents without a sentence, left out"] += 1


def _token_and_tag(columns: Sequence[str], table: _Table, path: Path, line: int) -> tuple[str, Tag]:
    try:
        token, tag = columns[table.token_column], columns[table.tag_column]
    except IndexError:
        problem = (
            f"{len(columns)} columns, but token_column is {table.token_column} and tag_column "
            f"{table.tag_column}; check these options and the separator"
        )
        raise DataError(problem, path=path, line=line) from None
    if len(columns) < 2:
        raise DataError("one column where a token and a tag should be; check the separator", path=path, line=line)
    if not token:
        raise DataError("an empty token; remove the line or fill the token in", path=path, line=line)
    found = re.fullmatch(r"O|([BIES])(?:-(.+))?", tag, re.DOTALL)
    if not found:
        raise DataError("a tag that is not O, B-TYPE, I-TYPE, E-TYPE or S-TYPE; check tag_column", path=path, line=line)
    return token, Tag(found.group(1) or "O", found.group(2) or "Entity") if tag != "O" else Tag("O", "")


def detect_scheme(sentences: Iterable[Sequence[Tag]]) -> str:
    """BIOES if there is an E or an S; IOB1 if B only ever parts two mentions of a type; else BIO."""
    lone_b = lone_i = False
    for tags in sentences:
        for before, tag in pairwise([Tag("O", ""), *tags]):
            if tag.letter in "ES":
                return "BIOES"
            alone = before.type != tag.type
            lone_b = lone_b or (tag.letter == "B" and alone)
            lone_i = lone_i or (tag.letter == "I" and alone)
    return "IOB1" if lone_i and not lone_b else "BIO"


def _check_letters(sentence: _Sentence, scheme: str, path: Path) -> None:
    for offset, tag in enumerate(sentence.tags):
        if tag.letter not in SCHEMES[scheme] + "O":
            problem = f"a tag with {tag.letter}, which {scheme} does not have; read with scheme BIOES or auto"
            raise DataError(problem, path=path, line=sentence.line + offset)


def decode(tags: Sequence[Tag]) -> list[tuple[int, int, str]]:
    """Mentions as (first token, token after the last, type), by conlleval's rules."""
    found: list[tuple[int, int, str]] = []
    for i, (before, tag) in enumerate(pairwise([Tag("O", ""), *tags])):
        if tag.letter == "O":
            continue
        if tag.letter in "BS" or before.letter in "OES" or before.type != tag.type:
            found.append((i, i + 1, tag.type))
        else:
            start, _, type = found[-1]
            found[-1] = (start, i + 1, type)
    return found


def encode(length: int, mentions: Iterable[tuple[int, int, str]], scheme: str) -> list[str]:
    """The tags of a sentence of `length` tokens; the inverse of `decode`."""
    tags = ["O"] * length
    previous_end, previous_type = -1, ""
    for start, end, type in sorted(mentions):
        letters = ["I"] * (end - start)
        if scheme != "IOB1" or (start == previous_end and type == previous_type):
            letters[0] = "B"
        if scheme == "BIOES":
            letters[-1] = "E" if end - start > 1 else "S"
        tags[start:end] = [f"{letter}-{type}" for letter in letters]
        previous_end, previous_type = end, type
    return tags


def _document(block: Sequence[_Sentence], path: Path, scheme: str, warnings: Warnings) -> Document:
    text = ""
    sentences: list[Span] = []
    mentions: list[Mention] = []
    for sentence in block:
        text += "\n" if text else ""
        start = len(text)
        spans = []
        for token in sentence.tokens:
            text += " " if len(text) > start else ""
            spans.append(Span(len(text), len(text) + len(token)))
            text += token
        sentences.append(Span(start, len(text)))
        found = decode(sentence.tags)
        mended = sum(a != b for a, b in zip(encode(len(spans), found, scheme), _spell(sentence.tags), strict=True))
        if mended:
            warnings[f"tags that break the {scheme} scheme, mended as conlleval does"] += mended
        for first, last, type in found:
            mentions.append(Mention(spans[first].start, spans[last - 1].end, type, f"T{len(mentions) + 1}"))
    entities = tuple(Entity(mention.id, mention.type, (i,)) for i, mention in enumerate(mentions))
    try:
        return Document(
            f"{path.name}:{block[0].line}",
            text,
            tuple(sentences),
            tuple(mentions),
            entities,
            attributes={"tokens": "between white space"},
        )
    except DataError as error:
        raise error.at(path, block[0].line) from None


def _spell(tags: Iterable[Tag]) -> list[str]:
    return [f"{tag.letter}-{tag.type}" if tag.type else tag.letter for tag in tags]


def render(documents: Sequence[Document], warnings: Warnings, scheme: str = "BIO") -> str:
    """The content of a CoNLL file; `-DOCSTART-` is written where a document has several sentences."""
    if scheme not in SCHEMES:
        raise GrandRoundsError(unknown("tag scheme", scheme, SCHEMES))
    marked = any(len(document.sentences) != 1 for document in documents)
    parts: list[str] = []
    for document in documents:
        if marked:
            parts.append("-DOCSTART-\tO\n\n")
        parts.extend(_render_sentences(document, scheme))
        if document.relations:
            warnings["relations left out, which CoNLL has no place for"] += len(document.relations)
        concepts = sum(1 for mention in document.mentions if mention.concept)
        if concepts:
            warnings["concepts left out, which CoNLL has no place for"] += concepts
    return "".join(parts)


def _render_sentences(document: Document, scheme: str) -> Iterator[str]:
    inside: list[list[Mention]] = [[] for _ in document.sentences]
    for mention in document.mentions:
        where = document.sentence_of(mention)
        if where is None:
            raise _unwritable(mention, "lies in no sentence of its document")
        if mention.fragments:
            raise _unwritable(mention, "is discontinuous, which CoNLL can't write")
        if mention.type == "" or re.search(r"\s", mention.type):
            raise _unwritable(mention, "has a type with white space, or none, which CoNLL can't write")
        inside[where].append(mention)
    for sentence, mentions in zip(document.sentences, inside, strict=True):
        mentions.sort(key=lambda mention: (mention.start, mention.end))
        for left, right in pairwise(mentions):
            if right.start < left.end:
                raise _unwritable(right, f"overlaps mention {left.start}-{left.end}, which CoNLL can't write")
        tokens = _tokens(document, sentence, mentions)
        numbered = [_token_range(tokens, mention) for mention in mentions]
        tags = encode(len(tokens), numbered, scheme)
        rows = (f"{document.surface(token)}\t{tag}\n" for token, tag in zip(tokens, tags, strict=True))
        yield "".join(rows) + "\n"


def _tokens(document: Document, sentence: Span, mentions: Sequence[Mention]) -> list[Span]:
    """Tokens as read from CoNLL, else words and single signs; parted where a mention starts or ends."""
    pattern = r"\S+" if document.attributes.get("tokens") == "between white space" else r"\w+|[^\w\s]"
    borders = sorted({sentence.start, sentence.end, *(b for m in mentions for b in (m.start, m.end))})
    return [
        Span(*match.span())
        for start, end in pairwise(borders)
        for match in re.compile(pattern).finditer(document.text, start, end)
    ]


def _token_range(tokens: Sequence[Span], mention: Mention) -> tuple[int, int, str]:
    covered = [i for i, token in enumerate(tokens) if mention.start <= token.start and token.end <= mention.end]
    if not covered:
        raise _unwritable(mention, "is white space only, which CoNLL can't write")
    return covered[0], covered[-1] + 1, mention.type


def _unwritable(mention: Mention, why: str) -> DataError:
    return DataError(f"mention {mention.start}-{mention.end} {why}; write pubtator, brat or json instead")


FORMAT = Format(
    "conll",
    "a token and its tag a line, a blank line between sentences",
    read,
    write,
    suffixes=(".txt", ".tsv", ".conll", ".iob", ".bio"),
)
