"""The pages of runs and sites: what they say of a folder, as it grows, and that nothing else gets out or in."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Message

from grandrounds.errors import ConfigError
from grandrounds.federation.audit import Audit
from grandrounds.federation.files import LOCK, lock
from grandrounds.federation.policy import Policy
from grandrounds.web.view.following import find_place
from tests.reports.fixture_runs import write_run
from tests.reports.pages import elements, outside_links, words
from tests.reports.scripts import SCRIPTS
from tests.web.asking import AUTHORISED, BEARER, raw
from tests.web.views import looking, showing

TERMS = '[privacy]\nunit = "example"\nepsilon = 8.0\ndelta = 1e-5\n'
STRANGE = {"script", "img", "iframe", "object", "base", "a", "math", "body", "link", "meta", "style", "template"}
PATHS = [
    "/static/../view.html",
    "/static/%2e%2e/audit.jsonl",
    "/static/..%2f..%2fconfig.toml",
    "/static/view.css/../../metrics.jsonl",
    "/static//etc/passwd",
    "/static/templates/view.html",
    "/static/view.js%00",
    "/audit.jsonl",
    "/config.toml",
    "/metrics.jsonl",
    "/model/model.safetensors",
    "/private/site.key",
    "/..",
    "/%2e%2e/site.toml",
    "/events/",
    "/events/../config.toml",
    "/EVENTS",
    "//events",
    "/report.html",
    "/?token=../../x",
]


def add(folder: Path, *records: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    log = Audit(folder / "audit.jsonl")
    for record in records:
        log.write(**record)
    log.close()
    return folder


def payload(direction: str, site: str = "mercy", round: int = 1, size: int = 1500, **more: Any) -> dict[str, Any]:
    where = {"round": round, "exchange": 1, "site": site, "direction": direction}
    return {**where, "kind": "parameters", "bytes": size, "digest": "0" * 64, **more}


def presence(folder: Path, **sites: dict[str, Any]) -> None:
    nobody = {"online": False, "seen": 0.0, "asked": 0.0, "answered": 0.0, "doing": "", "refused": ""}
    held = {"time": time.time(), "sites": {name: {**nobody, **state} for name, state in sites.items()}}
    (folder / "presence.json").write_text(json.dumps(held))


def participants(folder: Path, **examples: int) -> None:
    rows = [{"name": name, "documents": 3, "examples": n, "labels": {}} for name, n in examples.items()]
    shares = {name: n / sum(examples.values()) for name, n in examples.items()}
    held = {"sites": rows, "shares": shares, "left_out": ["east"]}
    (folder / "sites.json").write_text(json.dumps(held))


def page_of(folder: Path, alone: Path | None = None) -> str:
    """What is between the page's head and its end."""
    asked = looking(folder, alone).get("/")
    assert asked.status_code == 200
    return asked.text.partition("<main>")[2].rpartition("</main>")[0]


def said(folder: Path, alone: Path | None = None) -> str:
    return unescape(words(page_of(folder, alone)))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Five of ten rounds are done; round 6 is under way, or was when it stopped."""
    folder = write_run(tmp_path / "east", finished=False, number=2, site="mercy")
    participants(folder, **{"mercy-01": 300, "mercy-02": 100})
    asked = [payload("down", f"mercy-{i:02d}", 6) for i in (1, 2)]
    return add(folder, {"event": "started"}, *asked, payload("up", "mercy-01", 6, 2500))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An enrolment whose site has answered one round and refused the next."""
    (tmp_path / "site.toml").write_text('name = "mercy"\ncoordinator = "localhost:8000"\n')
    policy = Policy(allow=frozenset({"parameters", "scores"}), max_bytes=10**6).note()
    add(
        tmp_path / "private",
        {"event": "policy", "policy": policy},
        payload("down"),
        {**payload("up"), "steps": 12, "examples": 96},
        payload("down", round=2),
        {"round": 2, "exchange": 1, "site": "mercy", "event": "refused: no 'gradients' here"},
    )
    return tmp_path


@pytest.fixture
def held() -> Iterator[Any]:
    """Locks a folder, as the process that runs in it does."""
    files: list[Any] = []

    def hold(folder: Path) -> None:
        files.append(lock(folder / LOCK))
        assert files[-1] is not None

    yield hold
    for file in files:
        file.close()


def test_a_run_under_way_says_what_it_does(run: Path, held: Any) -> None:
    held(run)
    page = said(run)
    assert "fedavg on sentence_re Run east · seed 1 running – round 6 of 10" in page
    assert "rounds done 5 of 10" in page
    assert "mercy-01 answered" in page
    assert "mercy-02 asked never 100 25.0% 0 B 1.5 kB" in page
    assert "Without part in this run: east." in page
    assert "Round 6 is under way" in page
    assert "about 62 s to go" in page
    assert "weights of the model (parameters): 2.5 kB" in page
    assert "site why last in round times" not in page


