"""Entities and relations in one model: what is mentioned in a window of sentences, and how it is related.

Spans are scored as `ner` scores them, pairs of spans by a second head on the same encoder (models/joint.py), and both
are decided together under type constraints (joint_decoding.py): which types a relation may join is read off the
training annotations, and saved with the model. Models are judged by the end-to-end F1 of relations (end_to_end.py).

A corpus that annotates only entities, or only relations between mentions that it gives, makes no loss for what it
lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.data.documents import Document, Mention, Relation, owned
from grandrounds.data.words import PLAIN, TextRules
from grandrounds.errors import ConfigError, DataError
from grandrounds.metrics.end_to_end import relation_counts, relation_score
from grandrounds.metrics.spans import Span as WordSpan
from grandrounds.metrics.spans import span_counts, span_score
from grandrounds.models.crf import words_inside
from grandrounds.models.encoder import Encoder
from grandrounds.models.joint import JointModel
from grandrounds.models.spans import spans_inside, spans_of_words
from grandrounds.tasks.abilities import (
    IMPOSSIBLE,
    Distillable,
    OwnLabels,
    PartlyAnnotated,
    PrivateParts,
    Response,
    SplitsText,
)
from grandrounds.tasks.joint_decoding import Constraints, from_rows
from grandrounds.tasks.joint_examples import (
    JointExample,
    Stated,
    Triple,
    marked_of_question,
    pairs_of,
    stated_in,
    triples_of,
    window_example,
)
from grandrounds.tasks.joint_features import JointFeatures, JointRows
from grandrounds.tasks.joint_pairs import answers, pairs_to_learn
from grandrounds.tasks.joint_scoring import Found, found_in, gold_of
from grandrounds.tasks.ner import entity_types, known_mentions, text_of_question, without_mentions
from grandrounds.tasks.ner_coding import Overlaps, SpanCoding
from grandrounds.tasks.ner_features import Answers, PieceFeatures
from grandrounds.tasks.ner_pieces import pieces_of
from grandrounds.tasks.ner_words import WordSentence, word_sentences
from grandrounds.tasks.task import NONE, Counts, ExtractionTask, Reading, check_relations

Part = Literal["entities", "relations"]
OTHER_RELATIONS = "relations of types, or between mentions, that task.relations or task.labels leave out"
ACROSS = "relations that no window holds (task.sentences): they count as missed"
BARRED = "relations between types that task.constraints does not join: they count as missed"
SECOND = "second relations of a pair of mentions, which has one"
MOST_TRIPLES = 200_000
"""Of types and relations: memory grows with them, and a saved model is a stranger's."""
ENTITY = "entity "
"""Before the names of what is counted of mentions."""


class JointOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["joint"] = "joint"
    sentences: int = Field(1, ge=1)
    """Sentences of a window. Relations are found within a window, so documents whose relations join sentences need
    more: 40 hold an abstract. What a transformer can't read at once it reads in several pieces."""
    annotated: list[Part] = Field(["entities", "relations"], min_length=1)
    """What the corpus annotates; a site may say what its own does. Without "entities" its mentions are taken as given,
    and only relations between them are learnt; without "relations" only mentions are."""
    labels: list[str] | None = None
    """Entity types; by default those of the corpora."""
    relations: list[str] | None = None
    """Relation types; by default those of the corpora."""
    constraints: list[Triple] | None = None
    """(head type, relation, tail type) that may hold; by default those that the corpora have."""
    ordered: bool = True
    """Whether relations have a direction. If not, as in BioRED, the mention that comes first is the head."""
    concepts: bool | None = None
    """Whether relations join concepts, as CDR's do, and not mentions; by default as the corpora have it. What is found
    is then scored by concept."""
    span_words: int = Field(10, ge=1)
    """The longest mention that can be found."""
    overlaps: Overlaps = "types"
    """Which mentions may be found together, as for `ner` with spans."""
    hidden: int = Field(200, ge=1)
    """The width of the inner layer of both heads."""
    dropout: float = Field(0.1, ge=0, lt=1)
    max_length: int = Field(512, ge=16)
    """Word pieces that a transformer reads at once, if it can."""


@dataclass(frozen=True, kw_only=True)
class JointReading(Reading):
    """`pair` has the states of words, which both heads classify; `logits` are of pairs of spans, and `labels` say how
    these are related."""

    labels: Tensor
    states: Tensor
    spans: Tensor
    """Scores, [windows, words, lengths, types]."""
    model: JointModel


