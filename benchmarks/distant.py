"""What a sentence of distant supervision costs, in scoring and in training: over the same network written down from the
paper (plain_distant.py), and over the network's forward and backward alone. And what half a million of them take: read,
dealt to 100 sites and scored by each, in a process of its own: python -m benchmarks.distant FOLDER SITES
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import grandrounds
from benchmarks.distant_corpus import RELATIONS, WORDS, write_corpus, write_vectors
from benchmarks.measuring import Clocks, Row, Settings, ratio
from benchmarks.memory import peak_mb
from benchmarks.plain_distant import PlainBag, PlainPCNN, PlainSentence, bag_loader, evaluate, together, train_epoch
from benchmarks.stepped import EnoughError
from grandrounds.data.formats import read
from grandrounds.federation.learner import LearnerSpec, Server, Split
from grandrounds.federation.training import Training, make_optimizer
from grandrounds.models.encoder import Encoder
from grandrounds.runs.loop import Silent
from grandrounds.tasks.batching import evaluation_batches, predict_outputs
from grandrounds.tasks.distant_re import DistantFeatures, DistantRE, DistantREOptions, grouped

SCORING_OVER_PLAIN = 0.2  # five times as fast
TRAINING_OVER_PLAIN = 0.5  # twice
OVER_NETWORK = 1.2
GIGABYTES = 4.0
SAME = 1e-5
TRAINING = Training(batch_size=32, learning_rate=0.1, optimizer="sgd", weight_decay=1e-5)  # FedDS, section 4.2

Rows = NDArray[np.int64]


def measure(settings: Settings) -> Iterator[Row]:
    train, test, turns = (300, 300, 1) if settings.quick else (2_000, 4_000, 5)
    folder = settings.folder / "distant"
    vectors = write_corpus(folder / "train.jsonl", train, 1).parent / "vectors.txt"
    write_corpus(folder / "test.jsonl", test, 2)
    write_vectors(vectors, 3)
    race = Race(folder, vectors)
    race.run(turns, settings.say)
    yield from race.rows()
    yield from _many(settings, folder)


class Race:
    """An epoch of ours and of each rival in turn, on the same sentences, from the same weights."""

    def __init__(self, folder: Path, vectors: Path) -> None:
        documents = {part: read(folder / f"{part}.jsonl", "opennre").documents for part in ("train", "test")}
        self.task = DistantRE.of(DistantREOptions(labels=RELATIONS), documents["train"])
        self.encoder = Encoder.find("words", vectors=vectors, first_words=WORDS)
        self.features = {
            part: self.task.features(self.task.examples(held)[0], self.encoder) for part, held in documents.items()
        }
        spec = LearnerSpec(self.task, self.encoder, TRAINING, 1, torch.device("cpu"))
        splits = {part: Split(held, np.arange(len(held.labels))) for part, held in self.features.items()}
        self.server = Recording(spec, splits, spec.initial_model())
        self.plain = PlainPCNN(
            len(self.encoder.tokenizer), self.encoder.width, len(self.task.labels), self.task.options.dropout
        )
        self.train_bags = self.task.bags(self.features["train"], splits["train"].rows)
        self.test_bags = grouped(self.features["test"].pairs)
        self.distances = self._make_equal()
        self.races = {"scoring": self._scoring(), **self._training()}
        self.clocks: dict[str, dict[str, list[Clocks]]] = {}

    def run(self, turns: int, say: Callable[[str], None]) -> None:
        self.clocks = {race: {rival: [] for rival in rivals} for race, rivals in self.races.items()}
        for turn in range(turns):
            say(f"turn {turn + 1} of {turns}")
            for race, rivals in self.races.items():
                for rival, epoch in rivals.items():
                    began = Clocks.now()
                    epoch()
                    self.clocks[race][rival].append(Clocks().plus_since(began))

    def rows(self) -> Iterator[Row]:
        sentences = {"scoring": len(self.features["test"].labels), "training, ONE": len(self.features["train"].labels)}
        for race, clocks in self.clocks.items():
            count = sentences.get(race, len(self.train_bags))
            detail = {
                "sentences": count,
                "words": WORDS,
                "batch_size": TRAINING.batch_size,
                "sentences_a_second_of_cpu": {
                    rival: count / median(one.cpu for one in held) for rival, held in clocks.items()
                },
                **self.distances,
            }
            over_plain = SCORING_OVER_PLAIN if race == "scoring" else TRAINING_OVER_PLAIN
            yield _ratio(f"{race}: over a plain one", clocks["ours"], clocks["plain"], over_plain, detail)
            yield _ratio(f"{race}: over the network alone", clocks["ours"], clocks["network"], OVER_NETWORK, detail)
            if race != "scoring":
                case = f"{race}: over the network and its optimiser"
                yield _ratio(case, clocks["ours"], clocks["optimiser"], None, detail)

    def _scoring(self) -> Mapping[str, Callable[[], object]]:
        features, model = self.features["test"], self.server.model
        batches = [features.batch(rows) for rows in evaluation_batches(features.lengths)]
        bags = _plain_bags(features, self.test_bags)

        def network() -> None:
            model.eval()
            with torch.inference_mode():
                for batch in batches:
                    model(batch)

        return {
            "ours": lambda: self.task.score(self.server.counts("test")),
            "network": network,
            "plain": lambda: evaluate(self.plain, bag_loader(bags, 1, shuffle=False)),
        }

    def _training(self) -> dict[str, Mapping[str, Callable[[], object]]]:
        """Of whole bags, as FedAvg trains under ONE; and of one sentence a bag, as Lazy MIL does."""
        chosen = np.array([bag[0] for bag in self.train_bags])
        return {
            "training, ONE": self._epochs(None, self.train_bags),
            "training, chosen": self._epochs(chosen.tolist(), [rows[None] for rows in chosen]),
        }

    def _epochs(self, only: list[int] | None, bags: Sequence[Rows]) -> Mapping[str, Callable[[], object]]:
        optimizer = make_optimizer(TRAINING, self.plain.named_parameters(), TRAINING.learning_rate)
        plain = _plain_bags(self.features["train"], bags)

        def ours() -> None:
            self.server.batches.clear()
            self.server.train(only=only, epochs=1)

        return {
            "ours": ours,
            "network": self._forward_and_backward,
            "optimiser": lambda: self._forward_and_backward(self.server.optimizer()),
            "plain": lambda: train_epoch(
                self.plain, bag_loader(plain, TRAINING.batch_size, shuffle=True), optimizer, TRAINING.clip_norm
            ),
        }

    def _forward_and_backward(self, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Of the batches that were trained on last."""
        model: nn.Module = self.server.model.train()
        for batch in self.server.batches:
            model.zero_grad()
            logits = model(batch)
            logits.backward(torch.ones_like(logits))
            if optimizer is not None:
                nn.utils.clip_grad_norm_(model.parameters(), TRAINING.clip_norm)
                optimizer.step()

    def _make_equal(self) -> dict[str, float]:
        """Our weights, and with them, without dropout, our losses and scores: or else the race means nothing."""
        model, features = self.server.model.eval(), self.features["train"]
        self.plain.load_state_dict(model.state_dict())
        self.plain.eval()
        loss = 0.0
        with torch.no_grad():
            for start in range(0, min(len(self.train_bags), 256), 32):
                bags = self.train_bags[start : start + 32]
                ours = self.task.loss(model, features.batch(np.concatenate(bags)))
                dataset = bag_loader(_plain_bags(features, bags), len(bags), shuffle=False).dataset
                theirs = self.plain.loss(together([dataset[i] for i in range(len(bags))]))
                loss = max(loss, float((ours - theirs).abs()))
        rows = np.concatenate(self.test_bags)
        given = predict_outputs(self.task, model, self.features["test"], rows, torch.device("cpu"))
        bag = np.repeat(np.arange(len(self.test_bags)), [len(members) for members in self.test_bags])
        own = self.task.bag_scores(torch.from_numpy(given), torch.from_numpy(bag)).numpy()
        reported: list[list[float]] = []
        evaluate(self.plain, bag_loader(_plain_bags(self.features["test"], self.test_bags), 1, False), reported.append)
        score = float(np.abs(own - np.array(reported)).max())
        if max(loss, score) > SAME:
            raise ArithmeticError(f"the plain model's losses differ from ours by {loss:g}, its scores by {score:g}")
        return {"largest_difference_of_losses": loss, "largest_difference_of_scores": score}


