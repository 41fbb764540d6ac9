"""i2b2 2012: exact values on hand-made files in the release's form, offsets that do not fit, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import align, i2b2_2012, read
from grandrounds.errors import DataError

NOTE = "Admission Date :\n09/29/1993\nThe patient &apos;s chest pain resolved after H&P <5 min> .\n"
HEAD = '<?xml version="1.0" encoding="UTF-8" ?>\n<ClinicalNarrativeTemporalAnnotation>\n<TEXT><![CDATA[\n'
FOOT = "</TAGS>\n</ClinicalNarrativeTemporalAnnotation>"
TAGS = (
    '<EVENT id="E0" start="1" end="10" text="Admission" modality="FACTUAL" polarity="POS" type="OCCURRENCE" />\n'
    '<EVENT id="E1" start="29" end="59" text="The patient &apos;s chest pain" modality="FACTUAL" polarity="NEG" '
    'type="PROBLEM" />\n'
    '<TIMEX3 id="T0" start="18" end="28" text="09/29/1993" type="DATE" val="1993-09-29" mod="NA" />\n'
    '<TLINK id="TL0" fromID="E0" fromText="Admission" toID="T0" toText="09/29/1993" type="OVERLAP" />\n'
    '<TLINK id="TL1" fromID="E1" fromText="chest pain" toID="E0" toText="Admission" type="BEFORE" />\n'
    '<SECTIME id="S0" start="18" end="28" text="09/29/1993" type="ADMISSION" dvalue="1993-09-29" />\n'
)
SECTIONS = {i2b2_2012.SECTIONS: 1}
FIRST_TAG = 9


def file(tags: str = TAGS, note: str = NOTE, head: str = HEAD) -> str:
    return f"{head}{note}]]></TEXT>\n<TAGS>\n{tags}{FOOT}"


def document(content: str, warnings: Counter[str] | None = None) -> Document:
    return i2b2_2012.parse(content, Path("7.xml"), Counter() if warnings is None else warnings)


def test_a_file_becomes_a_document():
    warnings: Counter[str] = Counter()
    found = document(file(), warnings)
    assert found == Document(
        "7",
        "\n" + NOTE,
        (Span(1, 17), Span(18, 28), Span(29, 88)),
        (
            Mention(1, 10, "OCCURRENCE", "E0", attributes={"modality": "FACTUAL", "polarity": "POS", "tag": "EVENT"}),
            Mention(29, 59, "PROBLEM", "E1", attributes={"modality": "FACTUAL", "polarity": "NEG", "tag": "EVENT"}),
            Mention(18, 28, "DATE", "T0", attributes={"val": "1993-09-29", "mod": "NA", "tag": "TIMEX3"}),
        ),
        (Entity("E0", "OCCURRENCE", (0,)), Entity("E1", "PROBLEM", (1,)), Entity("T0", "DATE", (2,))),
        (Relation("OVERLAP", "E0", "T0", (0, 2)), Relation("BEFORE", "E1", "E0", (1, 0))),
    )
    assert [found.surface(mention) for mention in found.mentions] == [
        "Admission", "The patient &apos;s chest pain", "09/29/1993",
    ]  # fmt: skip
    assert warnings == SECTIONS


def test_a_file_without_the_first_line_end_counts_from_one():
    warnings: Counter[str] = Counter()
    found = document(file(head=HEAD.removesuffix("\n")), warnings)
    assert [(m.start, m.end) for m in found.mentions] == [(0, 9), (28, 58), (17, 27)]
    assert warnings == {**SECTIONS, i2b2_2012.FROM_ONE: 1}


def test_mentions_that_do_not_fit_are_looked_for_nearby_and_counted():
    warnings: Counter[str] = Counter()
    tags = TAGS.replace('start="29" end="59"', 'start="31" end="60"').replace(
        '"18" end="28" text="09', '"18" end="28" text="19'
    )
    found = document(file(tags), warnings)
    assert [(m.id, m.start, m.end) for m in found.mentions] == [("E0", 1, 10), ("E1", 29, 59)]
    assert [relation.type for relation in found.relations] == ["BEFORE"]
    assert warnings == {**SECTIONS, align.MOVED: 1, align.LOST: 1, i2b2_2012.NO_END: 1}


def test_the_nearest_whole_word_is_taken_and_only_within_reach():
    text = "pains pain" + " " * 200 + "pain"
    warnings: Counter[str] = Counter()
    assert align.place(text, 1, 5, "Pain", warnings) == Span(6, 10)
    assert align.place(text, 190, 194, "pain", warnings) == Span(210, 214)
    assert align.place(text, 9, 12, "ain", warnings) == Span(7, 10)
    assert align.place(text, 109, 113, "pains", warnings) is None
    assert align.place(text, 0, 1, " ", warnings) is None
    assert warnings == {align.MOVED: 3, align.LOST: 2}


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [("H&P", 75, 78), ("H&amp;P", 75, 78), ("H&P <5 min>", 75, 86), ("&apos;s", 41, 48)],
)
def test_signs_that_xml_has_escaped_are_mended(text: str, start: int, end: int):
    tag = f'<EVENT id="E9" start="{start}" end="{end}" text="{text}" modality="" polarity="" type="TEST" />\n'
    warnings: Counter[str] = Counter()
    found = document(file(tag + TAGS), warnings)
    assert (found.mentions[0].start, found.mentions[0].end) == (start, end)
    assert found.mentions[1:] == document(file()).mentions
    broken = "&" in text.replace("&amp;", "").replace("&apos;", "")
    assert warnings == {**SECTIONS, **({i2b2_2012.MENDED: 1} if broken else {})}


def test_quotes_in_an_attribute_are_mended():
    tag = '<EVENT id="E9" start="1" end="7" text=""bad"" modality="" polarity="" type="PROBLEM" />\n'
    found = document(file(tag, note='"bad" lungs\n'), warnings := Counter())
    assert found.surface(found.mentions[0]) == '"bad"'
    assert warnings == {i2b2_2012.MENDED: 1, align.MOVED: 1}


def test_what_has_no_type_or_is_given_twice_is_counted():
    warnings: Counter[str] = Counter()
    link = TAGS.splitlines(keepends=True)[3]
    found = document(file(TAGS.replace('type="BEFORE"', 'type=""') + link), warnings)
    assert [relation.type for relation in found.relations] == ["OVERLAP"]
    assert warnings == {**SECTIONS, i2b2_2012.NO_TYPE: 1, i2b2_2012.TWICE: 1}
    warnings.clear()
    assert document(file(TAGS + '<ALINK id="A0" />\n'), warnings).relations
    assert warnings == {**SECTIONS, i2b2_2012.OTHERS: 1}
    warnings.clear()
    assert len(document(file(TAGS.replace('type="DATE"', 'type=""')), warnings).mentions) == 2
    assert warnings == {**SECTIONS, i2b2_2012.NO_TYPE: 1, i2b2_2012.NO_END: 1}


def test_files_of_a_folder_are_read_and_the_releases_other_files_passed_over(tmp_path: Path):
    (tmp_path / "7.xml").write_text(file())
    (tmp_path / "7.xml.txt").write_text(NOTE)
    corpus = read(tmp_path, "i2b2-2012")
    assert [document.id for document in corpus.documents] == ["7"]
    assert corpus.warnings == {**SECTIONS, "files or folders passed over, not ending in .xml": 1}


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (FIRST_TAG, 'start="1"', 'start="one"', "EVENT needs an id, a text, and start and end in digits"),
        (FIRST_TAG, 'id="E0" ', "", "EVENT needs an id"),
        (FIRST_TAG, 'text="Admission"', 'text=""', "EVENT needs an id, a text"),
        (FIRST_TAG + 2, ' end="28"', "", "TIMEX3 needs an id"),
        (FIRST_TAG + 1, 'id="E1"', 'id="E0"', "an id that an earlier tag has"),
        (FIRST_TAG, "<EVENT ", "<EVENT <", r"not XML \(not well-formed \(invalid token\)\); compare with the file"),
        (None, "<TEXT><![CDATA[", "<NOTE><![CDATA[", "0 TEXT where there should be one, with TAGS"),
        (2, "<Clin", '<!DOCTYPE x [<!ENTITY a "aa">]><Clin', "an entity of the file's own, which is not read"),
    ],
)
def test_bad_files_are_named_with_their_line_but_not_shown(line: int | None, old: str, new: str, message: str):
    content = file().replace(old, new, 1)
    content = content.replace("</TEXT>", "</NOTE>") if "NOTE" in new else content
    with pytest.raises(DataError, match=message) as caught:
        document(content)
    assert str(caught.value).startswith(f"7.xml:{line}: " if line else "7.xml: ")
    assert "chest" not in str(caught.value)
