"""The page of `grandrounds view`: a real federation on loopback, seen while it goes on and afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from grandrounds.federation.audit import Audit
from tests.hosts import Hosts, until
from tests.reports.fixture_runs import write_run
from tests.reports.scripts import SCRIPTS
from tests.web.views import showing

ROUNDS = 10


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Callable[[str], Path]) -> Iterator[Hosts]:
    """mercy's policy lets no weights leave."""
    folder = tmp_path_factory.mktemp("federation")
    made = Hosts(folder, encoder_folder("bert"), federation__rounds=ROUNDS, federation__absence=4).found()
    (folder / "policy.toml").write_text('allow = ["scores", "done"]\nmax_bytes = 5_000_000\n')
    yield made
    made.close()


@pytest.fixture(scope="module")
def ended(hosts: Hosts) -> Hosts:
    assert (hosts.root / "run" / "result.json").exists(), "the test that runs the federation comes first"
    return hosts


def words(page: Any, part: str) -> str:
    return " ".join(page.locator(f"#part-{part}").inner_text().split())


def row(page: Any, part: str, site: str) -> str:
    return " ".join(page.locator(f"#part-{part} tr", has_text=site).first.inner_text().split())


def test_one_killed_and_one_refused_are_seen_live(hosts: Hosts, opened: Any, look: Any) -> None:
    hosts.join("charity")
    coordinator = hosts.coordinate("--view")
    until(lambda: "the run's page: " in coordinator.said(), 120)
    place = re.findall(r"the run's page: (\S+)", coordinator.said())[0]
    page = opened(place)
    assert "token" not in page.url
    page.wait_for_selector("#part-sites .state >> text=not yet here", timeout=90_000)
    assert "waiting for the sites" in words(page, "head")
    page.wait_for_selector("#part-sites tr:has-text('charity') .state.good", timeout=90_000)
    look(page, "view-waiting")
    hosts.join("general")
    hosts.join("mercy", "--policy", hosts.folder / "policy.toml")
    page.wait_for_selector(f"#part-head >> text=/round [2-9] of {ROUNDS}/", timeout=120_000)
    assert "running" in words(page, "head")
    hosts.running["general"].kill()
    page.wait_for_selector("#part-timeline rect.open", timeout=30_000)
    look(page, "view-live")
    page.wait_for_selector("#part-stopped >> text=cut off: not seen for", timeout=60_000)
    page.wait_for_selector("#part-sites tr:has-text('general') >> text=away", timeout=60_000)
    assert "refused: the site's policy does not let 'parameters' leave" in row(page, "stopped", "mercy")
    assert "general cut off" in row(page, "stopped", "general")
    assert re.search(r"charity (online|working)", row(page, "sites", "charity"))
    assert "--resume goes on after round" in words(page, "audit")
    look(page, "view-live-late")
    page.set_viewport_size({"width": 400, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    look(page, "view-live-400")
    page.close()
    coordinator.wait(300).good()


def test_an_ended_run_says_how_it_ended(ended: Hosts, opened: Any, look: Any) -> None:
    with showing(ended.root) as place:
        page = opened(place)
        assert "finished" in words(page, "head")
        assert f"{ROUNDS} of {ROUNDS}" in words(page, "figures")
        assert re.search(r"charity took part \d\d:\d\d:\d\d", row(page, "sites", "charity"))
        assert "Verified: the chain of" in words(page, "audit")
        page.locator("summary", has_text="Round by round in numbers").click()
        assert page.locator("#part-scores details tr").count() == ROUNDS + 1
        assert page.locator("#part-scores svg.chart .dot").count() == ROUNDS
        look(page, "view-ended")


@pytest.mark.parametrize("site", ["charity", "mercy"])
def test_a_sites_own_page_says_what_left_beside_its_policy(ended: Hosts, opened: Any, look: Any, site: str) -> None:
    with showing(ended.enrolment(site)) as place:
        page = opened(place)
        assert words(page, "head").startswith(f"Site {site}")
        said = words(page, "rounds")
        if site == "charity":
            assert "weights of the model (parameters) may leave" in words(page, "policy")
            assert re.search(
                rf"{ROUNDS} \d\d:\d\d:\d\d weights of the model \([\d.]+ kB\), after \d+ steps? of training", said
            )
        else:
            assert "counts of right and wrong answers (scores) may leave never left" in words(page, "policy")
            assert "One payload may have 5 MB at most." in words(page, "policy")
            assert "nothing refused: the site's policy does not let 'parameters' leave" in said
        look(page, f"view-site-{site}")


@pytest.mark.parametrize(("width", "dark"), [(400, False), (400, True), (1200, True)])
@pytest.mark.parametrize("what", ["run", "site"])
def test_it_fits_any_screen_in_light_and_dark(
    ended: Hosts, opened: Any, look: Any, what: str, width: int, dark: bool
) -> None:
    with showing(ended.root if what == "run" else ended.enrolment("charity")) as place:
        page = opened(place, width=width, dark=dark)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") is not dark
        for figure in page.locator("#part-scores figure").all():
            assert figure.evaluate("box => box.scrollWidth <= box.clientWidth && box.clientHeight < 320")
        look(page, f"view-{what}-{width}-{'dark' if dark else 'light'}")


def test_it_prints(ended: Hosts, opened: Any, look: Any) -> None:
    with showing(ended.root) as place:
        page = opened(place)
        page.emulate_media(media="print")
        assert page.locator("#part-log").is_visible()
        look(page, "view-print")


def test_a_page_without_its_server_says_so(ended: Hosts, chromium: Any, look: Any) -> None:
    with showing(ended.root) as place:
        page = chromium.new_context().new_page()  # a lost server is an error on the console
        page.goto(place)
        page.wait_for_selector("#part-log td")
    page.wait_for_selector("#lost:not([hidden])", timeout=20_000)
    assert page.locator("#part-log td").count() > 20
    look(page, "view-lost")
    page.context.close()


def test_a_folded_table_that_was_opened_stays_open(tmp_path: Path, opened: Any) -> None:
    run = write_run(tmp_path / "run", finished=False)
    with showing(run) as place:
        page = opened(place)
        page.locator("summary").click()
        lines = (run / "metrics.jsonl").read_text().splitlines()
        with (run / "metrics.jsonl").open("a") as file:
            file.write(lines[-1].replace('"round": 5', '"round": 6') + "\n")
        page.wait_for_selector("#part-scores details tbody tr:nth-child(6)", state="attached", timeout=30_000)
        assert page.locator("#part-scores details").get_attribute("open") == ""


def test_scripts_of_strangers_are_text(tmp_path: Path, opened: Any) -> None:
    log = Audit(tmp_path / "audit.jsonl")
    with showing(tmp_path) as place:
        page = opened(place)
        for script in SCRIPTS:
            log.write(round=1, site=script, event=f"refused: {script}")
        page.wait_for_selector(f"#part-stopped tbody tr:nth-child({len(SCRIPTS)})", timeout=30_000)
        shown = page.locator("#part-stopped").inner_text()
        assert [script for script in SCRIPTS if shown.count(script) < 2] == []
        assert page.locator(".part :is(script, img, iframe, a, link, meta, base, object, math, style)").count() == 0
    log.close()
