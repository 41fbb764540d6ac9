"""Lazy MIL: one winner a fact, chosen by what sites are sure of, and nothing else learnt of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import grandrounds
from grandrounds import BagScores, Parameters, Selection, Site, TensorState
from grandrounds.algorithms.lazy_mil import BEST, LazyMIL, keyed, offset, rounded, two_bytes, winners
from grandrounds.config.schema import make_config
from grandrounds.data.formats import documents_json
from grandrounds.errors import ConfigError
from grandrounds.federation.exchange import Ask
from grandrounds.federation.learner import Learner
from grandrounds.federation.payloads import Expected, Packed, unpack
from grandrounds.federation.runner import SiteRunner
from grandrounds.tasks.task import NONE
from tests.algorithms.noisy_bags import noisy
from tests.simulation.crashes import metrics, weights


def reported(**facts: float) -> BagScores:
    named = sorted((keyed(b"s", (fact,)), value) for fact, value in facts.items())
    digests = np.array([list(digest) for digest, _ in named], dtype=np.uint8).reshape(-1, 16)
    return BagScores(torch.from_numpy(digests), two_bytes(np.array([round(255 * v) for _, v in named])))


def won(scores: dict[str, BagScores], chosen: dict[str, torch.Tensor], *facts: str) -> dict[str, list[str]]:
    name = {keyed(b"s", (fact,)): fact for fact in facts}
    return {
        site: sorted(name[scores[site].facts[i].numpy().tobytes()] for i in chosen[site].nonzero().flatten().tolist())
        for site in scores
    }


def test_the_surest_site_wins_each_fact() -> None:
    scores = {"a": reported(x=0.9, y=0.2), "b": reported(x=0.4, y=0.3, z=0.1), "c": reported(y=0.1)}
    assert won(scores, winners(scores, 1), "x", "y", "z") == {"a": ["x"], "b": ["y", "z"], "c": []}


def test_of_equals_one_wins_and_not_always_the_same() -> None:
    found = set()
    for round in range(12):
        scores = {site: reported(x=0.5, y=0.5) for site in ("a", "b", "c")}
        chosen = winners(scores, round)
        assert sum(mask.int() for mask in chosen.values()).tolist() == [1, 1]
        found.update(site for site, mask in chosen.items() if mask.any())
        assert all(winners(scores, round)[site].equal(mask) for site, mask in chosen.items())
    assert found == {"a", "b", "c"}


def test_who_wins_does_not_depend_on_the_secret() -> None:
    """Neither on how facts are then ordered, nor on the zeros that are counted from."""

    def under(secret: bytes) -> dict[str, list[str]]:
        scores = {}
        for site in ("a", "b", "c"):
            sure = {keyed(secret, (f"f{i}",)): (i * ord(site)) % 7 for i in range(60) if (i + ord(site)) % 4}
            digests = np.array([list(digest) for digest in sorted(sure)], dtype=np.uint8)
            values = np.array([value + offset(secret, digest, 5) for digest, value in sorted(sure.items())])
            scores[site] = BagScores(torch.from_numpy(digests), two_bytes(values))
        name = {keyed(secret, (f"f{i}",)): f"f{i}" for i in range(60)}
        chosen = winners(scores, 5)
        return {
            site: sorted(name[scores[site].facts[i].numpy().tobytes()] for i in chosen[site].nonzero().flatten())
            for site in scores
        }

    found = under(b"one")
    assert found == under(b"another")
    assert all(found.values())


def test_a_level_is_not_told() -> None:
    """Facts that all sites are as sure of look like any others, and another round counts from elsewhere."""
    digests = [keyed(b"s", (f"f{i}",)) for i in range(2000)]
    for sure in (0, 255):
        values = np.array([offset(b"s", digest, 1) for digest in digests]) + sure
        assert values.max() < 65536
        assert values.mean() == pytest.approx(32768, abs=2500)
        assert len(set(values.tolist())) > 1900
    assert offset(b"s", digests[0], 1) != offset(b"s", digests[0], 2)
    assert offset(b"s", digests[0], 1) != offset(b"t", digests[0], 1)


def test_a_byte_tells_the_sure_from_the_surer_and_never_turns_an_order_round() -> None:
    p = np.array([0.0, 1e-9, 0.001, 0.01, 0.4, 0.5, 0.6, 0.99, 0.995, 0.999, 0.9995, 1.0], dtype=np.float32)
    found = rounded(p).tolist()
    assert found == sorted(found)
    assert found[:2] == [0, 0]
    assert found[-1] == 255
    assert len(set(found[1:])) == len(found) - 1
    assert found[5] in (127, 128)


def test_a_digest_is_of_the_whole_fact_and_the_secret() -> None:
    assert keyed(b"s", ("a", "r", "b")) != keyed(b"s", ("a", "r", "c"))
    assert keyed(b"s", ("a", "r", "b")) != keyed(b"t", ("a", "r", "b"))
    assert keyed(b"s", ("ab", "c")) != keyed(b"s", ("a", "bc"))


def test_the_largest_of_even_draws_is_each_sentences_with_equal_chance_after_rounding() -> None:
    """Exactly, by how a site's largest draw is distributed over the 256 steps: with n sentences, at most at step k with
    chance c_k^n. Of sites at the same step each wins as often."""
    edges = np.linspace(0, 1, 2_000_001, dtype=np.float64)[1:]
    c = np.searchsorted(rounded(edges.astype(np.float32)), np.arange(256), side="right") / len(edges)
    for a, b in ((1, 1), (1, 3), (2, 7), (1, 40)):
        at_a, below_b = np.diff(c**a, prepend=0), np.concatenate([[0], c[:-1] ** b])
        at_b = np.diff(c**b, prepend=0)
        assert at_a @ below_b + at_a @ at_b / 2 == pytest.approx(a / (a + b), abs=2e-3)


Config = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("noisy")
    (folder / "train.jsonl").write_text(documents_json.render(noisy(24, 6, 1)))
    (folder / "test.jsonl").write_text(documents_json.render(noisy(24, 6, 2)))

    def make(**overrides: Any) -> dict[str, Any]:
        content: dict[str, Any] = {
            "device": "cpu",
            "task": {"name": "distant_re", "dropout": 0.1, "precision_at": [5, 10]},
            "data": {
                "format": "json",
                "train": str(folder / "train.jsonl"),
                "test": str(folder / "test.jsonl"),
                "public": 0.2,
            },
            "partition": {"scheme": "iid", "sites": 3},
            "model": {"encoder": "words"},
            "training": {"epochs": 3, "batch_size": 8, "learning_rate": 0.3, "optimizer": "sgd"},
            "federation": {"rounds": 4},
            "algorithm": {"name": "lazy_mil"},
        }
        for key, value in overrides.items():
            section, name = key.split("__")
            content[section][name] = value
        return content

    return make


def test_it_learns_from_noisy_bags(config: Config, tmp_path: Path) -> None:
    result = grandrounds.run(config(federation__rounds=8), out=tmp_path / "run")
    assert result.test.auc > 0.8
    assert result.test.facts == 12


def test_a_site_trains_on_what_it_won_and_on_nothing_else(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: dict[tuple[str, int], list[int]] = {}
    train = Learner.train

    def watched(self: Learner, *args: Any, only: Any = None, **options: Any) -> None:
        if isinstance(self, Site):
            best = TensorState()
            self.recall(BEST, best)
            assert set(only) <= set(best["rows"].tolist())
            trained[self.who, self.round] = [self._split("train").rows[i] for i in only]
        train(self, *args, only=only, **options)

    monkeypatch.setattr(Learner, "train", watched)
    grandrounds.run(config(), out=tmp_path / "run")
    for round in (1, 2, 3, 4):
        rows = [row for (_, r), held in trained.items() if r == round for row in held]
        assert len(rows) == len(set(rows)), "two sites trained on one sentence"
        assert len(rows) == 24 - 5, "not one sentence a fact"  # the public set has a fifth of them
    assert len(trained) == 12


def trained_on(
    config: dict[str, Any], out: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[int, dict[str, list[tuple[str, int]]]]:
    """By round and site, the fact's relation and the corpus's row of each sentence that was trained on."""
    found: dict[int, dict[str, list[tuple[str, int]]]] = {}
    train = Learner.train

    def watched(self: Learner, *args: Any, only: Any = None, **options: Any) -> None:
        if isinstance(self, Site):
            relation = {row: fact[1] for fact, rows in self.facts("train") for row in rows.tolist()}
            reported = [(relation[row], int(self._split("train").rows[row])) for row in only]
            found.setdefault(self.round, {})[self.who] = reported
        train(self, *args, only=only, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "train", watched)
        grandrounds.run(config, out=out)
    return found


def test_a_sites_own_choice_of_na_is_trained_on_and_does_not_travel(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: Replies
) -> None:
    """24 facts, half of them NA; every fact has sentences at each of two hospitals."""
    content = at_two_hospitals(config, tmp_path, "blocks")
    scored: dict[str, int] = {}
    for na in ("agree", "own"):
        replies.clear()
        content["algorithm"] = {"name": "lazy_mil", "na": na}
        for sites in trained_on(content, tmp_path / na, monkeypatch).values():
            rows = [reported for site in sites.values() for reported in site]
            assert len({row for _, row in rows}) == len(rows)
            assert sum(relation == "inhibits" for relation, _ in rows) == 12
            assert sum(relation == NONE for relation, _ in rows) == (12 if na == "agree" else 24)
            if na == "own":
                assert [sum(relation == NONE for relation, _ in site) for site in sites.values()] == [12, 12]
        sizes = [len(unpack(Packed.from_bytes(data), Expected()).facts) for _, k, data in replies if k == "bag_scores"]
        (scored[na],) = set(sizes)
    assert scored == {"agree": 24, "own": 12}


def test_a_site_with_na_facts_alone_tells_of_none_and_trains(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = noisy(24, 6, 1)
    kept = [d for d in documents if d.relations or d.attributes["hospital"] == "mercy"]
    kept = [d for d in kept if not d.relations or d.attributes["hospital"] == "charity"]
    (tmp_path / "parted.jsonl").write_text(documents_json.render(kept))
    (tmp_path / "public.jsonl").write_text(documents_json.render(noisy(6, 6, 3)))
    content = config(data__train=str(tmp_path / "parted.jsonl"), data__public=str(tmp_path / "public.jsonl"))
    content |= {"partition": {"scheme": "by", "by": "hospital"}, "algorithm": {"name": "lazy_mil", "na": "own"}}
    found = trained_on(content, tmp_path / "run", monkeypatch)
    assert {relation for relation, _ in found[4]["mercy"]} == {NONE}
    assert {relation for relation, _ in found[4]["charity"]} == {"inhibits"}
    assert all(not line["lost"] for line in metrics(tmp_path / "run"))


def test_a_random_choice_is_even_over_all_sentences_of_a_fact(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chi-square: 19 facts with 6 sentences each, dealt to three sites as it happens, over 40 rounds. (Even over sites
    instead, it would come to about 200.)"""
    monkeypatch.setattr(Learner, "train", lambda *args, **options: None)
    chosen: dict[tuple[str, ...], list[int]] = {}
    held: dict[tuple[str, ...], set[int]] = {}

    def watched(self: LazyMIL, site: Site, selection: Selection) -> Parameters:
        best = TensorState()
        site.recall(BEST, best)
        rows, won = site._split("train").rows, set(best["rows"][selection.chosen.bool()].tolist())
        for fact, places in site.facts("train"):
            held.setdefault(fact, set()).update(rows[places].tolist())
            chosen.setdefault(fact, []).extend(rows[place] for place in places.tolist() if place in won)
        return train(self, site, selection)

    train = LazyMIL.train
    watched.__on_site__ = True  # type: ignore[attr-defined]
    watched.__name__ = "train"
    monkeypatch.setattr(LazyMIL, "train", watched)
    content = config(federation__rounds=40, algorithm__choose="random")
    content["federation"] |= {"evaluate_every": 40, "checkpoint_every": 40}
    grandrounds.run(content, out=tmp_path / "run")
    statistic, freedom = 0.0, 0
    for fact, rows in chosen.items():
        assert len(rows) == 40
        expected = 40 / len(held[fact])
        statistic += sum((rows.count(row) - expected) ** 2 / expected for row in held[fact])
        freedom += len(held[fact]) - 1
    assert freedom == 19 * 5
    assert statistic == pytest.approx(freedom, abs=3 * (2 * freedom) ** 0.5)


