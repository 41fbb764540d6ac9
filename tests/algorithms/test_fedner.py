"""FedNER: one gradient of all sites for what is shared, and nothing of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import grandrounds
from grandrounds import Gradients, Parameters
from grandrounds.algorithms.fedner import FedNER, shares
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.coordinator import Ledger
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Packed, unpack
from grandrounds.federation.rows import Rows, Tables
from grandrounds.federation.runner import SiteRunner
from grandrounds.models.taggers import TAGGERS
from grandrounds.simulation.prepare import Simulation, prepare
from tests.conftest import TinyConfig
from tests.simulation.crashes import metrics

WHOLE = {"data.public": 0.0, "data.validation": 0.0, "task.dropout": 0.0}
"""60 sentences of the toy corpus, without dropout in the head."""


def test_a_batch_is_shared_by_size() -> None:
    assert shares({"CADEC": 7597, "ADE": 4484, "SMM4H": 2213}, 64) == {"CADEC": 34, "ADE": 20, "SMM4H": 10}
    assert shares({"large": 1000, "small": 1}, 8) == {"large": 8, "small": 1}


class Site:
    """One simulated site and what it answers to an iteration."""

    def __init__(self, simulation: Simulation, content: dict[str, Any], folder: Path) -> None:
        self.config = make_config(content)
        self.algorithm = self.config.make_algorithm()
        assert isinstance(self.algorithm, FedNER)
        self.host: SiteRunner = simulation.runner(self.config, folder, memory=1 << 30)
        self.simulation, self.version = simulation, dict[str, str | None]()

    def learn(self, name: str, size: int, iteration: int) -> Packed:
        return self.send(name, Parameters.of(self.simulation.model, self.algorithm.shared), size, iteration)

    def send(self, name: str, shared: Parameters, size: int, iteration: int) -> Packed:
        options = {"private": self.algorithm.private, "batch": self.algorithm.batch}
        options |= {"iterations": self.algorithm.iterations}
        commit = f"{iteration + 1:05d}.1"
        message = (shared.pack("fp32"), size)
        start = self.version.get(name)
        answer: Answer = self.host.answer(
            Ask(
                name,
                "fedner",
                options,
                "learn",
                1,
                iteration + 1,
                message,
                self.config.digest(),
                start,
                commit,
                Ledger().needed(name),
            )
        )
        assert answer.payloads, answer.lost
        self.version[name] = answer.version
        return answer.payloads[0]


@pytest.fixture
def sites(tiny_config: TinyConfig, tmp_path: Path) -> Callable[..., tuple[Simulation, Site]]:
    def make(tagger: str | None = None, **options: Any) -> tuple[Simulation, Site]:
        own: dict[str, Any] = {}
        if tagger is not None:
            (tmp_path / "vectors.txt").write_text("pain 1 2 3\nfever 4 5 6\n")
            own["task"] = {"name": "ner", "tagger": tagger, "filters": 10, "hidden": 8, "character_width": 4}
            own["model"] = {"encoder": "words", "vectors": str(tmp_path / "vectors.txt")}
        content = tiny_config(
            **{**own, **WHOLE}, algorithm={"name": "fedner", **options}, partition={"scheme": "by", "by": "hospital"}
        )
        simulation = prepare(make_config(content), Path(), tmp_path / "run")
        return simulation, Site(simulation, content, tmp_path / "run")

    return make


def no_dropout(model: torch.nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


@pytest.mark.parametrize("tagger", [None, "cnn_clstm_crf", "gram_cnn"])
def test_the_gradient_of_all_sites_is_that_of_one_batch(
    sites: Callable[..., tuple[Simulation, Site]], monkeypatch: pytest.MonkeyPatch, tagger: str | None
) -> None:
    """Eq. 2 with mean losses, without dropout, and sizes for which the N_i are whole; None: no tagger."""
    simulation, site = sites(tagger, batch=15)
    counts = {name: site_data.registration.counts["examples"] for name, site_data in simulation.sites.items()}
    sizes = shares(counts, 15)
    assert all(15 * counts[name] == size * sum(counts.values()) for name, size in sizes.items())
    taken: list[np.ndarray] = []
    learner = grandrounds.federation.learner
    minibatch = learner.Site.minibatch

    def watched(self: Any, size: int, step: int, most: int) -> Any:
        no_dropout(self.model)
        batch = minibatch(self, size, step, most)
        taken.append(self._split("train").rows[batch.index.numpy()])
        return batch

    monkeypatch.setattr(learner.Site, "minibatch", watched)
    replies = {name: unpack(site.learn(name, size, 0), simulation.expected) for name, size in sizes.items()}
    found: dict[str, torch.Tensor] = {}
    for name, reply in replies.items():
        assert isinstance(reply, Gradients)
        whole = {part: rows.whole(simulation.model.get_parameter(part)) for part, rows in reply.rows.items()}
        for parameter, value in {**reply.values, **whole}.items():
            found[parameter] = found.get(parameter, 0) + value.double() * counts[name] / sum(counts.values())
    features = next(iter(simulation.sites.values())).splits["train"].features
    model, task = simulation.spec.initial_model(), simulation.spec.task
    no_dropout(model)
    model.train().zero_grad()
    task.loss(model, features.batch(np.concatenate(taken))).backward()  # type: ignore[no-untyped-call]
    pooled = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert found.keys() == {name for name, _ in model.named_parameters() if site.algorithm.shared(name)}
    assert len(found) < len(list(model.parameters()))
    for name, value in found.items():
        expected = pooled.get(name, torch.zeros(()))
        assert float((value - expected).norm()) <= 1e-6 * max(float(expected.norm()), 1e-2), name


def test_nothing_private_is_in_what_travels(
    tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by name nor by value, in either direction."""
    sent: list[bytes] = []
    answer = SiteRunner.answer

    def watched(self: SiteRunner, ask: Ask) -> Answer:
        sent.extend(part.to_bytes() for part in ask.message if isinstance(part, Packed))
        answered = answer(self, ask)
        if answered.payloads:
            sent.append(answered.payloads[0].to_bytes())
        return answered

    monkeypatch.setattr(SiteRunner, "answer", watched)
    content = tiny_config(algorithm={"name": "fedner", "iterations": 3}, **{"federation.rounds": 2})
    grandrounds.run(content, out=tmp_path / "run")
    models = {path.parent.name: load_file(path) for path in (tmp_path / "run").glob("models/*/model.safetensors")}
    assert len(models) == 3
    assert len(sent) > 40
    everything = b"".join(sent)
    private = {
        f"{site}.{name}": v for site, own in models.items() for name, v in own.items() if name.startswith("head.")
    }
    assert b"head." not in everything
    assert all(value.numpy().tobytes()[:64] not in everything for value in private.values() if value.numel() >= 16)
    values = [value for name, value in private.items() if name.endswith("head.weight")]
    assert not values[0].equal(values[1]), "private layers did not learn apart"
    shared = [own["encoder.embeddings.word_embeddings.weight"] for own in models.values()]
    assert shared[0].equal(shared[1])


