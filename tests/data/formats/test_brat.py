"""BRAT: exact values, the same bytes again, and what is refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import pieces, read, write
from grandrounds.data.formats.brat import parse, render
from grandrounds.errors import DataError, GrandRoundsError

TEXT = "Aspirin caused renal and\nliver failure. The drug was stopped.\n"
ANN = (
    "T1\tDrug 0 7\tAspirin\n"
    "T2\tProblem 15 20;31 38\trenal failure\n"
    "T3\tProblem 25 38\tliver failure\n"
    "T5\tDrug 40 48\tThe drug\n"
    "R1\tCauses Arg1:T1 Arg2:T2\n"
    "R7\tCauses Drug:T5 Harm:T3\n"
    "*\tEquiv T1 T5\n"
    "N1\tReference T1 MESH:D001241\tAspirin\n"
    "N2\tReference T2 MESH:D051437\n"
    "A1\tCertain T2\n"
    "A2\tDose T1 100 mg\n"
    "A3\tHedged R7\n"
    "E1\tStop:T5 Theme:T1\n"
    "A4\tNegated E1\n"
    "#1\tAnnotatorNotes T1\tsecond reader agrees\n"
)
KEPT = "E1\tStop:T5 Theme:T1\nA4\tNegated E1\n#1\tAnnotatorNotes T1\tsecond reader agrees"


def document(ann: str = ANN, warnings: Counter[str] | None = None) -> Document:
    return parse(TEXT, ann, "note", Path("note.ann"), Counter() if warnings is None else warnings)


def test_a_pair_of_files_becomes_a_document():
    warnings: Counter[str] = Counter()
    assert document(warnings=warnings) == Document(
        "note",
        TEXT,
        (Span(0, 39), Span(40, 61)),
        (
            Mention(0, 7, "Drug", "T1", "MESH:D001241", attributes={"concept_name": "Aspirin", "Dose": "100 mg"}),
            Mention(
                15, 38, "Problem", "T2", "MESH:D051437", (Span(15, 20), Span(31, 38)), attributes={"Certain": "yes"}
            ),
            Mention(25, 38, "Problem", "T3"),
            Mention(40, 48, "Drug", "T5"),
        ),
        (Entity("T1", "Drug", (0, 3)), Entity("T2", "Problem", (1,)), Entity("T3", "Problem", (2,))),
        (
            Relation("Causes", "T1", "T2", (0, 1)),
            Relation("Causes", "T1", "T3", (3, 2), {"brat_id": "R7", "brat_roles": "Drug Harm", "Hedged": "yes"}),
        ),
        {"brat": KEPT},
    )
    assert warnings == {
        pieces.CHOICES["keep"]: 1,
        "events kept for writing, of no other use here": 1,
        "attributes of events kept for writing, of no other use here": 1,
        "annotators' notes kept for writing, of no other use here": 1,
    }


def test_reading_what_was_written_gives_the_same_document_and_then_the_same_bytes():
    written = render(document(), Counter())
    assert document(written) == document()
    assert render(document(written), Counter()) == written
    assert sorted(line.split("\t", 1)[1] for line in written.splitlines()) == sorted(
        line.split("\t", 1)[1] for line in ANN.splitlines()
    )


def test_folders_nest_and_files_without_a_partner_are_told(tmp_path: Path):
    (tmp_path / "ward").mkdir()
    (tmp_path / "ward" / "note.txt").write_text(TEXT)
    (tmp_path / "ward" / "note.ann").write_text(ANN)
    (tmp_path / "bare.txt").write_text("No annotations.")
    (tmp_path / "annotation.conf").write_text("")
    corpus = read(tmp_path, "brat")
    assert [document.id for document in corpus.documents] == ["bare", "ward/note"]
    assert corpus.warnings["texts without annotations (.ann), read as having none"] == 1
    assert corpus.warnings["files passed over, neither .txt nor .ann"] == 1
    assert read(tmp_path / "ward" / "note.ann", "brat").documents[0].mentions == corpus.documents[1].mentions
    assert write("brat", corpus.documents, tmp_path / "out") == {}
    assert read(tmp_path / "out", "brat").documents == corpus.documents
    (tmp_path / "lost.ann").write_text(ANN)
    with pytest.raises(DataError, match=r"lost\.ann: no text beside these annotations"):
        read(tmp_path, "brat")


def test_documents_of_other_sources_are_written_with_what_brat_can_hold(tmp_path: Path):
    composite = Document(
        "a.tsv:1",
        "x y z",
        mentions=(Mention(0, 1, "My type", "m", "D1|D2"), Mention(2, 3, "B", "n", "D1"), Mention(4, 5, "B", "o", "D1")),
        entities=(Entity("D1", "B", (0, 1, 2)), Entity("D2", "B", (0,))),
        relations=(Relation("r", "D1", "D2"),),
    )
    warnings = write("brat", [composite], tmp_path)
    assert (tmp_path / "a.tsv_1.ann").read_text() == (
        "T1\tMy_type 0 1\tx\nT2\tB 2 3\ty\nT3\tB 4 5\tz\nR1\tr Arg1:T1 Arg2:T1\n*\tEquiv T2 T3\n"
        "N1\tReference T1 D1\nN2\tReference T1 D2\nN3\tReference T2 D1\nN4\tReference T3 D1\n"
    )
    assert warnings == {
        "document ids changed to be file names": 1,
        "mentions given new ids": 3,
        "types and names with white space, written with '_'": 1,
        "relations between entities, written between their first mentions": 1,
        "mentions of several entities, which Equiv can't express and would join": 1,
    }
    twins = [Document("a:1", "x"), Document("a/../1", "x"), Document("a?1", "x")]
    with pytest.raises(DataError, match="two documents would be written to the same file"):
        write("brat", twins, tmp_path)
    assert not (tmp_path.parent / "1.txt").exists()


def test_a_note_that_was_a_text_file_keeps_its_name(tmp_path: Path):
    note = Document("ward/a.txt", "No fever.", mentions=(Mention(3, 8, "problem", "T1"),))
    assert write("brat", [note], tmp_path) == {}
    assert sorted(path.name for path in (tmp_path / "ward").iterdir()) == ["a.ann", "a.txt"]
    with pytest.raises(DataError, match="two documents would be written to the same file"):
        write("brat", [note, replace(note, id="ward/a")], tmp_path)


def test_equivalences_that_share_a_mention_are_one_entity():
    entities = document(ANN.replace("*\tEquiv T1 T5\n", "*\tEquiv T2 T3\n*\tEquiv T5 T3\n")).entities
    assert [(entity.id, entity.mentions) for entity in entities] == [("T1", (0,)), ("T2", (1, 2, 3))]


def test_mentions_in_pieces_are_joined_where_that_is_chosen():
    warnings: Counter[str] = Counter()
    joined = parse(TEXT, ANN, "note", Path("note.ann"), warnings, discontinuous="join")
    assert joined.mentions[1] == replace(document().mentions[1], fragments=())
    assert joined.surface(joined.mentions[1]) == "renal and\nliver failure"
    assert replace(joined, mentions=document().mentions) == document()
    assert warnings[pieces.CHOICES["join"]] == 1


def test_mentions_in_pieces_are_left_out_where_that_is_chosen_and_all_that_refers_to_them():
    ann = ANN + "*\tEquiv T2 T3\nE2\tStop:T5 Theme:T2\nA5\tNegated E2\n#2\tAnnotatorNotes R1\twhy\n"
    warnings: Counter[str] = Counter()
    dropped = parse(TEXT, ann, "note", Path("note.ann"), warnings, discontinuous="drop")
    assert [mention.id for mention in dropped.mentions] == ["T1", "T3", "T5"]
    assert [(entity.id, entity.mentions) for entity in dropped.entities] == [("T1", (0, 2)), ("T3", (1,))]
    assert [relation.mentions for relation in dropped.relations] == [(2, 1)]
    assert dropped.attributes == {"brat": KEPT}
    assert warnings[pieces.CHOICES["drop"]] == warnings["relations of mentions left out, left out too"] == 1
    assert warnings["lines kept for writing that refer to what was left out, left out too"] == 3


@pytest.mark.parametrize("choice", ["join", "drop"])
def test_pieces_on_two_lines_with_nothing_between_them_are_whole(choice: str):
    warnings: Counter[str] = Counter()
    found = parse("bad\nback", "T1\tADR 0 3;4 8\tbad back\n", "x", Path("x"), warnings, discontinuous=choice)
    assert found.mentions == (Mention(0, 8, "ADR", "T1"),)
    assert warnings == {pieces.WHOLE: 1}


def test_what_to_do_with_pieces_is_checked(tmp_path: Path):
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(GrandRoundsError, match=r"unknown choice of discontinuous 'dropp'; did you mean 'drop'\?"):
        read(tmp_path, "brat", discontinuous="dropp")


def test_an_attribute_given_twice_is_counted():
    warnings: Counter[str] = Counter()
    again = document(ANN + "A9\tDose T1 5 mg\n", warnings)
    assert again.mentions[0].attributes["Dose"] == "100 mg"
    assert warnings["attributes given twice, of which the first was kept"] == 1


def test_breaks_are_checked():
    with pytest.raises(GrandRoundsError, match=r"unknown breaks 'lines'; did you mean 'line'\?"):
        parse(TEXT, ANN, "note", Path("note.ann"), Counter(), "lines")


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (1, "Drug 0 7", "Drug 1 8", "mention 1-8 does not match the text there"),
        (1, "Drug 0 7", "Drug 7 0", "mention 7-0 is empty, inverted or outside"),
        (1, "Drug 0 7", "Drug 0 7000", "mention 0-7000 is empty, inverted or outside"),
        (1, "Drug 0 7", "Drug 0 x", "the span of a mention is not two numbers"),
        (1, "\tAspirin\nT2", "\nT2", "not a mention line"),
        (2, "15 20;31 38", "15 33;31 38", "pieces 15-33 and 31-38 overlap"),
        (2, "15 20;31 38", "31 38;15 20", "pieces 31-38 and 15-20 overlap or turn back"),
        (2, "T2\tProblem", "T1\tProblem", "an id that an earlier line has"),
        (5, "Arg1:T1 ", "", "not a relation line"),
        (7, "Equiv T1 T5", "Equiv T1 T9", "refers to an id which the file does not have"),
        (7, "Equiv T1 T5", "Equiv T1", "not a line of a group"),
        (7, "Equiv T1 T5", "OVERLAP T1 T9", "refers to an id which the file does not have"),
        (8, "Reference T1", "Reference T9", "refers to an id which the file does not have"),
        (9, "Reference T2 MESH:D051437", "Reference T2", "not a normalisation line"),
        (10, "Certain T2", "Certain", "not an attribute line"),
        (13, "Stop:T5", "Stop", "not an event line"),
        (15, "#1", "?1", "a line that starts with none of T, R"),
    ],
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(line: int, old: str, new: str, message: str):
    assert old in ANN
    with pytest.raises(DataError, match=message) as caught:
        document(ANN.replace(old, new, 1))
    assert str(caught.value).startswith(f"note.ann:{line}: ")
    for private in ("spirin", "renal", "D001241"):
        assert private not in str(caught.value)


WRAPPED = (
    "T1\tDrug 0 7\tAspirin\n"
    "T2\tSymptom 16 22\tnausea\n"
    "E1\tSymptom:T2\n"
    "R1\tCAUSES Arg1:T1 Arg2:E1\t\n"
    "*\tOVERLAP T1 E1\n"
    "A1\tPolarity E1 NEG\n"
)


def test_an_event_that_only_wraps_its_trigger_is_the_triggers_mention() -> None:
    text = "Aspirin without nausea"
    warnings: Counter[str] = Counter()
    document = parse(text, WRAPPED, "a", Path("a.ann"), warnings)
    (relation,) = document.relations
    assert relation.mentions == (0, 1)
    assert document.mentions[1].attributes["Polarity"] == "NEG"
    assert warnings == {"groups of events or of another name than Equiv, kept for writing": 1}
    written = render(document, warnings)
    assert "E1\tSymptom:T2\n" in written
    assert "R1\tCAUSES Arg1:T1 Arg2:E1\n" in written
    assert "*\tOVERLAP T1 E1\n" in written
    assert parse(text, written, "a", Path("a.ann"), Counter()) == document


def test_a_second_event_of_a_trigger_and_one_of_another_type_are_kept_as_lines() -> None:
    warnings: Counter[str] = Counter()
    lines = WRAPPED + "E2\tSymptom:T2\nE3\tOther:T1\nR2\tCAUSES Arg1:E3 Arg2:E2\n"
    document = parse("Aspirin without nausea", lines, "a", Path("a.ann"), warnings)
    assert len(document.relations) == 1
    assert warnings["events kept for writing, of no other use here"] == 2
    assert warnings["relations between events kept for writing, of no other use here"] == 1
