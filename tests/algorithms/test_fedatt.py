"""FedAtt's attention against a NumPy softmax, whatever the order of replies."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grandrounds import Parameters, Registration, Reply
from grandrounds.algorithms.fedatt import FedAtt, attentive_pull, distance_of
from grandrounds.federation.training import Training

SHAPES = {"matrix": (4, 3), "bias": (5,), "cube": (2, 3, 2)}


def locals_of(count: int, seed: int = 0) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(seed)
    server = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
    return server, [{name: rng.normal(size=shape) * (k + 1) for name, shape in SHAPES.items()} for k in range(count)]


def replies(local: list[dict[str, np.ndarray]]) -> list[Reply[Parameters]]:
    site = Registration("s", {}, (), {})
    return [Reply(site, Parameters({n: torch.from_numpy(v).float() for n, v in one.items()}), 1.0) for one in local]


def by_hand(server: dict[str, np.ndarray], local: list[dict[str, np.ndarray]], norm: str) -> dict[str, np.ndarray]:
    pull = {}
    for name, w in server.items():
        differences = np.stack([w - one[name] for one in local])
        spectral = norm == "spectral" and w.ndim == 2
        distances = np.array([np.linalg.norm(d, 2) if spectral else np.sqrt((d**2).sum()) for d in differences])
        alpha = np.exp(distances) / np.exp(distances).sum()
        pull[name] = np.tensordot(alpha, differences, axes=1)
    return pull


def pulled(server: dict[str, np.ndarray], local: list[dict[str, np.ndarray]], norm: str) -> dict[str, np.ndarray]:
    weights = {name: torch.from_numpy(value).float() for name, value in server.items()}
    return {name: value.numpy() for name, value in attentive_pull(weights, replies(local), norm).items()}


@pytest.mark.parametrize("norm", ["frobenius", "spectral"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_pull_is_the_softmax_weighted_sum_of_differences(count: int, norm: str) -> None:
    server, local = locals_of(count)
    found, expected = pulled(server, local, norm), by_hand(server, local, norm)
    for name in SHAPES:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


def test_the_norms_differ_for_matrices_alone() -> None:
    server, local = locals_of(3)
    frobenius, spectral = (pulled(server, local, norm) for norm in ("frobenius", "spectral"))
    assert np.abs(frobenius["matrix"] - spectral["matrix"]).max() > 1e-3
    assert np.array_equal(frobenius["cube"], spectral["cube"])
    assert distance_of(torch.diag(torch.tensor([3.0, 4.0])), "spectral").item() == pytest.approx(4)
    assert distance_of(torch.diag(torch.tensor([3.0, 4.0])), "frobenius").item() == pytest.approx(5)


@pytest.mark.parametrize("norm", ["frobenius", "spectral"])
def test_the_order_of_replies_does_not_matter(norm: str) -> None:
    server, local = locals_of(4, seed=3)
    forwards, backwards = pulled(server, local, norm), pulled(server, local[::-1], norm)
    for name in SHAPES:
        np.testing.assert_allclose(forwards[name], backwards[name], atol=1e-6, rtol=1e-6)


def test_distances_of_hundreds_do_not_overflow() -> None:
    server, local = {"w": np.zeros(2)}, [{"w": np.array(w)} for w in ([1e3, 0.0], [0.0, 999.0], [0.0, 1.0])]
    found = pulled(server, local, "frobenius")
    alpha = np.exp([0.0, -1.0, -999.0])
    alpha /= alpha.sum()
    np.testing.assert_allclose(found["w"], [-1e3 * alpha[0], -999 * alpha[1]], rtol=1e-4)


def test_counters_are_skipped_and_replies_are_left_as_they_were() -> None:
    weights = {"w": torch.zeros(2), "steps": torch.tensor(3)}
    values = {"w": torch.ones(2), "steps": torch.tensor(9)}
    reply = Reply(Registration("s", {}, (), {}), Parameters(values), 1.0)
    pull = attentive_pull(weights, [reply, reply])
    assert list(pull) == ["w"]
    assert pull["w"].tolist() == [-1, -1]
    assert values["w"].tolist() == [1, 1]
    assert weights["w"].tolist() == [0, 0]


class StubServer:
    """As much of a server as a round needs."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(2, 2)
        self.training = Training().model_copy(update={"epochs": 0})
        self.loaded: Parameters | None = None

    def seeded(self, *purpose: str) -> torch.Generator:
        return torch.Generator().manual_seed(len(purpose))

    def load(self, parameters: Parameters) -> None:
        self.loaded = parameters


class StubCohort:
    def __init__(self, values: dict[str, torch.Tensor]) -> None:
        self.values = values

    def ask(self, method: object, *message: object) -> list[Reply[Parameters]]:
        return [Reply(Registration("s", {}, (), {}), Parameters(self.values), 1.0)]


@pytest.mark.parametrize("step", [0.5, 1.0, 1.2])
def test_the_server_goes_a_step_towards_the_only_site(step: float) -> None:
    server = StubServer()
    start = {name: value.clone() for name, value in server.model.state_dict().items()}
    local = {name: value + 1 for name, value in start.items()}
    FedAtt(step=step).round(server, StubCohort(local))  # type: ignore[arg-type]
    assert server.loaded is not None
    for name, value in server.loaded.values.items():
        assert torch.allclose(value, start[name] + step, atol=1e-6)


def test_noise_has_the_standard_deviation_asked_for() -> None:
    server = StubServer()
    server.model = torch.nn.Linear(200, 200)
    local = {name: value.clone() for name, value in server.model.state_dict().items()}
    FedAtt(noise=0.1).round(server, StubCohort(local))  # type: ignore[arg-type]
    assert server.loaded is not None
    noise = server.loaded.values["weight"] - local["weight"]
    assert noise.std().item() == pytest.approx(0.1, rel=0.02)
    assert abs(noise.mean().item()) < 0.005
