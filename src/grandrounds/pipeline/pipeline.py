"""One call from a note to what it says: sentences, mentions, assertions, links, entities, relations.

    nlp = grandrounds.load("ner/", "re/")
    document = nlp("He was started on metoprolol for hypertension.")

Documents are read together in batches of about equal length; memory does not grow with their number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import torch

from grandrounds.data.documents import Document, Mention, Span, owned
from grandrounds.data.sentences import split_sentences
from grandrounds.errors import GrandRoundsError
from grandrounds.pipeline.assertion import assert_mentions
from grandrounds.pipeline.entities import group_entities
from grandrounds.pipeline.linking import Dictionary, link_mentions
from grandrounds.pipeline.windows import cut_long_sentences, extract_in_windows
from grandrounds.tasks.document_re import DocumentRE
from grandrounds.tasks.saved import CPU, Extractor

BATCH = 64
_SURROGATE = re.compile("[\ud800-\udfff]")
WINDOW = 40
"""Sentences of a window in which document_re relates entities; windows overlap by half."""


@dataclass(frozen=True)
class Pipeline:
    """Saved models, each reading what those before it found."""

    taggers: Sequence[Extractor] = ()
    """Models that find mentions, and maybe relations between these."""
    relaters: Sequence[Extractor] = ()
    threshold: float = 0.0
    """What scores lower is left out."""
    window: int = WINDOW
    device: torch.device = CPU
    assertions: bool = True
    """Whether mentions that taggers find are marked as negated, possible, family, historical or conditional."""
    dictionary: Dictionary | None = None
    """Where mentions get their concepts from."""
    warnings: Counter[str] = field(default_factory=Counter)
    """What was passed over so far, counted."""

    def __post_init__(self) -> None:
        if self.window < 1:
            raise GrandRoundsError(f"the window is {self.window} sentences; it must be at least 1")
        found = {label for tagger in self.taggers for label in tagger.task.labels[1:]}
        for model in self.relaters:
            pairs = model.extraction.pair_types()
            if self.taggers and pairs is not None and not any(found.issuperset(pair) for pair in pairs):
                wanted = " or ".join(f"{head} and {tail}" for head, tail in sorted(pairs)[:5]) or "nothing"
                raise GrandRoundsError(
                    f"these models do not fit together: the {model.task.name} model relates {wanted}, and the tagger "
                    f"finds {', '.join(sorted(found))}"
                )

    @property
    def finds(self) -> str:
        related = self.relaters or any("relations" in model.extraction.finds for model in self.taggers)
        return "relations" if related else "mentions"

    def __call__(self, text: str | Document) -> Document:
        """The document with all that is found in it; of text, or of a document whose mentions are marked."""
        return next(self.pipe([text]))

    def extract(self, document: str | Document, threshold: float | None = None) -> Document:
        """The same, but for a threshold of its own."""
        return (self if threshold is None else replace(self, threshold=threshold))(document)

    def pipe(self, texts: Iterable[str | Document], batch: int = BATCH, first: int = 1) -> Iterator[Document]:
        """The same for many, in their order; `batch` of them are read together. Texts are called by their number, from
        `first` on."""
        rest = iter(enumerate(texts, start=first))
        while chunk := list(islice(rest, max(batch, 1))):
            yield from self._read([self._document(text, f"text-{number}") for number, text in chunk])

    def evaluate(self, documents: Sequence[Document]) -> tuple[dict[str, object], dict[str, int]]:
        """The score of one model on annotated documents, and what was left out."""
        models = [*self.taggers, *self.relaters]
        if len(models) != 1:
            raise GrandRoundsError("one model is evaluated at a time: load its folder alone")
        score, left_out = models[0].evaluate(documents)
        return score, dict(left_out)

    def _document(self, text: str | Document, name: str) -> Document:
        if isinstance(text, Document):
            if text.sentences or self.taggers:
                return text
            spans = [Span(mention.start, mention.end) for mention in text.mentions]
            return replace(text, sentences=split_sentences(text.text, spans))
        if not self.taggers:
            raise GrandRoundsError(
                f"a {self.relaters[0].task.name} model relates mentions, and a text has none: give it documents with "
                "mentions, or a ner model before it: grandrounds extract NER_MODEL RE_MODEL note.txt"
            )
        clean = _SURROGATE.sub("\ufffd", text)  # half of a character: no tokenizer reads it
        return Document(name, clean)  # its sentences are found as those of the training data were

    def _read(self, documents: list[Document]) -> list[Document]:
        if self.taggers:
            documents = self._tag(documents)
            if self.assertions:
                documents = [assert_mentions(document) for document in documents]
        if self.dictionary is not None:
            documents = [link_mentions(document, self.dictionary) for document in documents]
        if self.taggers:
            documents = [group_entities(document) for document in documents]
        if self.relaters:
            if not self.taggers:  # what is asked for is not what a document came with
                documents = [replace(document, relations=()) for document in documents]
            documents = [cut_long_sentences(document, self.warnings) for document in documents]
        for model in self.relaters:
            before = documents
            if isinstance(model.task, DocumentRE):
                found = extract_in_windows(model, documents, self.window, self.threshold, self.device, self.warnings)
            else:
                found, left_out = model.extract_all(documents, self.threshold, self.device)
                self.warnings.update(left_out)
            documents = [_joined(*both) for both in zip(before, found, strict=True)]
        return documents

    def _tag(self, documents: Sequence[Document]) -> list[Document]:
        """Mentions of all taggers, in the order of the text, and the relations of those that find some."""
        found = list[list[Document]]()
        for tagger in self.taggers:
            tagged, left_out = tagger.extract_all(documents, self.threshold, self.device)
            self.warnings.update(left_out)
            found.append(tagged)
        return [_merged(versions) for versions in zip(*found, strict=True)]


def _merged(versions: Sequence[Document]) -> Document:
    """One document with the mentions and relations that several taggers found in it."""
    if len(versions) == 1:
        return versions[0]
    mentions: dict[tuple[int, int, str], Mention] = {}
    for mention in (mention for version in versions for mention in version.mentions):
        mentions.setdefault(_place(mention), mention)
    number = {key: i for i, key in enumerate(sorted(mentions))}
    ordered = tuple(replace(mentions[key], id=f"T{i}") for i, key in enumerate(number, start=1))
    relations = []
    for version in versions:
        for relation in version.relations:
            held = relation.mentions or [version.entity(end).mentions[0] for end in (relation.head, relation.tail)]
            head, tail = (number[_place(version.mentions[m])] for m in held)
            relations.append(replace(relation, head=ordered[head].id, tail=ordered[tail].id, mentions=(head, tail)))
    joined = owned(replace(versions[0], mentions=ordered, entities=(), relations=()))
    return replace(joined, relations=tuple(relations))


def _place(mention: Mention) -> tuple[int, int, str]:
    return mention.start, mention.end, mention.type


def _joined(before: Document, found: Document) -> Document:
    """What a relation model found, with the relations of those before it."""
    return replace(found, relations=(*before.relations, *found.relations))
