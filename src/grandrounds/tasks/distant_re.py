"""Distantly supervised relation extraction (FedDS, 2020, section 3): sentences with one pair each, labelled by a
knowledge base and therefore noisy.

A training bag is the sentences of a fact (head, relation, tail), NA included; a test bag those of a pair, and what is
scored is the ranking of all its relations. An example is a sentence: sites hold sentences, and bags are what they make
of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.data.documents import Document, Relation, Span, owned
from grandrounds.errors import DataError
from grandrounds.metrics.outcomes import Outcomes, digest_of
from grandrounds.metrics.ranking import DECIDED, ranking_curve, thinned
from grandrounds.metrics.relation_f1 import precision_recall_f1
from grandrounds.metrics.score import AUC, Objective
from grandrounds.models.bag_attention import (
    Method,
    attended,
    attended_by_label,
    bag_mean,
    bag_softmax,
    largest_in_bag,
    most_confident,
)
from grandrounds.models.encoder import Encoder
from grandrounds.models.entity_pair import EntityPair
from grandrounds.models.pcnn import CNN, PCNN
from grandrounds.tasks.abilities import Bagged, PrivateParts
from grandrounds.tasks.sentence_re import (
    AROUND,
    MARKERS,
    Marked,
    PairExample,
    PairFeatures,
    PairRows,
    fitting_pairs,
    mark_pair,
)
from grandrounds.tasks.task import NO_CLASS, NONE, Counts, ExtractionTask, Reading, check_relations

HEADS: dict[str, type[nn.Module]] = {"pcnn": PCNN, "cnn": CNN, "entity_pair": EntityPair}
ACROSS = "mentions in no sentence, or in two, in no pair"
OVERLAPPING = "pairs of overlapping mentions, which can't both be placed"
UNSEEN = "sentences of relations that the label set lacks: in a test their facts count as missed"
NOT_ONE_PAIR = "documents that are not one sentence with two mentions; label text with 'data distant' first"


class DistantREOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["distant_re"] = "distant_re"
    head: Literal["pcnn", "cnn", "entity_pair"] = "pcnn"
    """What reads a sentence: on the encoder `words`, a piecewise or a plain convolution; `entity_pair` is for a
    transformer."""
    bag: Method = "one"
    """How the sentences of a bag make one example."""
    dropout: float = Field(0.5, ge=0, lt=1)
    max_length: int = Field(128, ge=16)
    """Words; a longer sentence is cut to a window round the pair."""
    labels: list[str] | None = None
    """Relation types; by default those of the corpora."""
    precision_at: list[Annotated[int, Field(ge=1)]] = [100, 200, 300]
    """N of P@N."""


@dataclass(frozen=True)
class DistantExample(PairExample):
    pair: tuple[str, str]
    """The two entities, by the ids that all sites know them by."""
    says_it: bool | None = None
    """Whether the sentence really states its relation, where the corpus knows."""

    @property
    def fact(self) -> tuple[str, str, str]:
        return self.pair[0], self.label, self.pair[1]


class DistantRE(ExtractionTask, Bagged, PrivateParts):
    name: ClassVar[str] = "distant_re"
    unit: ClassVar[str] = "example"
    whole: ClassVar[str] = "pair"  # otherwise a model would be tested on pairs it was trained on
    markers: ClassVar[Sequence[str]] = MARKERS
    objective: ClassVar[Objective] = AUC
    Options: ClassVar[type[DistantREOptions]] = DistantREOptions
    options: DistantREOptions

    def __init__(
        self, options: DistantREOptions, relations: Sequence[str], types: Iterable[tuple[str, str]] = ()
    ) -> None:
        self.options = options
        self._labels = (NONE, *relations)
        self._ids = {label: i for i, label in enumerate(self._labels)}
        self.types = frozenset(types)
        """(head type, tail type) that relations join: what `extract` asks about in text that is not labelled."""

    @classmethod
    def private_parts(cls, options: DistantREOptions, encoder: str) -> Mapping[str, Sequence[str]]:
        return {"default": ("head",), "nothing": ()}

    @classmethod
    def of(cls, options: DistantREOptions, documents: Iterable[Document]) -> Self:
        found, types = set[str](), set[tuple[str, str]]()
        for document in documents:
            for relation in document.relations:
                found.add(relation.type)
                types.add((document.entity(relation.head).type, document.entity(relation.tail).type))
        relations = sorted(found) if options.labels is None else options.labels
        check_relations(relations, cls.name)
        return cls(options, relations, types)

    @property
    def labels(self) -> Sequence[str]:
        return self._labels

    def schema(self) -> dict[str, Any]:
        return {"options": self.options.model_dump(), "relations": self._labels[1:], "types": sorted(self.types)}

    @classmethod
    def restore(cls, schema: Mapping[str, Any]) -> Self:
        types = [(head, tail) for head, tail in schema["types"]]
        return cls(cls.Options(**schema["options"]), schema["relations"], types)

    # From documents to examples

    def examples(self, documents: Sequence[Document]) -> tuple[list[DistantExample], dict[str, int]]:
        found = [self._labelled(index, document) for index, document in enumerate(documents)]
        examples = [example for example in found if example is not None]
        unseen = sum(example.label not in self._ids for example in examples)
        counted = {NOT_ONE_PAIR: len(found) - len(examples), UNSEEN: unseen}
        return examples, {what: count for what, count in counted.items() if count}

    def candidates(self, documents: Sequence[Document]) -> tuple[list[DistantExample], dict[str, int]]:
        """A sentence with one pair is asked about that pair. In other text, every pair within a sentence is asked about
        whose types a relation may join."""
        examples, warnings = list[DistantExample](), dict[str, int]()
        for index, document in enumerate(documents):
            one = self._labelled(index, document)
            examples += [one] if one is not None else self._pairs(index, owned(document), warnings)
        return examples, warnings

    def _labelled(self, index: int, document: Document) -> DistantExample | None:
        """The example of a sentence with two mentions. They may be of one entity, since some databases relate things to
        themselves."""
        document = owned(document)
        if len(document.mentions) != 2 or len(document.relations) > 1:
            return None
        stated = document.relations[0] if document.relations else None
        first, last = document.entities[0], document.entities[-1]
        mentions = (first.mentions[0], last.mentions[-1])
        if stated is not None:
            head, tail = document.entity(stated.head), document.entity(stated.tail)
            mentions = stated.mentions or (head.mentions[0], tail.mentions[-1])
        return self._example(index, 0, document, mentions, NONE if stated is None else stated.type)

    def _pairs(self, index: int, document: Document, warnings: dict[str, int]) -> Iterator[DistantExample]:
        by_sentence: dict[int, list[int]] = {}
        for m, mention in enumerate(document.mentions):
            sentence = document.sentence_of(mention)
            if sentence is None:
                warnings[ACROSS] = warnings.get(ACROSS, 0) + 1
            else:
                by_sentence.setdefault(sentence, []).append(m)
        for sentence, members in sorted(by_sentence.items()):
            for head, tail in permutations(members, 2):
                one, other = document.mentions[head], document.mentions[tail]
                if (one.type, other.type) not in self.types:
                    continue
                if one.start < other.end and other.start < one.end:
                    warnings[OVERLAPPING] = warnings.get(OVERLAPPING, 0) + 1
                else:
                    yield self._example(index, sentence, document, (head, tail), NONE)

    def _example(
        self, index: int, sentence: int, document: Document, mentions: tuple[int, int], label: str
    ) -> DistantExample:
        start, end = document.sentences[sentence] if len(document.sentences) > 1 else (0, len(document.text))
        head, tail = (document.mentions[m] for m in mentions)
        owner = {m: entity.id for entity in document.entities for m in entity.mentions}
        return DistantExample(
            document=index,
            sentence=sentence,
            label=label,
            text=document.text[start:end],
            head=Span(head.start - start, head.end - start),
            tail=Span(tail.start - start, tail.end - start),
            types=(head.type, tail.type),
            mentions=mentions,
            blinded=False,
            pair=(head.concept or owner[mentions[0]], tail.concept or owner[mentions[1]]),
            says_it={"yes": True, "no": False}.get(document.attributes.get("true", "")),
        )

    def without_answers(self, document: Document) -> Document:
        return replace(document, relations=())

    def unit_key(self, row: int, example: DistantExample, documents: Sequence[Document], unit: str) -> str:
        """A pair is the same in both directions."""
        return "\x1f".join(sorted(example.pair)) if unit == "pair" else super().unit_key(row, example, documents, unit)

    def pair_types(self) -> frozenset[tuple[str, str]]:
        return self.types

    # From examples to numbers

    def text(self, example: DistantExample) -> str:
        return example.text

    def question(self, example: DistantExample) -> dict[str, Any]:
        return {name: getattr(example, name) for name in ("text", "head", "tail", "types", "pair")}

    def from_question(self, question: Mapping[str, Any]) -> DistantExample:
        try:
            head, tail = Span(*question["head"]), Span(*question["tail"])
            types = (str(question["types"][0]), str(question["types"][1]))
            pair = (str(question["pair"][0]), str(question["pair"][1]))
            text = str(question["text"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(
                "an example of the public set is not one of distant_re; has the server another task?"
            ) from error
        return DistantExample(0, 0, NONE, text, head, tail, types, (0, 1), False, pair)

    def label_counts(self, features: DistantFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        known = features.labels[rows][features.labels[rows] != NO_CLASS]
        return np.bincount(known, minlength=len(self._labels)).astype(np.int64)

    def features(self, examples: Sequence[DistantExample], encoder: Encoder) -> DistantFeatures:
        # In parts: as lists, half a million sentences would take gigabytes.
        starts = range(0, max(len(examples), 1), AT_ONCE)
        made = PairFeatures.joined([self._part(examples[start : start + AT_ONCE], encoder) for start in starts])
        facts, names = _numbered(example.fact for example in examples)
        pairs, _ = _numbered(example.pair for example in examples)
        truth = np.array([UNKNOWN if e.says_it is None else int(e.says_it) for e in examples], dtype=np.int8)
        return DistantFeatures(**vars(made), facts=facts, pairs=pairs, names=names, truth=truth)

    def fitting(
        self, examples: Sequence[DistantExample], encoder: Encoder
    ) -> tuple[Sequence[DistantExample], Mapping[str, int]]:
        """Without pairs whose mentions alone are longer than the window."""
        room = min(self.options.max_length, encoder.window) - (0 if self._by_words else AROUND)
        return fitting_pairs(examples, _segments, encoder, room)

    @property
    def _by_words(self) -> bool:
        """Whether the head reads words alone, without what marks a pair."""
        return self.options.head != "entity_pair"

    def _part(self, examples: Sequence[DistantExample], encoder: Encoder) -> PairFeatures:
        segments = [_segments(example) for example in examples]
        distinct = sorted({text for parts in segments for text, _ in parts})
        pieces = dict(zip(distinct, encoder.pieces(distinct), strict=True))
        tokenizer = encoder.tokenizer
        window = min(self.options.max_length, encoder.window)
        marker = dict(zip(MARKERS, tokenizer.convert_tokens_to_ids(list(MARKERS)), strict=True))
        rows = []
        for parts in segments:
            cut = [(pieces[text], role) for text, role in parts]
            if self._by_words:
                rows.append(_unmarked(mark_pair(cut, window + AROUND, NOTHING, NOTHING, NO_MARKER)))
            else:
                rows.append(mark_pair(cut, window, tokenizer.cls_token_id, tokenizer.sep_token_id, marker))
        return PairFeatures.of(
            rows, [self._ids.get(example.label, NO_CLASS) for example in examples], tokenizer.pad_token_id
        )

    def bags(self, features: DistantFeatures, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Places in `rows` of the sentences of each fact; these are trained on, so the label set must have them."""
        if (features.labels[rows] == NO_CLASS).any():
            strange = min(set(features.relations(rows)).difference(self._labels))
            raise DataError(
                f"relation type '{strange}' of the training data is not in the label set "
                f"({', '.join(self._labels[1:])}); name it in task.labels, or take it out of the corpus"
            )
        return grouped(features.facts[rows])

    def facts(
        self, features: DistantFeatures, rows: NDArray[np.int64]
    ) -> Iterator[tuple[tuple[str, ...], NDArray[np.int64]]]:
        for bag in self.bags(features, rows):
            yield features.names[features.facts[rows[bag[0]]]], bag

    def confidence(self, model: Any, batch: DistantRows) -> Tensor:
        p: Tensor = model.classify(model.represent(batch)).softmax(dim=1)
        return p.gather(1, batch.labels[batch.bag][:, None])

    # The network and its score

    def model(self, encoder: Encoder) -> nn.Module:
        made: Any = HEADS[self.options.head](encoder, len(self._labels), self.options.dropout)
        if self.options.bag == "att":
            made.diagonal = nn.Parameter(torch.ones(made.head.in_features))  # A of Lin et al., Eq. 8
        network: nn.Module = made
        return network

    def read(self, model: Any, batch: DistantRows) -> Reading:
        """One row per sentence for ONE, otherwise one per bag."""
        x = model.represent(batch)
        match self.options.bag:
            case "one":
                return Reading(model.classify(x), x)
            case "ave":
                x = bag_mean(x, batch.bag, len(batch.labels))
            case "att":
                x = attended_by_label(x, batch.bag, batch.labels, model.diagonal * model.head.weight)
            case _:
                views = model.dropout(attended(x, batch.bag, len(batch.labels), model.head.weight))
                return Reading((views * model.head.weight).sum(dim=2) + model.head.bias, views.flatten(1))
        return Reading(model.classify(x), x)

    def grade(self, reading: Reading, batch: DistantRows) -> Tensor:
        logits = reading.logits
        if self.options.bag == "one":
            logits = logits[most_confident(logits.log_softmax(dim=1), batch.bag, batch.labels)]
        return F.cross_entropy(logits, batch.labels)  # Eq. 3

    def outputs(self, model: Any, batch: DistantRows) -> Tensor:
        """[sentences, classes]: logits. They suffice to score bags: the logits of a weighted mean of sentences are
        the weighted mean of theirs. For attention its scores follow, another [sentences, classes]."""
        x = model.represent(batch)
        logits: Tensor = model.classify(x)
        match self.options.bag:
            case "att":
                return torch.cat([logits, x @ (model.diagonal * model.head.weight).T], dim=1)
            case "att_ra":
                return torch.cat([logits, x @ model.head.weight.T], dim=1)
        return logits

    def probabilities(self, outputs: Tensor) -> Tensor:
        return outputs[:, : len(self._labels)].softmax(dim=1)

    def bag_scores(self, outputs: Tensor, bag: Tensor) -> Tensor:
        """[bags, classes]: each method's rule for a test, from the sentences' outputs."""
        bags = int(bag[-1]) + 1
        logits, scores = outputs[:, : len(self._labels)], outputs[:, len(self._labels) :]
        match self.options.bag:
            case "one":
                return largest_in_bag(logits.softmax(dim=1), bag, bags)
            case "ave":
                return bag_mean(logits, bag, bags).softmax(dim=1)
            case "att_ra":  # a softmax over what each query saw of its own class
                own = bag_softmax(scores, bag, bags) * logits
                return own.new_zeros(bags, own.shape[1]).index_add(0, bag, own).softmax(dim=1)
            case _:  # each query's own class, of the softmax over what it saw
                weights = bag_softmax(scores, bag, bags)
                found = logits.new_zeros(bags, logits.shape[1])
                for r, weight in enumerate(weights.T):  # all at once, NYT10 would take gigabytes
                    view = torch.zeros_like(found).index_add(0, bag, weight[:, None] * logits)
                    found[:, r] = view.softmax(dim=1)[:, r]
                return found

    def counts(self, outputs: NDArray[np.float32], features: DistantFeatures, rows: NDArray[np.int64]) -> Counts:
        gold, scores = self._gold_and_scores(outputs, features, rows)
        gold, scores, missed = gold[:, 1:], scores[:, 1:], self._missed(features, rows)
        curve = ranking_curve(gold, scores, int(missed.sum()))
        said = scores >= DECIDED
        drawn = {f"{axis} {i:03d}": v for axis, values in thinned(curve).items() for i, v in enumerate(values)}
        at = {f"p@{n}": curve.precision_at(n) for n in self.options.precision_at}
        by_relation = {
            f"{part}/{name}": float(count)
            for part, held in (("right", said & gold), ("said", said), ("facts", gold))
            for name, count in zip(self._labels[1:], held.sum(axis=0).tolist(), strict=True)
        }
        return {
            "auc": curve.auc,
            "auc_2000": curve.auc_top,
            "right": float((said & gold).sum()),
            "said": float(said.sum()),
            "facts": float(gold.sum() + missed.sum()),
            "answers": float(gold.size),
            "n": float(len(scores)),
            **at,
            **drawn,
            **by_relation,
            **self._by_sentence(outputs, features, rows),
        }

    def _by_sentence(
        self, outputs: NDArray[np.float32], features: DistantFeatures, rows: NDArray[np.int64]
    ) -> dict[str, float]:
        """Where the corpus knows which sentences state their relation: how many do, how many of all the model takes to
        do so because the relation is their likeliest class, and of how many this is right."""
        related = (features.truth[rows] != UNKNOWN) & (features.labels[rows] > 0)
        if not related.any():
            return {}
        says = features.truth[rows][related] == 1
        taken = outputs[related, : len(self._labels)].argmax(axis=1) == features.labels[rows][related]
        counted = {"right": says & taken, "said": taken, "facts": says}
        return {f"{part}{SENTENCES}": float(held.sum()) for part, held in counted.items()}

    def _missed(self, features: DistantFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """[pairs]: how many facts each has whose relation is not in the label set."""
        pairs, numbers = np.unique(features.pairs[rows], return_inverse=True)
        unseen = features.labels[rows] == NO_CLASS
        facts = np.unique(np.stack([numbers[unseen], features.facts[rows][unseen]]), axis=1)
        return np.bincount(facts[0], minlength=len(pairs)).astype(np.int64)

    def outcomes(
        self, outputs: NDArray[np.float32], features: DistantFeatures, rows: NDArray[np.int64], units: NDArray[np.int64]
    ) -> Outcomes:
        """One outcome per pair, whichever documents its sentences come from."""
        gold, scores = (held[:, 1:] for held in self._gold_and_scores(outputs, features, rows))
        missed = self._missed(features, rows)
        columns = {"gold": gold.astype(np.uint8), "scores": scores, **({"missed": missed} if missed.any() else {})}
        return Outcomes("auc", columns, digest_of([np.flatnonzero(pair).tolist() for pair in gold]))

    def _gold_and_scores(
        self, outputs: NDArray[np.float32], features: DistantFeatures, rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float32]]:
        """Both [pairs, labels]."""
        order = np.argsort(features.pairs[rows], kind="stable")
        keys = features.pairs[rows][order]
        bag = np.concatenate([[0], (np.diff(keys) != 0).cumsum()]).astype(np.int64)
        gold = np.zeros((bag[-1] + 1, len(self._labels)), dtype=bool)
        labels = features.labels[rows][order]
        known = labels != NO_CLASS
        gold[bag[known], labels[known]] = True
        return gold, self.bag_scores(torch.from_numpy(outputs[order]), torch.from_numpy(bag)).numpy()

    def score(self, counts: Counts) -> dict[str, Any]:
        parts = ("right", "said", "facts")
        relations = dict.fromkeys(key.partition("/")[2] for key in counts if key.startswith("facts/"))
        per_class = {name: tuple(counts[f"{part}/{name}"] for part in parts) for name in relations}
        sentences = tuple(counts[part + SENTENCES] for part in parts) if parts[0] + SENTENCES in counts else None
        told = {f"{part}/{name}" for part in parts for name in relations} | {part + SENTENCES for part in parts}
        whole = {key: value for key, value in counts.items() if key not in told}
        curve = {axis: [whole[key] for key in sorted(whole) if key.startswith(f"{axis} ")] for axis in AXES}
        named = {key: value for key, value in whole.items() if key.split(" ")[0] not in AXES or " " not in key}
        right, said, facts, answers = (named.pop(key) for key in (*parts, "answers"))
        share = facts / answers if answers else 0.0
        return {
            **named,
            "n": int(named["n"]),
            "facts": int(facts),
            **_precision_recall_f1(right, said, facts),
            "baseline": "every relation of every pair",
            "baseline_f1": 2 * share / (1 + share),
            "baseline_auc": share,
            "per_class": {
                name: {**_precision_recall_f1(*held), "support": int(held[2])} for name, held in per_class.items()
            },
            "curve": curve,
            **({f"sentence_{k}": v for k, v in _precision_recall_f1(*sentences).items()} if sentences else {}),
        }

    def annotate(
        self,
        document: Document,
        examples: Sequence[DistantExample],
        probabilities: NDArray[np.float32],
        threshold: float,
    ) -> Document:
        document, relations = owned(document), list[Relation]()
        owner = {m: entity.id for entity in document.entities for m in entity.mentions}
        for example, row in zip(examples, probabilities, strict=True):
            best = int(row.argmax())
            if best and row[best] >= threshold:
                head, tail = (owner[m] for m in example.mentions)
                score = {"score": f"{row[best]:.4f}"}
                relations.append(Relation(self._labels[best], head, tail, example.mentions, score))
        return replace(document, relations=tuple(relations))


