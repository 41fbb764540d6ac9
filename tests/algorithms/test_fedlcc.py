"""FedLCC's contrast against NumPy, what it does to sites, and the previous model that each of them keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn
from torch.utils.checkpoint import checkpoint

import grandrounds
from grandrounds.algorithms.fedlcc import PREVIOUS, SEEN, FedLCC, Tally, contrast, drops_out, means, without_dropout
from grandrounds.algorithms.moon import Moon
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.learner import Site
from grandrounds.federation.runner import SiteRunner
from grandrounds.simulation.prepare import Simulation, prepare
from tests.conftest import DOCUMENT_RE, TinyConfig
from tests.simulation.crashes import PowerCut, Watch, cut, metrics, timeless, weights

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
        _, site_data = min(simulation.sites.items())
        private = {} if previous is None else {PREVIOUS: _flat(previous)}
        nothing: Any = None
        self.site = Site(
            site_data.registration,
            site_data.spec,
            site_data.splits,
            simulation.model,
            dict,
            private,
            nothing,
            2,
            1,
            bytes,
        )
        self.site._fresh = True
        self.features, self.rows = site_data.splits["train"].features, site_data.splits["train"].rows


def _flat(state: dict[str, torch.Tensor]) -> Any:
    from grandrounds.federation.state import flatten

    return flatten(state)


class Contrasted:
    """A site in its second round whose model has moved from the global one, and what its networks see of a batch."""

    def __init__(self, simulation: Simulation, kind: type[FedLCC]) -> None:
        torch.manual_seed(8)
        start = simulation.model.state_dict()
        past = {name: value + 0.05 * torch.randn_like(value) for name, value in start.items()}
        self.kind, self.site = kind, At(simulation, past).site
        self.task, self.model = self.site.spec.task, self.site.model
        self.there, self.before = self.site.frozen(), self.site.frozen()
        self.before.load_state_dict(past)

    def loss(self, method: FedLCC, tally: Tally | None = None) -> Any:
        """The loss; once it is made, the site's model moves, as training moves it."""
        found = method.contrasted(self.site, tally)
        torch.manual_seed(9)
        with torch.no_grad():
            for value in self.model.parameters():
                value.add_(0.03 * torch.randn_like(value))
        return found

    def batch(self, *rows: int) -> Any:
        return self.site._batch(self.site._split("train"), np.array(rows))

    def contexts(self, batch: Any) -> list[np.ndarray]:
        """Of the local, the global and the previous network, without dropout."""
        found = []
        for net in (self.model.eval(), self.there, self.before):
            with torch.no_grad():
                reading = self.task.read(net, batch)
            found.append((reading.pair if self.kind is Moon else reading.context).double().numpy())
        return found

    def terms(self, batch: Any, temperature: float) -> list[tuple[float, float, float]]:
        """Eq. 12 of each pair with its two cosines."""
        found = []
        for here, there, before in zip(*self.contexts(batch), strict=True):
            near, far = cosine(here, there), cosine(here, before)
            towards, away = np.exp(near / temperature), np.exp(far / temperature)
            found.append((-np.log(towards / (towards + away)), near, far))
        return found


KINDS = pytest.mark.parametrize("kind", [FedLCC, Moon])


@pytest.fixture
def simulation(content: Make, tmp_path: Path) -> Simulation:
    return prepare(make_config(content("fedlcc")), Path(), tmp_path)


@KINDS
def test_the_loss_at_a_site_is_eq_13(simulation: Simulation, kind: type[FedLCC]) -> None:
    site = Contrasted(simulation, kind)
    loss = site.loss(kind(mu=0.3, temperature=0.7))
    batch = site.batch(3, 0, 5)
    mean = np.mean([term for term, _, _ in site.terms(batch, 0.7)])
    with torch.no_grad():
        expected = site.task.loss(site.model, batch).item() + 0.3 * mean
        assert loss(site.model, batch).item() == pytest.approx(expected, rel=1e-5)
    assert mean > 0.1


