"""EOG: exact values, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import read
from grandrounds.data.formats.eog import parse
from grandrounds.data.formats.source import Warnings
from grandrounds.errors import DataError

ASPIRIN = "D1\tAspirin|It\tChemical\t0:6\t1:7\t0:1"
LIVER = "D2\tliver and renal failure\tDisease\t2\t6\t0"
RENAL = "D3\tliver and renal failure|renal failure\tDisease\t2:4\t6:6\t0:0"


def pair(label: str, one: str = ASPIRIN, other: str = LIVER) -> str:
    return f"\t{label}\tL2R\tNON-CROSS\t0-1\t2-6\t{one}\t{other}"


def line(*pairs: str) -> str:
    return "10\tAspirin caused liver and renal failure|It did ." + "".join(pairs) + "\n"


def documents(content: str, warnings: Warnings | None = None) -> list[Document]:
    return list(parse(content, Path("a.data"), Counter() if warnings is None else warnings))


def test_a_line_becomes_a_document():
    (found,) = documents(line(pair("1:CID:2"), pair("not_include", other=RENAL)))
    assert found == Document(
        "10",
        "Aspirin caused liver and renal failure It did .",
        (Span(0, 38), Span(39, 47)),
        (
            Mention(0, 7, "Chemical", "T1", "D1"),
            Mention(39, 41, "Chemical", "T2", "D1"),
            Mention(15, 38, "Disease", "T3", "D2|D3"),
            Mention(25, 38, "Disease", "T4", "D3"),
        ),
        (
            Entity("D1", "Chemical", (0, 1)),
            Entity("D2", "Disease", (2,)),
            Entity("D3", "Disease", (2, 3)),
        ),
        (Relation("CID", "D1", "D2"),),
        {"pairs": '[["D1","D2"]]', "not_include": '[["D1","D3"]]'},
    )


def test_unrelated_pairs_are_listed_without_a_relation():
    (found,) = documents(line(pair("1:NR:2", other=RENAL), pair("1:CID:2")))
    assert found.attributes == {"pairs": '[["D1","D3"],["D1","D2"]]'}
    assert found.relations == (Relation("CID", "D1", "D2"),)


def test_a_label_from_the_second_to_the_first_turns_the_pair():
    (found,) = documents(line(pair("2:GDA:1")))
    assert found.relations == (Relation("GDA", "D2", "D1"),)
    assert found.attributes["pairs"] == '[["D2","D1"]]'


def test_a_pair_may_have_several_relations_and_is_listed_once():
    warnings: Warnings = Counter()
    (found,) = documents(line(pair("1:A:2"), pair("1:B:2"), pair("1:A:2")), warnings)
    assert [relation.type for relation in found.relations] == ["A", "B"]
    assert found.attributes["pairs"] == '[["D1","D2"]]'
    assert warnings == {"pairs given twice with the same label, kept once": 1}


def test_a_mention_listed_twice_stays_so_in_its_entity():
    (found,) = documents(line(pair("1:NR:2", one="D1\tIt|It\tChemical\t6:6\t7:7\t1:1")))
    assert found.entity("D1").mentions == (0, 0)
    assert len(found.mentions) == 2


def test_a_name_that_is_part_of_its_tokens_is_counted():
    warnings: Warnings = Counter()
    (found,) = documents(line(pair("1:NR:2", one="D1\tAsp\tChemical\t0\t1\t0")), warnings)
    assert found.surface(found.mentions[0]) == "Aspirin"
    assert warnings == {"mentions named by a part of their tokens, of which they cover the whole": 1}


def test_files_and_folders_are_read_and_a_document_may_have_no_pair(tmp_path: Path):
    (tmp_path / "train.data").write_text(line(pair("1:CID:2")) + "\n11\tNothing here .\n")
    found = read(tmp_path, "eog")
    assert [len(document.mentions) for document in found.documents] == [3, 0]
    assert found.warnings == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (line("\t1:CID:2"), "3 tab-separated columns; expected id, sentences and 17 for every pair"),
        ("10\tA||B\n", "an empty sentence"),
        (line(pair("CID")), "pair 1: the label is not like 1:CID:2"),
        (line(pair("1:CID:2"), pair("1:NR:2")), "pair 2: the pair has another label before"),
        (line(pair("not_include"), pair("1:CID:2")), "pair 2: the pair has another label before"),
        (line(pair("1:NR:2", one="D1\tIt\tChemical\t6:0\t7\t1")), "1 names, 2 starts, 1 ends and 1 sentences"),
        (line(pair("1:NR:2", one="D1\tIt\tChemical\tx\t7\t1")), "not a number"),
        (line(pair("1:NR:2", one="D1\tIt\tChemical\t6\t7\t2")), "a mention in sentence 2; the document has 0-1"),
        (line(pair("1:NR:2", one="D1\tIt\tChemical\t6\t7\t0")), "tokens 6-7 is empty or not within sentence 0"),
        (line(pair("1:NR:2", one="D1\tIt\tChemical\t6\t6\t1")), "tokens 6-6 is empty or not within sentence 1"),
        (line(pair("1:NR:2", one="D1\tIt\tChemical\t7\t8\t1")), "mention 42-45 does not match the text there"),
        (
            line(pair("1:NR:2"), pair("1:NR:2", one="D1\tAspirin\tChemical\t0\t1\t0", other=RENAL)),
            "pair 2: an argument that an earlier pair describes otherwise",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_file_and_line(content: str, message: str):
    with pytest.raises(DataError) as refusal:
        documents("11\tFine .\n" + content)
    assert str(refusal.value).startswith("a.data:2: ")
    assert message in str(refusal.value)
    assert "Aspirin" not in str(refusal.value)
