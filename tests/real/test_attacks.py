"""A real federation on loopback with one hostile site of four: every attack is named, every round completes, and where
an attack is rejected the model has the bits of the three honest sites."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from safetensors.torch import load_file

from tests.cli.commands import run, start
from tests.conftest import corpus, write_corpus
from tests.forgeries import ADAPTERS, FORGERIES, IN_BYTES, PREDICTIONS, REPOSITORY, SILENT, UNBOUNDED, WEIGHTS
from tests.hosts import SITES, Hosts
from tests.real.figures import note
from tests.rogue import REGISTERING, WIRE, prelude

pytestmark = pytest.mark.real
ROGUE = "rogue"
UNCLAMPED = "from grandrounds.federation import quantize\nquantize.bounded = lambda values: values\n"


class Attacked(Hosts):
    """A fourth site is hostile: its process is an honest one's, with its replies forged."""

    sites = (*SITES, ROGUE)

    def __init__(self, folder: Path, encoder: Path | str, **settings: Any) -> None:
        super().__init__(folder, encoder, **settings)
        write_corpus(folder / f"{ROGUE}.jsonl", corpus(24, "r"))
        self.content["sites"][ROGUE] = {"train": f"{ROGUE}.jsonl"}
        self.config.write_text(tomli_w.dumps(self.content))

    def play(self, attacks: Mapping[int, str], registering: str = "", least: int = 4) -> Any:
        """To its end, with one attack a round; the result."""
        hostile = prelude(attacks, registering, str(REPOSITORY))
        for site in SITES:
            self.join(site)
        data = ("--data", self.folder / f"{ROGUE}.jsonl", "--format", "json", "--accept")
        self.running[ROGUE] = start("site", "join", self.enrolment(ROGUE), *data, prelude=hostile)
        self.coordinator = self.coordinate("--json", "--at-least", str(least))
        return self.coordinator.wait(3600).json()

    def in_process(self, name: str, change: Callable[[dict[str, Any]], Any], prelude: str = "") -> Path:
        """A run in one process by another config; its folder."""
        content = copy.deepcopy(self.content)
        change(content)
        config = self.folder / f"{name}.toml"
        config.write_text(tomli_w.dumps(content))
        run("run", config, "--out", self.folder / name, prelude=prelude).good()
        return self.folder / name

    def honest(self) -> Path:
        """What the three honest sites have without it."""
        return self.in_process("honest", lambda content: content["sites"].pop(ROGUE))

    def rounds(self) -> list[Any]:
        return [json.loads(line) for line in (self.root / "run" / "metrics.jsonl").read_text().splitlines()]

    def events(self) -> dict[int, str]:
        """By round, what the coordinator's audit log says of the hostile site."""
        lines = map(json.loads, (self.root / "run" / "audit.jsonl").read_text().splitlines())
        return {line["round"]: line["event"] for line in lines if line.get("site") == ROGUE and "event" in line}

    def superlink(self) -> str:
        return (self.root / "superlink.log").read_text()


@pytest.fixture
def attacked(tmp_path: Path, encoder_folder: Callable[[str], Path]) -> Iterator[Callable[..., Attacked]]:
    made: list[Attacked] = []

    def make(**settings: Any) -> Attacked:
        rounds = settings["federation__rounds"]
        kept = {"federation__keep_models": True, "federation__evaluate_every": rounds, "federation__absence": 600}
        made.append(Attacked(tmp_path, encoder_folder("bert"), **kept, **settings))
        made[-1].found()
        return made[-1]

    yield make
    for hosts in made:
        hosts.close()


def kept(run: Path) -> list[bytes]:
    """The model before round 1, and after each."""
    return [path.read_bytes() for path in sorted((run / "models").glob("*/model.safetensors"))]


def weights(run: Path, last: int = -1) -> torch.Tensor:
    """Of a round's model, as one vector."""
    tensors = load_file(sorted((run / "models").glob("*/model.safetensors"))[last])
    return torch.cat([tensors[name].double().flatten() for name in sorted(tensors)])


def f1(runs: Mapping[str, Path]) -> dict[str, float]:
    found = {what: json.loads((run / "result.json").read_text())["test"]["f1"] for what, run in runs.items()}
    return {what: round(value, 4) for what, value in found.items()}


def first_weight(run: Path) -> str:
    return min(load_file(sorted((run / "models").glob("*/model.safetensors"))[0]))


