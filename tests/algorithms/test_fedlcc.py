"""FedLCC's contrast against NumPy, what it does to sites, and the previous model that each of them keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import grandrounds
from grandrounds.algorithms.fedlcc import PREVIOUS, FedLCC, contrast
from grandrounds.algorithms.moon import Moon
from grandrounds.errors import ConfigError
from grandrounds.experiment.config import make_config
from grandrounds.experiment.simulation import Simulation, prepare
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.host import Host
from grandrounds.federation.learner import Site
from tests.conftest import DOCUMENT_RE, TinyConfig
from tests.experiment.crashes import PowerCut, metrics, timeless, weights

Make = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def content(tiny_config: TinyConfig) -> Make:
    def make(name: str, rounds: int = 3, more: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        settings = {"task": DOCUMENT_RE, "federation.rounds": rounds, "data.validation": 0.0, **(more or {})}
        return tiny_config(**{"algorithm": {"name": name, **options}, **settings})

    return make


Run = Callable[..., bytes]


@pytest.fixture(scope="module")
def run(content: Make, tmp_path_factory: pytest.TempPathFactory) -> Run:
    made: dict[str, bytes] = {}

    def go(*args: Any, **options: Any) -> bytes:
        key = f"{args}{options}"
        if key not in made:
            out = tmp_path_factory.mktemp("fedlcc") / "run"
            grandrounds.run(content(*args, **options), out=out)
            made[key] = weights(out)
        return made[key]

    return go


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def test_the_contrast_is_eq_12_averaged_over_pairs() -> None:
    rng = np.random.default_rng(4)
    here, there, before = (rng.normal(size=(5, 7)) for _ in range(3))
    terms = []
    for i in range(5):
        towards, away = (np.exp(cosine(here[i], other[i]) / 0.5) for other in (there, before))
        terms.append(-np.log(towards / (towards + away)))
    found = contrast(*(torch.from_numpy(x) for x in (here, there, before)), temperature=0.5)
    assert found.item() == pytest.approx(np.mean(terms), rel=1e-9)
    assert contrast(*(torch.from_numpy(x) for x in (here, there, before)), temperature=0.1).item() != found.item()


def test_a_pair_without_context_in_any_net_has_no_term_and_no_gradient() -> None:
    torch.manual_seed(1)
    here, there, before = torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 3)
    here[0], there[1], before[2] = 0, 0, 0
    here.requires_grad_()
    found = contrast(here, there, before, 0.5)
    alone = contrast(here[3:], there[3:], before[3:], 0.5)
    assert found.item() == pytest.approx(alone.item(), rel=1e-6)
    found.backward()
    assert here.grad is not None
    assert torch.isfinite(here.grad).all()
    assert here.grad[:3].abs().max() == 0
    assert here.grad[3].abs().max() > 0
    nothing = contrast(here[:1], there[:1], before[:1], 0.5)
    assert nothing.item() == 0


def test_the_contrast_draws_to_the_server_and_away_from_the_past() -> None:
    here = torch.tensor([[1.0, 1.0]], requires_grad=True)
    contrast(here, torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), 0.5).backward()
    assert here.grad is not None
    towards, away = (-here.grad[0]).tolist()
    assert towards > 0 > away


def test_without_mu_it_is_uniform_fedavg_to_the_bit_and_with_mu_it_is_not(run: Run) -> None:
    uniform = {"federation.weight_by": "uniform", "partition": {"scheme": "by", "by": "hospital"}}
    by_hospital = {"partition": uniform["partition"]}
    plain = run("fedavg", more=uniform)
    assert run("fedlcc", more=by_hospital, mu=0.0) == plain
    assert run("fedlcc", more=by_hospital, mu=0.1) != plain
    assert run("fedavg", more=by_hospital) != plain, "sites are of one size, so weights could not be seen"


def test_in_a_first_round_nothing_is_contrasted(run: Run) -> None:
    assert run("fedlcc", 1, mu=5.0) == run("fedlcc", 1, mu=0.0)
    assert run("fedlcc", 2, mu=5.0) != run("fedlcc", 2, mu=0.0)


def test_what_is_contrasted_makes_a_difference(run: Run) -> None:
    assert run("moon") != run("fedlcc")


class At:
    """A site of the toy federation between two rounds: the server's weights loaded, another model kept as its past."""

    def __init__(self, simulation: Simulation, previous: dict[str, torch.Tensor] | None) -> None:
        _, resident = min(simulation.residents.items())
        private = {} if previous is None else {PREVIOUS: _flat(previous)}
        nothing: Any = None
        self.site = Site(
            resident.registration,
            resident.practice,
            resident.splits,
            simulation.model,
            dict,
            private,
            nothing,
            2,
            1,
            bytes,
        )
        self.site._fresh = True
        self.features, self.rows = resident.splits["train"].features, resident.splits["train"].rows


def _flat(state: dict[str, torch.Tensor]) -> Any:
    from grandrounds.federation.state import flatten

    return flatten(state)


