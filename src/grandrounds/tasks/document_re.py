"""Document-level relation extraction as in FedLCC (2024, section 3.2): an example is a document, and every pair of its
entities that a relation may join is a question with any number of answers.

Every mention is marked by "*" on both sides. Relations are decided by a threshold that is chosen on validation data,
or with `threshold = "adaptive"` by one that the network gives for each pair (ATLOP, Zhou et al., AAAI 2021). The
evidence of a relation is the sentences that carry the most of its pair's localized context. With `attribute` a value of
each relation is part of the answer, as BioRED's novelty is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.data.documents import Document, Relation, owned
from grandrounds.data.formats import documents_json
from grandrounds.data.pairs import Convention, Pair, candidate_pairs, convention, related_types, stated_types
from grandrounds.data.qualified import qualified, unqualified
from grandrounds.errors import ConfigError, DataError
from grandrounds.metrics.relation_f1 import best_threshold, pair_counts, pair_score, type_counts
from grandrounds.models.encoder import Encoder
from grandrounds.models.localized_context import LocalizedContext, in_parts, localized_attention
from grandrounds.tasks.abilities import Calibrated, KnowsFacts, Localized
from grandrounds.tasks.batching import infer
from grandrounds.tasks.document_features import MARKER, DocumentFeatures, DocumentRows, mark_document
from grandrounds.tasks.task import NONE, Counts, Example, ExtractionTask, Reading, check_relations

OUTSIDE = "relations between entities that are no candidate pair"
NO_PAIR = "documents without a pair to ask about"
NO_MENTION = "documents without mentions, of which nothing can be asked; document_re relates what is marked in the text"
EVIDENCE_SHARE = 0.2
"""A sentence is shown as evidence if it carries this share of a pair's localized context, or the most."""


class DocumentREOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["document_re"] = "document_re"
    threshold: Literal["validation", "half", "adaptive"] = "validation"
    """A relation holds above the threshold that gives the best F1 on validation data (0.5 without any), above 0.5, or
    above what the network gives for the pair."""
    block: int = Field(64, ge=1)
    """The width of a group in Eqs. 8 to 10; it divides the encoder's width."""
    window: int = Field(512, ge=16)
    """Word pieces that the encoder reads at once, at most as many as it can; longer documents take several windows."""
    labels: list[str] | None = None
    """Relation types; by default those of the corpora."""
    attribute: str | None = None
    """An attribute of relations that is part of the answer, as BioRED's `novelty`: Association becomes two labels,
    Association/Novel and Association/No. `f1_types` is the F1 without it."""
    pairs: list[tuple[str, str]] | Literal["related", "cdr", "gda", "chr", "chemdisgene", "docred", "biored"] = (
        "related"
    )
    """(head type, tail type) that a relation may join: these, those between which the corpora have one, or what papers
    on a corpus ask about. `docred` is every ordered pair, `chr` every pair of chemicals in one order, and `biored` has
    its kinds of pairs in one order."""


@dataclass(frozen=True)
class DocumentExample(Example):
    """A document and the pairs it asks about."""

    source: Document
    pairs: tuple[Pair, ...]
    """Entities by their ids."""
    gold: tuple[frozenset[int], ...]
    """For each pair the relations that hold, as places in the task's relations."""
    outside: tuple[int, ...] = ()
    """Relations between entities that form no candidate pair: they are never asked about, so they count as missed."""
    seen: tuple[frozenset[int], ...] | None = None
    """For each pair the relations that the training data state of entities with these names; None: not looked up."""


@dataclass(frozen=True)
class LocalizedReading(Reading):
    context: Tensor
    """[pairs, width]: c of Eq. 5."""