SPARSE = {"task.tagger": "cnn_crf", "task.filters": 10, "model.encoder": "words"}
"""Words that are shared, under a CRF that is not."""


def dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedNER as it would be if whole tables travelled, both ways."""

    @contextmanager
    def nothing(model: torch.nn.Module, wanted: Callable[[str], bool]) -> Iterator[None]:
        yield

    def whole(gradient: torch.Tensor) -> Rows:
        return Rows(torch.arange(len(gradient)), gradient)

    monkeypatch.setattr("grandrounds.algorithms.fedner.sparse_gradients", nothing)
    monkeypatch.setattr("grandrounds.federation.payloads.rows_of", whole)
    monkeypatch.setattr(FedNER, "shared_weights", lambda self, server: Parameters.of(server.model, self.shared))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_rows_of_word_vectors_give_the_bits_of_whole_tables(
    tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decay: float
) -> None:
    """Also where weight decay changes words that no batch has."""
    content = tiny_config(
        task={"name": "ner"},
        **SPARSE,
        algorithm={"name": "fedner", "iterations": 3, "batch": 6},
        **{"federation.rounds": 2, "training.optimizer": "adam", "training.weight_decay": decay},
    )
    rows = grandrounds.run(content, out=tmp_path / "rows")
    dense(monkeypatch)
    whole = grandrounds.run(content, out=tmp_path / "whole")
    for site in ("site-01", "site-02", "site-03"):
        models = [load_file(tmp_path / run / "models" / site / "model.safetensors") for run in ("rows", "whole")]
        assert all(value.equal(models[1][name]) for name, value in models[0].items())
    assert rows.test == whole.test
    assert rows.bytes_up_per_site_round < whole.bytes_up_per_site_round
    assert rows.bytes_down_per_site_round < whole.bytes_down_per_site_round


def test_a_site_that_starts_with_other_words_refuses_rows(sites: Callable[..., tuple[Simulation, Site]]) -> None:
    simulation, site = sites("cnn_crf")
    name = "words.weight"
    start = Tables(lambda: {name: simulation.spec.initial_model().state_dict()[name] + 1})
    model = simulation.spec.initial_model()
    with torch.no_grad():
        model.get_parameter(name)[2:] += 1  # as that start has them: a few rows differ
    shared = Parameters.of(model, site.algorithm.shared, start)
    assert shared.rows[name].index.tolist() == [0, 1]
    with pytest.raises(AssertionError, match=r"refused: this site does not start with the server's 'words\.weight'"):
        site.send(min(simulation.sites), shared, 4, 0)


def test_parts_are_checked_by_name(tiny_config: TinyConfig, tmp_path: Path) -> None:
    for private, said in (
        (["haed"], "unknown part of the model 'haed'; did you mean 'head'"),
        (
            ["encoder", "head"],
            "names all of the model",
        ),
    ):
        content = tiny_config(algorithm={"name": "fedner", "private": private})
        with pytest.raises(ConfigError, match=said):
            grandrounds.run(content, out=tmp_path / "run")


@pytest.mark.parametrize("tagger", TAGGERS)
def test_a_split_has_one_name_for_all_taggers(tagger: str) -> None:
    task = {"name": "ner", "tagger": tagger, **({"language": "minilm"} if tagger == "elmoner" else {})}
    content = {"task": task, "model": {"encoder": "words"}, "data": {"format": "synthetic"}}
    made = [
        make_config({**content, "algorithm": {"name": "fedner", "private": split}}).make_algorithm()
        for split in ("all but embeddings", "decoder", "nothing")
    ]
    above, decoder, nothing = (one.private for one in made if isinstance(one, FedNER))
    assert above == (*TAGGERS[tagger].context, "crf")
    assert (decoder, nothing) == (("crf",), ())
    parts = ("words.weight", "characters.embedding.weight", *(f"{part}.weight" for part in TAGGERS[tagger].context))
    assert [name for name in parts if made[0].shared(name)] == ["words.weight", "characters.embedding.weight"]
    with pytest.raises(ConfigError, match=r"unknown split of this task's model 'all but embedings'; did you mean"):
        make_config({**content, "algorithm": {"name": "fedner", "private": "all but embedings"}})


def test_scores_are_of_each_sites_own_model(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(algorithm={"name": "fedner", "iterations": 5}, **{"federation.rounds": 2})
    result = grandrounds.run(content, out=tmp_path / "run")
    assert set(result.test.learners) == {"site-01", "site-02", "site-03"}
    assert len(metrics(tmp_path / "run")) == 2
    assert sorted(path.parent.name for path in (tmp_path / "run").glob("models/*/model.safetensors")) == [
        *("site-01", "site-02", "site-03")
    ]


def test_with_nothing_private_all_sites_have_one_model(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(algorithm={"name": "fedner", "private": [], "iterations": 3}, **{"federation.rounds": 1})
    grandrounds.run(content, out=tmp_path / "run")
    models = [load_file(path) for path in (tmp_path / "run").glob("models/*/model.safetensors")]
    assert all(value.equal(models[1][name]) for name, value in models[0].items())
