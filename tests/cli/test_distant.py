"""`grandrounds data distant`: from facts and notes to instances."""

from __future__ import annotations

from pathlib import Path

import pytest

from grandrounds.data.formats import read
from tests.cli.commands import run

NOTES = (
    "7|t|Aspirin for pain, not for fever.\n"
    "7\t0\t7\tAspirin\tDrug\tMESH:D1\n"
    "7\t12\t16\tpain\tProblem\tMESH:D2|MESH:D9\n"
    "7\t26\t31\tfever\tProblem\tMESH:D3\n"
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    kb, notes = tmp_path / "kb.tsv", tmp_path / "notes.txt"
    kb.write_text("D1\ttreats\tD9\n")
    notes.write_text(NOTES)
    return kb, notes


def test_data_distant_writes_instances_and_tells_what_they_are(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "deep" / "labelled.jsonl"
    wanted = ("data", "distant", "--kb", files[0], "--corpus", files[1], "--format", "pubtator", "--out", out)
    reported = run(*wanted, "--ignore-prefixes", "--json").json()
    assert (reported["instances"], reported["relation"], reported["bags"]) == (2, {"NA": 1, "treats": 1}, 2)
    assert (reported["ids"], reported["warnings"]) == ("compared without prefixes", {})
    first, second = read(out, "opennre").documents
    assert [mention.concept for mention in first.mentions] == ["D1", "D9"]
    assert [second.surface(mention) for mention in second.mentions] == ["Aspirin", "fever"]
    said = run(*wanted, "--ignore-prefixes").good().stdout
    assert f"2 instances in {out}; ids were compared without prefixes" in said
    assert "relation: treats" in said
    assert "If only one of them has prefixes" in run(*wanted).complaint()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--columns", "4,2"), "--columns takes the numbers of the columns of head, relation and tail"),
        (("--columns", "4,2,3"), "kb.tsv:1: 3 tab-separated columns, but column 4 is to be read"),
        (("--types", "Drug"), "--types takes the types of head and tail with a colon between them"),
        (("--na-ratio", "inf", "--ignore-prefixes"), "the NA ratio must be a number of 0 or more"),
    ],
)
def test_data_distant_refuses_in_one_sentence(
    files: tuple[Path, Path], tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    wanted = ("--kb", files[0], "--corpus", files[1], "--format", "pubtator", "--out", tmp_path / "o.jsonl")
    assert said in run("data", "distant", *wanted, *more).complaint()
    assert not (tmp_path / "o.jsonl").exists()