AXES = ("recall", "precision")
SENTENCES = " by sentence"
UNKNOWN = -1
AT_ONCE = 1 << 14
"""Sentences that are read together."""


@dataclass(frozen=True)
class DistantRows(PairRows):
    bag: Tensor
    """[sentences]: which bag of the batch each is of; `labels` are the bags'."""


@dataclass(frozen=True)
class DistantFeatures(PairFeatures):
    facts: NDArray[np.int64]
    """[sentences]: the number of each one's fact."""
    pairs: NDArray[np.int64]
    names: Sequence[tuple[str, ...]]
    """Of each fact by its number: head, relation, tail."""
    truth: NDArray[np.int8]
    """[sentences]: 1 if it states its relation, 0 if not, UNKNOWN if the corpus does not know."""

    def relations(self, rows: NDArray[np.int64]) -> list[str]:
        """By their names, those that the label set lacks too."""
        return [self.names[fact][1] for fact in self.facts[rows].tolist()]

    @cached_property
    def answers(self) -> NDArray[np.int64]:
        return np.ones(len(self.facts), dtype=np.int64)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> DistantRows:
        """Consecutive rows of one fact are a bag."""
        plain = super().batch(rows)
        facts = self.facts[np.asarray(rows, dtype=np.int64)]
        begins = np.concatenate([[True], np.diff(facts) != 0])
        bag = torch.from_numpy(begins.cumsum() - 1)
        return DistantRows(**{**vars(plain), "labels": plain.labels[torch.from_numpy(begins)], "bag": bag})


