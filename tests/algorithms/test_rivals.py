"""FedOpt, SCAFFOLD, Ditto, FedPer: each by hand in NumPy, and on quadratics where it beats FedAvg for its paper's
reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import grandrounds
from grandrounds import Server
from grandrounds.algorithms.ditto import OWN, Ditto
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.algorithms.fedopt import FedOpt, Rule
from grandrounds.algorithms.fedper import FedPer
from grandrounds.algorithms.scaffold import Scaffold
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.state import TensorState
from grandrounds.runs.checkpoints import Checkpoints
from grandrounds.simulation.prepare import prepare
from tests.algorithms.quadratic import Quadratics, QuadraticServer
from tests.conftest import DOCUMENT_RE, PLAIN_SGD, TinyConfig

DRIFTING = ([[1.0, 1.0], [8.0, 0.5], [0.2, 3.0]], [[0.0, 4.0], [1.0, -2.0], [5.0, 1.0]])
"""Sites with other minima and other curvatures: many local steps pull their mean away from the best weights."""


def local(x: np.ndarray, a: np.ndarray, b: np.ndarray, steps: int, rate: float, pull: float = 0.0) -> np.ndarray:
    """Steps of gradient descent on a quadratic, held near where they began; x may be a row for each site."""
    y = x.copy()
    for _ in range(steps):
        y = y - rate * (a * (y - b) + pull * (y - x))
    return y


def averaged(sites: Quadratics, rounds: int, steps: int = 10, rate: float = 0.1) -> list[np.ndarray]:
    x, found = np.zeros(sites.a.shape[1]), []
    for _ in range(rounds):
        x = local(np.stack([x] * len(sites.a)), sites.a, sites.b, steps, rate).mean(axis=0)
        found.append(x)
    return found


def optimized(sites: Quadratics, rounds: int, rule: Rule, step: float) -> list[np.ndarray]:
    """Algorithm 2 of Reddi et al. with beta1 = .9, beta2 = .99, tau = .001."""
    x = m = np.zeros(sites.a.shape[1])
    v, found = np.full_like(x, 1e-6), []
    for _ in range(rounds):
        delta = local(np.stack([x] * len(sites.a)), sites.a, sites.b, 10, 0.1).mean(axis=0) - x
        if rule == "momentum":
            m = 0.9 * m + delta
            x = x + step * m
        else:
            m = 0.9 * m + 0.1 * delta
            if rule == "adagrad":
                v = v + delta**2
            elif rule == "adam":
                v = 0.99 * v + 0.01 * delta**2
            else:
                v = v - 0.01 * delta**2 * np.sign(v - delta**2)
            x = x + step * m / (np.sqrt(v) + 1e-3)
        found.append(x)
    return found


@pytest.mark.parametrize(("rule", "step"), [("momentum", 0.5), ("adagrad", 0.3), ("adam", 0.05), ("yogi", 0.05)])
def test_the_server_s_optimizer_is_that_of_the_paper(rule: Rule, step: float) -> None:
    sites = Quadratics(*DRIFTING)
    np.testing.assert_allclose(
        sites.path(FedOpt(rule=rule, step=step), 5), optimized(sites, 5, rule, step), rtol=1e-4, atol=1e-5
    )


def test_momentum_without_memory_is_fedavg() -> None:
    paths = [Quadratics(*DRIFTING).path(made, 3) for made in (FedOpt(rule="momentum", beta1=0.0), FedAvg())]
    np.testing.assert_allclose(*paths, rtol=1e-5)


def test_an_adaptive_server_is_faster_where_weights_learn_at_different_speeds() -> None:
    """One weight's gradients are a thousand times another's: a rare word's beside a common one's."""
    sites = ([[1.0, 0.001], [1.0, 0.001]], [[1.0, 1.0], [1.0, 1.0]])
    slow = Quadratics(*sites, steps=1).path(FedAvg(), 60)[-1]
    fast = Quadratics(*sites, steps=1).path(FedOpt(rule="adam", step=0.05, tau=1e-5), 60)[-1]
    assert abs(slow[1] - 1) > 0.9
    assert abs(fast[1] - 1) < 0.3
    assert abs(fast[0] - 1) < 0.3


def test_momentum_goes_on_where_each_average_goes_a_little() -> None:
    sites = ([[0.05], [0.05]], [[1.0], [1.0]])
    plain, pushed = (Quadratics(*sites, steps=1).path(made, 60)[-1][0] for made in (FedAvg(), FedOpt(rule="momentum")))
    assert abs(pushed - 1) < 0.5 * abs(plain - 1)


def test_scaffold_reaches_the_best_weights_and_fedavg_drifts_past_them() -> None:
    """After 40 local steps each site is nearly at its own minimum, however flat it is: their mean is not the best."""
    sites = Quadratics(*DRIFTING, steps=40)
    drifted = Quadratics(*DRIFTING, steps=40).path(FedAvg(), 200)[-1]
    np.testing.assert_allclose(drifted, averaged(sites, 200, steps=40)[-1], rtol=1e-4)
    assert np.abs(drifted - sites.best).max() > 0.3
    np.testing.assert_allclose(sites.path(Scaffold(), 200)[-1], sites.best, atol=1e-3)


def test_scaffold_is_algorithm_1_of_its_paper() -> None:
    sites, steps, rate, eta = Quadratics(*DRIFTING), 10, 0.1, 0.7
    x, c, own, found = np.zeros(2), np.zeros(2), np.zeros((3, 2)), []
    for _ in range(4):
        y = np.stack([x] * 3)
        for _ in range(steps):
            y = y - rate * (sites.a * (y - sites.b) - own + c)
        new = own - c + (x - y) / (steps * rate)
        x, c, own = x + eta * (y - x).mean(axis=0), c + (new - own).mean(axis=0), new
        found.append(x)
    np.testing.assert_allclose(sites.path(Scaffold(step=eta), 4), found, rtol=1e-3, atol=1e-4)


PARTIAL = [[0, 2], [1], [0, 1], [2], [1, 2], [0, 1, 2]]
"""Which sites a round asks."""


def test_scaffold_moves_its_control_variate_by_the_share_of_sites_that_answered() -> None:
    """Line 17: c <- c + |S|/N mean(delta c_i), so that c stays the mean of all c_i; a site that was not asked keeps
    its own."""
    sites, steps, rate = Quadratics(*DRIFTING), 10, 0.1
    x, c, own, found = np.zeros(2), np.zeros(2), np.zeros((3, 2)), []
    for asked in PARTIAL:
        a, b = sites.a[asked], sites.b[asked]
        y = np.stack([x] * len(asked))
        for _ in range(steps):
            y = y - rate * (a * (y - b) - own[asked] + c)
        new = own[asked] - c + (x - y) / (steps * rate)
        x, c = y.mean(axis=0), c + (new - own[asked]).sum(axis=0) / 3
        own[asked] = new
        np.testing.assert_allclose(c, own.mean(axis=0), atol=1e-12)
        found.append(x)
    np.testing.assert_allclose(sites.path(Scaffold(), len(PARTIAL), PARTIAL), found, rtol=1e-3, atol=1e-4)


def test_a_step_whose_batch_gives_a_weight_no_gradient_is_corrected_too() -> None:
    """Line 12 takes the mean of all K steps; here every second batch does not use the second weight."""
    sites = Quadratics(*[[rows[0]] for rows in DRIFTING], private=True)
    (site,) = sites.members.values()
    batches = iter(range(100))
    site.loss = lambda model: (model.w**2).sum() if next(batches) % 2 else ((model.w + model.own - 1) ** 2).sum()
    site.keep("control", TensorState(w=torch.zeros(2), own=torch.tensor([0.5, 0.5])))
    server: Any = QuadraticServer(2)
    Scaffold().start(server, sites)
    Scaffold().round(server, sites)
    own, gradients = np.zeros(2), []
    w = np.zeros(2)
    for step in range(10):
        gradients.append(np.zeros(2) if step % 2 else 2 * (w + own - 1))
        w, own = w - 0.1 * 2 * (w if step % 2 else w + own - 1), own - 0.1 * (gradients[-1] - 0.5)
    np.testing.assert_allclose(server.model.own.detach().numpy(), own, rtol=1e-4)
    np.testing.assert_allclose(site.kept["control"]["own"].numpy(), np.mean(gradients, axis=0), rtol=1e-3)


def test_the_first_round_of_scaffold_is_fedavg_s(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """All control variates are zero in it; in the second they are not."""
    models = {}
    for name in ("scaffold", "fedavg"):
        for rounds in (1, 2):
            own = {"algorithm": {"name": name}, "training": PLAIN_SGD, "federation.weight_by": "uniform"}
            out = tmp_path / f"{name}{rounds}"
            grandrounds.run(tiny_config(**own, **{"federation.rounds": rounds, "data.validation": 0.0}), out=out)
            models[name, rounds] = load_file(out / "model" / "model.safetensors")
    furthest = [
        max(float(np.abs(value - models["fedavg", rounds][name]).max()) for name, value in found.items())
        for (arm, rounds), found in models.items()
        if arm == "scaffold"
    ]
    assert furthest[0] < 1e-6
    assert furthest[1] > 1e-4


def test_scaffold_takes_plain_steps_alone() -> None:
    sites = Quadratics(*DRIFTING)
    sites.members["site-0"].training.weight_decay = 0.01
    with pytest.raises(ConfigError, match="scaffold takes plain steps of SGD"):
        sites.path(Scaffold(), 1)


@pytest.mark.parametrize("pull", [0.0, 0.5, 3.0])
def test_ditto_s_own_models_are_held_near_the_server_s(pull: float) -> None:
    sites, rate, steps = Quadratics(*DRIFTING), 0.1, 10
    path = sites.path(Ditto(pull=pull), 3)
    np.testing.assert_allclose(path, averaged(sites, 3), rtol=1e-4, atol=1e-5)  # the server's are FedAvg's
    w, v = np.zeros(2), np.zeros((3, 2))
    for after in averaged(sites, 3):
        for _ in range(steps):
            v = v - rate * (sites.a * (v - sites.b) + pull * (v - w))
        w = after
    for name, own in zip(sorted(sites.members), v, strict=True):
        np.testing.assert_allclose(sites.members[name].kept[OWN]["w"], own, rtol=1e-4, atol=1e-5)


def test_a_site_that_ditto_does_not_ask_keeps_its_own_model() -> None:
    """And its first one starts where the server is when the site is first asked; sizes weigh the server's mean."""
    sites, pull = Quadratics(*DRIFTING, sizes=[1, 5, 2]), 0.5
    path = sites.path(Ditto(pull=pull), len(PARTIAL), PARTIAL)
    w, own, sizes = np.zeros(2), dict[int, np.ndarray](), np.array([1, 5, 2])
    for asked, after in zip(PARTIAL, path, strict=True):
        for k in asked:
            v = own.get(k, w)
            for _ in range(10):
                v = v - 0.1 * (sites.a[k] * (v - sites.b[k]) + pull * (v - w))
            own[k] = v
        trained = local(np.stack([w] * len(asked)), sites.a[asked], sites.b[asked], 10, 0.1)
        w = np.average(trained, axis=0, weights=sizes[asked])
        np.testing.assert_allclose(after, w, rtol=1e-4, atol=1e-5)
    for k, site in enumerate(sites.members.values()):
        np.testing.assert_allclose(site.kept[OWN]["w"], own[k], rtol=1e-4, atol=1e-5)