class DocumentRE(ExtractionTask, Localized, Calibrated, KnowsFacts):
    name: ClassVar[str] = "document_re"
    unit: ClassVar[str] = "document"
    markers: ClassVar[Sequence[str]] = (MARKER,)
    Options: ClassVar[type[DocumentREOptions]] = DocumentREOptions
    options: DocumentREOptions

    def __init__(self, options: DocumentREOptions, relations: Sequence[str], pairs: Collection[Pair]) -> None:
        self.options = options
        self.relations = tuple(relations)
        self.asked = _convention(options.pairs, pairs)
        self._ids = {relation: i for i, relation in enumerate(self.relations)}

    @classmethod
    def of(cls, options: DocumentREOptions, documents: Iterable[Document]) -> Self:
        documents = [qualified(document, options.attribute) for document in documents]
        found = sorted({relation.type for document in documents for relation in document.relations})
        relations = found if options.labels is None else options.labels
        check_relations(relations, cls.name)
        related = related_types(documents) if options.pairs == "related" else frozenset()
        if options.pairs == "related" and not related:
            raise ConfigError("no document shows which types of entities are related: name them in task.pairs")
        return cls(options, relations, related)

    @property
    def labels(self) -> Sequence[str]:
        return (NONE, *self.relations)

    def schema(self) -> dict[str, Any]:
        return {
            "options": self.options.model_dump(),
            "relations": self.relations,
            "pairs": sorted(self.asked.types or ()),
        }

    @classmethod
    def restore(cls, schema: Mapping[str, Any]) -> Self:
        pairs = [(head, tail) for head, tail in schema["pairs"]]
        return cls(cls.Options(**schema["options"]), schema["relations"], pairs)

    # From documents to examples

    def examples(self, documents: Sequence[Document]) -> tuple[list[DocumentExample], dict[str, int]]:
        examples: list[DocumentExample] = []
        warnings: dict[str, int] = {}
        for index, document in enumerate(documents):
            document = qualified(owned(document), self.options.attribute)
            types, ordered = self.asked.types, self.asked.ordered
            pairs = candidate_pairs(document, types, ordered=ordered)
            gold = stated_types(document, pairs, ordered=ordered)
            outside = tuple(
                self._ids[r.type] for r in _distinct(document) if r.type in self._ids and not self._asked(r, gold)
            )
            if outside:
                warnings[OUTSIDE] = warnings.get(OUTSIDE, 0) + len(outside)
            if not pairs:
                why = NO_PAIR if document.mentions else NO_MENTION
                warnings[why] = warnings.get(why, 0) + 1
                continue
            answers = tuple(frozenset(self._id(type) for type in gold[pair]) for pair in pairs)
            stated = [relation for answer in answers for relation in answer]
            commonest = max(sorted(set(stated)), key=stated.count, default=None)
            label = NONE if commonest is None else self.relations[commonest]
            examples.append(DocumentExample(index, 0, label, document, pairs, answers, outside))
        return examples, warnings

    def _asked(self, relation: Relation, pairs: Collection[Pair]) -> bool:
        pair = (relation.head, relation.tail)
        return pair in pairs or (not self.asked.ordered and pair[::-1] in pairs)

    def _id(self, type: str) -> int:
        if type not in self._ids:
            raise DataError(
                f"relation type '{type}' is not in the label set ({', '.join(self.relations)}); "
                "name it in task.labels, or take it out of the corpus"
            )
        return self._ids[type]

    def answers(self, example: DocumentExample) -> list[str]:
        return [self.relations[r] for held in example.gold for r in sorted(held)] + [NONE] * example.gold.count(
            frozenset()
        )

    def mark_known(self, examples: Sequence[DocumentExample], training: Iterable[Document]) -> list[DocumentExample]:
        """A fact of the training data is a relation between two names (DocRED's Ign-F1)."""
        facts: dict[Pair, set[int]] = {}
        for document in training:
            for relation in qualified(document, self.options.attribute).relations:
                if relation.type not in self._ids:
                    continue
                for names in _names(document, (relation.head, relation.tail)):
                    for known_as in (names,) if self.asked.ordered else (names, names[::-1]):
                        facts.setdefault(known_as, set()).add(self._ids[relation.type])
        known = []
        for example in examples:
            seen = (
                frozenset(r for names in _names(example.source, pair) for r in facts.get(names, ()))
                for pair in example.pairs
            )
            known.append(replace(example, seen=tuple(seen)))
        return known

    def without_answers(self, document: Document) -> Document:
        return replace(document, relations=())

    def pair_types(self) -> Collection[Pair] | None:
        return self.asked.types

    # From examples to numbers

    def text(self, example: DocumentExample) -> str:
        return example.source.text

    def question(self, example: DocumentExample) -> dict[str, Any]:
        asked = replace(example.source, id="", relations=(), attributes={})
        content: dict[str, Any] = json.loads(documents_json.render([asked]))
        return {"document": content, "pairs": [list(pair) for pair in example.pairs]}

    def from_question(self, question: Mapping[str, Any]) -> DocumentExample:
        try:
            (document,) = documents_json.parse(json.dumps(question["document"]), Path("the public set"))
            pairs = tuple((str(head), str(tail)) for head, tail in question["pairs"])
        except (DataError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                "an example of the public set is not one of document_re; has the server another task?"
            ) from error
        return DocumentExample(0, 0, NONE, document, pairs, (frozenset(),) * len(pairs))

    def label_counts(self, features: DocumentFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        gold = features.gold(rows)
        return np.array([(~gold.any(axis=1)).sum(), *gold.sum(axis=0)], dtype=np.int64)

    def features(self, examples: Sequence[DocumentExample], encoder: Encoder) -> DocumentFeatures:
        window = min(self.options.window, encoder.window)
        marked = mark_document([example.source for example in examples], encoder)
        return DocumentFeatures.of(examples, marked, len(self.relations), window, encoder.tokenizer)

    # The network and its score

    def model(self, encoder: Encoder) -> nn.Module:
        adaptive = self.options.threshold == "adaptive"
        return LocalizedContext(encoder, len(self.relations) + adaptive, self.options.block)

    def read(self, model: nn.Module, batch: DocumentRows) -> LocalizedReading:
        found = model(batch)
        return LocalizedReading(found.logits, found.pair, found.context)

    def localized_context(self, reading: Reading) -> Tensor:
        return cast("LocalizedReading", reading).context

    def grade(self, reading: Reading, batch: DocumentRows) -> Tensor:
        if self.options.threshold == "adaptive":
            return adaptive_threshold_loss(reading.logits, batch.labels)
        return binary_cross_entropy(reading.logits, batch.labels)

    def outputs(self, model: nn.Module, batch: DocumentRows) -> Tensor:
        """[pairs, relations]: how far above its threshold a relation is."""
        return self._above(model, model(batch).logits)

    def _above(self, model: nn.Module, logits: Tensor) -> Tensor:
        if self.options.threshold == "adaptive":
            return logits[:, 1:] - logits[:, :1]
        return logits - cast("LocalizedContext", model).threshold

    def probabilities(self, outputs: Tensor) -> Tensor:
        """A relation holds above 0.5."""
        return outputs.sigmoid()

    def calibrate(
        self, model: nn.Module, outputs: NDArray[np.float32], features: DocumentFeatures, rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        if self.options.threshold != "validation":
            return outputs
        threshold = cast("LocalizedContext", model).threshold
        threshold.fill_(best_threshold(features.gold(rows), outputs))
        calibrated: NDArray[np.float32] = outputs - threshold.item()
        return calibrated

    def uncalibrate(self, model: nn.Module) -> None:
        cast("LocalizedContext", model).threshold.zero_()

    def counts(self, outputs: NDArray[np.float32], features: DocumentFeatures, rows: NDArray[np.int64]) -> Counts:
        gold, held, outside = features.gold(rows), outputs > 0, features.outside(rows)
        counts = pair_counts(gold, held, self.relations, features.within(rows), features.seen(rows), outside)
        if self.options.attribute is not None:
            counts |= type_counts(gold, held, [unqualified(relation)[0] for relation in self.relations], outside)
        return counts

    def score(self, counts: Counts) -> dict[str, Any]:
        return pair_score(counts, self.relations)

    def annotate(
        self,
        document: Document,
        examples: Sequence[DocumentExample],
        probabilities: NDArray[np.float32],
        threshold: float,
        context: NDArray[np.float32] | None = None,
    ) -> Document:
        """`context`, [pairs, sentences], is what each sentence carries; without it there is no evidence."""
        (example,) = examples
        found = []
        for p, (pair, row) in enumerate(zip(example.pairs, probabilities, strict=True)):
            sentences = () if context is None else evidence(context[p])
            why = {"evidence": " ".join(map(str, sentences))} if sentences else {}
            for r in np.flatnonzero((row > 0.5) & (row >= threshold)).tolist():
                type, said = self._stated(self.relations[r])
                found.append(Relation(type, *pair, attributes={**said, "score": f"{row[r]:.4f}", **why}))
        return replace(example.source, relations=tuple(found))

    def _stated(self, label: str) -> tuple[str, dict[str, str]]:
        """A label as a relation has it: its type, and the attribute if it has one."""
        if self.options.attribute is None:
            return label, {}
        type, value = unqualified(label)
        return type, {self.options.attribute: value} if value else {}

    def find(
        self,
        documents: Sequence[Document],
        examples: Sequence[DocumentExample],
        features: DocumentFeatures,
        model: nn.Module,
        threshold: float,
        device: torch.device,
    ) -> list[Document]:
        """Answers and their evidence come from one reading, of a document at a time."""

        def give(model: nn.Module, batch: DocumentRows) -> Tensor:
            reading, (row,) = model(batch), batch.index.tolist()

            def carried(pairs: Tensor) -> Tensor:
                return features.by_sentence(row, localized_attention(reading.looks, pairs))

            return torch.cat([self._above(model, reading.logits), in_parts(carried, 256, batch.pairs)], dim=1)

        found = list(documents)
        for row, example in enumerate(examples):
            given = infer(give, model, features, np.array([row]), device).values
            logits, context = torch.split(given, [len(self.relations), features.sentences], dim=1)
            likely = self.probabilities(logits).numpy()
            found[example.document] = self.annotate(example.source, [example], likely, threshold, context.numpy())
        return found


def evidence(context: NDArray[np.float32]) -> tuple[int, ...]:
    """The sentences that carry most of a pair's localized context, in order; none if it has no context."""
    total = context.sum()
    if total <= 0:
        return ()
    weighty = np.flatnonzero(context >= EVIDENCE_SHARE * total).tolist()
    return tuple(weighty) or (int(context.argmax()),)


def _convention(chosen: list[Pair] | str, related: Collection[Pair]) -> Convention:
    if isinstance(chosen, str):
        return Convention(frozenset(related)) if chosen == "related" else convention(chosen)
    return Convention(frozenset(chosen))


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Eq. 11: the sum over relations, the mean over pairs."""
    return F.binary_cross_entropy_with_logits(logits, labels, reduction="none").sum(dim=1).mean()


def adaptive_threshold_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """ATLOP's Eqs. 9 to 11: class 0 is the threshold; what holds is to rank above it, what does not below it."""
    threshold = F.one_hot(labels.new_zeros(len(labels), dtype=torch.long), labels.shape[1] + 1).bool()
    positive = torch.cat([labels.new_zeros(len(labels), 1), labels], dim=1).bool()
    above = logits.masked_fill(~(positive | threshold), -torch.inf).log_softmax(dim=1)
    below = logits.masked_fill(positive, -torch.inf).log_softmax(dim=1)
    return -(above.masked_fill(~positive, 0).sum(dim=1) + below[:, 0]).mean()


def _distinct(document: Document) -> list[Relation]:
    return list({(r.type, r.head, r.tail): r for r in document.relations}.values())


def _names(document: Document, pair: Pair) -> set[Pair]:
    """Each name of the one entity with each of the other."""
    heads, tails = ({document.surface(document.mentions[m]) for m in document.entity(id).mentions} for id in pair)
    return {(head, tail) for head in heads for tail in tails}
