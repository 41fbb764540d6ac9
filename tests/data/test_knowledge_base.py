"""A knowledge base from tables: columns, headers, prefixes, several ids, and what is refused."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data import knowledge_base
from grandrounds.data.knowledge_base import ids, parse_facts, read_facts
from grandrounds.errors import ConfigError, DataError

PATH = Path("facts.tsv")


def test_facts_are_head_relation_and_tail(tmp_path: Path):
    path = tmp_path / "facts.tsv.gz"
    path.write_bytes(gzip.compress(b"# made by hand\nA\ttreats\tX\r\n\nA\tcauses\tX\nX\ttreats\tA\nA\ttreats\tX\n"))
    warnings: Counter[str] = Counter()
    facts = read_facts(path, warnings)
    assert facts.relations == {("A", "X"): ("treats", "causes"), ("X", "A"): ("treats",)}
    assert facts.facts == 3
    assert warnings == {knowledge_base.COMMENTS: 1, knowledge_base.TWICE: 1}


def test_columns_may_be_chosen_and_a_header_skipped():
    warnings: Counter[str] = Counter()
    lines = ["doc\trelation\ttail\thead", "30\ttreats\tX\tA"]
    assert parse_facts(lines, PATH, warnings, (4, 2, 3), header=True).relations == {("A", "X"): ("treats",)}
    assert warnings == {knowledge_base.HEADER: 1}


def test_each_of_several_ids_has_the_fact():
    facts = parse_facts(["A|MESH:B\ttreats\tMESH:X"], PATH, Counter())
    assert facts.relations == {("A", "MESH:X"): ("treats",), ("MESH:B", "MESH:X"): ("treats",)}


def test_prefixes_are_ignored_on_both_sides_if_asked_for():
    assert ids("MESH:D1|D1|-1|CHEBI:CHEBI:5", ignore_prefixes=True) == ("D1", "5")
    assert ids("MESH:D1|D1", ignore_prefixes=False) == ("MESH:D1", "D1")
    assert ids("odd:", ignore_prefixes=True) == ("odd:",)
    assert ids(None, ignore_prefixes=True) == ids("-", ignore_prefixes=False) == ()
    facts = parse_facts(["MESH:A\ttreats\tX", "A\ttreats\tOMIM:X"], PATH, Counter(), ignore_prefixes=True)
    assert facts.relations == {("A", "X"): ("treats",)}
    assert facts.ids("CHEBI:A") == ("A",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "secret\ttreats",
            "2 tab-separated columns where head id, relation and tail id should be; if there are others",
        ),
        ("30\ttreats\tsecret\tX", "4 tab-separated columns where head id, relation and tail id should be"),
        ("secret\t\tX", "a fact without head id, relation or tail id"),
        ("-\tsecret\tX", "a fact without head id, relation or tail id"),
        ("secret\tNA\tX", "a relation named NA, which is the absence of one; rename it"),
    ],
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(line: str, message: str):
    with pytest.raises(DataError, match=message) as caught:
        parse_facts(["A\ttreats\tX", line], PATH, Counter())
    assert str(caught.value).startswith("facts.tsv:2: ")
    assert "secret" not in str(caught.value)


def test_headings_are_no_fact():
    with pytest.raises(DataError, match=r"facts\.tsv:1: a line of headings, not of a fact; say that the file has a"):
        parse_facts(["Head\tRelation\tTail"], PATH, Counter())


def test_columns_that_can_not_be_are_refused():
    with pytest.raises(DataError, match=r"facts\.tsv:1: 3 tab-separated columns, but column 4 is to be read"):
        parse_facts(["A\ttreats\tX"], PATH, Counter(), (4, 2, 3))
    for columns in ((1, 2), (0, 1, 2), (1, 1, 2)):
        with pytest.raises(ConfigError, match="three different numbers"):
            parse_facts(["A\ttreats\tX"], PATH, Counter(), columns)


def test_a_file_without_facts_says_so(tmp_path: Path):
    with pytest.raises(DataError, match="no facts found"):
        parse_facts(["# nothing"], PATH, Counter())
    with pytest.raises(DataError, match="no such file; check the path"):
        read_facts(tmp_path / "gone.tsv", Counter())