@KINDS
def test_a_context_may_be_read_without_the_dropout_of_the_tasks_loss(
    simulation: Simulation, kind: type[FedLCC]
) -> None:
    """The loss: the task's under dropout, Eq. 12 in NumPy on contexts without; the gradient is that of both."""
    site = Contrasted(simulation, kind)
    loss = site.loss(kind(mu=0.3, temperature=0.7, context_dropout=False))
    batch = site.batch(3, 0, 5)
    mean = np.mean([term for term, _, _ in site.terms(batch, 0.7)])

    def under_dropout(value: Callable[[nn.Module, Any], torch.Tensor]) -> float:
        site.model.train().zero_grad()
        torch.manual_seed(5)
        found = value(site.model, batch)
        found.backward()
        return found.item()

    found = under_dropout(loss)
    gradient = {name: p.grad.clone() for name, p in site.model.named_parameters() if p.grad is not None}
    assert found == pytest.approx(under_dropout(site.task.loss) + 0.3 * mean, rel=1e-5)
    with_dropout = kind(mu=0.3, temperature=0.7).contrasted(site.site)
    assert with_dropout is not None
    assert found != pytest.approx(under_dropout(with_dropout), rel=1e-4)
    under_dropout(site.task.loss)
    reading = site.task.read(site.model.eval(), batch)
    here = reading.pair if kind is Moon else reading.context
    there, before = (torch.from_numpy(x).float() for x in site.contexts(batch)[1:])
    (0.3 * contrast(here, there, before, 0.7)).backward()  # beside the task's
    for name, parameter in site.model.named_parameters():
        if name in gradient:
            torch.testing.assert_close(gradient[name], parameter.grad, atol=1e-5, rtol=1e-3)


def test_where_nothing_drops_out_a_second_pass_is_spared_and_bits_are_the_same(run: Run) -> None:
    tiny = {"model": {"encoder": "tiny"}}
    assert run("fedlcc", more=tiny, context_dropout=False) == run("fedlcc", more=tiny, context_dropout=True)
    assert run("fedlcc", context_dropout=False) != run("fedlcc", context_dropout=True)


def test_dropout_is_found_in_modules_and_in_their_numbers() -> None:
    attention = nn.MultiheadAttention(8, 2, dropout=0.1)
    assert drops_out(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1)))
    assert drops_out(nn.LSTM(2, 2, 2, dropout=0.2))
    assert drops_out(attention)
    assert not drops_out(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0), nn.LSTM(2, 2), nn.LayerNorm(2)))


def test_a_network_without_dropout_shares_parameters_and_stays_so_where_it_is_computed_again() -> None:
    class InParts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.dropout = nn.Linear(6, 6), nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> Any:
            return checkpoint(lambda x: self.dropout(self.layer(x)).sum(), x, use_reentrant=False)

    model = InParts().train()
    undropped = without_dropout(model)
    x = torch.arange(6.0)[None]
    undropped(x).backward()
    assert model.training
    assert model.layer.weight.grad is not None
    assert model.layer.weight.grad.equal(x.expand(6, 6))  # half of it would be 0, and half twice as large
    with torch.no_grad():
        model.layer.bias.add_(1)
    assert undropped.layer.bias.equal(model.layer.bias)


@KINDS
def test_what_is_told_of_a_training_is_eq_12_and_its_cosines_over_all_pairs(
    simulation: Simulation, kind: type[FedLCC]
) -> None:
    site, tally = Contrasted(simulation, kind), Tally()
    plain = kind(mu=0.3, temperature=0.7).contrasted(site.site)
    loss = site.loss(kind(mu=0.3, temperature=0.7, diagnostics=True), tally)
    assert plain is not None
    batches = [site.batch(3, 0, 5), site.batch(1)]
    for batch in batches:
        loss(site.model, batch)
    reported = means(asdict(tally))
    terms = np.array([term for batch in batches for term in site.terms(batch, 0.7)])
    for name, column in zip(("contrast", "cosine_global", "cosine_previous"), terms.T, strict=True):
        assert reported[name] == pytest.approx(column.mean(), rel=1e-5)
    assert 1 - reported["cosine_global"] > 0.01

    def norm(loss: Callable[[nn.Module, Any], torch.Tensor]) -> float:
        site.model.zero_grad()
        loss(site.model, batches[1]).backward()
        return float(sum((p.grad.double() ** 2).sum() for p in site.model.parameters() if p.grad is not None)) ** 0.5

    pull, task = norm(lambda model, batch: plain(model, batch) - site.task.loss(model, batch)), norm(site.task.loss)
    assert tally.batches == 1  # the second of two
    assert reported["gradient_share"] == pytest.approx(pull / (pull + task), rel=1e-3)
    assert pull > 0.001


def test_gradients_are_taken_apart_at_the_2nd_4th_8th_batch_and_are_left_alone() -> None:
    model, tally = nn.Linear(2, 1, bias=False), Tally()
    for batch in range(1, 10):
        weight = model.weight[0]
        tally.add_gradients(model, 3 * batch * weight[0], 4 * batch * weight[1])  # norms 3 and 4, whatever the batch
    assert tally.batches == 3
    assert means(asdict(tally)) == {"gradient_share": pytest.approx(4 / 7)}
    assert model.weight.grad is None