def test_a_random_choice_is_drawn_anew_each_round_and_by_a_secret(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = config(algorithm__choose="random", federation__rounds=2)
    found = trained_on(content, tmp_path / "run", monkeypatch)
    assert found[1] != found[2]
    assert trained_on(content, tmp_path / "again", monkeypatch) == found
    monkeypatch.setattr("grandrounds.federation.runner.NO_SECRET", b"another")
    assert trained_on(content, tmp_path / "other", monkeypatch) != found


def test_a_site_that_never_wins_still_answers(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(scores: dict[str, BagScores], round: int) -> dict[str, torch.Tensor]:
        chosen = winners(scores, round)
        chosen["site-02"] = torch.zeros_like(chosen["site-02"])
        return chosen

    monkeypatch.setattr("grandrounds.algorithms.lazy_mil.winners", never)
    grandrounds.run(config(), out=tmp_path / "run")
    assert [(line["replies"], line["lost"]) for line in metrics(tmp_path / "run")] == [(6, {})] * 4


def test_bags_are_weighed_in_each_way(config: Config, tmp_path: Path) -> None:
    found = {}
    for bag in ("one", "ave", "att", "att_ra"):
        task = {"name": "distant_re", "dropout": 0.1, "precision_at": [5], "bag": bag}
        content = config(algorithm__name="fedavg", federation__weight_by="uniform")
        result = grandrounds.run({**content, "task": task}, out=tmp_path / bag)
        found[bag] = weights(tmp_path / bag)
        assert result.test.auc > 0.3
    assert len(set(found.values())) == 4


@pytest.mark.parametrize("bag", ["ave", "att_ra"])
def test_a_contrast_is_of_whole_bags(bag: str, config: Config, tmp_path: Path) -> None:
    found = {}
    for algorithm in ({"name": "moon"}, {"name": "fedavg"}):
        content = config(federation__rounds=2, federation__weight_by="uniform", task__bag=bag)
        grandrounds.run({**content, "algorithm": algorithm}, out=tmp_path / algorithm["name"])
        found[algorithm["name"]] = weights(tmp_path / algorithm["name"])
    assert found["moon"] != found["fedavg"]


def test_predictions_of_bags_are_not_averaged(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"'feded' needs a task whose answers .* 'distant_re' is not one"):
        make_config(config(algorithm__name="feded"))


Replies = list[tuple[str, str, bytes]]


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> Replies:
    """All that sites answer, as it travels: site, kind, bytes."""
    seen: Replies = []
    answer = SiteRunner.answer

    def watched(self: SiteRunner, ask: Ask) -> Any:
        answered = answer(self, ask)
        if answered.payloads:
            seen.append((ask.site, answered.payloads[0].kind, answered.payloads[0].to_bytes()))
        return answered

    monkeypatch.setattr(SiteRunner, "answer", watched)
    return seen


def at_two_hospitals(config: Config, folder: Path, canary: str) -> dict[str, Any]:
    """Sites that hold what `canary` stands in at one of them; the server's public set is without it."""
    (folder / f"{canary}.jsonl").write_text(documents_json.render(noisy(24, 6, 1, canary)))
    (folder / "public.jsonl").write_text(documents_json.render(noisy(6, 6, 3)))
    content = config(data__train=str(folder / f"{canary}.jsonl"), data__public=str(folder / "public.jsonl"))
    return {**content, "partition": {"scheme": "by", "by": "hospital"}}


CANARY = "zyzzyva"


def test_no_word_id_or_fact_of_a_site_travels_or_is_logged(
    config: Config, tmp_path: Path, replies: Replies, capfd: pytest.CaptureFixture[str]
) -> None:
    content = at_two_hospitals(config, tmp_path, CANARY)
    grandrounds.run(content, out=tmp_path / "run")
    assert {kind for _, kind, _ in replies} == {"bag_scores", "parameters"}
    files = [path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file() and path.suffix != ".toml"]
    captured = capfd.readouterr()
    everything = [data for _, _, data in replies] + files + [captured.out.encode(), captured.err.encode()]
    assert len(files) > 8
    for secret in (CANARY, "drug7", "gene7", "D7", "G7"):
        spelt = secret.encode() if len(secret) > 2 else f'"{secret}"'.encode()
        assert not [data for data in everything if spelt in data]
    # Nor can the server find a fact by trying: a digest is of the fact and the sites' secret.
    sent = b"".join(data for _, kind, data in replies if kind == "bag_scores")
    for key in (b"", b"lazy_mil", b"1"):
        assert keyed(key, ("D7", "inhibits", "G7")) not in sent


def test_what_one_site_won_does_not_reach_anothers_training(
    config: Config, tmp_path: Path, replies: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hospitals whose shares of the facts are fixed: whatever one writes, the other trains to the same bits."""

    def dealt(scores: dict[str, BagScores], round: int) -> dict[str, torch.Tensor]:
        sides = sorted(scores)
        masks = {site: torch.arange(len(scores[site].facts)) % 2 == sides.index(site) for site in sides}
        return {site: mask.to(torch.uint8) for site, mask in masks.items()}

    monkeypatch.setattr("grandrounds.algorithms.lazy_mil.winners", dealt)
    for canary in ("blocks", "resembles"):  # words that the model knows, at mercy alone
        content = at_two_hospitals(config, tmp_path, canary)
        content["federation"]["rounds"] = 1
        grandrounds.run(content, out=tmp_path / f"run {canary}")
    trained = {site: [data for who, kind, data in replies if (who, kind) == (site, "parameters")] for site in HOSPITALS}
    assert trained["charity"][0] == trained["charity"][1]
    assert trained["mercy"][0] != trained["mercy"][1]


HOSPITALS = ("charity", "mercy")


def test_scores_cost_a_fraction_of_what_parameters_do(config: Config, tmp_path: Path, replies: Replies) -> None:
    grandrounds.run(config(federation__rounds=1), out=tmp_path / "run")
    sizes = {kind: [len(data) for _, k, data in replies if k == kind] for kind in ("bag_scores", "parameters")}
    facts = 24
    assert max(sizes["bag_scores"]) <= 18 * facts + 300  # a digest and two bytes each, and a header
    assert max(sizes["bag_scores"]) * 20 < min(sizes["parameters"])
