"""Saved models as a component of spaCy: `pip install grandrounds[spacy]`, then

    nlp = spacy.blank("en")
    nlp.add_pipe("grandrounds", config={"model": ["ner/model", "re/model"]})
    doc = nlp("He was started on metoprolol for hypertension.")

doc.ents                       mentions; of overlapping ones the longest. ent.kb_id_ is the concept
doc.spans["grandrounds"]       all mentions
span._.negated                 the trigger as text, or None; likewise possible, family, historical, conditional
span._.links, span._.score     ids of concepts, best first; the tagger's score
doc._.relations                a `SpacyRelation` each
doc._.grandrounds              the Document, whose characters are exact where spaCy splits words in another way
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans, minibatch

from grandrounds.data.documents import ASSERTIONS, Document, Mention, concept_ids
from grandrounds.pipeline.load import load
from grandrounds.pipeline.pipeline import BATCH, Pipeline
from grandrounds.setup.server import find_device

NAME = "grandrounds"


class SpacyRelation(NamedTuple):
    type: str
    head: Any
    """Spans of the document."""
    tail: Any
    score: float | None
    evidence: list[Any]
    """Sentences that say so."""


class SpacyComponent:
    """Runs a pipeline of ours on the text of spaCy's documents."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        for name in (NAME, "relations"):
            if not Doc.has_extension(name):
                Doc.set_extension(name, default=None)
        for name in (*ASSERTIONS, "links", "score"):
            if not Span.has_extension(name):
                Span.set_extension(name, default=None)

    def __call__(self, doc: Any) -> Any:
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Any], batch_size: int = BATCH) -> Iterator[Any]:
        for docs in minibatch(stream, batch_size):
            found = self.pipeline.pipe([doc.text for doc in docs], batch_size)
            yield from (_filled(*both) for both in zip(docs, found, strict=True))


def _filled(doc: Any, document: Document) -> Any:
    spans = [_span(doc, document, mention) for mention in document.mentions]
    doc.spans[NAME] = spans
    doc.ents = filter_spans(spans)
    doc._.grandrounds = document
    doc._.relations = []
    for relation in document.relations:
        first = (document.entity(end).mentions[0] for end in (relation.head, relation.tail))
        head, tail = (spans[m] for m in relation.mentions or first)
        score = relation.attributes.get("score")
        evidence = [_at(doc, *document.sentences[number]) for number in document.evidence(relation)]
        said = SpacyRelation(relation.type, head, tail, None if score is None else float(score), evidence)
        doc._.relations.append(said)
    return doc


def _span(doc: Any, document: Document, mention: Mention) -> Any:
    concepts = concept_ids(mention.concept)
    span = _at(doc, mention.start, mention.end, label=mention.type, kb_id=concepts[0] if concepts else "")
    found = document.mention_dict(mention)
    for name in ASSERTIONS:
        if name in found:
            trigger = found[name]
            span._.set(name, trigger["trigger"] if isinstance(trigger, dict) else trigger)
    span._.links, span._.score = concepts, found.get("score")
    return span


def _at(doc: Any, start: int, end: int, **more: str) -> Any:
    """The span of spaCy's words that holds these characters."""
    return doc.char_span(start, end, alignment_mode="expand", **more)


def make(
    nlp: Any,
    name: str,
    model: str | list[str],
    threshold: float | None,
    window: int | None,
    assertions: bool,
    dictionary: str | None,
    device: str,
) -> SpacyComponent:
    folders = [model] if isinstance(model, str) else model
    settings = {"threshold": threshold, "window": window, "assertions": None if assertions else False}
    return SpacyComponent(load(*folders, **settings, dictionary=dictionary, device=find_device(device)))  # type: ignore[arg-type]


Language.factory(
    NAME,
    default_config={"threshold": None, "window": None, "assertions": True, "dictionary": None, "device": "cpu"},
    assigns=["doc.ents", "doc.spans", "doc._.relations"],
    func=make,
)