def test_a_stopped_run_says_how_to_go_on(run: Path) -> None:
    assert "stopped after 5 rounds; the same command with --resume goes on" in said(run)
    for number in (0, 4, 5):
        (run / "checkpoints" / f"round-{number:05d}").mkdir(parents=True)
    state = {"record": {"round": 5, "best_round": 4}}
    (run / "checkpoints" / "round-00005" / "state.json").write_text(json.dumps(state))
    page = page_of(run)
    assert "--resume goes on after round 5" in words(page)
    assert "A ring marks round 4" in words(page)
    assert page.count('class="ring s1"') == 1


def test_who_was_heard_of_and_sent_nothing_did_not_take_part(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", finished=False, number=2)
    add(run, payload("down", "north"), {"event": "refused: no", "site": "north", "round": 1}, payload("up", "south"))
    page = said(run)
    assert "north sent nothing" in page
    assert "south took part" in page


def test_a_finished_run_is_checked_against_the_head_in_its_result(tmp_path: Path) -> None:
    folder = add(tmp_path / "run", {"event": "started"}, payload("up"))
    write_run(tmp_path / "other", number=2)
    for path in (tmp_path / "other").iterdir():
        shutil.copy(path, folder)
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps(result | {"audit_head": "1" * 64}))
    assert "Not verified: the log was cut or its last line edited: result.json has" in said(folder)
    log = Audit(folder / "audit.jsonl")
    (folder / "result.json").write_text(json.dumps(result | {"audit_head": log.head}))
    log.close()
    page = said(folder)
    assert "Verified: the chain of 2 lines is whole, and has the head that was noted in result.json." in page
    assert "finished" in page
    assert "rounds done 10 of 10" in page


def test_sites_between_hosts_are_online_away_refused_or_not_yet_here(run: Path, held: Any) -> None:
    held(run)
    now = time.time()
    presence(
        run,
        **{
            "mercy-01": {"online": True, "seen": now, "doing": "train", "asked": now},
            "mercy-02": {"seen": now - 60},
            "north": {"refused": "site 'north' runs another version", "seen": now},
            "south": {},
        },
    )
    page = said(run)
    assert "sites online 1 of 4" in page
    assert "mercy-01 working (train)" in page
    assert "mercy-02 away" in page
    assert "north refused site 'north' runs another version" in page
    assert "south not yet here never" in page


def test_before_anything_is_written_the_page_waits(tmp_path: Path, held: Any) -> None:
    (tmp_path / "founded.toml").write_text('name = "east"\n')
    assert "not begun" in said(tmp_path)
    (tmp_path / "run").mkdir()
    presence(tmp_path / "run", mercy={"online": True, "seen": time.time()})
    held(tmp_path / "run")
    assert "running – waiting for the sites" in said(tmp_path)
    assert "mercy online" in said(tmp_path)


def test_what_each_site_reaches_stands_beside_what_it_reaches_alone(tmp_path: Path) -> None:
    def learners(f1: float) -> dict[str, Any]:
        return {"f1": f1, "per_class": {}, "learners": {"mercy-01": {"f1": f1}, "mercy-02": {"f1": f1 / 2}}}

    together = write_run(tmp_path / "fedner", algorithm="fedner", f1=0.8, number=2, scored=learners)
    alone = write_run(tmp_path / "alone", algorithm="local_only", f1=0.6, number=2, scored=learners)
    page = said(together, alone)
    assert "site F1 in the federation alone difference mercy-01 0.800 0.600 +0.200 mercy-02 0.400 0.300 +0.100" in page
    assert "Thin lines are the sites' own models." in page
    assert "alone difference" not in said(together)
    with pytest.raises(ConfigError):
        looking(tmp_path / "none")


