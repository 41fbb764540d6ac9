"""i2b2 2010: exact values on hand-made files in the release's layouts, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import i2b2_2010, read
from grandrounds.errors import DataError

TEXT = "HISTORY OF PRESENT ILLNESS :\n\nAspirin  was given for Chest pain .\nA chest x-ray showed nothing .\n"
CON = (
    'c="aspirin" 3:0 3:0||t="treatment"\n'
    'c="chest pain" 3:4 3:5||t="problem"\n'
    'c="a chest x-ray" 4:0 4:2||t="test"\n'
    'c="chest pain" 3:4 3:5||t="problem"\n'
)
REL = (
    'c="aspirin" 3:0 3:0||r="TrAP"||c="chest pain" 3:4 3:5\n'
    'c="a chest x-ray" 4:0 4:2||r="TeCP"||c="chest pain" 3:4 3:5\n'
)


def lay_out(folder: Path, txt: str, con: str, rel: str, text: str = TEXT, con_text: str = CON, rel_text: str = REL):
    for place, content in ((txt, text), (con, con_text), (rel, rel_text)):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(content)
    return folder


def test_files_in_the_releases_folders_become_a_document(tmp_path: Path):
    lay_out(tmp_path, "beth/txt/record-13.txt", "beth/concept/record-13.con", "beth/rel/record-13.rel")
    corpus = read(tmp_path, "i2b2-2010")
    assert corpus.warnings == {"concepts given twice, kept once": 1}
    (document,) = corpus.documents
    assert document == Document(
        "record-13",
        TEXT,
        (Span(0, 28), Span(30, 65), Span(66, 96)),
        (
            Mention(30, 37, "treatment", "T1"),
            Mention(53, 63, "problem", "T2"),
            Mention(66, 79, "test", "T3"),
        ),
        (Entity("T1", "treatment", (0,)), Entity("T2", "problem", (1,)), Entity("T3", "test", (2,))),
        (Relation("TrAP", "T1", "T2", (0, 1)), Relation("TeCP", "T3", "T2", (2, 1))),
        {"hospital": "beth"},
    )
    assert document.surface(document.mentions[1]) == "Chest pain"


def test_files_beside_one_another_and_in_the_test_releases_folders_are_found(tmp_path: Path):
    flat = lay_out(tmp_path / "flat", "a.txt", "a.con", "a.rel")
    test = lay_out(tmp_path / "test", "test_data/a.txt", "standard/concepts/a.con", "standard/rel/a.rel")
    (one,) = read(flat, "i2b2-2010").documents
    other = read(test, "i2b2-2010")
    assert other.documents == (one,) == read(flat / "a.txt", "i2b2-2010").documents
    assert one.attributes == {}


def test_hospitals_with_the_same_file_names_are_kept_apart(tmp_path: Path):
    lay_out(tmp_path, "beth/txt/1.txt", "beth/concept/1.con", "beth/rel/1.rel")
    lay_out(tmp_path, "partners/txt/1.txt", "partners/concept/1.con", "partners/rel/1.rel", rel_text="")
    corpus = read(tmp_path, "i2b2-2010")
    assert [(d.attributes["hospital"], len(d.relations)) for d in corpus.documents] == [("beth", 2), ("partners", 0)]
    assert corpus.warnings["documents with the id of an earlier one"] == 1


def test_a_missing_partner_is_counted_or_refused(tmp_path: Path):
    (tmp_path / "1.txt").write_text(TEXT)
    assert read(tmp_path, "i2b2-2010").warnings == {
        "texts without concepts (.con), read as having none": 1,
        "texts without relations (.rel), read as having none": 1,
    }
    (tmp_path / "2.con").write_text(CON)
    with pytest.raises(DataError, match=r"2\.con: no text of this name found"):
        read(tmp_path, "i2b2-2010")
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "1.con").write_text("")
    (tmp_path / "x" / "y" / "1.con").write_text("")
    with pytest.raises(DataError, match=r"1\.txt: 2 \.con files may belong to this text"):
        read(tmp_path, "i2b2-2010")


def test_concepts_alone_are_enough_for_tagging(tmp_path: Path):
    lay_out(tmp_path, "beth/txt/1.txt", "beth/concept/1.con", "beth/rel/1.rel")
    with_relations = read(tmp_path, "i2b2-2010").documents[0]
    (tmp_path / "beth/rel/1.rel").unlink()
    corpus = read(tmp_path, "i2b2-2010")
    assert corpus.documents == (replace(with_relations, relations=()),)
    assert corpus.warnings["texts without relations (.rel), read as having none"] == 1
    assert all(corpus.documents[0].sentence_of(mention) is not None for mention in with_relations.mentions)


AST_TEXT = (
    "No fever , possible pneumonia .\nMother had asthma ; dyspnea on exertion ; return for bleeding ; Chest pain .\n"
)
AST = (
    'c="fever" 1:1 1:1||t="problem"||a="absent"\n'
    'c="pneumonia" 1:4 1:4||t="problem"||a="possible"\n'
    'c="asthma" 2:2 2:2||t="problem"||a="associated_with_someone_else"\n'
    'c="dyspnea" 2:4 2:4||t="problem"||a="conditional"\n'
    'c="bleeding" 2:10 2:10||t="problem"||a="hypothetical"\n'
    'c="chest pain" 2:12 2:13||t="problem"||a="present"\n'
)


def asserted(folder: Path, ast: str) -> Path:
    concepts = "".join(line.rpartition("||")[0] + "\n" for line in AST.splitlines())
    lay_out(folder, "beth/txt/a.txt", "beth/concept/a.con", "beth/rel/a.rel", AST_TEXT, concepts, "")
    (folder / "beth/ast").mkdir()
    (folder / "beth/ast/a.ast").write_text(ast)
    return folder


def test_assertions_become_attributes_of_their_mentions(tmp_path: Path):
    corpus = read(asserted(tmp_path, AST), "i2b2-2010")
    assert corpus.warnings == {}
    (document,) = corpus.documents
    assert [(document.surface(m), m.attributes["assertion"]) for m in document.mentions] == [
        ("fever", "absent"),
        ("pneumonia", "possible"),
        ("asthma", "associated_with_someone_else"),
        ("dyspnea", "conditional"),
        ("bleeding", "hypothetical"),
        ("Chest pain", "present"),
    ]


def test_of_two_assertions_of_a_problem_the_first_is_kept_and_the_other_counted(tmp_path: Path):
    twice = AST + 'c="fever" 1:1 1:1||t="problem"||a="present"\nc="fever" 1:1 1:1||t="problem"||a="absent"\n'
    corpus = read(asserted(tmp_path, twice), "i2b2-2010")
    assert corpus.warnings == {"assertions that contradict an earlier one, which was kept": 1}
    assert corpus.documents[0].mentions[0].attributes == {"assertion": "absent"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('c="fever" 1:1 1:1||t="problem"', "not an assertion line; expected c="),
        (
            'c="fever" 1:1 1:1||t="problem"||a="negative"',
            "an assertion that i2b2-2010 does not have; it has present, abs",
        ),
        (
            'c="no" 1:0 1:0||t="problem"||a="absent"',
            "an assertion of the concept 0-2, which the .con file does not have",
        ),
        ('c="cough" 1:1 1:1||t="problem"||a="absent"', "mention 3-8 does not match the text there"),
    ],
)
def test_a_bad_assertion_is_named_by_file_and_line(line: str, message: str, tmp_path: Path):
    with pytest.raises(DataError, match=message) as caught:
        read(asserted(tmp_path, AST + line + "\n"), "i2b2-2010")
    assert "a.ast:7: " in str(caught.value)


def test_assertions_without_a_text_are_refused(tmp_path: Path):
    (asserted(tmp_path, AST) / "b.ast").write_text("")
    with pytest.raises(DataError, match=r"b\.ast: no text of this name found"):
        read(tmp_path, "i2b2-2010")


def test_concepts_may_hold_quotes_and_cross_lines(tmp_path: Path):
    lay_out(
        tmp_path, "a.txt", "a.con", "a.rel",
        'Has "bad"\nlungs today .\nEnd .\n', 'c=""bad" lungs" 1:1 2:0||t="problem"\n', "",
    )  # fmt: skip
    (document,) = read(tmp_path, "i2b2-2010").documents
    assert document.surface(document.mentions[0]) == '"bad"\nlungs'
    assert document.sentences == (Span(0, 23), Span(24, 29))


@pytest.mark.parametrize(
    ("file", "line", "old", "new", "message"),
    [
        ("con", 2, 'c="chest pain" 3:4', 'c="chest ache" 3:4', "mention 53-63 does not match the text there"),
        ("con", 2, "3:4 3:5", "3:4 3:6", r"mention 53-65 does not match the text there \(10 characters expected, 12"),
        ("con", 2, "3:4 3:5", "3:5 3:4", "inverted offsets 3:5 to 3:4"),
        ("con", 2, "3:4 3:5", "3:4 3:50", "line:token offsets outside the text, which has 5 lines"),
        ("con", 2, "3:4 3:5", "0:4 0:5", "line:token offsets outside the text"),
        ("con", 2, "3:4 3:5", "30:4 30:5", "line:token offsets outside the text"),
        ("con", 2, '||t="problem"', "", 'not a concept line; expected c="'),
        ("rel", 1, '||r="TrAP"', "", 'not a relation line; expected c="'),
    ],
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(file, line, old, new, message, tmp_path: Path):
    changed = {"con": CON, "rel": REL}
    assert old in changed[file]
    changed[file] = changed[file].replace(old, new, 1)
    lay_out(tmp_path, "a.txt", "a.con", "a.rel", TEXT, changed["con"], changed["rel"])
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, "i2b2-2010")
    assert f"a.{file}:{line}: " in str(caught.value)
    assert "chest" not in str(caught.value).lower().replace("problem", "")


def test_a_relation_with_a_concept_that_is_not_listed_is_counted(tmp_path: Path):
    rel = REL.replace('"chest pain" 3:4 3:5', '"pain" 3:5 3:5', 1)
    lay_out(tmp_path, "a.txt", "a.con", "a.rel", TEXT, CON, rel)
    corpus = read(tmp_path, "i2b2-2010")
    assert len(corpus.documents[0].relations) == 1
    assert corpus.warnings == {i2b2_2010.UNPLACED: 1, "concepts given twice, kept once": 1}