@pytest.mark.parametrize("kind", [FedLCC, Moon])
def test_the_loss_at_a_site_is_eq_13(content: Make, tmp_path: Path, kind: type[FedLCC]) -> None:
    simulation = prepare(make_config(content("fedlcc")), Path(), tmp_path)
    torch.manual_seed(8)
    past = {name: value + 0.05 * torch.randn_like(value) for name, value in simulation.model.state_dict().items()}
    site = At(simulation, past).site
    method = kind(mu=0.3, temperature=0.7)
    loss = method.contrasted(site)
    assert loss is not None
    local = site.frozen()  # the global model, moved as training moves it
    with torch.no_grad():
        for value in local.parameters():
            value.add_(0.03 * torch.randn_like(value))
    rows = np.array([3, 0, 5])
    batch = site._batch(site._split("train"), rows)
    previous = site.frozen()
    previous.load_state_dict(past)

    def view(net: nn.Module) -> np.ndarray:
        with torch.no_grad():
            reading = site.practice.task.read(net, batch)
        return (reading.pair if kind is Moon else reading.context).double().numpy()

    here, there, before = view(local), view(site.frozen()), view(previous)
    terms = []
    for ours, theirs, old in zip(here, there, before, strict=True):
        towards, away = np.exp(cosine(ours, theirs) / 0.7), np.exp(cosine(ours, old) / 0.7)
        terms.append(-np.log(towards / (towards + away)))
    with torch.no_grad():
        expected = site.practice.task.loss(local, batch).item() + 0.3 * np.mean(terms)
        assert loss(local, batch).item() == pytest.approx(expected, rel=1e-5)
    assert np.mean(terms) > 0.1


def test_without_a_past_or_without_mu_the_loss_is_the_tasks(content: Make, tmp_path: Path) -> None:
    simulation = prepare(make_config(content("fedlcc")), Path(), tmp_path)
    assert FedLCC().contrasted(At(simulation, None).site) is None
    assert FedLCC(mu=0).contrasted(At(simulation, simulation.model.state_dict()).site) is None


def test_the_mean_is_uniform_whatever_the_sizes(content: Make, tmp_path: Path) -> None:
    settings = content("fedlcc", 1, more={"partition": {"scheme": "by", "by": "hospital"}})
    grandrounds.run(settings, out=tmp_path / "run")
    config = make_config(settings)
    simulation = prepare(config, Path(), tmp_path / "again")
    host = simulation.host(config, tmp_path / "again", memory=1 << 30)
    from grandrounds.federation import Parameters
    from grandrounds.federation.coordinator import Ledger

    start = Parameters.of(simulation.model).pack("fp32")
    local = []
    for name in sorted(simulation.residents):
        ask = Ask(name, "fedlcc", {}, "train", 1, 1, (start,), config.digest(), None, "00001.1", Ledger().needed(name))
        packed = host.answer(ask).packed
        assert packed is not None
        local.append({key: value.numpy().copy() for key, value in packed.tensors.items()})
    found = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for key, value in found.items():
        np.testing.assert_allclose(value, np.mean([one[key] for one in local], axis=0), atol=1e-6)


@pytest.mark.parametrize("after", [5, 7, 8])
def test_killed_within_a_round_and_resumed_each_site_has_the_previous_model_of_the_right_round(
    after: int, content: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three sites, four rounds: the cut falls after one or two sites had finished the round, or all of them."""
    settings = content("fedlcc", 4, mu=2.0)
    grandrounds.run(settings, out=tmp_path / "undisturbed")
    answer, count = Host.answer, 0

    def cut(self: Host, ask: Ask) -> Answer:
        nonlocal count
        count += ask.method == "train"
        if count > after:
            raise PowerCut
        return answer(self, ask)

    with monkeypatch.context() as patch:
        patch.setattr(Host, "answer", cut)
        with pytest.raises(PowerCut):
            grandrounds.run(settings, out=tmp_path / "cut")
    assert len(metrics(tmp_path / "cut")) == after // 3
    grandrounds.run(settings, out=tmp_path / "cut", resume=True)
    assert weights(tmp_path / "cut") == weights(tmp_path / "undisturbed")
    assert timeless(metrics(tmp_path / "cut")) == timeless(metrics(tmp_path / "undisturbed"))


def test_a_site_that_sat_out_contrasts_with_its_own_last_model(
    content: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    had: list[tuple[str, int, bool]] = []
    holds = Site.holds

    def watched(self: Site, name: str) -> bool:
        had.append((self.who, self.round, holds(self, name)))
        return holds(self, name)

    monkeypatch.setattr(Site, "holds", watched)
    grandrounds.run(content("fedlcc", 5, more={"federation.fraction": 0.67}), out=tmp_path / "run")
    asked = [(site, line["round"]) for line in metrics(tmp_path / "run") for site in line["sites"]]
    seen: set[str] = set()
    expected = []
    for site, round in asked:
        expected.append((site, round, site in seen))
        seen.add(site)
    assert had == expected
    assert len({site for site, round in asked if round == 1}) == 2


def test_fedlcc_on_a_task_without_localized_contexts_is_refused(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"'sentence_re' has none: take task\.name = document_re, or .* moon"):
        make_config(tiny_config(algorithm={"name": "fedlcc"}))


def test_feded_on_a_task_of_many_answers_is_refused(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match="'feded' averages predictions of one class an example"):
        make_config(tiny_config(algorithm={"name": "feded"}, task=DOCUMENT_RE))
