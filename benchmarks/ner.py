"""What a word costs a tagger, in training and in tagging: over flair's and spaCy's taggers of about as many parameters
(ner_peers.py) on the same sentences; how much of it is the CRF; and what is saved by keeping a frozen language model's
states after the first epoch.

Ours makes its numbers of the words anew in every epoch, and in tagging goes from a text to mentions with a score. One
thread; seconds of the processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.measuring import Clocks, Row, Settings, ratio
from benchmarks.ner_corpus import ner_documents
from benchmarks.ner_peers import PEERS, Peer, Sentence, Sizes, write_corpus
from grandrounds.data.documents import Document
from grandrounds.federation.learner import LearnerSpec, Server, Split
from grandrounds.federation.training import Training, make_optimizer
from grandrounds.metrics.spans import span_counts, span_score
from grandrounds.models.crf import SoftmaxDecoder
from grandrounds.models.encoder import Encoder
from grandrounds.models.taggers import WordTagger
from grandrounds.models.words import WordsConfig, word_tokenizer
from grandrounds.tasks.batching import predict_probabilities
from grandrounds.tasks.ner import NER, NEROptions, SentenceExample

SECOND_OVER_FIRST = 0.333  # three times as fast
TRAINING = Training(batch_size=16, learning_rate=1e-3)
TAGGED_AT_ONCE = 64  # as many sentences as our own tagging takes
WORD_WIDTH, HIDDEN = 300, 200  # FedNER, section 4.1
AGAINST: Mapping[str, NEROptions] = {
    "flair": NEROptions(tagger="lstm_crf", word_width=WORD_WIDTH, hidden=HIDDEN),
    "spaCy": NEROptions(tagger="gram_cnn", word_width=96, filters=300),
}
WITH_CRF = ("lstm_crf", "cnn_clstm_crf")


def measure(settings: Settings) -> Iterator[Row]:
    train, test, turns = (48, 48, 1) if settings.quick else (320, 640, 5)
    corpus = Corpus(settings.folder, train, test)
    yield from _against_peers(corpus, turns, settings.say)
    for tagger in WITH_CRF:
        yield from _share_of_crf(corpus, tagger, turns, settings.say)
    yield _kept_states(corpus, settings, turns)


class Corpus:
    """A document to learn from and one to tag, each of many sentences."""

    def __init__(self, folder: Path, train: int, test: int) -> None:
        self.folder = folder
        self.source, self.train, self.test = ner_documents(folder, train, test)
        self.types = sorted({mention.type for mention in self.train.mentions})

    @cached_property
    def encoder(self) -> Encoder:
        """Of every word to learn from, as it is written: what flair's dictionary holds too."""
        tokenizer = word_tokenizer(word for sentence in self.sentences(self.train) for word in sentence.words)
        config = WordsConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
        return Encoder("words", tokenizer, config, None)

    def sentences(self, document: Document) -> list[Sentence]:
        examples, _ = NER(NEROptions(), self.types).examples([document])
        return [Sentence([one.text[start:end] for start, end in one.words], list(one.gold)) for one in examples]

    def words(self, document: Document) -> int:
        return sum(len(sentence.words) for sentence in self.sentences(document))

    def f1(self, found: Sequence[Sequence[Any]]) -> float:
        """Strict, of what was found in the document to tag."""
        gold = [sentence.spans for sentence in self.sentences(self.test)]
        spans = [[(first, past, type) for first, past, type in one] for one in found]
        return float(span_score(span_counts(gold, spans, self.types), self.types)["f1"])


class Ours:
    """One of our taggers, which learns and tags as a site's does."""

    def __init__(self, corpus: Corpus, options: NEROptions, crf: bool = True) -> None:
        self.corpus, self.task = corpus, NER(options, corpus.types)
        self.spec = LearnerSpec(self.task, corpus.encoder, TRAINING, 1, torch.device("cpu"))
        model = self.spec.initial_model()
        if isinstance(model, WordTagger) and not crf:
            model.add_module("crf", SoftmaxDecoder(model.crf.emit.in_features, self.task.tags))
        self.examples = self._examples(corpus.train)
        self._splits: dict[str, Split] = {}
        self.server = Server(self.spec, self._splits, model)
        self.optimizer = make_optimizer(TRAINING, model.named_parameters(), TRAINING.learning_rate)
        self.found: Document = corpus.test

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.server.model.parameters())

    def features(self) -> None:
        """The numbers to learn from, made anew."""
        made = self.task.features(self.examples, self.corpus.encoder)
        self._splits["train"] = Split(made, np.arange(len(self.examples)))

    def steps(self) -> None:
        self.server.train(epochs=1, optimizer=self.optimizer)

    def train(self) -> None:
        self.features()
        self.steps()

    def tag(self) -> None:
        bare = self.task.without_answers(self.corpus.test)
        examples = self._examples(bare)
        features = self.task.features(examples, self.corpus.encoder)
        self.found = self.task.find(bare, examples, features, self.server.model, 0.0)

    def predict(self) -> None:
        """Tags and their probabilities, of numbers that are made."""
        split = self._splits["train"]
        predict_probabilities(self.task, self.server.model, split.features, split.rows, self.spec.device)

    def _examples(self, document: Document) -> list[SentenceExample]:
        return self.task.examples([document])[0]


