"""The format of a folder is found by trying readers; parts by names; what can't be told is asked about."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from grandrounds.data import detect as module
from grandrounds.data.detect import detect
from grandrounds.data.documents import Document
from grandrounds.data.formats import FORMATS, write
from grandrounds.errors import DataError
from tests.conftest import corpus


def documents(format: str, size: int = 8) -> list[Document]:
    made = [replace(document, attributes={}) for document in corpus(size)]
    if format == "pubtator":
        return [replace(d, id=str(1000 + i), text=f"{d.text}\n", relations=()) for i, d in enumerate(made)]
    if format == "opennre":
        return [d for d in made if len(d.mentions) == 2]
    return [replace(d, relations=()) for d in made] if format == "conll" else made


@pytest.mark.parametrize(
    ("format", "suffix"), [("pubtator", ".txt"), ("conll", ".tsv"), ("json", ".jsonl"), ("opennre", ".txt")]
)
def test_files_are_recognised_and_shared_out_by_their_names(format: str, suffix: str, tmp_path: Path) -> None:
    for name in ("x_TrainingSet", "x_devel", "x_test"):
        write(format, documents(format), tmp_path / f"{name}{suffix}")
    (tmp_path / "README.md").write_text("About.\n")
    (tmp_path / "labels.json").write_text("{}\n")
    found = detect(tmp_path)
    assert found.format == format
    assert {part: [path.name for path in paths] for part, paths in found.parts.items()} == {
        "train": [f"x_TrainingSet{suffix}"],
        "validation": [f"x_devel{suffix}"],
        "test": [f"x_test{suffix}"],
    }
    assert [path.name for path in found.passed_over] == ["README.md", "labels.json"]


def test_a_folder_format_is_the_folder_itself(tmp_path: Path) -> None:
    write("brat", documents("brat"), tmp_path / "notes")
    assert detect(tmp_path / "notes") == module.Detected("brat", {"train": [tmp_path / "notes"]}, [])
    write("brat", documents("brat"), tmp_path / "parts" / "train")
    write("brat", documents("brat"), tmp_path / "parts" / "test")
    parts = detect(tmp_path / "parts").parts
    assert parts == {part: [tmp_path / "parts" / part] for part in ("train", "test")}


def test_text_without_marks_is_notes_or_plain_text(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.txt").write_text("A note. It has two sentences.\n")
    with pytest.raises(DataError, match="known format"):  # a single text is no corpus
        detect(tmp_path / "a")
    (tmp_path / "a" / "two.txt").write_text("Another note.\n")
    assert detect(tmp_path / "a").format == "text"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "notes.jsonl").write_text("".join(json.dumps({"text": f"Note {i}."}) + "\n" for i in range(3)))
    assert detect(tmp_path / "b").format == "notes-json"


def test_large_files_are_tried_by_their_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLE", 2000)
    write("conll", documents("conll", 200), tmp_path / "c" / "all.conll")
    assert detect(tmp_path / "c").format == "conll"
    sentences = [{"title": f"t{i}", "sents": [["a", "b", "."]], "vertexSet": [], "labels": []} for i in range(400)]
    for sentence in sentences:
        sentence["vertexSet"] = [[{"name": "a", "pos": [0, 1], "sent_id": 0, "type": "X"}]]
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "dev.json").write_text(json.dumps(sentences, indent=1))
    found = detect(tmp_path / "d")
    assert (found.format, list(found.parts)) == ("docred", ["train"])
    (tmp_path / "z").mkdir()
    packed = gzip.compress((tmp_path / "c" / "all.conll").read_bytes())
    (tmp_path / "z" / "all.conll.gz").write_bytes(packed)
    assert detect(tmp_path / "z").format == "conll"


def test_of_many_files_none_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES", 5)
    for i in range(12):
        write("conll", documents("conll"), tmp_path / f"{i:02d}.conll")
    (tmp_path / "LICENSE").write_text("MIT\n")
    found = detect(tmp_path)
    assert (found.parts, found.passed_over) == ({"train": [tmp_path]}, [tmp_path / "LICENSE"])
    for i in range(12):
        (tmp_path / f"{i:02d}.conll").rename(tmp_path / f"{'test' if i % 3 else 'train'}-{i:02d}.conll")
    found = detect(tmp_path)
    assert {part: len(files) for part, files in found.parts.items()} == {"train": 4, "test": 8}


def test_folds_of_one_corpus_give_the_first(tmp_path: Path) -> None:
    for fold in ("1", "2"):
        write("conll", documents("conll"), tmp_path / fold / "train.tsv")
    found = detect(tmp_path)
    assert found.parts == {"train": [tmp_path / "1" / "train.tsv"]}
    assert found.passed_over == [tmp_path / "2"]


def test_what_can_not_be_told_is_one_sentence_with_the_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "model.bin").write_bytes(b"\x00\xff")
    with pytest.raises(DataError, match=r"known format \(pubtator, .*; name one with --format"):
        detect(tmp_path / "none")
    with pytest.raises(DataError, match="no such folder"):
        detect(tmp_path / "nowhere")
    write("conll", documents("conll"), tmp_path / "two" / "a" / "x.tsv")
    write("brat", documents("brat"), tmp_path / "two" / "b")
    with pytest.raises(DataError, match=r"a \(conll\), b \(brat\); name the folder of one"):
        detect(tmp_path / "two")
    monkeypatch.setitem(FORMATS, "twin", replace(FORMATS["conll"], name="twin"))
    with pytest.raises(DataError, match="this may be conll or twin; say which with --format"):
        detect(tmp_path / "two" / "a")
    assert detect(tmp_path / "two" / "a", "twin").format == "twin"


def test_a_format_that_is_named_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("pain B-problem\nfever\n")
    with pytest.raises(DataError, match=r"x\.tsv:2: 1 columns"):
        detect(tmp_path, "conll")