def named(hosts: Attacked, attacks: Mapping[int, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """What is said of each attack; all others answered in every round."""
    lost = {line["round"]: line["lost"] for line in hosts.rounds()}
    found = {name: lost[round].get(ROGUE, "") for round, name in attacks.items()}
    assert {name: said[: len(wanted[name])] for name, said in found.items()} == wanted
    assert all(said.isprintable() and len(said) < 400 for said in found.values())
    assert all(hosts.events()[round] == found[name] for round, name in attacks.items())
    assert all(one.keys() <= {ROGUE} for one in lost.values())
    assert not any(line["abandoned"] for line in hosts.rounds())
    return found


def test_every_attack_on_weights_and_on_superlink_is_named_and_changes_no_bit(
    attacked: Callable[..., Attacked],
) -> None:
    names = [*WEIGHTS, *WIRE, *SILENT]
    hosts = attacked(federation__rounds=len(names), federation__deadline=120)
    attacks = dict(enumerate(names, start=1))
    began = time.monotonic()
    assert hosts.play(attacks)["rounds"] == len(names)
    seconds, honest = time.monotonic() - began, hosts.honest()
    first = first_weight(honest)
    wanted = {name: FORGERIES[name][1].replace("{first}", first) for name in (*WEIGHTS, *SILENT)}
    found = named(hosts, attacks, wanted | dict.fromkeys(WIRE, "refused: it does other things"))
    missing = {name: WIRE[name][1] for name in WIRE if WIRE[name][1] not in hosts.superlink()}
    assert missing == {}
    ours, theirs = kept(hosts.root / "run"), kept(honest)
    assert len(set(theirs)) == len(names) + 1
    assert [a == b for a, b in zip(ours, theirs, strict=True)] == [True] * len(ours)
    said = {name: WIRE[name][1] if name in WIRE else found[name] for name in names}
    note(
        "hostile site, weights and SuperLink",
        attacks=len(names),
        rounds=len(names),
        rejected_with_the_honest_bits=len(names),
        seconds=round(seconds),
        named=said,
    )


PAYLOADS: dict[str, tuple[Mapping[str, tuple[Any, str]], dict[str, Any]]] = {
    "predictions": (PREDICTIONS, {"algorithm__name": "feded"}),
    "weights in bytes": (IN_BYTES, {"federation__compression": "int8"}),
    "adapters": (ADAPTERS, {"algorithm__name": "flora", "model__parameter_efficient": "lora", "model__lora_rank": 4}),
}


@pytest.mark.parametrize("what", PAYLOADS)
def test_every_attack_on_a_payload_is_named_and_changes_no_bit(attacked: Callable[..., Attacked], what: str) -> None:
    forgeries, settings = PAYLOADS[what]
    attacks = dict(enumerate(forgeries, start=1))
    hosts = attacked(federation__rounds=len(attacks), **settings)
    assert hosts.play(attacks)["rounds"] == len(attacks)
    honest = hosts.honest()
    first = first_weight(honest)
    found = named(hosts, attacks, {name: wanted.replace("{first}", first) for name, (_, wanted) in forgeries.items()})
    assert kept(hosts.root / "run") == kept(honest)
    note(f"hostile site, {what}", attacks=len(attacks), rejected_with_the_honest_bits=len(attacks), named=found)


def test_a_site_that_is_as_sure_as_a_number_can_say_is_clamped(attacked: Callable[..., Attacked]) -> None:
    """Its effect: how far the model is from the honest one, in parts of what it would be without a clamp."""
    rounds = 3
    hosts = attacked(federation__rounds=rounds, algorithm__name="feded")
    hosts.play(dict.fromkeys(range(1, rounds + 1), UNBOUNDED))
    assert not any(line["lost"] for line in hosts.rounds())

    def attack(content: dict[str, Any]) -> None:
        content["sites"][ROGUE]["attack"] = "unbounded"

    assert kept(hosts.root / "run") == kept(hosts.in_process("simulated", attack))
    without = hosts.in_process("without", attack, prelude=UNCLAMPED)
    runs = {"clamped": hosts.root / "run", "unclamped": without, "as it is": hosts.in_process("fair", lambda c: None)}
    honest = weights(hosts.honest())
    distance = {what: float((weights(run) - honest).norm()) for what, run in runs.items()}
    moved = {what: round(far / distance["unclamped"], 3) for what, far in distance.items()}
    note("hostile site, clamped", rounds=rounds, moved=moved, f1=f1({**runs, "honest": hosts.folder / "honest"}))
    assert moved["clamped"] < 1


@pytest.mark.parametrize("name", [name for name in REGISTERING if "billion" not in name])
def test_what_a_site_forges_of_itself_keeps_it_out(attacked: Callable[..., Attacked], name: str) -> None:
    hosts = attacked(federation__rounds=1)
    result = hosts.play({}, name, least=3)
    said = " ".join(hosts.coordinator.said().split())
    assert REGISTERING[name][1] in said
    assert "\x1b" not in said
    assert [row["name"] for row in result["sites"]] == list(SITES)
    assert kept(hosts.root / "run") == kept(hosts.honest())
    note(f"hostile registration: {name}", rejected_with_the_honest_bits=1, named=REGISTERING[name][1])


def test_a_billion_times_its_examples_count_for_half(attacked: Callable[..., Attacked]) -> None:
    """Its effect: how far the model is from the honest one, in parts of what it would be without a cap."""
    name, rounds = "a billion times its examples", 3
    hosts = attacked(federation__rounds=rounds)
    hosts.play({}, name)
    assert REGISTERING[name][1] in " ".join(hosts.coordinator.said().split())
    honest = weights(hosts.honest())
    alone = weights(hosts.in_process("alone", lambda c: [c["sites"].pop(site) for site in SITES]))
    fair = weights(hosts.in_process("fair", lambda content: None))
    far = {"capped": weights(hosts.root / "run"), "uncapped": alone, "as it has": fair}
    moved = {what: round(float((w - honest).norm() / (alone - honest).norm()), 3) for what, w in far.items()}
    note("hostile site, share capped", rounds=rounds, share=0.5, moved=moved)
    assert moved["as it has"] < moved["capped"] < 0.75
