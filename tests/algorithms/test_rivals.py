"""FedOpt, SCAFFOLD, Ditto, FedPer: each by hand in NumPy, and on quadratics where it beats FedAvg for its paper's
reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import grandrounds
from grandrounds.algorithms.ditto import OWN, Ditto
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.algorithms.fedopt import FedOpt, Rule
from grandrounds.algorithms.fedper import FedPer
from grandrounds.algorithms.scaffold import Scaffold
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from tests.algorithms.quadratic import Quadratics
from tests.conftest import PLAIN_SGD, TinyConfig

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


def test_options_are_checked() -> None:
    for algorithm, key in (
        ({"name": "fedopt", "rule": "sgd"}, "rule"),
        ({"name": "fedopt", "beta1": 1.0}, "beta1"),
        ({"name": "ditto", "pull": -1}, "pull"),
        ({"name": "scaffold", "step": 0}, "step"),
    ):
        with pytest.raises(ConfigError, match=rf"algorithm\.{key} = "):
            make_config({"algorithm": algorithm})