class Recording(Server):
    """Keeps the batches that it trained on."""

    def __init__(self, spec: LearnerSpec, splits: Mapping[str, Split], model: nn.Module) -> None:
        super().__init__(spec, splits, model)
        self.batches: list[Any] = []

    def _batch(self, split: Split, rows: Rows) -> Any:
        self.batches.append(super()._batch(split, rows))
        return self.batches[-1]


def _plain_bags(features: DistantFeatures, bags: Sequence[Rows]) -> list[PlainBag]:
    made = []
    for rows in bags:
        sentences = [
            PlainSentence(
                features.ids[features.starts[row] : features.starts[row + 1]].tolist(),
                int(features.spans[row, 0]),
                int(features.spans[row, 2]),
            )
            for row in rows
        ]
        made.append(PlainBag(sentences, sorted(set(features.labels[rows].tolist()))))
    return made


def _ratio(
    case: str, ones: Sequence[Clocks], others: Sequence[Clocks], goal: float | None, detail: Mapping[str, Any]
) -> Row:
    wall = median(one.wall / other.wall for one, other in zip(ones, others, strict=True))
    cpus = ([one.cpu for one in ones], [other.cpu for other in others])
    return ratio(case, *cpus, goal, note="of processor time", detail={**detail, "ratio_of_wall_time": wall})


