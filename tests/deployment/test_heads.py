"""A log that was written anew does not have the head that its site signed, whoever hashed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from grandrounds.cli import audit as command
from grandrounds.cli import console
from grandrounds.config.schema import make_config
from grandrounds.deployment.flower.grid import Letter
from grandrounds.deployment.heads import SignedHead, check_log, read_heads, write_heads
from grandrounds.deployment.keys import make_key, read_private
from grandrounds.deployment.protocol import Answered, Hello, Introduction
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import START, Audit, summary, verify
from grandrounds.simulation.prepare import prepare
from tests.conftest import TinyConfig
from tests.deployment.grids import MemoryGrid, apps, handler, over, reported


def edited(lines: list[dict[str, Any]]) -> bytes:
    """A chain of these lines that holds together."""
    previous, out = START, b""
    for line in lines:
        data = json.dumps({**line, "previous": previous}).encode()
        previous, out = sha256(data).hexdigest(), out + data + b"\n"
    return out


def last_line(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*lines[:-1], {**lines[-1], "bytes": 1}]


def all_of_it(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**line, "bytes": 1} for line in lines]


FORGERIES: list[Callable[[list[dict[str, Any]]], list[dict[str, Any]]]] = [
    last_line,
    all_of_it,
    lambda lines: lines[:1],
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    audit = Audit(tmp_path / "audit.jsonl")
    for number in range(3):
        audit.write(round=number, bytes=1000)
    make_key(tmp_path / "site.key", tmp_path / "mercy.pub")
    write_heads(tmp_path / "audit.head", {"mercy": SignedHead.of(audit.head, read_private(tmp_path / "site.key"))})
    return tmp_path / "audit.jsonl"


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_log_that_was_hashed_anew_is_found_by_the_signed_head(log: Path, forgery: Any) -> None:
    key, noted = read_private(log.parent / "site.key").public_key(), read_heads(log.parent / "audit.head")["mercy"]
    assert check_log(log, noted, key) == 3
    log.write_bytes(edited(forgery([json.loads(line) for line in log.read_text().splitlines()])))
    verify(log)  # the chain itself is whole
    with pytest.raises(GrandRoundsError, match="the log was cut or its last line edited"):
        check_log(log, noted, key)
    signed = {"heads": log.parent / "audit.head", "site": "mercy", "key": log.parent / "mercy.pub"}
    with pytest.raises(GrandRoundsError, match="the log was cut or its last line edited"):
        command.verify(log, **signed)
    forged = SignedHead(sha256(log.read_bytes().splitlines()[-1]).hexdigest(), noted.signature)
    with pytest.raises(GrandRoundsError, match="is not signed with this site's key"):
        check_log(log, forged, key)


def test_heads_are_exchanged_and_a_site_whose_log_was_rewritten_says_so(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    config = make_config(tiny_config())
    simulation = prepare(config, Path(), tmp_path)
    name, data = next(iter(simulation.sites.items()))
    make_key(tmp_path / "site.key", tmp_path / "site.pub")
    key = read_private(tmp_path / "site.key")
    made = handler(simulation.runner(config, tmp_path, memory=0), data.registration, tmp_path, key)
    transport = over(
        MemoryGrid(apps({name: made})), tmp_path, keys={name: key.public_key()}, logs=tmp_path / "logs.json"
    )
    (greeted,) = transport.converse([Letter(name, Hello())])
    assert isinstance(greeted.message, Introduction)
    transport.flush()
    noted = read_heads(tmp_path / "logs.json")[name]
    assert noted == read_heads(tmp_path / "audit.head")[name] == transport.heads[name]
    assert isinstance(reported(made, Hello(log=noted.head, signature=noted.signature)), Introduction)
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    (tmp_path / "audit.jsonl").write_bytes(edited([{**line, "version": "0"} for line in lines]))
    said = reported(made, Hello(log=noted.head, signature=noted.signature))
    assert said == Answered(lost="refused: this site's log has not got the head that it signed: it was cut or edited")
    other = make_key(tmp_path / "other.key", tmp_path / "other.pub")
    stranger = over(MemoryGrid(apps({name: made})), tmp_path, keys={name: other})
    (received,) = stranger.converse([Letter(name, Hello())])
    assert received.lost == "rejected: the head of its log is not signed with its key"


def test_what_left_is_summed_up_by_round_and_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = Audit(tmp_path / "audit.jsonl")
    for number in (1, 1, 2):
        where = {"round": number, "exchange": 1, "site": "mercy"}
        audit.write(**where, direction="down", kind="parameters", bytes=2_000_000, digest="d")
        audit.write(**where, direction="up", kind="scores", bytes=150, digest="d")
    audit.write(round=2, exchange=1, site="general", direction="up", kind="scores", bytes=150, digest="d")
    rows, times = summary(tmp_path / "audit.jsonl")
    assert [tuple(row) for row in rows] == [
        (1, "down", "parameters", 2, 4_000_000),
        (1, "up", "scores", 2, 300),
        (2, "down", "parameters", 1, 2_000_000),
        (2, "up", "scores", 2, 300),
    ]
    assert len(times) == 2
    assert [row.payloads for row in summary(tmp_path / "audit.jsonl", "general")[0]] == [1]
    with console.out.capture() as captured:
        command.show(tmp_path)
    text = captured.get()
    assert "4 MB" in text
    assert " 20" in text  # a year, not seconds since 1970
    assert "parameters" in text
