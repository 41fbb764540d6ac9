"""A hostile site of four forges a reply a round: each forgery is named, and every round has the bits of the others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message, RecordDict

import grandrounds
from grandrounds.deployment.flower.records import from_records
from grandrounds.federation.payloads import Packed
from tests.conftest import TinyConfig, corpus, task_for, write_corpus
from tests.deployment.grids import MemoryGrid, asked_by, run_over_grid
from tests.forgeries import (
    ADAPTERS,
    AFTER_HANDSHAKE,
    FORGERIES,
    IN_BYTES,
    PREDICTIONS,
    TENSORS,
    WEIGHTS,
    Reply,
    Script,
)

HONEST = ("charity", "general", "mercy")
REFUSED = "markup and control characters"


class Forging(MemoryGrid):
    """The replies of one site are forged."""

    script: Script

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids: list[str] = []
        for message in messages:
            before = len(self.replies)
            ids += super().push_messages([message])
            if self.sites[message.metadata.dst_node_id] != "rogue":
                continue
            for place, reply in enumerate(self.replies[before:], start=before):
                forged = self.script(message, reply)
                assert forged is not None
                self.replies[place] = self.carried(Message(forged, reply_to=asked_by(reply)))
        return ids


def content(tiny_config: TinyConfig, folder: Path, rounds: int, **more: Any) -> dict[str, Any]:
    documents = corpus(32)
    for place, site in enumerate((*HONEST, "rogue")):
        write_corpus(folder / f"{site}.jsonl", documents[8 * place : 8 * place + 8])
    public = str(write_corpus(folder / "public.jsonl", corpus(12, "p")))
    made = tiny_config(
        **{"partition": None, "data.train": None, "data.validation": None, "data.public": public},
        **{"federation.rounds": rounds, "federation.keep_models": True, "federation.evaluate_every": rounds, **more},
    )
    made["sites"] = {site: {"train": str(folder / f"{site}.jsonl")} for site in (*HONEST, "rogue")}
    return made


def models(run: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((run / "models").glob("*/model.safetensors"))]


def first_weight(run: Path) -> str:
    from safetensors import safe_open

    with safe_open(sorted((run / "models").glob("*/model.safetensors"))[0], "pt") as file:
        return min(name for name in file.keys())  # noqa: SIM118


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        ([name for name in WEIGHTS if name not in AFTER_HANDSHAKE], {}),
        (list(PREDICTIONS), {"algorithm": {"name": "feded"}}),
        (list(IN_BYTES), {"federation.compression": "int8"}),
        (list(ADAPTERS), {"algorithm": {"name": "flora"}, **task_for("flora")}),
        (list(TENSORS), {"algorithm": {"name": "scaffold"}, **task_for("scaffold")}),
    ],
    ids=["fedavg", "feded", "int8", "flora", "scaffold"],
)
def test_every_forgery_is_named_and_every_round_has_the_bits_of_the_others(
    tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], settings: Any
) -> None:
    monkeypatch.setattr(Forging, "script", Script(dict(enumerate(names, start=1))), raising=False)
    made = content(tiny_config, tmp_path, len(names), **settings)
    run_over_grid(made, tmp_path / "attacked", kind=Forging)
    if names == list(TENSORS):  # SCAFFOLD counts those who replied of those who could
        monkeypatch.setattr(Forging, "script", Script(dict.fromkeys(range(1, len(names) + 1), REFUSED)))
        run_over_grid(made, tmp_path / "honest", kind=Forging)
    else:
        made["sites"].pop("rogue")
        grandrounds.run(made, out=tmp_path / "honest")
    rounds = [json.loads(line) for line in (tmp_path / "attacked" / "metrics.jsonl").read_text().splitlines()]
    first = first_weight(tmp_path / "honest")
    named = {name: line["lost"] for name, line in zip(names, rounds, strict=True)}
    wanted = {name: FORGERIES[name][1].replace("{first}", first) for name in names}
    assert {name: lost["rogue"][: len(wanted[name])] for name, lost in named.items()} == wanted
    assert all(len(lost) == 1 and lost["rogue"].isprintable() and len(lost["rogue"]) < 400 for lost in named.values())
    by_round = {n: lost["rogue"] for n, lost in enumerate(named.values(), 1)}
    assert logged(tmp_path / "attacked" / "audit.jsonl") == by_round
    ours, theirs = models(tmp_path / "attacked"), models(tmp_path / "honest")
    assert len(set(ours)) == len(names) + 1
    assert [a == b for a, b in zip(ours, theirs, strict=True)] == [True] * len(ours)


def logged(path: Path) -> Mapping[int, str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["round"]: line["event"] for line in lines if line.get("site") == "rogue" and "event" in line}


SCORES: dict[str, Any] = {
    "nothing": {},
    "half of it": {"n": 10.0, "right": 9.0},
    "less than nothing": "negative",
    "the largest number": "large",
}


@pytest.mark.parametrize("said", SCORES)
def test_scores_that_are_no_counts_are_left_out_and_the_run_goes_on(
    tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """Each site scores its own model; one of them sends what no score can be made of."""

    def forge(asked: Message, reply: Message) -> RecordDict | None:
        honest = Reply(*from_records(reply.content))
        if not honest.payloads or honest.packed.kind != "scores":
            return reply.content
        values = honest.packed.header["values"]
        changed = {"negative": {name: -count for name, count in values.items()}, "large": dict.fromkeys(values, 1e308)}
        forged = SCORES[said]
        sent = forged if isinstance(forged, dict) else changed[forged]
        return honest.with_payloads(Packed("scores", {"values": sent}, {}).to_bytes())

    monkeypatch.setattr(Forging, "script", staticmethod(forge), raising=False)
    made = content(tiny_config, tmp_path, 2, algorithm={"name": "local_only"})
    for site in made["sites"].values():
        site["test"] = 0.3
    made["data"].pop("test")
    made["federation"].pop("keep_models")
    run_over_grid(made, tmp_path / "attacked", kind=Forging)
    result = json.loads((tmp_path / "attacked" / "result.json").read_text())
    assert set(result["test"]["learners"]) == set(HONEST)
    made["sites"]["rogue"] |= {"attack": "none"}
    grandrounds.run(made, out=tmp_path / "honest")
    alone = json.loads((tmp_path / "honest" / "result.json").read_text())["test"]["learners"]
    assert {site: alone[site] for site in HONEST} == result["test"]["learners"]
    lines = [json.loads(line) for line in (tmp_path / "attacked" / "audit.jsonl").read_text().splitlines()]
    named = {line["event"] for line in lines if "event" in line and line.get("site") == "rogue"}
    assert {one.partition(" (")[0] for one in named} == {"rejected: its counts make no score"}
