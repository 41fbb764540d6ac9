"""A Chromium that Playwright drives, and pages that are watched: no error, and no request to another host."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HOW = "no Chromium: install one (Debian: apt install chromium) or name it by CHROMIUM=/path/to/chromium"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install 'grandrounds[browser]'")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.fail(HOW)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"],
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address: opened(place, width=400, dark=True). When the test ends, nothing may have gone wrong on it."""
    contexts, problems = list[Any](), list[str]()

    def open(place: str, width: int = 1200, height: int = 900, dark: bool = False, **more: Any) -> Any:
        scheme = "dark" if dark else "light"
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
        here = place.split("/")[2]
        page.on("request", lambda asked: problems.append(asked.url) if _leaves(asked.url, here) else None)
        page.goto(place)
        return page

    yield open
    for context in contexts:
        context.close()
    assert problems == []


def _leaves(url: str, here: str) -> bool:
    return not url.startswith((f"http://{here}/", "data:", f"blob:http://{here}/"))


@pytest.fixture
def look(request: pytest.FixtureRequest) -> Callable[[Any, str], None]:
    """Keeps a picture of a page under GRANDROUNDS_SCREENSHOTS, for people to look at."""

    def keep(page: Any, name: str) -> None:
        folder = os.environ.get("GRANDROUNDS_SCREENSHOTS")
        if folder:
            page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)

    return keep
