"""OpenNRE's JSON lines (Han et al., EMNLP 2019), a sentence with its head and tail a line:

    {"text": "...", "h": {"id", "name", "pos": [start, end]}, "t": {...}, "relation": a name or "NA"}

With `token`, a list of words, in place of `text`, positions count words, and the text is the words joined by spaces.
The end is the first character or word after. An end may do without id (SemEval) or name. Beyond OpenNRE, which passes
over them, an end may have a `type`, a line an `id`, the document's, and other keys with strings, which are its
attributes. The option `head_type` or `tail_type` says what heads or tails are that do not say it themselves.

Documents of many mentions are written as a line a relation and pair of mentions in one sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from grandrounds.data.documents import Document, Span, concept_ids
from grandrounds.data.formats.json_values import items, pair, record, string
from grandrounds.data.formats.json_values import load as load_json
from grandrounds.data.formats.pair_sentence import NA, OVERLAP, TYPE, End, overlap, pair_document
from grandrounds.data.formats.source import Format, Warnings, placed, save, stream
from grandrounds.data.formats.token_text import TokenText
from grandrounds.errors import DataError

OTHER_NAME = "heads or tails whose name is not the text at their position, which counts"
NO_ID = "heads or tails without an id"
PASSED_OVER = "values of unknown keys that are no strings, passed over"
KEY_TAKEN = "attributes whose name is a key of the format, left out"
UNRELATED = "mentions in no relation, left out"
ACROSS = "relations whose mentions are in no common sentence, left out"
BY_NAME = "heads or tails without a concept, whose text is their id"
_OWN = ("id", "text", "token", "h", "t", "relation")


def read(path: Path, warnings: Warnings, *, head_type: str = TYPE, tail_type: str = TYPE) -> Iterator[Document]:
    yield from parse(stream(path), path, warnings, head_type, tail_type)


def write(documents: Sequence[Document], path: Path, warnings: Warnings) -> None:
    save(render(documents, warnings), path)


def parse(
    lines: Iterable[str], path: Path, warnings: Warnings, head_type: str = TYPE, tail_type: str = TYPE
) -> Iterator[Document]:
    """The documents of a file's lines; `path` is for ids and messages."""
    for i, line in enumerate(lines, start=1):
        if line.strip():
            with placed(path, i, warnings):
                value = load_json(line, "each line is one sentence")
                yield _document(f"{path.name}:{i}", value, (head_type, tail_type), warnings)


def _document(id: str, value: object, types: tuple[str, str], warnings: Warnings) -> Document:
    found = record(value, "sentence", "h", "t", "relation")
    if "text" in found:
        text, tokens = string(found["text"], "sentence.text"), None
    else:
        words = items(record(found, "sentence", "token")["token"], "sentence.token", string)
        if not any(words):
            raise DataError("sentence.token has no words")
        laid = TokenText.of([words])
        text, tokens = laid.text, laid.tokens[0]
    head, tail = (_end(found[key], key, text, tokens, type, warnings) for key, type in zip("ht", types, strict=True))
    if overlap(head.span, tail.span):
        warnings[OVERLAP] += 1
    attributes = {}
    for key in found.keys() - set(_OWN):
        item = found[key]
        if isinstance(item, str):
            attributes[string(key, "key")] = string(item, "value")
        else:
            warnings[PASSED_OVER] += 1
    own = string(found["id"], "sentence.id") if "id" in found else id
    relation = string(found["relation"], "sentence.relation")
    return pair_document(own, text, head, tail, relation, dict(sorted(attributes.items())))


def _end(value: object, where: str, text: str, tokens: Sequence[Span] | None, type: str, warnings: Warnings) -> End:
    found = record(value, where, "pos")
    start, end = pair(found["pos"], f"{where}.pos")
    length = len(text) if tokens is None else len(tokens)
    if not 0 <= start < end <= length:
        what = "text" if tokens is None else "tokens"
        raise DataError(f"{where}.pos is {start}-{end}, empty or outside the sentence's {what} (0-{length})")
    span = Span(start, end) if tokens is None else Span(tokens[start].start, tokens[end - 1].end)
    if "name" in found and string(found["name"], f"{where}.name").lower() != text[span.start : span.end].lower():
        warnings[OTHER_NAME] += 1
    id = string(found["id"], f"{where}.id") if "id" in found else ""
    if not id.strip():
        warnings[NO_ID] += 1
    return End(span, string(found.get("type", type), f"{where}.type"), id if id.strip() else None)


def render(documents: Iterable[Document], warnings: Warnings) -> str:
    """The content of a file."""
    return "".join(
        json.dumps(line, ensure_ascii=False) + "\n" for document in documents for line in _lines(document, warnings)
    )


def _lines(document: Document, warnings: Warnings) -> Iterator[dict[str, object]]:
    pairs = list(_pairs(document, warnings))
    if alone := len(document.mentions) - len({m for _, _, *ends in pairs for m, _ in ends}):
        warnings[UNRELATED] += alone
    if taken := len(document.attributes.keys() & set(_OWN)):
        warnings[KEY_TAKEN] += taken
    for i, (relation, sentence, head, tail) in enumerate(pairs, start=1):
        yield {
            "id": document.id if len(pairs) == 1 else f"{document.id}:{i}",
            "text": document.surface(sentence),
            "h": _written(document, sentence.start, *head, warnings),
            "t": _written(document, sentence.start, *tail, warnings),
            "relation": relation,
            **{key: value for key, value in document.attributes.items() if key not in _OWN},
        }


_Written = tuple[int, str]
"""A mention's index, and the id of the entity that it stands for."""


def _pairs(document: Document, warnings: Warnings) -> Iterator[tuple[str, Span, _Written, _Written]]:
    """Relation, sentence, head and tail of each line."""
    names = [mention.concept or "" for mention in document.mentions]
    if len(names) == 2 and not document.relations:
        sentence = _sentence(document, 0, 1)
        if sentence:
            yield NA, sentence, (0, names[0]), (1, names[1])
    for relation in document.relations:
        held = [document.entity(end).mentions for end in (relation.head, relation.tail)]
        pairs = [relation.mentions] if relation.mentions else [(h, t) for h in held[0] for t in held[1] if h != t]
        shared = [(pair, sentence) for pair in pairs if (sentence := _sentence(document, *pair))]
        if not shared:
            warnings[ACROSS] += 1
        for (h, t), sentence in shared:
            # Of a mention's several concepts the one that is related.
            head, tail = (
                end if end in concept_ids(names[m]) else names[m] for end, m in ((relation.head, h), (relation.tail, t))
            )
            yield relation.type, sentence, (h, head), (t, tail)


def _sentence(document: Document, head: int, tail: int) -> Span | None:
    one, other = (document.sentence_of(document.mentions[m]) for m in (head, tail))
    return document.sentences[one] if one is not None and one == other else None


def _written(document: Document, start: int, m: int, id: str, warnings: Warnings) -> dict[str, object]:
    mention = document.mentions[m]
    if not id:
        warnings[BY_NAME] += 1
    name = document.surface(mention)
    position = [mention.start - start, mention.end - start]
    return {"id": id or name, "name": name, "pos": position, "type": mention.type}


FORMAT = Format(
    "opennre",
    "OpenNRE's JSON lines: a sentence with head, tail and relation",
    read,
    write,
    suffixes=(".jsonl", ".json", ".txt"),
)
