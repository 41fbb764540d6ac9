"""Sites count, the coordinator merges: what leaves is a file that a policy allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    about = run("vocabulary", "merge", out, out, "--size", "100", "--out", site / "vocab.txt", "--json").json()
    pieces = (site / "vocab.txt").read_text().splitlines()
    assert about["pieces"] == len(pieces) <= 100
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert {"fever", "pain"} <= set(pieces)
    both = (site / "vocab.txt", site / "vocab.txt", site / "notes", "--format", "text", "--json")
    compared = run("vocabulary", "compare", *both).json()
    assert compared["in_common"] == 1.0
    assert 1 <= compared["vocabularies"][0]["pieces_per_word"] < 3


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


def test_what_is_no_count_is_said(site: Path) -> None:
    assert (
        "can't be read as vocabulary counts"
        in run("vocabulary", "merge", site / "policy.toml", "--out", site / "v.txt").complaint()
    )
