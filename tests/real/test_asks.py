"""A hostile coordinator asks a real site on loopback what it likes: what leaves is in the site's log, line by line, and
nothing of it is beyond the terms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from grandrounds.deployment.heads import check_log, read_heads
from grandrounds.deployment.keys import read_private
from tests.cli.commands import start
from tests.forgeries import REPOSITORY
from tests.hosts import CANARIES, OwnLabels, everything
from tests.real.figures import note
from tests.rogue_coordinator import ASKS, GIVEN, HONEST, SITE

pytestmark = pytest.mark.real


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[OwnLabels]:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("pain 1 2 3 4\nthe 4 5 6 7\n")
    made = OwnLabels(tmp_path, "words", model={"encoder": "words", "vectors": str(vectors), "vocabulary": "public"})
    made.found()
    yield made
    made.close()


def test_a_hostile_coordinator_gets_what_the_terms_say_and_no_more(hosts: OwnLabels) -> None:
    out = hosts.folder / "asked.json"
    hostile = f"import sys\nsys.path.insert(0, {str(REPOSITORY)!r})\nfrom tests.rogue_coordinator import play\n"
    coordinator = start("coordinator", hosts.root, "--at-least", "1", prelude=f"{hostile}play({str(out)!r})\n")
    hosts.running["coordinator"] = coordinator
    site = hosts.join(SITE)
    assert coordinator.wait(1800).complaint() == "all was asked"
    asked = {one["ask"]: one["ended"] for one in json.loads(out.read_text())}
    wanted = {name: ended for name, (_, ended) in ASKS.items()}
    assert {name: said[: len(wanted[name])] for name, said in asked.items()} == wanted
    private = hosts.enrolment(SITE) / "private"
    lines = [json.loads(line) for line in (private / "audit.jsonl").read_text().splitlines()]
    left = [(line["kind"], line["round"], line["exchange"]) for line in lines if line.get("direction") == "up"]
    assert left == [("gradients", 1, 1)] * 2 + [("scores", 1, 2)] * 2 + [("gradients", 1, 1)]
    digests = [line["digest"] for line in lines if line.get("direction") == "up"]
    assert digests[0] == digests[1]  # the same bits, twice
    assert len(left) == list(asked.values()).count(GIVEN)
    (head,) = read_heads(private / "audit.head").values()
    assert check_log(private / "audit.jsonl", head, read_private(private / "site.key").public_key()) >= len(lines)
    site.kill()
    assert not (private / "secret").exists()
    assert not (private / "model").exists()
    seen = [out.read_bytes(), *everything(hosts.root / "run").values()]
    assert not [word for word in CANARIES for data in seen if word.encode() in data]
    note(
        "hostile coordinator",
        asks=len(ASKS) - HONEST,
        honest_asks_between=HONEST,
        left=[
            {what: line[what] for what in ("round", "exchange", "kind", "bytes")}
            for line in lines
            if line.get("direction") == "up"
        ],
        ended=asked,
    )