def test_spent_epsilon_is_shown_with_what_is_left(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", finished=False, number=1)
    with (folder / "config.toml").open("a") as config:
        config.write('\n[privacy]\nunit = "patient"\nepsilon = 8.0\ndelta = 1e-5\n')
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[-1]["epsilon"] = {"site-01": 2.5}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = said(folder)
    assert "By patient: a site may spend epsilon 8.0 at delta 1e-05 in this run." in page
    assert "site-01 2.5 5.5" in page


def test_a_sites_page_says_what_left_beside_its_policy(site: Path) -> None:
    page = said(site)
    assert "Site mercy What left this hospital, and when" in page
    assert "left 1.5 kB 1 payload came 3 kB 2 payloads rounds in which something left 1 refused 1" in page
    assert "weights of the model (parameters) may leave" in page
    assert "counts of right and wrong answers (scores) may leave never left 0 0 B 0 B" in page
    assert "Nothing else may leave. One payload may have 1 MB at most." in page
    assert "weights of the model (1.5 kB), after 12 steps of training on 96 examples" in page
    assert "nothing refused: no 'gradients' here weights of the model (1.5 kB)" in page
    assert page == said(site / "private")
    assert page == said(site / "private" / "audit.jsonl")


def test_a_policy_that_changed_shows_what_may_leave_no_more(site: Path) -> None:
    add(site / "private", {"event": "policy", "policy": Policy(allow=frozenset({"scores"})).note()})
    page = said(site)
    assert "weights of the model (parameters) not any more" in page
    assert "It was changed 1 time" in page


def test_a_sites_ledger_says_what_is_spent_and_left(site: Path) -> None:
    (site / "terms").mkdir()
    (site / "terms" / "federation.toml").write_text(TERMS)
    ledger = Audit(site / "private" / "privacy.jsonl")
    for _ in range(2):
        ledger.write(event="spent", unit="example", noise=1.0, rate=0.01, steps=500)
    ledger.close()
    page = said(site)
    assert "Noise was drawn 2 times. Epsilon 1.83 is spent" in page  # 1000 steps: docs/results/accountants.json
    assert "6.17 left of the 8 that the federation allows" in page
    add(site / "private", {"event": "policy", "policy": Policy(epsilon=2.0).note()})
    assert "0.171 left of the 2 that this site's policy allows" in said(site)


def test_a_stream_brings_what_changed_and_nothing_else(run: Path) -> None:
    with (
        showing(run) as place,
        httpx.stream("GET", f"{place.partition('?')[0]}events", headers=BEARER, timeout=30) as stream,
    ):
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        first = parts_of(lines)
        assert list(first)[:3] == ["head", "figures", "sites"]
        add(run, {"round": 6, "exchange": 1, "site": "mercy-02", "event": "late: no answer within 3 s"})
        then = parts_of(lines)
        assert "late: no answer within 3 s" in then["stopped"]
        assert {"head", "figures", "scores"}.isdisjoint(then)


def parts_of(lines: Iterator[str]) -> dict[str, str]:
    data = next(line for line in lines if line.startswith("data: "))
    found: dict[str, str] = json.loads(data.removeprefix("data: "))["parts"]
    return found


def test_a_run_that_is_started_over_is_followed_anew(run: Path) -> None:
    client = looking(run)
    client.get("/")
    shutil.rmtree(run)
    write_run(run, finished=False, number=2, algorithm="fedatt")
    add(run, {"event": "started"})
    deadline = time.monotonic() + 20
    while "fedatt on" not in (page := unescape(words(client.get("/").text))):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "No head that was noted elsewhere was compared" in page
    assert "mercy" not in page


def test_an_edited_log_and_an_edited_file_are_told(run: Path) -> None:
    log = run / "audit.jsonl"
    log.write_text(log.read_text().replace('"bytes": 2500', '"bytes": 25', 1) + '{"event": "x", "previous": "0"}\n')
    (run / "metrics.jsonl").write_text('{"round": "<b>"}\n')
    page = said(run)
    assert "Not verified: audit.jsonl:5: the chain is broken" in page
    assert "metrics.jsonl:1" in page
    assert page.count("Refused, rejected, late") == 1


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_in_names_labels_and_refusals_stay_text(script: str, run: Path, site: Path, held: Any) -> None:
    held(run)
    participants(run, **{script: 5, "mercy-01": 5})
    presence(run, **{script: {"online": True, "doing": script}, "north": {"refused": script}})
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["lost"] = {script: script}
        line["test"]["baseline"] = script
        line["test"]["learners"] = {script: {"f1": 0.5}}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    further = [
        payload("up", script, 6, kind=script),
        {"event": f"refused: {script}", "site": script, "round": 6},
        {"event": script, "site": script},
    ]
    add(run, *further)
    add(site / "private", {"event": "policy", "policy": {"allow": [script], "max_bytes": script}}, *further)
    for page in (page_of(run), page_of(site)):
        assert STRANGE.isdisjoint(elements(page))
        assert unescape(page).count(script) >= 4
        assert outside_links(page) == []


@pytest.mark.parametrize("path", PATHS)
def test_a_path_trick_gets_nothing(path: str, run: Path) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    status, said = raw("GET", path, AUTHORISED, receive, looking(run).app)
    assert status in (401, 404)
    assert b"mercy" not in said
    assert b"root:" not in said


def test_without_the_token_nothing_is_seen(run: Path) -> None:
    client = looking(run)
    for path in ("/", "/events"):
        assert client.get(path, headers={"Authorization": "Bearer x"}).status_code == 401
    assert client.post("/", content="x").status_code == 405
    assert client.get("/").headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no run's folder, no federation's and no site's enrolment"):
        find_place(tmp_path)
    with pytest.raises(ConfigError):
        find_place(tmp_path / "none")
