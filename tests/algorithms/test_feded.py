"""FedED: its equations against NumPy, and what travels between sites that differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

import grandrounds
from grandrounds.algorithms import feded
from grandrounds.algorithms.feded import (
    FedED,
    answers,
    capped,
    class_say,
    counted_vote,
    distillation,
    mean_vote,
    on_simplex,
    prior,
    soften,
)
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.learner import Asked, Server
from grandrounds.federation.payloads import Expected, Packed, Parameters, PredictedLabels, Predictions
from grandrounds.federation.robust import trimmed_mean
from grandrounds.simulation.prepare import Simulation, prepare
from grandrounds.tasks.sentence_re import SentenceRE, SentenceREOptions
from grandrounds.tasks.task import NO_CLASS
from tests.conftest import TinyConfig
from tests.simulation.crashes import cut, metrics, weights

RNG = np.random.default_rng(7)
PROBABILITIES = RNG.dirichlet(np.ones(4), size=(5, 6))  # sites, sentences, classes


def tensor(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


# The equations


@pytest.mark.parametrize("temperature", [0.1, 0.5, 1.0, 3.0])
def test_soften_is_equation_4(temperature: float) -> None:
    z = PROBABILITIES[0]
    np.testing.assert_allclose(soften(tensor(z), temperature).numpy(), softmax(z / temperature), atol=1e-12)


@pytest.mark.parametrize(("temperature", "peak"), [(1.0, 0.25), (0.5, 0.48), (0.1, 0.9996)])
def test_a_certain_ensemble_of_nine_classes_is_blurred_by_the_printed_reading(temperature: float, peak: float) -> None:
    """What makes the temperature matter where probabilities are averaged."""
    assert soften(torch.eye(9), temperature).diagonal().mean().item() == pytest.approx(peak, abs=0.005)
    assert soften(torch.eye(9).clamp(min=1e-12).log(), 1.0).diagonal().mean().item() == pytest.approx(1, abs=1e-6)


def test_equal_votes_are_equation_5() -> None:
    found = mean_vote((tensor(p), torch.ones(1)) for p in PROBABILITIES)
    np.testing.assert_allclose(found.numpy(), PROBABILITIES.mean(axis=0), atol=1e-7)


def test_votes_of_sites_that_saw_different_classes_lose_their_bias_and_weigh_by_what_was_seen() -> None:
    counts = np.array([[30, 0, 1, 4], [0, 0, 50, 5], [9, 0, 0, 1], [1, 0, 1, 1], [20, 0, 2, 2]])
    found = counted_vote((tensor(np.log(p)), torch.tensor(n)) for p, n in zip(PROBABILITIES, counts, strict=True))
    z = []
    for p, n in zip(PROBABILITIES, counts, strict=True):
        likelihood = np.log(p) - np.log((n + 1) / (n + 1).sum())
        z.append(likelihood - likelihood.mean(axis=1, keepdims=True))
    say = counts / (counts + 20)
    mean = np.stack(
        [
            np.average([one[:, c] for one in z], axis=0, weights=say[:, c] if say[:, c].any() else None)
            for c in range(4)
        ],
        axis=1,
    )
    pooled = counts.sum(axis=0) + 1
    expected = np.log(softmax(mean + np.log(pooled / pooled.sum())))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_a_site_that_only_ever_saw_one_class_does_not_sway_the_rest() -> None:
    """It answers its class to everything; the others tell the classes apart."""
    apart = np.array([[0.9, 0.1], [0.1, 0.9]])
    always = np.array([[0.99, 0.01], [0.99, 0.01]])
    votes = [(tensor(np.log(apart)), torch.tensor([50, 50])), (tensor(np.log(always)), torch.tensor([100, 0]))]
    found = counted_vote(votes).exp()
    plain = mean_vote((log_p, torch.ones(1)) for log_p, _ in votes).softmax(dim=1)
    assert found[1, 1] > plain[1, 1] + 0.2


def test_forged_counts_gain_no_more_than_one_say() -> None:
    assert class_say(torch.tensor([20, 0, 10**6])).tolist() == pytest.approx([0.5, 0.0, 1.0], abs=1e-4)
    assert class_say(torch.tensor([2**62, 2**62])).tolist() == pytest.approx([1.0, 1.0])
    assert prior(torch.tensor([2**62, 2**62])).tolist() == pytest.approx([0.5, 0.5])


def test_a_site_that_tells_of_more_examples_than_all_others_does_not_set_the_bias_of_all() -> None:
    """All four answer alike; one of them says that it saw 10^15 sentences of the second class."""
    log_p = tensor(np.log([[0.9, 0.1], [0.95, 0.05]]))
    honest = {site: torch.tensor([50, 50]) for site in "abc"}
    told = capped({**honest, "d": torch.tensor([0, 10**15])})
    assert told["d"].tolist() == [0, 300]
    assert all(torch.equal(told[site], honest[site]) for site in "abc")
    few = {"a": honest["a"], "b": torch.tensor([0, 10**6])}
    assert capped(few)["b"].tolist() == [0, 10**6]  # of two, one may well have most
    found = counted_vote((log_p, counts) for counts in told.values())
    assert found.argmax(dim=1).tolist() == [0, 0]
    forged = counted_vote((log_p, counts) for counts in [*honest.values(), torch.tensor([0, 10**15])])
    assert forged.argmax(dim=1).tolist() == [1, 1]  # what it was without the cap


@pytest.mark.parametrize("trim", [0.2, 0.5])
def test_a_robust_average_does_not_follow_one_liar_however_loud(trim: float) -> None:
    honest = tensor([[0.9, 0.1], [0.2, 0.8]])
    sites = [honest, honest * 0.98 + 0.01, honest, honest * 0.96 + 0.02, honest.roll(1, dims=1)]
    found = on_simplex(trimmed_mean(torch.stack(sites), trim), "probabilities")
    assert (found - honest).abs().max() < 0.02
    assert (mean_vote((p, torch.ones(1)) for p in sites) - honest).abs().max() > 0.1


def test_averages_are_put_back_on_the_simplex() -> None:
    z = tensor(RNG.random((3, 4)))
    np.testing.assert_allclose(on_simplex(z, "probabilities").numpy(), z / z.sum(dim=1, keepdim=True), atol=1e-12)
    np.testing.assert_allclose(on_simplex(z, "log_probabilities").exp().numpy(), softmax(z.numpy()), atol=1e-12)


@pytest.mark.parametrize("trim", [0.2, 0.5])
def test_where_sites_are_sure_of_different_classes_nothing_is_known(trim: float) -> None:
    certain = [tensor(np.eye(5)[i : i + 1]) for i in range(5)]
    found = on_simplex(trimmed_mean(torch.stack(certain), trim), "probabilities")
    np.testing.assert_allclose(found.numpy(), np.full((1, 5), 0.2), atol=1e-12)


class Fixed(nn.Module):
    """A student that always gives these logits."""

    def __init__(self, logits: np.ndarray) -> None:
        super().__init__()
        self.logits = tensor(logits)

    def forward(self, batch: Any) -> Tensor:
        return self.logits


LOGITS, LABELS, ROWS = RNG.normal(size=(3, 4)), np.array([2, 0, 3]), np.array([4, 0, 5])
BATCH = SimpleNamespace(index=torch.tensor(ROWS), labels=torch.tensor(LABELS))
TEACHER = PROBABILITIES[1]
ASKED = Asked(SentenceRE(SentenceREOptions(), "abc", ()).respond, np.arange(len(TEACHER) + 1))


def cross_entropy() -> float:
    p = softmax(LOGITS)
    return float(-np.mean([np.log(p[i, y]) for i, y in enumerate(LABELS)]))


def divergence(temperature: float) -> float:
    p, q = softmax(LOGITS / temperature), TEACHER[ROWS]
    return float(np.mean([sum(q[i, c] * np.log(q[i, c] / p[i, c]) for c in range(4)) for i in range(3)]))


def test_the_objective_is_equation_6() -> None:
    found = distillation(ASKED, tensor(TEACHER))(Fixed(LOGITS), BATCH).item()
    assert found == pytest.approx(cross_entropy() + divergence(1.0), abs=1e-12)


def test_a_weight_and_a_tempered_student_give_the_objective_of_hinton() -> None:
    found = distillation(ASKED, tensor(TEACHER), 2.0, 0.3)(Fixed(LOGITS), BATCH).item()
    assert found == pytest.approx(0.7 * cross_entropy() + 0.3 * 4 * divergence(2.0), abs=1e-12)


def some_labelled(labels: list[int]) -> SimpleNamespace:
    return SimpleNamespace(index=BATCH.index, labels=torch.tensor(labels))


@pytest.mark.parametrize("weight", [None, 0.3])
def test_rows_without_a_label_have_a_part_in_the_divergence_alone(weight: float | None) -> None:
    """CE is the mean over the two rows that have a label, KL over all three."""
    log_p = np.log(softmax(LOGITS))
    ce = -(log_p[0, LABELS[0]] + log_p[2, LABELS[2]]) / 2
    batch = some_labelled([LABELS[0], NO_CLASS, LABELS[2]])
    found = distillation(ASKED, tensor(TEACHER), 2.0, weight)(Fixed(LOGITS), batch).item()
    expected = ce + 4 * divergence(2.0) if weight is None else 0.7 * ce + 0.3 * 4 * divergence(2.0)
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_batch_without_any_label_has_no_cross_entropy() -> None:
    found = distillation(ASKED, tensor(TEACHER), 2.0)(Fixed(LOGITS), some_labelled([NO_CLASS] * 3)).item()
    assert found == pytest.approx(4 * divergence(2.0), abs=1e-12)


def test_labels_are_averaged_to_shares_of_the_votes_and_softened() -> None:
    said = np.array([[0, 2], [0, 1], [0, 2], [1, 2]])  # sites, sentences
    payloads = [PredictedLabels(torch.tensor(row), 3, "d") for row in said]
    z = mean_vote((answers(payload, "probabilities"), torch.ones(1)) for payload in payloads)
    shares = np.array([[0.75, 0.25, 0.0], [0.0, 0.25, 0.75]])
    np.testing.assert_allclose(z.numpy(), shares, atol=1e-7)
    np.testing.assert_allclose(soften(z, 0.2).numpy(), softmax(shares / 0.2), atol=1e-6)


def test_the_median_of_votes_is_the_absolute_majority_or_nothing() -> None:
    said = [[0, 2], [0, 1], [0, 0]]
    votes = [PredictedLabels(torch.tensor(row), 3, "d").votes() for row in said]
    found = on_simplex(trimmed_mean(torch.stack(votes), 0.5), "probabilities")
    np.testing.assert_allclose(found.numpy(), [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]], atol=1e-7)


def test_without_hard_labels_the_teacher_alone_teaches() -> None:
    unlabelled = some_labelled([NO_CLASS] * 3)
    found = distillation(ASKED, tensor(TEACHER), weight=1)(Fixed(LOGITS), unlabelled).item()
    assert found == pytest.approx(divergence(1.0))


# A round


Asker = Callable[..., Answer]


def asker(simulation: Simulation, content: Mapping[str, Any], folder: Path) -> Asker:
    config = make_config(content)
    assert simulation.public is not None
    sent, digest = simulation.public.pack("fp32"), simulation.public.digest
    host = simulation.runner(config, folder, memory=1 << 30)

    def ask(site: str, method: str, *message: Any, public_set: Packed | None = sent, round: int = 1) -> Answer:
        options = {key: value for key, value in content["algorithm"].items() if key != "name"}
        return host.answer(
            Ask(
                site,
                "feded",
                options,
                method,
                round,
                1,
                message,
                config.digest(),
                None,
                "00001.1",
                (),
                digest,
                public_set,
            )
        )

    return ask


@pytest.mark.parametrize(
    ("average", "upload", "unlabelled"),
    [("probabilities", "predictions", 0.0), ("logits", "predictions", 0.3), ("probabilities", "labels", 0.3)],
)
def test_a_round_is_algorithm_1_by_hand(
    average: str, upload: str, unlabelled: float, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    options = {"name": "feded", "average": average, "upload": upload, "temperature": 0.5, "tempered_student": False}
    data = {"data.validation": 0.0, "data.unlabelled": unlabelled}
    content = tiny_config(**{"federation.rounds": 1, "algorithm": options, **data})
    grandrounds.run(content, out=tmp_path / "run")
    simulation = prepare(make_config(content), Path(), tmp_path / "again")
    ask = asker(simulation, content, tmp_path / "again")
    start = Parameters.of(simulation.spec.initial_model()).pack("fp32")
    name = "p" if average == "probabilities" else "log p"
    uploads = []
    for site in sorted(simulation.sites):
        packed = ask(site, "train_and_predict" if upload == "predictions" else "train_and_label", start).payloads[0]
        if upload == "predictions":
            uploads.append(packed.tensors[name].double().numpy())
        else:
            said = PredictedLabels.unpack(packed, simulation.expected)
            uploads.append(np.eye(3)[said.values.numpy()])
    assert all(len(answer) == len(simulation.splits["public"]) for answer in uploads)
    teacher = softmax(np.mean(uploads, axis=0) / 0.5)

    def objective(model: nn.Module, batch: Any) -> Tensor:
        log_p = model(batch).log_softmax(dim=1)
        q = torch.tensor(teacher[batch.index.numpy()], dtype=torch.float32)
        reported = [(i, y) for i, y in enumerate(batch.labels.tolist()) if y >= 0]
        ce = -sum(log_p[i, y] for i, y in reported) / max(len(reported), 1)
        return ce + (q * (q.log() - log_p)).sum(dim=1).mean()

    server = Server(simulation.spec, simulation.splits, simulation.spec.initial_model())
    server.begin(1)
    server.train("public", loss=objective, epochs=1)
    found = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for key, value in server.model.state_dict().items():
        # A step moves 2e-3; AdamW makes much of a gradient near 0, whose rounding depends on the CPU.
        difference = np.abs(found[key] - value.numpy())
        assert difference.mean() < 1e-5, key
        assert difference.max() < 1e-3, key


@pytest.fixture(scope="module")
def run(tiny_config: TinyConfig, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    made: dict[str, Path] = {}

    def find(options: Mapping[str, Any] | None = None, **overrides: Any) -> Path:
        key = json.dumps([options, overrides], sort_keys=True)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("feded") / "run"
            algorithm = {"name": "feded", **(options or {})}
            grandrounds.run(tiny_config(**{"data.validation": 0.0, "algorithm": algorithm, **overrides}), out=made[key])
        return made[key]

    return find


def audit(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]


def changed(one: Path, other: Path) -> float:
    first, second = (load_file(path / "model" / "model.safetensors") for path in (one, other))
    return max(float(np.abs(first[name] - second[name]).max()) for name in first)


@pytest.mark.parametrize(
    "options",
    [
        {"average": "probabilities"},
        {"temperature": 3.0},
        {"weight": 0.2},
        {"tempered_student": False},
        {"hard_labels": False},
        {"average": "probabilities", "upload": "labels"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_every_option_makes_a_difference(options: dict[str, Any], run: Callable[..., Path]) -> None:
    assert changed(run(), run(options)) > 1e-5


@pytest.mark.parametrize("aggregate", ["median", "trimmed", "krum"])
def test_every_robust_rule_makes_a_difference(aggregate: str, run: Callable[..., Path]) -> None:
    overrides = {"federation.aggregate": aggregate, "federation.byzantine": 0.4, "federation.krum_keep": 1}
    assert changed(run(), run(**overrides)) > 1e-5


def test_votes_by_class_make_a_difference(
    run: Callable[..., Path], tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the same exchanges with an equal say, for randomness is named by exchange."""
    by_class = run({"vote": "counts"})
    monkeypatch.setattr(feded, "class_say", lambda counts: torch.ones(1))
    content = tiny_config(**{"data.validation": 0.0, "algorithm": {"name": "feded", "vote": "counts"}})
    grandrounds.run(content, out=tmp_path / "equal")
    assert changed(by_class, tmp_path / "equal") > 1e-5