def test_the_moments_of_ditto_s_two_models_are_kept_apart(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """Adam's moments of the site's own model would steer the server's: with kept ones, the server's model must be
    the same whatever the own one does."""
    found = []
    for pull in (0.0, 100.0):
        content = tiny_config(
            **{
                "algorithm": {"name": "ditto", "pull": pull},
                "training.optimizer_state": "keep",
                "federation.rounds": 3,
                "federation.evaluate_every": 3,
            }
        )
        grandrounds.run(content, out=tmp_path / str(pull))
        _, state = Checkpoints(tmp_path / str(pull) / "checkpoints").load(3)
        found.append(state["model"].tensors)
    assert all(bool((value == found[1][name]).all()) for name, value in found[0].items())


def test_ditto_beats_the_server_s_model_at_home_and_training_alone_on_few_notes() -> None:
    """Sites see their minimum through noise, and minima are near each other: the paper's bias and variance."""
    rng = np.random.default_rng(0)
    true = np.array([[1.0], [1.4], [0.6], [1.2], [0.8], [1.0]]) + np.zeros((6, 50))
    seen = true + rng.normal(size=true.shape) * 0.3

    def error(pull: float) -> float:
        sites = Quadratics(np.ones_like(seen), seen)
        sites.path(Ditto(pull=pull), 15)
        own = np.stack([sites.members[name].kept[OWN]["w"].numpy() for name in sorted(sites.members)])
        return float(((own - true) ** 2).mean())

    alone, between, together = error(0.0), error(1.0), error(9.0)
    assert between < 0.9 * alone
    assert between < 0.9 * together


def test_private_layers_of_fedper_take_up_how_sites_differ() -> None:
    """F_k(w + own_k): averages of w hold what is common, own_k the rest, so every site reaches its minimum."""
    sites = Quadratics(*DRIFTING, private=True)
    w = sites.path(FedPer(private=("own",)), 60)[-1]
    for name, site in sites.members.items():
        own = site.kept["private layers"]["own"].numpy()
        np.testing.assert_allclose(w + own, site.b.numpy(), atol=0.05, err_msg=name)
    shared = Quadratics(*DRIFTING).path(FedAvg(), 60)[-1]
    assert min(np.abs(shared - site.b.numpy()).max() for site in sites.members.values()) > 0.5


def test_a_round_of_fedper_is_the_mean_of_the_shared_layers() -> None:
    sites = Quadratics(*DRIFTING, private=True)
    w, own = np.zeros((3, 2)), np.zeros((3, 2))
    for _ in range(2):
        for _ in range(10):
            step = 0.1 * sites.a * (w + own - sites.b)
            w, own = w - step, own - step
        w = np.stack([w.mean(axis=0)] * 3)
    np.testing.assert_allclose(sites.path(FedPer(private=("own",)), 2)[-1], w[0], rtol=1e-4)


def test_fedper_s_models_are_tested_with_a_threshold_that_validation_chose(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    """As those of local_only are: averaged layers make a new model, and the server has none to choose it for."""
    own = {"name": "fedper", "private": ["bilinear"]}
    content = tiny_config(**{"algorithm": own, "task": DOCUMENT_RE, "data.validation": 0.3, "federation.rounds": 1})
    grandrounds.run(content, out=tmp_path / "run")
    simulation = prepare(make_config(content), Path(), tmp_path / "again")
    for folder in sorted((tmp_path / "run" / "models").iterdir()):
        data, model = simulation.sites[folder.name], simulation.spec.initial_model()
        model.load_state_dict(
            {name: torch.as_tensor(value) for name, value in load_file(folder / "model.safetensors").items()}
        )
        learner = Server(simulation.spec, data.splits, model)
        saved = float(model.threshold)
        learner.calibrate()
        assert saved == float(model.threshold) != 0


def test_options_are_checked() -> None:
    for algorithm, key in (
        ({"name": "fedopt", "rule": "sgd"}, "rule"),
        ({"name": "fedopt", "beta1": 1.0}, "beta1"),
        ({"name": "ditto", "pull": -1}, "pull"),
        ({"name": "scaffold", "step": 0}, "step"),
    ):
        with pytest.raises(ConfigError, match=rf"algorithm\.{key} = "):
            make_config({"algorithm": algorithm})
