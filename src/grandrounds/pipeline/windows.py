"""Documents of any length under document_re: relations are asked about in windows of sentences that overlap by half.

So entities that are mentioned within half a window of each other are always asked about, and none beyond a window.
Asking about all pairs of a long document grows with the square of its entities, and the model has seen none like it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span, owned
from grandrounds.data.pairs import PAIRS, candidate_pairs
from grandrounds.tasks.document_re import DocumentRE
from grandrounds.tasks.saved import Extractor

LONGEST = 4000
"""Characters of a sentence: longer ones are lists or have no stops, and pairs in them would be without number."""
CUT = f"sentences of more than {LONGEST:,} characters, cut for relations"
TOO_FAR = "pairs of entities that no window of sentences holds together, not asked about"
AT_ONCE = 16
"""Windows that are held in memory together."""


def cut_long_sentences(document: Document, warnings: Counter[str]) -> Document:
    """The document with no sentence longer than LONGEST, cut at white space and never within a mention."""
    if all(end - start <= LONGEST for start, end in document.sentences):
        return document
    inside = sorted((mention.start, mention.end) for mention in document.mentions)
    cut: list[Span] = []
    for start, end in document.sentences:
        warnings[CUT] += end - start > LONGEST
        while end - start > LONGEST:
            space = document.text.rfind(" ", start + 1, start + LONGEST)
            at = space if space > 0 else start + LONGEST
            at = max((past for begin, past in inside if begin < at < past), default=at)
            if at >= end:
                break
            cut.append(Span(start, at))
            start = at
        cut.append(Span(start, end))
    return replace(document, sentences=tuple(cut))


def extract_in_windows(
    model: Extractor,
    documents: Sequence[Document],
    size: int,
    threshold: float,
    device: torch.device,
    warnings: Counter[str],
) -> list[Document]:
    """What the model finds in each document; of one with more than `size` sentences, in its windows."""
    whole = [document for document in documents if not _long(document, size)]
    found, left_out = model.extract_all(whole, threshold, device)
    warnings.update(left_out)
    rest = iter(found)
    return [
        _read(model, document, size, threshold, device, warnings) if _long(document, size) else next(rest)
        for document in documents
    ]


def _long(document: Document, size: int) -> bool:
    """A document that lists its pairs is asked about these, however far apart."""
    return len(document.sentences) > size and PAIRS not in document.attributes


def _read(
    model: Extractor, document: Document, size: int, threshold: float, device: torch.device, warnings: Counter[str]
) -> Document:
    assert isinstance(model.task, DocumentRE)
    document, asked = owned(document), model.task.asked
    best: dict[tuple[str, str, str], Relation] = {}
    pairs: set[tuple[str, str]] = set()
    place = {entity.id: i for i, entity in enumerate(_by_first_mention(document))}

    def turned(head: str, tail: str) -> tuple[str, str]:
        """Without order the whole document decides which end comes first, not the window."""
        return (head, tail) if asked.ordered or place[head] < place[tail] else (tail, head)

    for windows in _some(_windows(document, size)):
        numbers, parts = zip(*windows, strict=True)
        for part in parts:
            pairs.update(turned(*pair) for pair in candidate_pairs(part, asked.types, ordered=asked.ordered))
        for number, found in zip(numbers, model.extract_all(parts, threshold, device)[0], strict=True):
            for relation in found.relations:
                head, tail = turned(relation.head, relation.tail)
                key = (relation.type, head, tail)
                if key not in best or _score(relation) > _score(best[key]):
                    best[key] = _moved(replace(relation, head=head, tail=tail), number)
    if (far := _possible(document, asked.types, asked.ordered) - len(pairs)) > 0:
        warnings[TOO_FAR] += far
    return replace(document, relations=tuple(best[key] for key in sorted(best)))


def _windows(document: Document, size: int) -> Iterator[tuple[int, Document]]:
    """The number of its first sentence, and the window as a document with the entities that are mentioned in it."""
    sentences = document.sentences
    in_order = sorted(range(len(document.mentions)), key=lambda m: document.mentions[m].start)
    owners: dict[int, list[Entity]] = {}
    for entity in document.entities:
        for m in entity.mentions:
            owners.setdefault(m, []).append(entity)
    first = 0
    for number in range(0, max(len(sentences) - size // 2, 1), max(size // 2, 1)):
        inside = sentences[number : number + size]
        start, end = inside[0].start, inside[-1].end
        while first < len(in_order) and document.mentions[in_order[first]].start < start:
            first += 1
        chosen = []
        for m in islice(in_order, first, None):
            if document.mentions[m].start >= end:
                break
            if document.mentions[m].end <= end:
                chosen.append(m)
        places = {m: i for i, m in enumerate(chosen)}
        held = {entity.id: entity for m in chosen for entity in owners.get(m, ())}
        yield (
            number,
            Document(
                document.id,
                document.text[start:end],
                tuple(Span(span.start - start, span.end - start) for span in inside),
                tuple(_shifted(document.mentions[m], start) for m in chosen),
                tuple(replace(e, mentions=tuple(places[m] for m in e.mentions if m in places)) for e in held.values()),
            ),
        )


def _by_first_mention(document: Document) -> list[Entity]:
    return sorted(document.entities, key=lambda entity: min(document.mentions[m].start for m in entity.mentions))


def _shifted(mention: Mention, by: int) -> Mention:
    pieces = tuple(Span(start - by, end - by) for start, end in mention.fragments)
    return replace(mention, start=mention.start - by, end=mention.end - by, fragments=pieces)


def _moved(relation: Relation, by: int) -> Relation:
    """Evidence by the numbers of the document's sentences."""
    if not (named := relation.attributes.get("evidence")):
        return relation
    moved = " ".join(str(int(number) + by) for number in named.split())
    return replace(relation, attributes={**relation.attributes, "evidence": moved})


def _score(relation: Relation) -> float:
    return float(relation.attributes["score"])


def _possible(document: Document, types: Collection[tuple[str, str]] | None, ordered: bool) -> int:
    """How many pairs the whole document has, without listing them."""
    counts = Counter(entity.type for entity in document.entities)
    if types is None:
        number = counts.total() * (counts.total() - 1)
    else:
        number = sum(counts[head] * (counts[tail] - (head == tail)) for head, tail in types)
    return number if ordered else number // 2


def _some(windows: Iterable[tuple[int, Document]]) -> Iterator[list[tuple[int, Document]]]:
    rest = iter(windows)
    while some := list(islice(rest, AT_ONCE)):
        yield some