def test_pairs_without_a_term_are_not_told_of() -> None:
    here, there, before = torch.eye(3), torch.eye(3), torch.eye(3)
    here[0], there[1] = 0, 0
    tally = Tally()
    tally.add(here, there, before, 0.5)
    assert (tally.pairs, tally.cosine_global, tally.contrast) == (1, 1, pytest.approx(np.log(2)))
    assert means(asdict(Tally())) == {}


TOLD = {"contrast", "cosine_global", "cosine_previous", "gradient_share"}


@pytest.fixture(scope="module")
def reported(content: Make, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    settings = content("fedlcc", diagnostics=True)
    out = tmp_path_factory.mktemp("told") / "run"
    grandrounds.run(settings, out=out)
    return settings, out


def test_telling_changes_no_bit_of_the_model(run: Run, reported: tuple[dict[str, Any], Path]) -> None:
    _, out = reported
    assert weights(out) == run("fedlcc")
    first, *others = metrics(out)
    assert "diagnostics" not in first  # nothing is contrasted in a first round
    for line in others:
        assert line["diagnostics"].keys() == TOLD
        assert 0 < line["diagnostics"]["gradient_share"] < 1
        assert 0.5 < line["diagnostics"]["contrast"] < 0.9  # log 2 = 0.69 where both cosines are equal
        assert line["diagnostics"]["cosine_previous"] < 1


def test_what_is_told_is_the_same_after_a_resumption(reported: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    settings, out = reported
    cut(settings, tmp_path / "cut", after=2)
    grandrounds.run(settings, out=tmp_path / "cut", resume=True)
    assert timeless(metrics(tmp_path / "cut")) == timeless(metrics(out))
    assert weights(tmp_path / "cut") == weights(out)


def test_sites_that_may_not_tell_train_all_the_same(
    reported: tuple[dict[str, Any], Path], content: Make, tmp_path: Path
) -> None:
    (tmp_path / "policy.toml").write_text('allow = ["parameters"]')
    silent = {"federation.policy": str(tmp_path / "policy.toml")}
    watch = Watch()
    grandrounds.run(content("fedlcc", more=silent, diagnostics=True), out=tmp_path / "run", watcher=watch)
    assert weights(tmp_path / "run") == weights(reported[1])
    assert not [line for line in metrics(tmp_path / "run") if "diagnostics" in line or line["abandoned"]]
    assert "no diagnostics of round 2: too few sites gave them" in watch.said


def test_a_site_tells_of_this_round_alone(simulation: Simulation) -> None:
    site = At(simulation, None).site
    assert not any(Tally.recalled(site).values())
    tally = Tally(pairs=4, contrast=2.5)
    site.keep(SEEN, tally.kept(site.round))
    assert Tally.recalled(site) == asdict(tally)
    site.keep(SEEN, tally.kept(site.round - 1))
    assert not any(Tally.recalled(site).values())


def test_without_a_past_or_without_mu_the_loss_is_the_tasks(content: Make, tmp_path: Path) -> None:
    simulation = prepare(make_config(content("fedlcc")), Path(), tmp_path)
    assert FedLCC().contrasted(At(simulation, None).site) is None
    assert FedLCC(mu=0).contrasted(At(simulation, simulation.model.state_dict()).site) is None


def test_the_mean_is_uniform_whatever_the_sizes(content: Make, tmp_path: Path) -> None:
    settings = content("fedlcc", 1, more={"partition": {"scheme": "by", "by": "hospital"}})
    grandrounds.run(settings, out=tmp_path / "run")
    config = make_config(settings)
    simulation = prepare(config, Path(), tmp_path / "again")
    host = simulation.runner(config, tmp_path / "again", memory=1 << 30)
    from grandrounds import Parameters
    from grandrounds.federation.coordinator import Ledger

    start = Parameters.of(simulation.model).pack("fp32")
    local = []
    for name in sorted(simulation.sites):
        ask = Ask(name, "fedlcc", {}, "train", 1, 1, (start,), config.digest(), None, "00001.1", Ledger().needed(name))
        packed = host.answer(ask).payloads[0]
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
    answer, count = SiteRunner.answer, 0

    def cut(self: SiteRunner, ask: Ask) -> Answer:
        nonlocal count
        count += ask.method == "train"
        if count > after:
            raise PowerCut
        return answer(self, ask)

    with monkeypatch.context() as patch:
        patch.setattr(SiteRunner, "answer", cut)
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
    with pytest.raises(ConfigError, match=r"and 'sentence_re' is not one: set task\.name = document_re$"):
        make_config(tiny_config(algorithm={"name": "fedlcc"}))


def test_feded_on_a_task_without_shared_questions_is_refused(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"'feded' needs a task whose answers .* 'document_re' is not one"):
        make_config(tiny_config(algorithm={"name": "feded"}, task=DOCUMENT_RE))
