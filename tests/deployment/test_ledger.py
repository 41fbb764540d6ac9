"""A hostile coordinator gets what the terms say, once, and nothing beyond."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from grandrounds.config.schema import make_config
from grandrounds.deployment.handler import MessageHandler
from grandrounds.deployment.keys import make_key, public_text, read_private
from grandrounds.deployment.protocol import Answered, AskMethod, Hello, Keys, Request, Response, decode, encode
from grandrounds.federation.differences import Downlink
from grandrounds.federation.exchange import Ask
from grandrounds.federation.files import DiskError
from grandrounds.federation.payloads import Packed, Parameters
from grandrounds.federation.policy import Policy
from grandrounds.federation.rows import Tables
from grandrounds.federation.scaled import SCALES
from grandrounds.simulation.prepare import prepare
from tests.conftest import TinyConfig, corpus, write_corpus
from tests.deployment.grids import handler, reported

ROUNDS = 3


class Site:
    """A site that the coordinator asks what it likes."""

    def __init__(
        self, content: Any, folder: Path, rounds: int = ROUNDS, checkpoint_every: int = 1, **policy: Any
    ) -> None:
        self.config, self.rounds = make_config(content), (rounds, checkpoint_every)
        self.folder = folder
        simulation = prepare(self.config, Path(), folder)
        name, data = next(iter(sorted(simulation.sites.items())))
        data = replace(data, policy=Policy(**policy))
        self.runner = replace(simulation, sites={name: data}).runner(self.config, folder, memory=0)
        self.name, self.data, self.model = name, data, simulation.model
        (folder / name).mkdir(parents=True)
        make_key(folder / name / "site.key", folder / name / "site.pub")
        self.made = self.opened()

    def opened(self) -> MessageHandler:
        """The process that serves it."""
        key = read_private(self.folder / self.name / "site.key")
        return handler(self.runner, self.data.registration, self.folder / self.name, key, *self.rounds)

    def ask(self, method: str, *message: Any, round: int = 1, exchange: int = 1, read_only: bool = False) -> str:
        """What leaves: 'answered', or why nothing does."""
        algorithm: Any = self.config.make_algorithm()
        commit = None if read_only else f"{round:05d}.{exchange}"
        given = tuple(part.pack("fp32") if isinstance(part, Parameters) else part for part in message)
        ask = Ask(
            *(self.name, algorithm.name, asdict(algorithm), method, round, exchange, given, self.config.digest()),
            *(None, commit, ()),
        )
        payloads: list[bytes] = []

        def put(packed: Packed) -> int:
            payloads.append(packed.to_bytes())
            return len(payloads) - 1

        said, sent = self.made(encode(Request(id="1", message=AskMethod.of(ask, put))), payloads)
        message_back = decode(Response, said).message
        assert isinstance(message_back, Answered)
        assert bool(sent) == (message_back.lost is None)
        return message_back.lost or "answered"

    def weights(self, shift: float = 0.0) -> Parameters:
        shared = Parameters.of(self.model, self.config.make_algorithm().shared)
        return Parameters({k: v + shift if v.is_floating_point() else v for k, v in shared.values.items()})

    def lines(self, event: str) -> list[Any]:
        log = (self.folder / self.name / "audit.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, log) if line.get("event") == event or line.get("direction") == event]


@pytest.fixture
def site(tiny_config: TinyConfig, tmp_path: Path) -> Site:
    return Site(tiny_config(), tmp_path)


ANSWERED = "refused: this round and exchange were answered already, to an ask with other content"


def test_an_ask_is_answered_once_and_the_same_one_again(site: Site) -> None:
    assert site.ask("train", site.weights()) == "answered"
    assert site.ask("train", site.weights()) == "answered"  # a lost reply: it has the same bits
    first, again = site.lines("up")
    assert first["digest"] == again["digest"]
    for shift in (0.1, 0.2):
        assert site.ask("train", site.weights(shift)) == ANSWERED
    assert len(site.lines("up")) == 2
    assert site.ask("train", site.weights(0.1), round=2) == "answered"


def test_what_is_called_read_only_is_still_answered_once(site: Site) -> None:
    assert site.ask("train", site.weights()) == "answered"
    assert site.ask("train", site.weights(0.1), read_only=True) == ANSWERED
    assert site.ask("train", site.weights(0.1), round=2, read_only=True) == "answered"
    assert site.ask("train", site.weights(0.2), round=2, read_only=True) == ANSWERED


def test_a_rounds_model_and_the_best_one_are_judged_and_no_third(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """After the last round the best model is tested under the last round's number."""
    own = {"train": str(write_corpus(tmp_path / "own.jsonl", corpus(24))), "test": 0.3}
    without = {"partition": None, "data.train": None, "data.public": None, "data.validation": None, "data.test": None}
    settings = {"task": {"name": "ner"}, "algorithm": {"name": "fedner"}, "sites": {"a": own, "b": own}}
    hospital = Site(tiny_config(**settings, **without), tmp_path / "run")
    for shift in (0.0, 0.1, 0.0):
        assert hospital.ask("score", hospital.weights(shift), "test", read_only=True) == "answered"
    assert hospital.ask("score", hospital.weights(0.2), "test", read_only=True) == ANSWERED


