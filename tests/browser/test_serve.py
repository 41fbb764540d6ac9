"""The page of `grandrounds serve`, as a person uses it."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grandrounds.pipeline.linking import Dictionary
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.web.access import Access, address
from grandrounds.web.limits import Limits as BodyLimits
from grandrounds.web.reading import Reader
from grandrounds.web.rest import Limits, application
from grandrounds.web.serving import guarded, listen
from tests.pipeline.models import sentence_relater, word_tagger
from tests.reports.scripts import SCRIPTS
from tests.web.asking import TOKEN, running_on

NOTE = """The ct scan showed stroke again . The aspirin eased the pain .
No fever was seen before heparin . The morphine eased the sepsis , and the insulin eased the edema despite pain .
The ecg was refused despite stroke , and no sepsis was seen before aspirin .
"""
GOLD = """T1\ttest 4 11\tct scan
T2\tproblem 19 25\tstroke
T3\ttreatment 38 45\taspirin
T4\tproblem 52 60\tthe pain
T5\ttest 34 37\tThe
R1\tTrIP Arg1:T3 Arg2:T4
R2\tTeRP Arg1:T1 Arg2:T2
"""
MARK = "#text mark"
CONTRAST = """kind => {
    const mark = document.querySelector("#text mark");
    mark.className = kind;
    const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const colour = (...layers) => {
        for (const layer of layers) { paint.fillStyle = layer; paint.fillRect(0, 0, 1, 1); }
        return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const light = rgb => {
        const [r, g, b] = rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const paper = getComputedStyle(document.body).backgroundColor, behind = getComputedStyle(mark).backgroundColor;
    const letters = light(colour(paper, getComputedStyle(mark.querySelector(".tag")).color));
    const ground = light(colour(paper, behind));
    return Math.max(letters, ground) / Math.min(letters, ground);
}"""


@pytest.fixture(scope="session")
def place(encoder_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("dictionary")
    names = "id\tname\nMESH:D001241\taspirin\nMESH:D006493\theparin\nMESH:D005334\tfever\n"
    (folder / "names.tsv").write_text(names)
    pipeline = Pipeline([word_tagger()], [sentence_relater(encoder_folder("bert"))])
    pipeline = replace(pipeline, dictionary=Dictionary.build(folder / "names.tsv", folder / "names.sqlite"))
    listening = listen("127.0.0.1", 0)
    port: int = listening.getsockname()[1]
    access = Access.of("127.0.0.1", port, TOKEN, open_paths=["/health"])
    app = guarded(application(Reader(pipeline), Limits()), access, BodyLimits())
    with running_on(listening, app):
        yield address("127.0.0.1", port, TOKEN)


def read(page: Any, note: str = NOTE) -> None:
    page.fill("#note", note)
    page.click("#read")
    page.wait_for_selector("#result:not([hidden]) mark")


def drop(page: Any, **files: str) -> None:
    page.evaluate(
        """files => {
            const data = new DataTransfer();
            for (const [name, content] of Object.entries(files)) data.items.add(new File([content], name));
            for (const kind of ["dragover", "drop"])
                document.body.dispatchEvent(
                    new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
        }""",
        {name.replace("_", "."): content for name, content in files.items()},
    )
    page.wait_for_selector("#result:not([hidden]) mark")


def shown(page: Any) -> list[str]:
    return [text.strip() for text in page.locator(MARK).all_inner_texts()]


def kept(page: Any) -> str:
    """The text without what the page wrote into it."""
    text: str = page.evaluate(
        "() => { const copy = document.getElementById('text').cloneNode(true);"
        " copy.querySelectorAll('.tag').forEach(tag => tag.remove()); return copy.textContent; }"
    )
    return text


def test_a_pasted_note_is_read_and_types_are_written_beside_the_colour(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    assert "token" not in page.url
    look(page, "serve-empty")
    read(page)
    assert shown(page)[:4] == ["ct scan test", "stroke problem", "aspirin treatment", "pain problem"]
    assert "fever problem · negated" in shown(page)
    assert page.locator("#status").inner_text().startswith("15 mentions and 10 relations were found in")
    assert page.locator("#relations button").count() == 10
    assert page.locator("svg.arcs .arc").count() == 10
    row = page.locator("#mentions tr", has_text="fever").inner_text()
    assert "negated (“No”)" in row
    assert "MESH:D005334" in row
    look(page, "serve-read")


def test_the_text_of_the_note_is_kept_character_for_character(place: str, opened: Any) -> None:
    page = opened(place)
    note = "\U0001f600 The aspirin <b>eased</b> & the pain .\n\n\U0001f9e0 No fever was seen before heparin ."
    read(page, note)
    assert kept(page) == note
    assert {"aspirin treatment", "pain problem", "fever problem · negated"} <= set(shown(page))


def test_pointing_at_a_relation_shows_its_arc_its_ends_and_its_evidence(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    read(page)
    relation = page.locator("#relations button", has_text="aspirin → pain")
    relation.hover()
    assert page.locator(f"{MARK}.head").inner_text().strip() == "aspirin treatment"
    assert page.locator(f"{MARK}.tail").inner_text().strip() == "pain problem"
    assert page.locator("#text .evidence").inner_text().startswith("The aspirin")
    assert page.locator("svg.arcs .arc.on text").text_content() == "TrIP"
    look(page, "serve-pointed")
    page.mouse.move(5, 5)
    assert page.locator(f"{MARK}.head").count() == 0


def test_a_held_relation_stays_until_it_is_let_go(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    read(page)
    relation = page.locator("#relations button").nth(2)
    relation.click()
    page.mouse.move(5, 5)
    assert relation.get_attribute("aria-pressed") == "true"
    assert page.locator(f"{MARK}.head").count() == 1
    look(page, "serve-held")
    page.keyboard.press("Escape")
    assert relation.get_attribute("aria-pressed") == "false"


def test_the_keyboard_alone_reads_points_and_holds(place: str, opened: Any) -> None:
    page = opened(place)
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.id") != "note":
        page.keyboard.press("Tab")
    page.keyboard.insert_text(NOTE)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#result:not([hidden]) mark")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('relation')"):
            break
    assert page.locator(f"{MARK}.head").count() == 1
    page.keyboard.press("Enter")
    assert page.locator("#relations [aria-pressed=true]").count() == 1


def test_a_filter_by_type_takes_mentions_and_their_relations_away(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    read(page)
    page.locator("#types label", has_text="treatment").locator("input").uncheck()
    assert not [text for text in shown(page) if "treatment" in text]
    assert page.locator("#relations button").count() == 0
    assert page.locator("#status").inner_text() == "10 mentions and 0 relations are shown."
    assert page.evaluate("document.activeElement.value") == "treatment"
    look(page, "serve-filtered")
    page.locator("#types label", has_text="treatment").locator("input").check()
    page.locator("#relation-types input").uncheck()
    assert page.locator("#relations button").count() == 0
    assert len(shown(page)) == 15


def test_the_slider_leaves_out_what_scores_lower(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    read(page)
    before = len(shown(page))
    page.locator("#score").focus()
    for _ in range(2):
        page.keyboard.press("End")
        page.keyboard.press("ArrowLeft")
    assert page.locator("#least").inner_text() == "0.99"
    assert 0 < len(shown(page)) < before
    look(page, "serve-slider")


def test_an_export_has_what_is_shown(place: str, opened: Any, tmp_path: Path) -> None:
    page = opened(place, accept_downloads=True)
    read(page)
    page.locator("#types label", has_text="test").locator("input").uncheck()
    for format, name in (("brat", "found-brat.zip"), ("bioc", "found.bioc.json"), ("json", "found.jsonl")):
        with page.expect_download() as saved:
            page.click(f"[data-format={format}]")
        assert saved.value.suggested_filename == name
        saved.value.save_as(tmp_path / name)
    line = json.loads((tmp_path / "found.jsonl").read_text())
    assert len(line["mentions"]) == 13
    assert len(line["relations"]) == 10
    packed = zipfile.ZipFile(tmp_path / "found-brat.zip")
    assert packed.read("note.txt").decode() == NOTE
    assert b"\ttest " not in packed.read("note.ann")


def test_dropped_files_are_compared_with_their_gold(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    drop(page, a_txt=NOTE, a_ann=GOLD)
    assert page.locator("#agreement").inner_text() == (
        "Against gold, before any filter: mentions: 3 in gold, 1 partly, 11 not in gold, 1 missed; "
        "relations: 0 in gold, 10 not in gold, 2 missed."
    )
    assert shown(page)[0] == "ct scan test · ✓ in gold"
    assert "The test · missed" in shown(page)
    assert page.locator("#relations .missed").count() == 2
    look(page, "serve-gold")
    page.uncheck("#gold")
    assert shown(page)[0] == "ct scan test"


def test_several_documents_are_chosen_by_name(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    drop(page, a_txt=NOTE, b_txt="The heparin eased the fever .")
    assert page.locator("#document option").all_inner_texts() == ["a.txt", "b.txt"]
    page.select_option("#document", "1")
    assert shown(page) == ["heparin treatment", "fever problem"]
    look(page, "serve-several")


def test_what_is_wrong_is_said(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    page.evaluate("() => { window.fetch = async () => { throw new TypeError('offline'); }; }")
    page.fill("#note", NOTE)
    page.click("#read")
    page.wait_for_selector("#problem:not([hidden])")
    assert page.locator("#problem").inner_text() == "The server does not answer; is it still running?"
    look(page, "serve-problem")


@pytest.mark.parametrize(("width", "dark"), [(400, False), (400, True), (1200, True)])
def test_it_fits_any_screen_in_light_and_dark(place: str, opened: Any, look: Any, width: int, dark: bool) -> None:
    page = opened(place, width=width, dark=dark)
    drop(page, a_txt=NOTE, a_ann=GOLD)
    page.locator("#relations button").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") is not dark
    look(page, f"serve-{width}-{'dark' if dark else 'light'}")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", ["", "head"])
def test_letters_stand_out_from_every_colour(place: str, opened: Any, dark: bool, kind: str) -> None:
    """WCAG 2.1, 1.4.3: 4.5 to 1."""
    page = opened(place, dark=dark)
    read(page)
    for hue in range(7):
        assert page.evaluate(CONTRAST, f"t{hue} {kind}") >= 4.5, f"t{hue}"


def test_it_prints_what_was_found_without_its_controls(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    read(page)
    page.emulate_media(media="print")
    assert not page.locator("#form").is_visible()
    assert page.locator("#mentions").is_visible()
    look(page, "serve-print")


def test_scripts_in_notes_labels_and_names_are_text(place: str, opened: Any) -> None:
    page, files = opened(place), dict[str, str]()
    for number, script in enumerate(SCRIPTS):
        files[f"{number}_txt"] = f"The aspirin eased the pain {script} ."
        files[f"{number}_ann"] = f"T1\t{''.join(script.split())} 0 3\tThe\n"
        files[f"{script}{number}_txt"] = script
    drop(page, **files)
    for number, script in enumerate(SCRIPTS):
        page.select_option("#document", str(2 * number))
        assert script in kept(page)
        assert f"The {''.join(script.split())} · missed" in shown(page)
        assert page.locator("#result :is(script, img, iframe, style, link, meta, base, object, math)").count() == 0
        page.select_option("#document", str(2 * number + 1))
        assert kept(page) == script


def test_the_page_on_rest_is_whole(place: str, opened: Any, look: Any) -> None:
    page = opened(place)
    page.click("text=REST")
    assert "/extract" in page.locator("main").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    look(page, "serve-rest")
