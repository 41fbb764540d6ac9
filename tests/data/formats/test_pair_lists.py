"""CDR's hypernym rule on PubTator files: a list of pairs that are no examples."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from grandrounds.data.formats import read
from grandrounds.data.pairs import candidate_pairs
from grandrounds.errors import DataError

FILE = (
    "10|t|Aspirin, nephritis, kidney disease and lithium\n"
    "10\t0\t7\tAspirin\tChemical\tD1\n"
    "10\t9\t18\tnephritis\tDisease\tD2\n"
    "10\t20\t34\tkidney disease\tDisease\tD3\n"
    "10\t39\t46\tlithium\tChemical\tD4\n"
    "10\tCID\tD1\tD2\n"
    "\n"
    "11|t|Aspirin and nephritis\n"
    "11\t0\t7\tAspirin\tChemical\tD1\n"
    "11\t12\t21\tnephritis\tDisease\tD2\n"
    "\n"
)
TYPES = {("Chemical", "Disease")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "train.txt").write_text(FILE)
    return tmp_path / "train.txt"


def test_listed_pairs_are_no_candidates_but_keep_their_mentions(file: Path):
    (file.parent / "hypernyms.tsv").write_text("10\tD1\tD3\n\n10\tD1\tD3\n")
    plain = read(file, "pubtator")
    corpus = read(file, "pubtator", not_include="hypernyms.tsv")
    assert corpus.warnings == {}
    assert candidate_pairs(plain.documents[0], TYPES) == (("D1", "D2"), ("D1", "D3"), ("D4", "D2"), ("D4", "D3"))
    first, second = corpus.documents
    assert candidate_pairs(first, TYPES) == (("D1", "D2"), ("D4", "D2"), ("D4", "D3"))
    assert first.attributes == {"not_include": '[["D1","D3"]]'}
    assert first.entities == plain.documents[0].entities
    assert second == plain.documents[1]


def test_the_list_may_be_gzipped_and_lie_elsewhere(file: Path, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("elsewhere") / "all.tsv.gz"
    path.write_bytes(gzip.compress(b"11\tD1\tD2\r\n"))
    corpus = read(file, "pubtator", not_include=str(path))
    assert [len(candidate_pairs(document, TYPES)) for document in corpus.documents] == [4, 0]


def test_lines_about_what_is_not_there_are_counted(file: Path):
    lines = ["12\tD1\tD2", "12\tD1\tD3", "10\tD1\tD9", "10\tD1\tD2", "10\tD4\tD3"]
    (file.parent / "list.tsv").write_text("\n".join(lines))
    corpus = read(file, "pubtator", not_include="list.tsv")
    assert corpus.warnings == {
        "lines of the list not_include about documents that this corpus file does not have": 2,
        "lines of the list not_include about entities that their document does not have": 1,
        "lines of the list not_include about related pairs, which stay included": 1,
    }
    assert candidate_pairs(corpus.documents[0], TYPES) == (("D1", "D2"), ("D1", "D3"), ("D4", "D2"))


@pytest.mark.parametrize("line", ["10\tD1", "10\tD1\tD3\tx", "10 D1 D3", "10\t\tD3", "\tD1\tD3"])
def test_bad_lines_are_named_by_file_and_line_but_not_shown(line: str, file: Path):
    path = file.parent / "list.tsv"
    path.write_text(f"10\tD1\tD3\n\n{line}\n")
    with pytest.raises(DataError, match=r"or an empty one; a line has 3: document, head, tail$") as caught:
        read(file, "pubtator", not_include="list.tsv")
    assert str(caught.value).startswith(f"{path}:3: {line.count(chr(9)) + 1} tab-separated columns")
    assert "D3" not in str(caught.value)


def test_a_list_that_is_not_there_says_so(file: Path):
    with pytest.raises(DataError, match=r"gone\.tsv: no such file; check the path"):
        read(file, "pubtator", not_include="gone.tsv")