def _scaled(by: float) -> Callable[[Packed], Packed]:
    return lambda packed: replace(packed, tensors={**packed.tensors, SCALES: packed.tensors[SCALES] * by + by})


BYTES: dict[str, tuple[Callable[[Packed], Packed], str]] = {
    "as they should be": (lambda packed: packed, "answered"),
    "a scale that is not a number": (_scaled(float("nan")), "failed: PayloadError"),
    "a negative scale": (_scaled(-1.0), "failed: PayloadError"),
    "no scales": (
        lambda p: replace(p, tensors={name: t for name, t in p.tensors.items() if name != SCALES}),
        "failed: PayloadError",
    ),
    "of no start": (lambda packed: replace(packed, header={}), "failed: PayloadError"),
    "of another start": (lambda packed: replace(packed, header={"since": "0" * 16}), "refused: this site does not"),
    "of a weight that is none": (
        lambda p: replace(p, tensors={**p.tensors, "smuggled": torch.zeros(3, dtype=torch.int8)}),
        "refused: this site does not start with the server's weights",
    ),
}


@pytest.mark.parametrize("forged", BYTES)
def test_weights_in_bytes_are_those_of_the_sites_own_start_or_nothing_leaves(
    tiny_config: TinyConfig, tmp_path: Path, forged: str
) -> None:
    site = Site(tiny_config(**{"federation.compression": "int8"}), tmp_path)
    start = Tables(site.data.spec.initial_model().state_dict)
    packed = Downlink(start, frozenset(), 1).pack(site.weights(0.1), 1, 1, 0)
    change, ended = BYTES[forged]
    assert site.ask("train", change(packed)).startswith(ended)
    assert len(site.lines("up")) == (ended == "answered")


@pytest.mark.parametrize("round", [-1, ROUNDS + 1, 10**9])
def test_there_are_no_rounds_beyond_the_terms(site: Site, round: int) -> None:
    assert site.ask("train", site.weights(), round=round).startswith(f"refused: the terms have {ROUNDS} rounds")


@pytest.mark.parametrize("exchange", [-1, 0, 9, 10**6])
def test_there_are_no_exchanges_beyond_the_algorithms(site: Site, exchange: int) -> None:
    assert site.ask("train", site.weights(), exchange=exchange).startswith("refused: a round of this algorithm has 8")


def test_after_a_break_another_ask_is_answered_once(site: Site) -> None:
    """A resumed run may take another course than the one that was cut short."""
    assert site.ask("train", site.weights()) == "answered"
    reported(site.made, Hello())
    assert site.ask("train", site.weights(0.1)) == "answered"
    assert site.ask("train", site.weights(0.2)) == ANSWERED
    for _ in range(3):
        reported(site.made, Hello())
        assert site.ask("train", site.weights(0.2)) == (
            "refused: this round and exchange were answered 2 times, to asks that differ"
        )
        for known in (0.0, 0.1):
            assert site.ask("train", site.weights(known)) == "answered"
    assert len({line["digest"] for line in site.lines("up")}) == 2


def test_a_round_with_a_checkpoint_behind_it_is_over(site: Site) -> None:
    """Checkpoints are made every round: an ask of round 2 says that there is one of round 1."""
    for round in (1, 2):
        assert site.ask("train", site.weights(), round=round) == "answered"
    reported(site.made, Hello())
    over = "refused: round 1 is over: by the terms a resumed run goes back to round 1"
    assert site.ask("train", site.weights(0.1), round=1) == over
    assert site.ask("train", site.weights(), round=1) == "answered"
    assert site.ask("train", site.weights(0.1), round=2) == "answered"


