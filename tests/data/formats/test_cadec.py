"""CADEC: the release's folders, mentions in pieces, offsets that do not fit, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Span
from grandrounds.data.formats import align, pieces, read
from grandrounds.data.formats.cadec import TWICE, parse
from grandrounds.errors import DataError, GrandRoundsError

TEXT = "I feel a bit drowsy & have a little blurred vision.\nSevere leg and back pain.\nLipitor was stopped.\n"
ANN = (
    "T1\tADR 9 19\tbit drowsy\n"
    "#1\tAnnotatorNotes T1\tagreed\n"
    "T2\tADR 29 50\tlittle blurred vision\n"
    "T3\tADR 52 62;72 76\tSevere leg pain\n"
    "T4\tADR 52 58;67 76\tSevere back pain\n"
    "T5\tDrug 78 85\tLipitor\n"
)


def document(ann: str = ANN, warnings: Counter[str] | None = None, discontinuous: str = "keep") -> Document:
    counted: Counter[str] = Counter() if warnings is None else warnings
    return parse(TEXT, ann, "LIPITOR.1", Path("LIPITOR.1.ann"), counted, discontinuous)


def test_a_post_becomes_a_document_that_knows_its_drug():
    warnings: Counter[str] = Counter()
    assert document(warnings=warnings) == Document(
        "LIPITOR.1",
        TEXT,
        (Span(0, 51), Span(52, 77), Span(78, 98)),
        (
            Mention(9, 19, "ADR", "T1"),
            Mention(29, 50, "ADR", "T2"),
            Mention(52, 76, "ADR", "T3", fragments=(Span(52, 62), Span(72, 76))),
            Mention(52, 76, "ADR", "T4", fragments=(Span(52, 58), Span(67, 76))),
            Mention(78, 85, "Drug", "T5"),
        ),
        tuple(Entity(f"T{i + 1}", "Drug" if i == 4 else "ADR", (i,)) for i in range(5)),
        attributes={"drug": "LIPITOR"},
    )
    assert warnings == {pieces.CHOICES["keep"]: 2, "annotators' notes left out": 1}


def test_pieces_are_joined_or_left_out_as_chosen():
    warnings: Counter[str] = Counter()
    joined = document(warnings=warnings, discontinuous="join")
    assert [(m.id, m.start, m.end, m.fragments) for m in joined.mentions[2:]] == [
        ("T3", 52, 76, ()),
        ("T5", 78, 85, ()),
    ]
    assert (warnings[pieces.CHOICES["join"]], warnings[TWICE]) == (2, 1)
    dropped = document(warnings=warnings, discontinuous="drop")
    assert [mention.id for mention in dropped.mentions] == ["T1", "T2", "T5"]
    assert warnings[pieces.CHOICES["drop"]] == 2


def test_mentions_that_do_not_fit_are_looked_for_nearby():
    warnings: Counter[str] = Counter()
    ann = (
        "T1\tADR 8 18\tbit drowsy\n"
        "T2\tADR 40 29\tlittle blurred vision\n"
        "T3\tADR 52 62;71 75\tSevere leg pain\n"
        "T4\tADR 9 19\tnausea\n"
        "T5\tADR 72 76;52 62\tpain Severe leg\n"
        "T6\tADR 52 58;58 62\tSevere  leg\n"
    )
    found = document(ann, warnings)
    assert [(m.id, m.start, m.end) for m in found.mentions] == [("T1", 9, 19), ("T2", 29, 50), ("T5", 52, 76)]
    assert found.mentions[2].fragments == (Span(52, 62), Span(72, 76))
    assert (warnings[align.MOVED], warnings[align.LOST]) == (2, 3)


def test_the_folders_of_the_release_are_put_together(tmp_path: Path):
    root = tmp_path / "cadec"
    for name, content in {
        "text/LIPITOR.1.txt": TEXT,
        "text/LIPITOR.40.txt": "",
        "text/ZIPSOR.2.txt": "Fine.",
        "original/LIPITOR.1.ann": ANN,
        "original/LIPITOR.40.ann": "",
        "meddra/LIPITOR.1.ann": "TT1\t10013649 9 19\tbit drowsy\n",
        "README.txt": "about",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    corpus = read(tmp_path, "cadec")
    assert [(d.id, d.attributes, len(d.mentions)) for d in corpus.documents] == [
        ("LIPITOR.1", {"drug": "LIPITOR"}, 5),
        ("ZIPSOR.2", {"drug": "ZIPSOR"}, 0),
    ]
    assert corpus.warnings == {
        pieces.CHOICES["keep"]: 2,
        "annotators' notes left out": 1,
        "empty texts, left out": 1,
        "texts without annotations (.ann), read as having none": 1,
        "files of concepts (meddra, sct) left unread": 1,
    }
    assert read(root / "text" / "LIPITOR.1.txt", "cadec").documents == corpus.documents[:1]
    assert read(root / "text", "cadec").documents == corpus.documents
    (root / "original" / "ARTHROTEC.3.ann").write_text("")
    with pytest.raises(DataError, match=r"ARTHROTEC\.3\.ann: no text for these annotations; put its \.txt into"):
        read(tmp_path, "cadec")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("T1\tADR 9\tbit drowsy", "not a mention line; expected T1 TAB type start end"),
        ("T1\tADR 9 19 bit drowsy", "not a mention line"),
        ("R1\tCauses Arg1:T1 Arg2:T2", "not a mention line"),
        ("T1\tADR 9 19999999999\tbit drowsy", "offsets of more than nine digits"),
        ("T5\tADR 9 19\tbit drowsy", "an id that an earlier line has"),
    ],
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(line: str, message: str):
    with pytest.raises(DataError, match=message) as caught:
        document(ANN + line + "\n")
    assert str(caught.value).startswith("LIPITOR.1.ann:7: ")
    assert "drowsy" not in str(caught.value)


def test_what_to_do_with_pieces_is_checked(tmp_path: Path):
    with pytest.raises(GrandRoundsError, match=r"unknown choice of discontinuous 'joined'; did you mean 'join'\?"):
        read(tmp_path, "cadec", discontinuous="joined")
