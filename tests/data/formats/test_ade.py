"""The ADE corpus: names placed by what a sentence's offsets have in common, files joined, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import ade, read
from grandrounds.errors import DataError

AE = Path("DRUG-AE.rel")
# The sentence starts at character 60 of its abstract.
TEXT = "Rash after penicillin, then fever and rash after penicillin 5 mg."
FIRST = f"7|{TEXT}|rash|98|102|penicillin|109|119\n"
SECOND = f"7|{TEXT}|fever|88|93|penicillin|109|119\n"
DOSE = f"7|{TEXT}|5 mg|120|124|penicillin|109|119\n"


def documents(content: str, warnings: Counter[str] | None = None, path: Path = AE) -> list[Document]:
    return list(ade.parse(content, path, Counter() if warnings is None else warnings))


def named(document: Document) -> list[tuple[int, str, str]]:
    return [(mention.start, document.surface(mention), mention.type) for mention in document.mentions]


def test_the_lines_of_a_sentence_become_one_document_with_each_name_in_its_place():
    warnings: Counter[str] = Counter()
    assert documents(FIRST + SECOND, warnings) == [
        Document(
            "DRUG-AE.rel:1",
            TEXT,
            (Span(0, 65),),
            (
                Mention(28, 33, "AdverseEffect", "T1"),
                Mention(38, 42, "AdverseEffect", "T2"),
                Mention(49, 59, "Drug", "T3"),
            ),
            (Entity("T1", "AdverseEffect", (0,)), Entity("T2", "AdverseEffect", (1,)), Entity("T3", "Drug", (2,))),
            (Relation("DRUG-AE", "T3", "T2", (2, 1)), Relation("DRUG-AE", "T3", "T1", (2, 0))),
            {"pmid": "7"},
        )
    ]
    assert warnings == {}


def test_a_name_that_occurs_twice_is_where_its_offset_says_in_any_case():
    (document,) = documents(FIRST + FIRST.replace("rash|98|102", "Rash|60|64"))
    assert [m for m in named(document) if m[2] == "AdverseEffect"] == [
        (0, "Rash", "AdverseEffect"),
        (38, "rash", "AdverseEffect"),
    ]
    (document,) = documents(FIRST.replace("penicillin|109|119\n", "PENICILLIN|71|81\n"))
    assert (11, "penicillin", "Drug") in named(document)


def test_names_may_lie_in_one_another_and_inside_of_words():
    text = "Lithium toxicity and azithromycin-induced lithium-like toxicity"
    content = f"7|{text}|Lithium toxicity|20|36|Lithium|20|27\n7|{text}|toxicity|75|83|thro|44|48\n"
    warnings: Counter[str] = Counter()
    (document,) = documents(content, warnings)
    assert named(document) == [
        (0, "Lithium", "Drug"),
        (0, "Lithium toxicity", "AdverseEffect"),
        (24, "thro", "Drug"),
        (55, "toxicity", "AdverseEffect"),
    ]
    assert warnings == {}


def test_what_is_not_found_is_left_out_with_its_relations_and_what_is_guessed_is_counted():
    warnings: Counter[str] = Counter()
    (document,) = documents(FIRST + SECOND.replace("|fever|", "|coma|"), warnings)
    assert [mention.type for mention in document.mentions] == ["AdverseEffect", "Drug"]
    assert len(document.relations) == 1
    assert warnings == {ade.LOST: 1, ade.UNRELATED: 1}
    warnings.clear()
    # No two offsets agree, so the first of each is as good as another; a whole word is better than a part of one.
    (document,) = documents("7|Penicillins, rash, rash, penicillin|rash|1|5|penicillin|1000|1010\n", warnings)
    assert named(document) == [(13, "rash", "AdverseEffect"), (25, "penicillin", "Drug")]
    assert warnings == {ade.GUESSED: 2}


def test_the_same_sentence_of_two_abstracts_and_the_same_line_twice_count_once():
    warnings: Counter[str] = Counter()
    other = FIRST.replace("7|", "8|", 1).replace("98|102", "398|402").replace("109|119", "409|419")
    (document,) = documents(FIRST + FIRST + other, warnings)
    assert len(document.mentions) == 2
    assert len(document.relations) == 1
    assert document.attributes == {"pmid": "7|8"}
    assert warnings == {ade.TWICE: 2, ade.AGAIN: 1}


def test_effects_doses_and_sentences_without_are_joined_when_read_together(tmp_path: Path):
    for name, content in (
        ("DRUG-AE.rel", FIRST + SECOND),
        ("DRUG-DOSE.rel", DOSE),
        ("ADE-NEG.txt", "9 NEG No harm.\n9 NEG No harm.\n9 NEG None | at all.\n"),
        ("README.txt", "about"),
    ):
        (tmp_path / name).write_text(content)
    corpus = read([tmp_path / "DRUG-AE.rel", tmp_path / "DRUG-DOSE.rel"], "ade")
    (both,) = corpus.documents
    assert named(both)[-2:] == [(49, "penicillin", "Drug"), (60, "5 mg", "Dose")]
    assert [(r.type, r.mentions) for r in both.relations] == [
        ("DRUG-AE", (2, 1)),
        ("DRUG-AE", (2, 0)),
        ("DRUG-DOSE", (2, 3)),
    ]
    assert corpus.warnings == {ade.AGAIN: 1}
    folder = read(tmp_path, "ade")
    assert [document.text for document in folder.documents] == ["No harm.", "None | at all.", TEXT]
    assert folder.documents[2].mentions == both.mentions
    assert folder.warnings == {
        ade.AGAIN: 2,
        "files or folders passed over, not ending in .rel or NEG.txt": 1,
    }


def test_a_sentence_may_hold_the_sign_that_parts_columns():
    (document,) = documents("7|Rash | fever from aspirin|fever|67|72|aspirin|78|85\n")
    assert document.text == "Rash | fever from aspirin"
    assert named(document) == [(7, "fever", "AdverseEffect"), (18, "aspirin", "Drug")]


def test_spaces_round_a_name_are_not_part_of_it():
    (document,) = documents(FIRST.replace("|rash|98|102|penicillin|109|119", "|rash |98|103| penicillin|108|119"))
    assert document == documents(FIRST)[0]


@pytest.mark.parametrize(
    "line", ["7|secret|rash|1|2|aspirin|3", "7|secret|rash|x|2|aspirin|3|4", "7|secret||1|2|aspirin|3|4", "secret"]
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(line: str):
    with pytest.raises(DataError, match=r"DRUG-AE\.rel:2: not a line of the ADE corpus; expected abstract\|") as caught:
        documents(FIRST + line + "\n")
    assert "secret" not in str(caught.value)


def test_a_file_whose_name_does_not_say_what_it_holds_is_refused():
    with pytest.raises(DataError, match=r"x\.rel:1: effects or doses\? the file's name must have AE or DOSE in it"):
        documents(FIRST, path=Path("x.rel"))
    assert documents("1 NEG Nothing.\n", path=Path("x.txt"))[0].text == "Nothing."