def test_with_fewer_checkpoints_a_run_goes_back_further(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """With one every two rounds, a run that was cut short in round 3 or 4 goes back to round 2."""
    hospital = Site(tiny_config(), tmp_path, rounds=9, checkpoint_every=2)
    for round in (2, 3, 4):
        assert hospital.ask("train", hospital.weights(), round=round) == "answered"
    reported(hospital.made, Hello())
    assert hospital.ask("train", hospital.weights(0.1), round=2).startswith("refused: round 2 is over")
    assert hospital.ask("train", hospital.weights(0.1), round=3) == "answered"


def test_a_run_changes_its_course_five_times_in_all(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """What a coordinator can gain by greeting anew is a few answers in a run, not as many in every round. A site that
    was started again in between has not forgotten."""
    hospital = Site(tiny_config(), tmp_path, rounds=9)
    got = []
    for round in range(1, 10):
        assert hospital.ask("train", hospital.weights(), round=round) == "answered"
        reported(hospital.made, Hello())
        got.append(hospital.ask("train", hospital.weights(0.1), round=round))
        hospital.made = hospital.opened()
    assert got == ["answered"] * 5 + ["refused: the run changed its course after 5 breaks already; enrol anew"] * 4
    assert len(hospital.lines("up")) == 9 + 5


def test_a_site_that_is_started_again_remembers(site: Site) -> None:
    assert site.ask("train", site.weights()) == "answered"
    site.made = site.opened()
    assert site.ask("train", site.weights(0.1)) == ANSWERED
    assert site.ask("train", site.weights()) == "answered"


def test_the_splits_that_a_site_trains_on_are_not_scored(tiny_config: TinyConfig, tmp_path: Path) -> None:
    own = {"train": str(write_corpus(tmp_path / "own.jsonl", corpus(24))), "test": 0.3}
    without = {"partition": None, "data.train": None, "data.public": None, "data.validation": None, "data.test": None}
    sites = {"a": own, "b": own}
    hospital = Site(tiny_config(algorithm={"name": "local_only"}, sites=sites, **without), tmp_path / "run")
    assert hospital.ask("score", "test", read_only=True) == "answered"
    for split in ("train", "public"):
        refusal = "refused: a site is scored on its validation and test data alone"
        assert hospital.ask("score", split, read_only=True) == refusal


@pytest.fixture
def tagger(tiny_config: TinyConfig, tmp_path: Path) -> Site:
    """FedNER's site, which sends gradients of mini-batches."""
    algorithm = {"name": "fedner", "iterations": 40, "batch": 16}
    return Site(tiny_config(task={"name": "ner"}, algorithm=algorithm), tmp_path, least_batch=4)


def test_a_batch_of_one_sentence_is_refused_by_policy(tagger: Site) -> None:
    sizes = {
        1: "the site's policy lets gradients of 4 examples leave, not of 1",
        -1: "the site's policy lets gradients of 4 examples leave, not of -1",
        17: "the terms' mini-batches have 16 examples at all sites together, not 17 at one",
        10**12: "the terms' mini-batches have 16 examples at all sites together, not 1000000000000 at one",
    }
    for exchange, (size, wanted) in enumerate(sizes.items(), start=1):
        assert tagger.ask("learn", tagger.weights(), size, exchange=exchange) == f"refused: {wanted}"
        tagger = reopened(tagger)
    assert tagger.ask("learn", tagger.weights(), 4, exchange=9) == "answered"
    assert [line["kind"] for line in tagger.lines("up")] == ["gradients"]


def reopened(site: Site) -> Site:
    """Started and greeted again."""
    site.made = site.opened()
    reported(site.made, Hello())
    return site


def test_sizes_of_batches_stay_the_same(tagger: Site) -> None:
    """Of mini-batches of five and of four sentences some differ by one, whose gradient is then their difference."""
    assert tagger.ask("learn", tagger.weights(), 5, exchange=1) == "answered"
    stays = "refused: the size of mini-batches was 5 and is 4: by the terms it stays the same"
    for exchange in (2, 3):
        assert tagger.ask("learn", tagger.weights(), 4, exchange=exchange) == stays
        tagger.made = tagger.opened()
    assert tagger.ask("learn", tagger.weights(), 5, exchange=4) == "answered"
    sizes = [4, 6, 7, 8, 9, 10, 11]
    said = [reopened(tagger).ask("learn", tagger.weights(), n, exchange=i) for i, n in enumerate(sizes, start=10)]
    assert said[:5] == ["answered"] * 5  # a site has left between two starts of the run
    assert all(one.startswith("refused: the size of mini-batches was 5, 4, 6, 7, 8, 9 and is 1") for one in said[5:])


def test_which_mini_batch_it_is_follows_from_the_exchange(tagger: Site) -> None:
    """A coordinator that could name it would have one mini-batch's gradient under as many weights as it likes."""
    said = tagger.ask("learn", tagger.weights(), 5, 0)
    assert said == "failed: TypeError; the site's own log says more"
    assert not tagger.lines("up")


def test_keys_are_refused_where_no_secret_is_needed(site: Site, tmp_path: Path) -> None:
    own = read_private(tmp_path / site.name / "site.key").public_key()
    said = reported(site.made, Keys(keys={site.name: public_text(own)}))
    assert said == Answered(lost="failed: GrandRoundsError; the site's own log says more")
    assert not (tmp_path / site.name / "secret").exists()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_site_that_can_keep_nothing_answers_nothing(site: Site, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """An answer that says 'failed' would cost the site its round; who has made room and joins again is asked anew."""

    def broken() -> None:
        raise OSError(number, os.strerror(number), "state.json")

    with monkeypatch.context() as patch:
        patch.setattr(site.runner, "flush", broken)
        with pytest.raises(DiskError, match=r"'state.json' could not be written"):
            site.ask("train", site.weights())
    assert not site.lines("up")
    assert site.ask("train", site.weights()) == "answered"
