"""Sites count, the coordinator merges: what leaves is a file that a policy allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grandrounds.federation.payloads import VocabularyCounts
from tests.cli.commands import run

NOTES = (
    "The patient was seen for fever and pain .",
    "Fever again , and pain after the fall .",
    "No fever , some pain .",
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for i, text in enumerate((*NOTES, *NOTES, "zanarq was seen by zanarq")):
        (folder / f"{i}.txt").write_text(text)
    (tmp_path / "policy.toml").write_text("vocabulary = 3\n")
    return tmp_path


def counted(site: Path, *more: str) -> Path:
    out = site / "charity.counts"
    run(
        "vocabulary", "count", site / "notes", "--format", "text", "--policy", site / "policy.toml", "--out", out, *more
    ).good()
    return out


def test_from_notes_to_a_vocabulary(site: Path) -> None:
    out = counted(site)
    assert b"fever" in out.read_bytes()
    assert b"zanar" not in out.read_bytes()
    about = run("vocabulary", "merge", out, "--size", "100", "--out", site / "vocab.txt", "--json").json()
    pieces = (site / "vocab.txt").read_text().splitlines()
    assert about["pieces"] == len(pieces) <= 100
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert {"fever", "pain"} <= set(pieces)


def test_whole_words_are_counted_and_merged_for_the_encoder_words(site: Path) -> None:
    out = counted(site, "--words")
    shown = run("vocabulary", "show", out, "--json").json()["counts"]
    assert shown == {".": 3, "fever": 3, "pain": 3}  # equal texts count once; other words are in two documents
    run("vocabulary", "merge", out, "--words", "--out", site / "words.txt").good()
    assert (site / "words.txt").read_text() == ".\nfever\npain\n"
    with_parts = run("vocabulary", "merge", counted(site), "--words", "--out", site / "words.txt")
    assert "these counts are of parts of words too: count whole words, with --words" in with_parts.complaint()


@pytest.mark.parametrize(
    ("policy", "more", "problem"),
    [
        ("", (), "the site's policy does not let words leave; it may say from how many documents on: vocabulary = 5"),
        ("vocabulary = 3", ("--documents", "2"), "lets words leave that 3 documents have, not those of 2"),
        ("vocabulary = 0", (), "greater than or equal to 1"),
        ('vocabulary = 3\nallow = ["scores"]', (), "does not let 'vocabulary_counts' leave"),
    ],
)
def test_without_the_policy_s_word_nothing_is_written(
    site: Path, policy: str, more: tuple[str, ...], problem: str
) -> None:
    (site / "policy.toml").write_text(policy)
    out = site / "charity.counts"
    notes = (site / "notes", "--format", "text", "--policy", site / "policy.toml", "--out", out)
    assert problem in run("vocabulary", "count", *notes, *more).complaint()
    assert not out.exists()


def test_the_policy_is_asked_before_anything_is_read(site: Path) -> None:
    (site / "policy.toml").write_text("")
    unread = (site / "none", "--format", "text", "--policy", site / "policy.toml", "--out", site / "charity.counts")
    assert "does not let words leave" in run("vocabulary", "count", *unread).complaint()
    assert run("vocabulary", "count", *unread, "--documents", "0").code == 2


def test_where_no_string_is_common_enough_that_is_said_and_nothing_written(site: Path) -> None:
    notes = (site / "notes", "--format", "text", "--policy", site / "policy.toml", "--out", site / "none.counts")
    said = run("vocabulary", "count", *notes, "--documents", "99").complaint()
    assert said.startswith("no word, nor a part of one, is in 99 of 4 documents")
    assert not (site / "none.counts").exists()
    (site / "none.counts").write_bytes(VocabularyCounts(99, {}).pack("fp32").to_bytes())
    said = run("vocabulary", "merge", site / "none.counts", "--out", site / "v.txt").complaint()
    assert said.startswith("the counts hold no string to learn word pieces from")
    assert not (site / "v.txt").exists()


def test_what_was_counted_can_be_looked_through(site: Path) -> None:
    for i in range(3):
        (site / "notes" / f"mark{i}.txt").write_text(f"[/{i}] fever")
    out = counted(site)
    shown = run("vocabulary", "show", out, "--json").json()
    assert shown["least"] == 3
    assert shown["counts"]["fever"] == 6  # equal notes count once
    assert list(shown["counts"].values()) == sorted(shown["counts"].values(), reverse=True)
    table = run("vocabulary", "show", out).good().stdout
    cells = [tuple(cell.strip() for cell in line.split("│")[1:3]) for line in table.splitlines()]
    assert {("fever", "6"), ("[", "3"), ("/", "3"), ("]", "3")} <= set(cells)


def test_what_is_no_count_is_said(site: Path) -> None:
    assert (
        "can't be read as vocabulary counts"
        in run("vocabulary", "merge", site / "policy.toml", "--out", site / "v.txt").complaint()
    )


def test_a_patient_s_notes_are_one_and_notes_of_nobody_are_told(tmp_path: Path) -> None:
    lines = [{"text": f"{text} zanarq", "patient": "7"} for text in NOTES]
    (tmp_path / "policy.toml").write_text("vocabulary = 3\n")
    path = tmp_path / "notes.jsonl"
    asked = (path, "--format", "notes-json", "--policy", tmp_path / "policy.toml", "--out", tmp_path / "a.counts")
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "is in 3 of 1 documents" in run("vocabulary", "count", *asked).complaint()
    path.write_text("".join(json.dumps({"text": line["text"]}) + "\n" for line in lines))
    counted = run("vocabulary", "count", *asked, "--json")
    assert "warning: 3 documents do not name their patient" in counted.stderr
    assert {key: counted.json()[key] for key in ("documents", "counted", "without_patient")} == {
        "documents": 3,
        "counted": 3,
        "without_patient": 3,
    }


def test_counts_of_one_site_twice_or_of_made_up_notes_are_refused(site: Path) -> None:
    out = counted(site)
    (site / "copy.counts").write_bytes(out.read_bytes())
    merged = run("vocabulary", "merge", out, site / "copy.counts", "--out", site / "vocab.txt")
    assert "holds the same counts as" in merged.complaint()
    made = (site / "notes", "--format", "synthetic", "--policy", site / "policy.toml", "--out", site / "b.counts")
    assert "a site counts documents of its own" in run("vocabulary", "count", *made).complaint()