def _precision_recall_f1(right: float, said: float, facts: float) -> dict[str, float]:
    return precision_recall_f1(right, said - right, facts - right)


def grouped(keys: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The places of each key, in order of the keys."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1) if len(keys) else []


def _numbered(keys: Iterable[tuple[str, ...]]) -> tuple[NDArray[np.int64], list[tuple[str, ...]]]:
    numbers: dict[tuple[str, ...], int] = {}
    return np.fromiter((numbers.setdefault(key, len(numbers)) for key in keys), dtype=np.int64), list(numbers)


def _segments(example: DistantExample) -> list[tuple[str, int]]:
    """Left context, first mention, middle, second mention, right context; roles as in sentence_re."""
    (first, first_role), (second, second_role) = sorted([(example.head, 1), (example.tail, 2)])
    text = example.text
    return [
        (text[: first.start], 0),
        (text[first.start : first.end], first_role),
        (text[first.end : second.start], 0),
        (text[second.start : second.end], second_role),
        (text[second.end :], 0),
    ]


NOTHING = -1
NO_MARKER = dict.fromkeys(MARKERS, NOTHING)


def _unmarked(marked: Marked) -> Marked:
    """Words alone: positions tell where the entities are. A name without a word stands at the word that follows."""
    kept = [piece for piece in marked.ids if piece != NOTHING]
    first, past, second, end = marked.spans
    # [CLS] and a marker stand before the name that comes first, two markers more before the other.
    one, other = (2, 4) if first < second else (4, 2)
    last = len(kept) - 1
    return Marked(kept, (min(first - one, last), past - one, min(second - other, last), end - other))