def _many(settings: Settings, folder: Path) -> Iterator[Row]:
    sentences, sites = (5_000, 10) if settings.quick else (500_000, 100)
    settings.say(f"writing {sentences:,} sentences")
    write_corpus(folder / "train.jsonl", sentences, 4)
    settings.say(f"{sentences:,} sentences at {sites} sites")
    command = [sys.executable, "-m", "benchmarks.distant", str(folder), str(sites)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    reported = json.loads(done.stdout)
    scale = f"{sentences:,} sentences at {sites} sites"
    note = ", ".join(f"{part} {seconds:.0f} s" for part, seconds in reported["seconds"].items())
    yield Row(f"{scale}: peak", reported["megabytes"] / 1024, GIGABYTES, unit="GB", note=note, detail=reported)


class UpToTraining(Silent):
    """Ends a run once all sites have scored their sentences, one is chosen of each fact, and the first has trained."""

    def __init__(self) -> None:
        self.began = time.process_time()
        self.seconds: dict[str, float] = {}
        self.sites, self.answers = 0, 0

    def asking(self, round: int, sites: int) -> None:
        self.sites = sites
        self._mark("set-up")

    def answered(self, site: str) -> None:
        self.answers += 1
        if self.answers == self.sites:
            self._mark("scoring")
        if self.answers > self.sites:
            self._mark("choice and a site's training")
            raise EnoughError

    def _mark(self, part: str) -> None:
        self.seconds[part] = round(time.process_time() - self.began, 1)
        self.began = time.process_time()


def main(folder: str, sites: str) -> None:
    config = {
        "device": "cpu",
        "threads": 1,
        "task": {"name": "distant_re", "labels": RELATIONS},
        "data": {"format": "opennre", "train": "train.jsonl", "test": "test.jsonl"},
        "partition": {"scheme": "iid", "sites": int(sites)},
        "model": {"encoder": "words", "vectors": "vectors.txt"},
        "training": TRAINING.model_dump(),
        "federation": {"rounds": 1},
        "algorithm": {"name": "lazy_mil"},
    }
    watcher = UpToTraining()
    try:
        grandrounds.run(config, out=Path(folder, "run"), data=folder, watcher=watcher)
    except EnoughError:
        print(json.dumps({"megabytes": round(peak_mb(), 1), "seconds": watcher.seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
