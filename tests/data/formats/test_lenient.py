"""Lenient reading: what can be read is, the rest is counted by kind and listed with its place."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.formats import each, read
from grandrounds.data.formats.source import Lenient, cure, kind, placed
from grandrounds.errors import DataError

PUBTATOR = (
    "1|t|Aspirin and pain\n"
    "1\t0\t7\tAspirin\tDrug\tD1\n"
    "1\t12\t15\tpain\tDisease\tD2\n"
    "1\t12\t16\tpain\tDisease\tD2\n"
    "2\t0\t7\tAspirin\tDrug\tD1\n"
    "1\t1\t8\tAspirin\tDrug\tD1\n"
    "1\tCID\tD1\tD2\n"
    "1\tCID\tD1\tD9\n"
)
OFFSETS = "mention n-n does not match the text there"
OTHER_ID = "a line with another id than the title above it"


def test_every_problem_is_counted_by_kind_and_the_first_are_listed(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_text(PUBTATOR)
    with pytest.raises(DataError, match=r"a\.txt:3: mention 12-15 does not match"):
        read(path, "pubtator")
    found = Lenient()
    (document,) = each("pubtator", [path], found)
    assert [document.surface(mention) for mention in document.mentions] == ["Aspirin", "pain"]
    assert len(document.relations) == 1
    assert found.kinds == {OFFSETS: 2, OTHER_ID: 1}
    assert [(Path(str(e.path)).name, e.line) for e in found.problems] == [("a.txt", 3), ("a.txt", 5), ("a.txt", 6)]
    assert found.warnings == {"relations with a concept that no mention has, left out": 1}
    corpus = read(path, "pubtator", lenient=True)
    assert corpus.documents == (document,)
    assert corpus.warnings == {f"left out: {OFFSETS}": 2, f"left out: {OTHER_ID}": 1, **found.warnings}


def test_at_most_a_thousand_are_kept_and_all_are_counted(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "1"}\n' * 1500 + '{"id": "1", "text": "a"}\n')
    found = Lenient()
    assert len(list(each("json", [path], found))) == 1
    assert found.kinds == {"document lacks 'text'": 1500}
    assert len(found.problems) == 1000


def test_a_file_that_ends_in_the_middle_gives_what_is_before_it_and_the_next_is_read(tmp_path: Path):
    row = {"title": "t", "sents": [["a"]], "vertexSet": []}
    whole = json.dumps([row, {}, row])
    (tmp_path / "a.json").write_text(whole[:-5])
    (tmp_path / "b.json").write_text(whole)
    found = Lenient()
    assert len(list(each("docred", [tmp_path], found))) == 1 + 2
    assert found.kinds == {"documents[n] lacks 'title'": 2, "not JSON at column n": 1}


@pytest.mark.parametrize(
    ("format", "name", "content", "documents", "left_out"),
    [
        ("opennre", "a.jsonl", "{}\n", 0, 1),
        ("nre", "a.txt", "a\tb\n", 0, 1),
        ("chemprot", "a.txt", '{"text": "a"}\n{"text": "<< a >> [[ b ]]", "label": "x"}\n', 1, 1),
        ("biobert-tsv", "a.tsv", "no mention\t1\n@GENE$ and @DISEASE$\t1\n", 1, 1),
        ("conll", "a.tsv", "Aspirin\tB-Drug\nfor\tX\npain\tB-Disease\n", 1, 1),
        ("eog", "a.data", "1\ta b\n2\n", 1, 1),
        ("notes-json", "a.jsonl", '{"text": "a"}\n[]\n', 1, 1),
        ("bioc-json", "a.json", '{"documents": [{}, {"id": "1", "passages": []}]}', 1, 1),
        ("pubannotation", "a.json", '[{}, {"text": "a", "denotations": [{}]}]', 1, 2),
        ("bere", "a.json", "[{}]", 0, 1),
        ("ade", "DRUG-AE.rel", "nothing\n1 NEG It did.\n", 1, 1),
    ],
)
def test_readers_leave_out_a_record_and_go_on(
    format: str, name: str, content: str, documents: int, left_out: int, tmp_path: Path
):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError):
        read(path, format)
    found = Lenient()
    assert len(list(each(format, [path], found))) == documents
    assert found.kinds.total() == left_out
    assert all(error.path for error in found.problems)


def test_in_brat_a_bad_line_goes_and_a_relation_without_its_mention_is_counted(tmp_path: Path):
    (tmp_path / "a.txt").write_text("Aspirin pain")
    (tmp_path / "a.ann").write_text("T1\tDrug 0 7\tAspirin\nT2\tX 8 99\tpain\nR1\tr Arg1:T1 Arg2:T2\nA1\tSure R1\n")
    found = Lenient()
    (document,) = each("brat", [tmp_path], found)
    assert (len(document.mentions), len(document.relations)) == (1, 0)
    assert found.kinds.total() == 1
    assert found.warnings == {
        "relations of a mention that the file does not have, left out": 1,
        "attributes of relations that were left out": 1,
    }


def test_a_problem_gets_its_place_once():
    with pytest.raises(DataError, match=r"^a:3: x$"), placed(Path("b"), 7, Counter()):
        raise DataError("x", path="a", line=3)
    with pytest.raises(DataError, match=r"^b:7: x$"), placed(Path("b"), 7, Counter()):
        raise DataError("x", line=1)
    with pytest.raises(DataError, match=r"^b:1: x$"), placed(Path("b"), None, Counter()):
        raise DataError("x", line=1)


def test_kinds_have_no_numbers_details_or_cures():
    problem = "mention 1-8 does not match the text (7 characters; 6 there); check the offsets"
    assert kind(problem) == "mention n-n does not match the text"
    assert cure(problem) == "check the offsets"
