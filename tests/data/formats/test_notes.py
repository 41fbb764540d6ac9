"""Notes from JSON lines, from MIMIC-III's table and from plain folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Mention, Span
from grandrounds.data.formats import read, write
from grandrounds.errors import DataError

HEADER = "ROW_ID,SUBJECT_ID,HADM_ID,CHARTDATE,CHARTTIME,STORETIME,CATEGORY,DESCRIPTION,CGID,ISERROR,TEXT"


def row(id: int, patient: str, category: str, error: str, text: str) -> str:
    quoted = text.replace('"', '""')
    return f'{id},{patient},{100 + id},2151-08-04,,,"{category}","Report",,{error},"{quoted}"'


def mimic(folder: Path, *rows: str) -> Path:
    path = folder / "NOTEEVENTS.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def test_mimic_gives_discharge_summaries_by_patient_and_counts_the_rest(tmp_path: Path) -> None:
    path = mimic(
        tmp_path,
        row(1, "22", "Discharge summary", "", 'Service: "ADU"\n\nHe is well, [**Name**]. Home.\n'),
        row(2, "22", "Nursing", "", "Slept."),
        row(3, "23", "Discharge summary", "1", "Wrong."),
        row(4, "24", "Discharge summary", "", "Plan:\nRest."),
        row(5, "25", "Discharge summary", "", "  "),
    )
    corpus = read(path, "mimic-notes")
    assert [(d.id, d.attributes) for d in corpus.documents] == [
        ("1", {"patient": "22", "stay": "101"}),
        ("4", {"patient": "24", "stay": "104"}),
    ]
    first = corpus.documents[0]
    assert first.text == 'Service: "ADU"\n\nHe is well, [**Name**]. Home.\n'
    assert [first.surface(span) for span in first.sentences] == [
        "Service:",
        '"ADU"',
        "He is well, [**Name**].",
        "Home.",
    ]
    assert corpus.warnings == {
        "notes of other categories, left out": 1,
        "notes marked as an error, left out": 1,
        "notes without text, left out": 1,
    }
    assert [d.id for d in read(path, "mimic-notes", category="nursing").documents] == ["2"]


@pytest.mark.parametrize(
    ("error", "taken"),
    [("0", 1), ("0.0", 1), (" ", 1), ("NA", 1), ("nan", 1), ("\\N", 1), ("f", 1), ("1.0", 0), ("yes", 0)],
)
def test_what_mimic_marks_as_an_error_is_read_whatever_hands_the_table_went_through(
    tmp_path: Path, error: str, taken: int
) -> None:
    path = mimic(tmp_path, *(row(i, "2", "Discharge summary", marked, "Well.") for i, marked in enumerate(["", error])))
    corpus = read(path, "mimic-notes")
    assert (len(corpus.documents) - 1, sum(corpus.warnings.values())) == (taken, 1 - taken)


def test_where_no_note_is_of_the_category_it_is_said_what_there_was(tmp_path: Path) -> None:
    path = mimic(tmp_path, row(1, "2", "Nursing", "", "secret"), row(2, "2", "Discharge summary", "", "secret"))
    with pytest.raises(DataError, match=r"no documents found.*There were: 2 notes of other categories, left out"):
        read(path, "mimic-notes", category="Discharge")


def test_a_long_mimic_note_is_read_and_the_file_is_never_held_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read at once"))
    text = "Stable. " * 30_000  # beyond csv's own limit of 131,072 characters
    corpus = read(mimic(tmp_path, row(1, "22", "Discharge summary", "", text)), "mimic-notes")
    assert corpus.documents[0].text == text


@pytest.mark.parametrize(
    ("lines", "line", "reported"),
    [
        (["ROW_ID,TEXT", "1,secret"], 1, "SUBJECT_ID"),
        ([HEADER, row(1, "2", "Discharge summary", "", "a\nb"), "3,secret"], 4, "2 columns"),
        ([HEADER, row(1, "2", "Nursing", "", "a\nb"), '3,2,,,,,"Discharge summary,x,,,"secret'], 4, "quote"),
        ([HEADER, row(1, "", "Discharge summary", "", "secret")], 2, "SUBJECT_ID"),
    ],
)
def test_a_broken_table_is_told_by_line_and_without_its_text(
    tmp_path: Path, lines: list[str], line: int, reported: str
) -> None:
    path = tmp_path / "NOTEEVENTS.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read(path, "mimic-notes")
    assert f"NOTEEVENTS.csv:{line}" in str(caught.value)
    assert reported in str(caught.value)
    assert "secret" not in str(caught.value)


def test_json_lines_give_text_id_and_plain_fields(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    notes = [
        {"id": 7, "specialty": "Allergy", "patient": 12, "text": "PLAN: Rest."},
        {"text": "Well.", "tags": ["a"], "urgent": True, "ward": None},
        {"id": "x", "text": " "},
    ]
    path.write_text("\n".join(map(json.dumps, notes)) + "\n", encoding="utf-8")
    corpus = read(path, "notes-json")
    assert [(d.id, d.attributes) for d in corpus.documents] == [
        ("7", {"specialty": "Allergy", "patient": "12"}),
        ("notes-2", {"urgent": "true"}),
    ]
    assert corpus.documents[0].sentences == ((0, 5), (6, 11))
    assert corpus.warnings == {"notes without text, left out": 1, "fields that are lists or objects, left out": 1}


@pytest.mark.parametrize("line", ['{"id": "secret"}', '{"text": 5, "x": "secret"}', '{"text": "secret"', '["secret"]'])
def test_a_broken_line_is_told_by_its_number_alone(tmp_path: Path, line: str) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text(f'{{"text": "Well."}}\n{line}\n', encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read(path, "notes-json")
    assert "notes.jsonl:2" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_notes_are_written_a_sentence_a_line_and_read_again(tmp_path: Path) -> None:
    text = "PLAN:  Rest\nat home.\n1. Aspirin"
    documents = [
        Document("a", text, mentions=(Mention(24, 31, "drug", "T1"),)),
        Document("b", " \n"),
        Document("c", "Well. Home. So", (Span(0, 5), Span(6, 11))),
    ]
    left = write("lines", documents, tmp_path / "notes.txt")
    assert left == {
        "documents without text, left out": 1,
        "documents with text outside of their sentences, which was left out": 1,
        "mentions left out, which lines of text have no place for": 1,
    }
    written = (tmp_path / "notes.txt").read_text(encoding="utf-8")
    assert written == "PLAN:\nRest at home.\n1. Aspirin\n\nWell.\nHome.\n"
    again = read(tmp_path / "notes.txt", "lines").documents
    assert [(d.id, [d.surface(s) for s in d.sentences]) for d in again] == [
        ("notes-1", ["PLAN:", "Rest at home.", "1. Aspirin"]),
        ("notes-2", ["Well.", "Home."]),
    ]
    write("lines", again, tmp_path / "again.txt")
    assert (tmp_path / "again.txt").read_text(encoding="utf-8") == written


def test_a_folder_of_text_can_be_read_as_notes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("PLAN: Rest.\n1. Aspirin\n2. Fluids\n", encoding="utf-8")
    (document,) = read(tmp_path, "text", breaks="clinical").documents
    assert [document.surface(s) for s in document.sentences] == ["PLAN:", "Rest.", "1. Aspirin", "2. Fluids"]


def test_a_patient_is_the_same_however_a_table_wrote_the_number_and_a_gap_is_none(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    values = ['"12"', "12", "12.0", '" 12 "', "NaN", '""', '"  "', "null", "1.5"]
    path.write_text("".join(f'{{"text": "Well.", "patient": {value}}}\n' for value in values))
    found = [document.attributes.get("patient") for document in read(path, "notes-json").documents]
    assert found == ["12"] * 4 + [None] * 4 + ["1.5"]


def test_lines_of_text_say_that_patients_are_lost(tmp_path: Path) -> None:
    documents = [Document("1", "Well.", attributes={"patient": "7"}), Document("2", "Well.")]
    lost = "documents that no longer say whose they are: lines of text have no place for a patient"
    assert write("lines", documents, tmp_path / "notes.txt") == {lost: 1}


def test_a_lone_carriage_return_in_a_row_is_told_as_one(tmp_path: Path) -> None:
    path = mimic(tmp_path, row(1, "2", "Discharge summary", "", "Well."))
    path.write_bytes(path.read_bytes() + b"2,3,4,,,,Discharge summary,Report,,,half\rhalf\n")
    with pytest.raises(DataError, match="a row that a lone carriage return breaks") as reported:
        read(path, "mimic-notes")
    assert "half" not in str(reported.value)