class Joint(ExtractionTask, Distillable, OwnLabels, PartlyAnnotated, PrivateParts, SplitsText):
    name: ClassVar[str] = "joint"
    unit: ClassVar[str] = "document"
    finds: ClassVar[str] = "mentions and relations"
    Options: ClassVar[type[JointOptions]] = JointOptions
    options: JointOptions

    def __init__(
        self,
        options: JointOptions,
        types: Sequence[str],
        relations: Sequence[str],
        triples: Collection[Triple],
        concepts: bool,
        learnt: TextRules = PLAIN,
    ) -> None:
        """`learnt` is how the training data were split into sentences and words."""
        self.options, self.types, self.relations = options, tuple(types), tuple(relations)
        self.triples, self.concepts, self._learnt, self._rules = frozenset(triples), concepts, learnt, PLAIN
        self.coding = SpanCoding(self.types, options.span_words, options.overlaps)
        self._type_ids = {type: i for i, type in enumerate(self.types, start=1)}
        self._relation_ids = {relation: i for i, relation in enumerate(self.relations, start=1)}
        self.constraints = Constraints(self._allowed(), options.ordered)

    def _allowed(self) -> NDArray[np.bool_]:
        shape = len(self.types) + 1, len(self.relations) + 1, len(self.types) + 1
        if prod(shape) > MOST_TRIPLES:
            raise ConfigError(
                f"{len(self.types)} entity types and {len(self.relations)} relations are too many to decide together: "
                "drop some with data.map_labels, or take ner and a relation task"
            )
        allowed = np.zeros(shape, dtype=bool)
        for head, relation, tail in self.triples:
            if relation not in self._relation_ids or not {head, tail} <= self._type_ids.keys():
                raise ConfigError(
                    f"task.constraints: this task knows no relation '{relation}' from '{head}' to '{tail}': its entity "
                    f"types are {', '.join(self.types)}, its relations {', '.join(self.relations) or 'none'}"
                )
            first, r, second = self._type_ids[head], self._relation_ids[relation], self._type_ids[tail]
            allowed[first, r, second] = True
            allowed[second, r, first] |= not self.options.ordered
        return allowed

    @classmethod
    def private_parts(cls, options: JointOptions, encoder: str) -> Mapping[str, Sequence[str]]:
        return {"default": ("spans", "relations"), "relations": ("relations",), "nothing": ()}

    def label_parts(self) -> Sequence[str]:
        return ("spans", "relations")

    @classmethod
    def site_options(cls) -> Collection[str]:
        return ("annotated",)

    def as_annotated(self, example: JointExample, options: JointOptions) -> JointExample:
        there = options.annotated
        return replace(example, entities="entities" in there, relations="relations" in there)

    def annotated_as(self, options: JointOptions) -> Self:
        return self._with(self.options.model_copy(update={"annotated": options.annotated}))

    def _with(self, options: JointOptions) -> Self:
        return type(self)(options, self.types, self.relations, self.triples, self.concepts, self._learnt)

    # The label set

    @classmethod
    def of(cls, options: JointOptions, documents: Iterable[Document]) -> Self:
        held = list(documents)
        types = entity_types(options.labels, held, cls.name)
        stated = [relation for document in held for relation in document.relations]
        relations = sorted({one.type for one in stated}) if options.relations is None else options.relations
        if relations or "relations" in options.annotated:
            check_relations(relations, cls.name)
        if both := sorted({*types} & {*relations}):
            raise ConfigError(f"'{both[0]}' is a type of mentions and of relations; rename one with data.map_labels")
        concepts = options.concepts
        if concepts is None:
            concepts = bool(stated) and all(one.mentions is None for one in stated)
        triples = options.constraints
        if triples is None:
            shown = sorted({triple for document in held for triple in triples_of(document)})
            triples = [(head, r, tail) for head, r, tail in shown if r in relations and {head, tail} <= {*types}]
        if not triples and "relations" in options.annotated:
            raise ConfigError("no document shows which types of entities are related: name them in task.constraints")
        return cls(options, types, relations, triples, concepts, TextRules.learn(held))

    @property
    def labels(self) -> Sequence[str]:
        return (NONE, *self.types, *self.relations)

    def schema(self) -> dict[str, Any]:
        return {
            "options": self.options.model_dump(),
            "types": self.types,
            "relations": self.relations,
            "constraints": sorted(self.triples),
            "concepts": self.concepts,
            "rules": self._learnt.as_json(),
        }

    @classmethod
    def restore(cls, schema: Mapping[str, Any]) -> Self:
        triples = [(head, relation, tail) for head, relation, tail in schema["constraints"]]
        learnt = TextRules.from_json(schema["rules"])
        options = cls.Options(**schema["options"])
        return cls(options, schema["types"], schema["relations"], triples, bool(schema["concepts"]), learnt)

    def as_trained(self) -> Self:
        made = self._with(self.options)
        made._rules = self._learnt
        return made

    def pair_types(self) -> Collection[tuple[str, str]]:
        return {(head, tail) for head, _, tail in self.triples}

    # From documents to examples

    def examples(self, documents: Sequence[Document]) -> tuple[list[JointExample], dict[str, int]]:
        examples: list[JointExample] = []
        warnings: Counter[str] = Counter()
        for place, document in enumerate(documents):
            known = known_mentions(document, self.types, self.options.labels is not None, warnings)
            windows = word_sentences(document, known, warnings, self._rules, self.options.sentences)
            stated = self._stated(document, known, warnings)
            warnings.update(self._unsaid(stated, windows))
            before = 0
            for window in windows:
                examples.append(window_example(place, document, window, before, stated, self.options.annotated))
                before += len(window.words)
        for example in examples:
            warnings.update(self.coding.unsaid(example.gold, len(example.words)))
            warnings[SECOND] += sum(len(relations) - 1 for relations in self._related(example).values())
        return examples, dict(+warnings)

    def _stated(self, document: Document, known: Sequence[Mention], warnings: Counter[str]) -> list[Stated]:
        strange = {relation.type for relation in document.relations}.difference(self.relations)
        if strange and self.options.relations is None:
            raise DataError(
                f"relation type '{min(strange)}' is not in the label set ({', '.join(self.relations)}); "
                "name it in task.relations, or take it out of the corpus"
            )
        stated, others = stated_in(document, known, self.relations)
        warnings[OTHER_RELATIONS] += others
        return stated

    def _unsaid(self, stated: Sequence[Stated], windows: Sequence[WordSentence]) -> Counter[str]:
        """How many relations can't be found, by why."""
        said = Counter[str]()
        for one in stated:
            pairs = list(pairs_of(windows, one))
            said[ACROSS] += not pairs
            said[BARRED] += bool(pairs) and not any(self._may(head, one.type, tail) for head, tail in pairs)
        return said

    def _may(self, head: WordSpan, relation: str, tail: WordSpan) -> bool:
        triple = self._type_ids[head[2]], self._relation_ids[relation], self._type_ids[tail[2]]
        return bool(self.constraints.allowed[triple])

    def answers(self, example: JointExample) -> list[str]:
        return example.named() or [NONE]

    def without_answers(self, document: Document) -> Document:
        return without_mentions(document)

    # From examples to numbers

    def text(self, example: JointExample) -> str:
        return example.text

    def question(self, example: JointExample) -> dict[str, Any]:
        return {"text": example.text, "words": example.words, "mentions": example.marked}

    def from_question(self, question: Mapping[str, Any]) -> JointExample:
        text, words = text_of_question(question, self.name)
        marked = marked_of_question(question, len(words))
        return JointExample(
            0, 0, NONE, text, 0, words, (), before=0, facts=(), entities=False, relations=False, marked=marked
        )

    def without_label(self, example: JointExample) -> JointExample:
        return replace(example, label=NONE, gold=(), facts=(), entities=False, relations=False)

    def classes(self) -> int:
        return max(len(self.types), len(self.relations)) + 1

    def questions(self, features: JointFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """A window asks about each span that a mention may have, then about each pair of marked ones."""
        words = [len(features.examples[row].words) for row in rows.tolist()]
        spans = np.array([spans_of_words(number, self.options.span_words) for number in words], dtype=np.int64)
        return spans + np.array([len(features.asked[row]) for row in rows.tolist()], dtype=np.int64)

    def label_counts(self, features: JointFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Mentions and relations of each type; for None, windows without any."""
        counted = Counter(label for row in rows.tolist() for label in self.answers(features.examples[row]))
        return np.array([counted[label] for label in self.labels], dtype=np.int64)

    def features(self, examples: Sequence[JointExample], encoder: Encoder) -> JointFeatures:
        _check_reads(encoder)
        targets = [self.coding.targets(example.gold, len(example.words)) for example in examples]
        said = Answers.of(targets, [example.gold for example in examples])
        window = min(self.options.max_length, encoder.window)
        pieces = PieceFeatures.of(said, pieces_of([example.forms() for example in examples], encoder), window, encoder)
        mentions = [
            _numbers([(first, past, self._type_ids[type]) for first, past, type in example.within], 3)
            for example in examples
        ]
        facts = [
            _numbers([(*pair, relations[0]) for pair, relations in self._related(example).items()], 3)
            for example in examples
        ]
        return JointFeatures(pieces, examples, mentions, facts, [self._asked(example) for example in examples])

    def _asked(self, example: JointExample) -> NDArray[np.int64]:
        """Pairs of marked spans that mentions of some types may be related in."""
        marked = _numbers(example.marked, 2)
        any_type = np.ones((len(marked), len(self.types) + 1), dtype=bool)
        return marked[self.constraints.pairs(marked, any_type)].reshape(-1, 4)

    def _related(self, example: JointExample) -> dict[tuple[int, int], list[int]]:
        """The relations of each pair, head and tail as places in the window's mentions."""
        spans = example.within
        place = {span: i for i, span in enumerate(spans)}
        related: dict[tuple[int, int], list[int]] = {}
        for fact in example.facts:
            for head in (place[span] for span in fact.head if span in place):
                for tail in (place[span] for span in fact.tail if span in place):
                    pair = (head, tail) if self.options.ordered or head < tail else (tail, head)
                    relation = self._relation_ids[fact.type]
                    if self._may(spans[head], fact.type, spans[tail]) and relation not in related.get(pair, ()):
                        related.setdefault(pair, []).append(relation)
        return related

    # The network, its loss and its answers

    def model(self, encoder: Encoder) -> nn.Module:
        _check_reads(encoder)
        options, classes = self.options, (len(self.types) + 1, len(self.relations) + 1)
        return JointModel(encoder, *classes, options.span_words, options.hidden, options.dropout)

    def read(self, model: nn.Module, batch: JointRows) -> JointReading:
        joint = cast("JointModel", model)
        states = joint.states(batch)
        scores = joint.spans(states)
        pairs, labels = pairs_to_learn(scores, batch, self.constraints)
        h = joint.relations.represent(states, pairs)
        words = states[words_inside(batch.lengths, states.shape[1])]
        return JointReading(joint.relations(h), words, labels=labels, states=states, spans=scores, model=joint)

    def grade(self, reading: Reading, batch: JointRows) -> Tensor:
        """The cross-entropy of all spans, as the mean over the windows whose mentions are annotated, and that of all
        pairs over those whose relations are. A head that has nothing to learn is not part of the loss."""
        read, known = cast("JointReading", reading), batch.entities
        loss = 0 * read.states.sum()
        if known.any():
            loss = read.model.decoder.loss(read.spans[known], batch.targets[known], batch.lengths[known])
        if len(read.labels):
            entropy = F.cross_entropy(read.logits.float(), read.labels, reduction="sum")
            loss = loss + entropy / batch.relations.sum()
        return loss

    def respond(self, model: nn.Module, batch: JointRows) -> Response:
        read = self.read(model, batch)
        inside = spans_inside(batch.lengths, read.spans)
        spans, classifier = read.spans[inside], read.model.relations
        pairs = classifier(classifier.represent(read.states, batch.asked))
        every = [F.pad(some.float(), (0, self.classes() - some.shape[1]), value=IMPOSSIBLE) for some in (spans, pairs)]
        window = torch.cat([inside.nonzero()[:, 0], batch.asked[:, 0]])
        order = window.argsort(stable=True)  # the spans of a window, then its pairs
        return Response(torch.cat(every)[order], self.grade(read, batch))

    def outputs(self, model: nn.Module, batch: JointRows) -> Tensor:
        """[words, 12]: what is found in each window, as joint_decoding.py writes it."""
        return answers(cast("JointModel", model), batch, self.constraints, self.options.overlaps)

    def probabilities(self, outputs: Tensor) -> Tensor:
        """As they are: what was found, with its probability."""
        return outputs

    def _found(
        self, outputs: NDArray[np.float32], examples: Sequence[JointExample], threshold: float = 0.0
    ) -> list[Found]:
        """By window; of relations those whose ends are found."""
        ends = np.cumsum([len(example.words) for example in examples])[:-1]
        windows = []
        for part in np.split(outputs, ends):
            mentions, relations = from_rows(part)
            kept = {i: place for place, i in enumerate(i for i, m in enumerate(mentions) if m[3] >= threshold)}
            windows.append(
                Found(
                    [((*mentions[i][:2], self.types[mentions[i][2] - 1]), mentions[i][3]) for i in kept],
                    [
                        (self.relations[type - 1], kept[head], kept[tail], score)
                        for head, tail, type, score in relations
                        if score >= threshold and head in kept and tail in kept
                    ],
                )
            )
        return windows

    # Scores

    def counts(self, outputs: NDArray[np.float32], features: JointFeatures, rows: NDArray[np.int64]) -> Counts:
        """Of mentions by window, and of relations by document; each of what is annotated."""
        windows = [features.examples[row] for row in rows.tolist()]
        found = self._found(outputs, windows)
        of_mentions = [(w.gold, [s for s, _ in f.mentions]) for w, f in zip(windows, found, strict=True) if w.entities]
        gold, said = zip(*of_mentions, strict=True) if of_mentions else ((), ())
        counts = {f"{ENTITY}{name}": value for name, value in span_counts(gold, said, self.types).items()}
        documents: dict[int, list[int]] = {}
        for place, window in enumerate(windows):
            if window.relations:
                documents.setdefault(window.document, []).append(place)
        members = [([windows[i] for i in held], [found[i] for i in held]) for held in documents.values()]
        return counts | relation_counts(
            [gold_of(held) for held, _ in members],
            [found_in(held, said, self.concepts) for held, said in members],
            self.relations,
            self.options.ordered,
        )

    def score(self, counts: Counts) -> dict[str, Any]:
        """Of relations, and of mentions as `entity_f1` and so on. The counts may come from a site with types of its
        own."""
        own = {name.removeprefix(ENTITY): value for name, value in counts.items() if name.startswith(ENTITY)}
        entities = span_score(own, _counted(own, self.types))
        score = relation_score(counts, _counted(counts, self.relations))
        named = ("precision", "recall", "f1", "relaxed_precision", "relaxed_recall", "relaxed_f1")
        of_mentions = {f"entity_{name}": entities[name] for name in named}
        return {**score, **of_mentions, "per_class": score["per_class"] | entities["per_class"]}

    # Documents

    def annotate(
        self,
        document: Document,
        examples: Sequence[JointExample],
        probabilities: NDArray[np.float32],
        threshold: float,
    ) -> Document:
        mentions, pairs = list[Mention](), list[tuple[str, int, int, float]]()
        for window, found in zip(examples, self._found(probabilities, examples, threshold), strict=True):
            before = len(mentions)
            for (first, past, type), score in found.mentions:
                start, end = window.start + window.words[first].start, window.start + window.words[past - 1].end
                said = {"score": f"{score:.4f}"}
                mentions.append(Mention(start, end, type, f"T{len(mentions) + 1}", attributes=said))
            pairs += [(type, before + head, before + tail, score) for type, head, tail, score in found.relations]
        sentences = self._rules.sentences(document)
        made = owned(replace(document, sentences=sentences, mentions=tuple(mentions), entities=(), relations=()))
        relations = tuple(
            Relation(type, mentions[head].id, mentions[tail].id, (head, tail), {"score": f"{score:.4f}"})
            for type, head, tail, score in pairs
        )
        return replace(made, relations=relations)


def _check_reads(encoder: Encoder) -> None:
    if encoder.config.model_type == "words":
        raise ConfigError("the task joint reads a transformer, and model.encoder = 'words' is none; name one")


def _numbers(rows: Sequence[tuple[int, ...]], width: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(-1, width)


def _counted(counts: Counts, known: Sequence[str]) -> list[str]:
    """The classes that were counted, those that are known first."""
    found = {name.removeprefix("tp/") for name in counts if name.startswith("tp/")}
    named = [one for one in known if one in found]
    return [*named, *sorted(found.difference(named))]