def _against_peers(corpus: Corpus, turns: int, say: Callable[[str], None]) -> Iterator[Row]:
    sizes = Sizes(TRAINING.batch_size, TAGGED_AT_ONCE, TRAINING.learning_rate, TRAINING.clip_norm, WORD_WIDTH, HIDDEN)
    train, test = corpus.sentences(corpus.train), corpus.sentences(corpus.test)
    file = write_corpus(corpus.folder / "ner.json", train, test, sizes)
    for name in PEERS:
        say(f"{name} sets out")
        peer = Peer(name, file)
        if peer.missing:
            say(f"{name} is left out: {peer.missing}; see benchmarks/requirements.txt")
        else:
            yield from _race(corpus, name, peer, turns, say)
        peer.end()


def _race(corpus: Corpus, name: str, peer: Peer, turns: int, say: Callable[[str], None]) -> Iterator[Row]:
    ours = Ours(corpus, AGAINST[name])
    works: Mapping[str, Callable[[], None]] = {"training": ours.train, "tagging": ours.tag}
    clocks: dict[str, dict[str, list[Clocks]]] = {work: {"ours": [], name: []} for work in works}
    for turn in range(turns + 1):
        say(f"beside {name}: turn {turn} of {turns}" if turn else f"beside {name}: to warm up")
        for work, done in works.items():
            own, its = timed(done), Clocks(*peer.asked(work))
            if turn:
                clocks[work]["ours"].append(own)
                clocks[work][name].append(its)
    learnt = corpus.sentences(ours.found)
    detail = {
        "tagger": ours.task.options.tagger,
        "version": peer.about["version"],
        "parameters": {"ours": ours.parameters, name: peer.about["parameters"]},
        "batch_size": TRAINING.batch_size,
        "tagged_at_once": TAGGED_AT_ONCE,
        "turns": turns,
        "strict_f1": {"ours": corpus.f1([one.spans for one in learnt]), name: corpus.f1(peer.asked("found"))},
    }
    for work, document in (("training", corpus.train), ("tagging", corpus.test)):
        case = f"{corpus.source}: {work}, {ours.task.options.tagger} over {name}'s"
        yield _beside(case, clocks[work], corpus.words(document), detail)


def _beside(case: str, clocks: Mapping[str, Sequence[Clocks]], words: int, detail: Mapping[str, Any]) -> Row:
    speeds = {rival: words / median(one.cpu for one in held) for rival, held in clocks.items()}
    ones, others = clocks.values()
    return ratio(
        case,
        [one.cpu for one in ones],
        [other.cpu for other in others],
        None,
        note=" and ".join(f"{speed:,.0f}" for speed in speeds.values()) + " words a second",
        detail={"words": words, "words_a_second_of_cpu": speeds, **detail},
    )


def _share_of_crf(corpus: Corpus, tagger: Any, turns: int, say: Callable[[str], None]) -> Iterator[Row]:
    """What is saved where each word's tag stands for itself."""
    options = NEROptions(tagger=tagger, word_width=WORD_WIDTH, hidden=HIDDEN)
    with_crf, without = Ours(corpus, options), Ours(corpus, options, crf=False)
    shares: dict[str, list[float]] = {"training": [], "tagging": []}
    for one in (with_crf, without):
        one.train()
    for turn in range(turns):
        say(f"the CRF of {tagger}: turn {turn + 1} of {turns}")
        for work, pair in (
            ("training", (with_crf.steps, without.steps)),
            ("tagging", (with_crf.predict, without.predict)),
        ):
            whole, rest = (timed(done).cpu for done in pair)
            shares[work].append(1 - rest / whole)
    for work, held in shares.items():
        case = f"{corpus.source}: the CRF's share of {tagger}'s {work}"
        detail = {"turns": turns, "tags": len(with_crf.task.tags), "batch_size": TRAINING.batch_size}
        yield Row(case, median(held), low=min(held), high=max(held), note="of processor time", detail=detail)


def _kept_states(corpus: Corpus, settings: Settings, turns: int) -> Row:
    """Each turn begins with nothing kept."""
    options = NEROptions(tagger="elmoner", language=settings.encoder, word_width=WORD_WIDTH, hidden=HIDDEN)
    ours = Ours(corpus, options)
    first, second = list[float](), list[float]()
    for turn in range(turns):
        settings.say(f"kept states of {settings.encoder_name}: turn {turn + 1} of {turns}")
        ours.features()
        for epoch in (first, second):
            epoch.append(timed(ours.steps).cpu)
    words = corpus.words(corpus.train)
    detail = {
        "words_a_second_of_cpu": {"first": words / median(first), "second": words / median(second)},
        "parameters": ours.parameters,
        "turns": turns,
    }
    case = f"{corpus.source}: elmoner's second epoch over its first"
    note = f"states of {settings.encoder_name}, kept"
    return ratio(case, second, first, SECOND_OVER_FIRST, note=note, detail=detail)


def timed(done: Callable[[], object]) -> Clocks:
    began = Clocks.now()
    done()
    return Clocks().plus_since(began)