def test_a_site_that_does_not_tell_its_counts_still_has_a_say(tiny_config: TinyConfig, tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('allow = ["predictions"]')
    sites = {"site-02": {"policy": str(tmp_path / "p.toml")}}
    content = tiny_config(algorithm={"name": "feded", "vote": "counts"}, sites=sites)
    grandrounds.run(content, out=tmp_path / "run")
    lines = audit(tmp_path / "run")
    up = [(line["site"], line["kind"]) for line in lines if line.get("direction") == "up"]
    assert ("site-02", "predictions") in up
    assert ("site-02", "label_counts") not in up
    assert sorted(line["site"] for line in lines if line.get("kind") == "public_set") == [
        "site-01",
        "site-02",
        "site-03",
    ]


def test_an_answer_in_the_other_form_means_the_same() -> None:
    p = Predictions(torch.tensor([[0.25, 0.75], [1.0, 0.0]]), "probabilities", "d")
    assert p.to("probabilities") is p
    logs = p.to("log_probabilities")
    assert logs.form == "log_probabilities"
    assert logs.values.isfinite().all()
    torch.testing.assert_close(logs.values.exp(), p.values)
    torch.testing.assert_close(logs.to("probabilities").values, p.values)


def test_a_weight_without_labels_to_weigh_against_is_refused() -> None:
    with pytest.raises(ConfigError, match="hard_labels is off"):
        FedED(weight=0.5, hard_labels=False)


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm.name": "feded"},
        {"algorithm.name": "fedavg", "server.epochs": 1},
        {"algorithm.name": "validation_only"},
    ],
)
def test_without_a_public_set_it_is_refused_at_once(options: dict[str, Any], tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"needs the server's public set: set data.public"):
        make_config(tiny_config(**options, **{"data.public": 0}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "sends votes, which have no logits: set algorithm.average = 'probabilities'"),
        ({"average": "probabilities", "vote": "counts"}, "algorithm.vote = 'counts' needs probabilities"),
    ],
)
def test_what_needs_probabilities_is_refused_where_labels_are_sent(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        FedED(upload="labels", **options)


@pytest.mark.parametrize("wrong", [{"temperature": 0}, {"weight": 2}, {"average": "votes"}])
def test_options_out_of_range_are_refused(wrong: dict[str, Any], tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=f"algorithm.{next(iter(wrong))}"):
        make_config(tiny_config(algorithm={"name": "feded", **wrong}))


# What travels


def test_uploads_shrink_with_each_encoding(run: Callable[..., Path]) -> None:
    results = {
        encoding: json.loads((run(**{"federation.compression": encoding}) / "result.json").read_text())
        for encoding in ("fp32", "fp16", "int8")
    }
    sizes = {encoding: result["bytes_up_per_site_round"] for encoding, result in results.items()}
    rows, classes = 10, 3
    assert sizes["fp32"] - sizes["fp16"] == pytest.approx(2 * rows * classes, abs=8)
    assert sizes["fp16"] - sizes["int8"] == pytest.approx(2 * rows * classes - rows * (classes - 1), abs=8)
    assert changed(run(), run(**{"federation.compression": "int8"})) > 0  # it is what the server learnt from


LABELS_ALONE = {"average": "probabilities", "upload": "labels", "temperature": 0.2, "tempered_student": False}


def test_labels_alone_are_the_smallest_upload_and_their_own_kind(
    run: Callable[..., Path], tiny_config: TinyConfig, tmp_path: Path
) -> None:
    """So a policy can let labels leave and nothing that tells how sure a site is."""
    out = run(LABELS_ALONE)
    up = [line for line in audit(out) if line.get("direction") == "up"]
    assert {line["kind"] for line in up} == {"predicted_labels"}
    assert [sum(line["bytes"] for line in up)] == [sum(line["bytes_up"] for line in metrics(out))]
    whole = [
        line["bytes"] for line in audit(run(**{"federation.compression": "int8"})) if line.get("direction") == "up"
    ]
    assert max(line["bytes"] for line in up) < min(whole)
    (tmp_path / "p.toml").write_text('allow = ["predicted_labels"]')
    for options, lost in ((LABELS_ALONE, 0), ({}, 3)):
        content = tiny_config(algorithm={"name": "feded", **options}, **{"federation.policy": str(tmp_path / "p.toml")})
        folder = tmp_path / str(lost)
        grandrounds.run({**content, "federation": {**content["federation"], "rounds": 1}}, out=folder)
        assert len(metrics(folder)[0]["lost"]) == lost


def test_the_public_set_is_sent_to_each_site_once_even_through_a_power_cut(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    options = {"algorithm": {"name": "feded"}, "federation.rounds": 4, "federation.fraction": 0.67}
    cut(tiny_config(**options), tmp_path / "run", after=2)
    grandrounds.run(tiny_config(**options), out=tmp_path / "run", resume=True)
    grandrounds.run(tiny_config(**options), out=tmp_path / "undisturbed")
    for folder in ("run", "undisturbed"):
        sent = [line["site"] for line in audit(tmp_path / folder) if line.get("kind") == "public_set"]
        assert sorted(sent) == ["site-01", "site-02", "site-03"]
    assert [line["bytes_down"] for line in metrics(tmp_path / "run")] == [
        line["bytes_down"] for line in metrics(tmp_path / "undisturbed")
    ]
    assert weights(tmp_path / "run") == weights(tmp_path / "undisturbed")


def test_the_public_set_goes_without_its_labels(tiny_config: TinyConfig, tmp_path: Path) -> None:
    simulation = prepare(make_config(tiny_config(algorithm={"name": "feded"})), Path(), tmp_path)
    assert simulation.public is not None
    for question in simulation.public.examples:
        assert question.keys() == {"text", "head", "tail", "types", "blinded"}
    labels = simulation.spec.task.label_counts(simulation.splits["public"].features, simulation.splits["public"].rows)
    assert (labels > 0).all()  # so there was something to leave out
    task = simulation.spec.task
    wire = json.loads(json.dumps(simulation.public.examples))
    again = task.features([task.from_question(question) for question in wire], simulation.spec.encoder)
    ours, theirs = simulation.splits["public"], again.batch(range(len(wire)))
    expected = ours.features.batch(ours.rows)
    for name in ("input_ids", "attention_mask", "spans"):
        assert torch.equal(getattr(expected, name), getattr(theirs, name))
    assert (theirs.labels == NO_CLASS).all()  # type: ignore[attr-defined]  # of PairRows


def test_a_site_with_another_public_set_is_told_so(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(algorithm={"name": "feded"})
    simulation = prepare(make_config(content), Path(), tmp_path)
    assert simulation.public is not None
    ask = asker(simulation, content, tmp_path)
    start = Parameters.of(simulation.model).pack("fp32")
    without = ask("site-01", "train_and_predict", start, public_set=None)
    digest = simulation.public.digest
    assert without.lost == (
        f"refused: the server's public set is version {digest}, this site holds none; it will be sent again"
    )
    assert ask("site-01", "train_and_predict", start).payloads
    assert ask("site-02", "train_and_predict", start, public_set=None).payloads
    other = prepare(make_config({**content, "seed": 2}), Path(), tmp_path / "other").public
    assert other is not None
    wrong = ask("site-01", "train_and_predict", start, public_set=other.pack("fp32"))
    assert wrong.lost is not None
    assert f"version {other.digest}" in wrong.lost
    assert f"announced was {digest}" in wrong.lost


def test_a_site_that_lost_the_public_set_gets_it_again(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = tiny_config(**{"algorithm": {"name": "feded"}, "federation.rounds": 3})
    cut(content, tmp_path / "run", after=1)
    (held,) = (tmp_path / "run" / "public").glob("*.safetensors")
    held.write_bytes(held.read_bytes()[:40])
    grandrounds.run(content, out=tmp_path / "run", resume=True)
    lost = [line["lost"] for line in metrics(tmp_path / "run")]
    assert lost[0] == lost[2] == {}
    assert lost[1].keys() == {"site-01", "site-02", "site-03"}
    assert all("it will be sent again" in reason for reason in lost[1].values())


# Sites that differ


def test_sites_with_their_own_models_send_and_get_predictions_alone(run: Callable[..., Path]) -> None:
    out = run({"download": "predictions"}, **{"federation.rounds": 3})
    kinds = {(line["direction"], line["kind"]) for line in audit(out) if "kind" in line}
    assert kinds == {("down", "public_set"), ("down", "predictions"), ("up", "predictions")}
    first, *later = metrics(out)
    assert all(line["bytes_down"] < 3 * 500 for line in later)
    assert first["bytes_down"] > later[0]["bytes_down"]  # the public set itself


def test_a_site_follows_the_ensemble_before_it_trains(tiny_config: TinyConfig, tmp_path: Path) -> None:
    options = {"name": "feded", "download": "predictions", "temperature": 1.0}
    content = tiny_config(algorithm=options, **{"server.epochs": 20})
    simulation = prepare(make_config(content), Path(), tmp_path)
    ask = asker(simulation, content, tmp_path)
    alone = ask("site-01", "train_own_and_predict").payloads[0]
    assert alone is not None
    (name,) = alone.tensors
    certain = torch.full_like(alone.tensors[name], 1e-4)
    certain[:, 1] = 1 - 2e-4
    said = Packed("predictions", alone.header, {name: certain if name == "p" else certain.log()})
    following = ask("site-01", "train_own_and_predict", said).payloads[0]
    assert following is not None
    assert (following.tensors[name] - alone.tensors[name])[:, 1].mean() > 0.01


def test_sites_may_have_encoders_of_their_own(run: Callable[..., Path], encoder_folder: Callable[[str], Path]) -> None:
    sites = {"site-0[12]": {"encoder": str(encoder_folder("distilbert"))}, "site-03": {"encoder": "tiny"}}
    out = run({"download": "predictions"}, sites=sites)
    assert [line["lost"] for line in metrics(out)] == [{}, {}]
    common = run({"download": "predictions"})
    assert changed(out, common) > 1e-4
    assert (out / "vocabulary").exists()
    assert not (common / "vocabulary").exists()


def test_a_site_may_train_in_its_own_way(run: Callable[..., Path], tiny_config: TinyConfig) -> None:
    own = {"site-01": {"training": {"learning_rate": 1e-4}}}
    assert changed(run(), run(sites=own)) > 1e-5
    with pytest.raises(ConfigError, match=r"did you mean 'sites.site-01.training.learning_rate'"):
        make_config(tiny_config(sites={"site-01": {"training": {"learning_rat": 1e-4}}}))


def test_two_workers_and_a_power_cut_give_the_same_bits_with_several_encoders(
    tiny_config: TinyConfig, encoder_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    content = tiny_config(
        **{
            "algorithm": {"name": "feded", "download": "predictions", "vote": "counts"},
            "sites": {"site-02": {"encoder": str(encoder_folder("electra"))}},
            "federation.rounds": 3,
            "training.optimizer_state": "keep",
        }
    )
    grandrounds.run(content, out=tmp_path / "undisturbed")
    cut({**content, "workers": 2}, tmp_path / "cut", after=2)
    grandrounds.run({**content, "workers": 2}, out=tmp_path / "cut", resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "undisturbed")


def test_unlabelled_rows_and_labels_alone_have_the_same_bits_with_two_workers_and_through_a_power_cut(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    options = {"name": "feded", "download": "predictions", **LABELS_ALONE}
    content = tiny_config(**{"algorithm": options, "federation.rounds": 3, "data.unlabelled": 0.3})
    grandrounds.run(content, out=tmp_path / "undisturbed")
    cut({**content, "workers": 2}, tmp_path / "cut", after=2)
    grandrounds.run({**content, "workers": 2}, out=tmp_path / "cut", resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "undisturbed")
    down = [line["kind"] for line in audit(tmp_path / "undisturbed") if line.get("direction") == "down"]
    assert set(down) == {"public_set", "predictions"}


def test_parameters_cannot_go_to_another_encoder(
    tiny_config: TinyConfig, encoder_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    content = tiny_config(
        algorithm={"name": "feded"}, sites={"site-02": {"encoder": str(encoder_folder("distilbert"))}}
    )
    with pytest.raises(ConfigError, match=r"site 'site-02' shares .* do both have the same encoder"):
        grandrounds.run(content, out=tmp_path / "run")


def test_a_table_that_fits_no_site_is_refused(tiny_config: TinyConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[sites.site-1\] fits no site: .*did you mean 'site-01'"):
        grandrounds.run(tiny_config(sites={"site-1": {"policy": "p.toml"}}), out=tmp_path / "run")


def test_of_two_patterns_the_longer_counts_and_one_that_nobody_takes_is_refused(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    sites = {"site-*": {"training": {"epochs": 2}}, "site-0[12]": {"training": {"epochs": 3}}, "site-02": {}}
    config = make_config(tiny_config(sites=sites))
    assert [config.training_at(f"site-0{i}").epochs for i in (1, 2, 3)] == [3, 1, 2]
    with pytest.raises(ConfigError, match=r"\[sites.site-\*\] has no effect"):
        prepare(make_config(tiny_config(sites={"site-*": {}, "site-0[123]": {}})), Path(), tmp_path)


def test_where_all_data_is_in_one_place_no_site_has_anything_special(tiny_config: TinyConfig, tmp_path: Path) -> None:
    special = {"site-01": {"training": {"learning_rate": 1e-6}, "encoder": "tiny"}}
    for name, sites in (("plain", {}), ("special", special)):
        grandrounds.run(tiny_config(algorithm={"name": "centralized"}, sites=sites), out=tmp_path / name)
    assert weights(tmp_path / "plain") == weights(tmp_path / "special")


def test_sites_alone_may_have_encoders_of_their_own_too(
    tiny_config: TinyConfig, encoder_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    sites = {"site-02": {"encoder": str(encoder_folder("distilbert"))}}
    grandrounds.run(tiny_config(algorithm={"name": "local_only"}, sites=sites), out=tmp_path / "run")
    kinds = [json.loads((tmp_path / "run" / "models" / f"site-0{i}" / "encoder.json").read_text()) for i in (1, 2)]
    assert [kind["model_type"] for kind in kinds] == ["bert", "distilbert"]


def test_an_encoder_is_the_same_however_it_is_spelt(
    tiny_config: TinyConfig, encoder_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = encoder_folder("bert")
    spelt = str(folder.parent / "x" / ".." / folder.name)
    (folder.parent / "x").mkdir(exist_ok=True)
    content = tiny_config(algorithm={"name": "feded"}, sites={"site-01": {"encoder": spelt}})
    simulation = prepare(make_config({**content, "model": {"encoder": str(folder), "warm_up": 1}}), Path(), tmp_path)
    assert {site_data.spec.start for site_data in simulation.sites.values()} == {tmp_path / "start.safetensors"}


def test_a_corpus_for_some_sites_only_is_refused(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"sites.b has no train.*give every site a corpus, or none"):
        make_config(tiny_config(sites={"a": {"train": "a.jsonl"}, "b": {"encoder": "tiny"}}))


@pytest.mark.parametrize("form", ["log_probabilities", "probabilities"])
def test_one_site_of_ten_can_not_dictate_the_teacher(form: Any) -> None:
    """log p = [-1e6, 0], or p = [0, 1] where the average is of logs: 8 bits could say a ratio of e^16 and no more."""
    expected = Expected(classes=2, public=(2, "d"))
    honest = torch.tensor([[0.9, 0.1], [0.95, 0.05]]).log()
    lie = torch.tensor([[-1e6, 0.0]] * 2) if form == "log_probabilities" else torch.tensor([[0.0, 1.0]] * 2)
    sent = [Predictions(honest, "log_probabilities", "d")] * 9 + [Predictions(lie, form, "d")]
    heard = [answers(Predictions.unpack(one.pack("fp32"), expected), "log_probabilities") for one in sent]
    z = on_simplex(mean_vote((values, torch.ones(1)) for values in heard), "log_probabilities")
    assert z.argmax(dim=1).tolist() == [0, 0]
    ratio = (9 * np.log(9) - 15.875) / 10
    np.testing.assert_allclose((z[0, 0] - z[0, 1]).item(), ratio, atol=1e-4)
    assert torch.equal(heard[0], honest)  # what 8 bits can say keeps its bits


def test_a_clamped_answer_is_the_same_however_it_was_encoded() -> None:
    expected = Expected(classes=3, public=(2, "d"))
    extreme = torch.tensor([[-300.0, 0.0, -20.0], [0.0, -40.0, -2000.0]]).log_softmax(dim=1)
    found = [
        Predictions.unpack(Predictions(extreme, "log_probabilities", "d").pack(encoding), expected).values
        for encoding in ("fp32", "int8")
    ]
    torch.testing.assert_close(*found)
    assert found[0][1].tolist() == pytest.approx([0.0, -16.0, -16.0], abs=1e-6)
