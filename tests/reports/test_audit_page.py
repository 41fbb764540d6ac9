"""The page of an audit log: what left, under which policy, verified or not, and nothing of a stranger's as markup."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from html import unescape
from pathlib import Path

import pytest

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import Audit
from grandrounds.federation.payloads import KINDS
from grandrounds.federation.policy import Policy
from grandrounds.reports import kinds
from grandrounds.reports.audit_log import START, AuditLog
from grandrounds.reports.audit_page import moment, write_audit_page
from tests.cli.commands import run
from tests.reports.pages import elements, outside_links, words
from tests.reports.scripts import SCRIPTS

DIGEST = sha256(b"content").hexdigest()


def log_of(folder: Path, *records: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    audit = Audit(folder / "audit.jsonl")
    for record in records:
        audit.write(**record)
    audit.close()
    return folder / "audit.jsonl"


def payload(direction: str = "up", size: int = 1_500, round: int = 1, **more: object) -> dict[str, object]:
    where = {"round": round, "exchange": 1, "site": "mercy", "direction": direction}
    return {**where, "kind": "parameters", "bytes": size, "digest": DIGEST, **more}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The log of a site that joined, answered two rounds and refused a third."""
    (tmp_path / "site.toml").write_text('name = "mercy"\ncoordinator = "localhost:8000"\n')
    return log_of(
        tmp_path / "private",
        {"event": "policy", "policy": Policy(allow=frozenset({"scores", "parameters"}), max_bytes=10**6).note()},
        {"event": "registered"},
        payload("down"),
        payload(),
        payload("down", round=2),
        payload(size=2_500, round=2),
        {"round": 3, "site": "mercy", "event": "refused: the site's policy does not let 'gradients' leave"},
        {"event": "bye"},
    )


def page_of(log: Path, **noted: str) -> str:
    write_audit_page(log, log.parent / "page.html", noted)
    return (log.parent / "page.html").read_text("utf-8")


def test_the_page_says_what_left_and_under_which_policy(site: Path) -> None:
    page = page_of(site)
    said = unescape(words(page))
    assert "What left site mercy" in said
    assert "4 kB 2 payloads left" not in said
    assert re.search(r"left 4 kB 2 payloads came 3 kB 2 payloads rounds in which something left 2 refused 1", said)
    assert "May leave: weights of the model (parameters) and counts of right and wrong answers (scores)." in said
    assert "One payload may have 1 MB at most." in said
    assert "2 left weights of the model (parameters) 1 2.5 kB" in said
    assert "why times refused: the site's policy does not let 'gradients' leave 1" in said
    assert said.count(DIGEST) == 4
    assert "the coordinator said that the run is over" in said


def test_the_page_is_verified_by_its_chain_and_by_the_heads_that_were_noted(site: Path) -> None:
    head = sha256(site.read_bytes().splitlines()[-1]).hexdigest()
    assert "Verified: the chain of 8 lines is whole, and has the head that was noted in the result" in words(
        page_of(site, **{"the result": head})
    )
    assert "No head that was noted elsewhere was compared" in words(page_of(site))
    assert head in page_of(site)
    assert "Not verified: the log was cut" in words(page_of(site, there="0" * 63 + "1"))


def test_an_edited_log_has_a_page_that_says_so(site: Path) -> None:
    lines = site.read_text().splitlines()
    lines[3] = lines[3].replace('"bytes": 1500', '"bytes": 15')
    site.write_text("".join(f"{line}\n" for line in lines))
    assert "Not verified: audit.jsonl:5: the chain is broken" in words(page_of(site))


def test_a_cut_end_is_told_by_the_command_too(site: Path, tmp_path: Path) -> None:
    shown = run("audit", "show", site.parent, "--html", tmp_path / "page.html").good().stdout
    assert shown == f"written to '{tmp_path / 'page.html'}'\n"
    site.write_bytes(site.read_bytes()[:-10])
    said = run("audit", "show", site.parent, "--html", tmp_path / "page.html").complaint()
    assert "Not verified: audit.jsonl:8: the last line is incomplete" in said
    assert said.endswith("the page says so")
    assert "the last line is incomplete" in (tmp_path / "page.html").read_text("utf-8")
    assert "there is no audit log" in run("audit", "show", tmp_path / "none", "--html", tmp_path / "x").complaint()


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_of_strangers_stay_text(script: str, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(f"name = {json.dumps(script)}\n")
    log = log_of(
        tmp_path / "private",
        {"event": "policy", "policy": {"allow": [script], "max_bytes": script}},
        payload(site=script, kind=script, digest=script),
        {"event": f"refused: {script}", "site": script},
        {"event": script},
    )
    page = page_of(log)
    assert not {"script", "svg", "img", "iframe", "link", "object", "base", "a", "math"} & set(elements(page))
    assert elements(page).count("style") == 1
    assert unescape(page).count(script) >= 7
    assert outside_links(page) == []
    assert "default-src 'none'" in unescape(page)
    assert "script-src" not in page


def test_a_coordinators_log_can_be_one_sites_alone(tmp_path: Path) -> None:
    log = log_of(tmp_path / "east" / "run", {"event": "started"}, payload(), payload(site="charity", size=7_000))
    (tmp_path / "east" / "founded.toml").write_text("")
    assert "What travelled: east" in words(page_of(log))
    assert "8.5 kB 2 payloads" in words(page_of(log))
    write_audit_page(log, tmp_path / "one.html", {}, "charity")
    one = words((tmp_path / "one.html").read_text("utf-8"))
    assert "What travelled: east, site charity" in one
    assert "7 kB 1 payload" in one
    assert "mercy" not in one


def test_every_kind_of_payload_has_words() -> None:
    assert kinds.KINDS.keys() == KINDS.keys()


def test_moments_are_dates(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"2[01] May 2033, \d\d:\d\d:20 .+", moment(2_000_224_400.5))
    assert moment(1e300) == "at an unknown time"


def test_a_log_is_read_on_from_where_it_was_left(tmp_path: Path) -> None:
    path = log_of(tmp_path, payload())
    log = AuditLog(path)
    assert [line.bytes for line in log.read()] == [1_500]
    assert log.read() == []
    log_of(tmp_path, payload(size=5), payload(size=6))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert [line.bytes for line in log.read()] == [5]
    assert log.behind > 0
    path.write_bytes(whole)
    assert [line.bytes for line in log.read(1 << 10)] == [6]
    assert (log.whole, log.lines, log.behind) == (True, 3, 0)
    assert log.head == sha256(whole.splitlines()[-1]).hexdigest()
    assert log.had(log.head)
    assert log.had(START)
    path.write_bytes(whole[:-100])
    assert log.read() == []
    assert log.problem == "lines were cut from its end while it was being read"


@pytest.mark.parametrize("line", ['{"previous": 1}', "[]", "5", "{", '{"x": ' + "[" * 100_000, '"previous"'])
def test_a_line_that_is_none_breaks_the_chain_and_nothing_else(line: str, tmp_path: Path) -> None:
    path = log_of(tmp_path, payload())
    with path.open("a") as file:
        file.write(f"{line}\n")
    log = AuditLog(path)
    list(log.rest())
    assert log.problem.startswith("audit.jsonl:2: ")


def test_a_page_of_a_log_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(GrandRoundsError, match="there is no audit log at"):
        write_audit_page(tmp_path / "audit.jsonl", tmp_path / "page.html", {})
