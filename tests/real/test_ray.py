"""A Ray cluster of two nodes: the bits of one process, though a node is killed in mid-round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import grandrounds
from grandrounds.registry import ALGORITHMS
from tests.conftest import TinyConfig, task_for
from tests.simulation.crashes import Watch, metrics, models, timeless

ray = pytest.importorskip("ray", reason="needs grandrounds[ray]")

cluster_utils = pytest.importorskip("ray.cluster_utils")
pytestmark = pytest.mark.real


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("PYTHONPATH", str(Path(grandrounds.__file__).parents[1]))
        yield


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Its head has no core for workers."""
    yield from _cluster(0)


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    """A cluster of one."""
    yield from _cluster(1)


def _cluster(cores: int) -> Iterator[Any]:
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": cores, "include_dashboard": False})
    yield made
    made.shutdown()


class Kill(Watch):
    """Kills a node when the first site of round 2 has answered."""

    def __init__(self, cluster: Any, node: Any) -> None:
        super().__init__()
        self._cluster, self._nodes = cluster, [node]

    def answered(self, site: str) -> None:
        if self.rounds and self._nodes:
            self._cluster.remove_node(self._nodes.pop(), allow_graceful=False)


@pytest.mark.parametrize("name", ["fedner", "feded"])
def test_a_run_on_two_nodes_of_which_one_is_killed_has_the_bits_of_one_process(
    name: str, cluster: Any, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    few = {"iterations": 2, "batch": 16} if name == "fedner" else {}
    content = tiny_config(**{"algorithm": {"name": name, **few}, "federation.rounds": 3, **task_for(name)})
    _, second = (cluster.add_node(num_cpus=1) for _ in range(2))
    grandrounds.run(content, out=tmp_path / "one")
    watch = Kill(cluster, second)
    on_ray = {**content, "runtime": "ray", "workers": 2, "ray": {"address": cluster.address}}
    grandrounds.run(on_ray, out=tmp_path / "ray", watcher=watch)
    assert not second.any_processes_alive()
    assert models(tmp_path / "ray") == models(tmp_path / "one")
    assert timeless(metrics(tmp_path / "ray")) == timeless(metrics(tmp_path / "one"))
    assert not ray.is_initialized()


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_has_the_bits_of_one_process(
    name: str, node: Any, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    few = {"iterations": 2} if name == "fedner" else {}
    content = tiny_config(**{"algorithm": {"name": name, **few}, "federation.rounds": 2, **task_for(name)})
    grandrounds.run(content, out=tmp_path / "one")
    grandrounds.run({**content, "runtime": "ray", "ray": {"address": node.address}}, out=tmp_path / "ray")
    assert models(tmp_path / "ray") == models(tmp_path / "one")
    assert timeless(metrics(tmp_path / "ray")) == timeless(metrics(tmp_path / "one"))
