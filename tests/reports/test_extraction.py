"""Highlighting never changes the text, however mentions lie."""

from __future__ import annotations

import time
from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from grandrounds.data.documents import Document, Mention, Relation, Span, entities_by_concept
from grandrounds.reports.colours import colour
from grandrounds.reports.extraction import extraction_page, highlighted


class Reader(HTMLParser):
    """The text inside class="text", and the characters under each mention's mark."""

    def __init__(self, inside: bool = False) -> None:
        super().__init__()
        self.depth, self.text, self.tags = int(inside), "", list[str]()
        self.marks: list[str] = []
        self.under: dict[str, list[int]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kinds = (dict(attrs).get("class") or "").split()
        self.tags.append(tag)
        if tag == "mark":
            self.marks.append(kinds[0])
        if self.depth or "text" in kinds:
            self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        if tag == "mark":
            self.marks.pop()
        self.depth = max(0, self.depth - 1)

    def handle_data(self, data: str) -> None:
        if self.depth:
            for name in self.marks:
                self.under.setdefault(name, []).extend(range(len(self.text), len(self.text) + len(data)))
            self.text += data


def read(page: str, inside: bool = False) -> Reader:
    reader = Reader(inside)
    reader.feed(page)
    reader.close()
    return reader


def mentions(*spans: tuple[int, int]) -> tuple[Mention, ...]:
    return tuple(Mention(start, end, "AB"[i % 2], f"T{i}") for i, (start, end) in enumerate(spans))


def test_nested_and_crossing_mentions_keep_the_text_and_their_extents() -> None:
    text = "type 2 diabetes & <nephropathy>\r\nof old"
    spans = ((0, 15), (7, 15), (7, 30), (0, 15), (18, 19), (29, 36))
    reader = read(highlighted(Document("d", text, mentions=mentions(*spans))), inside=True)
    assert reader.text == text
    assert reader.under == {f"m{i}": list(range(*span)) for i, span in enumerate(spans)}


@given(
    st.text(alphabet="ab<>&\"' \n", min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 29), st.integers(1, 30)), max_size=8),
)
def test_any_mentions_keep_any_text(text: str, wild: list[tuple[int, int]]) -> None:
    spans = [(start, end) for start, end in wild if start < end <= len(text)]
    reader = read(highlighted(Document("d", text, mentions=mentions(*spans))), inside=True)
    assert reader.text == text
    assert reader.under == {f"m{i}": list(range(*span)) for i, span in enumerate(spans)}


def test_a_discontinuous_mention_marks_only_its_fragments() -> None:
    mention = Mention(0, 25, "Disease", "T1", fragments=(Span(0, 6), Span(19, 25)))
    document = Document("d", "breast and ovarian cancer", mentions=(mention,))
    assert read(highlighted(document), inside=True).under == {"m0": [*range(6), *range(19, 25)]}


def test_overlapping_mentions_have_lanes_of_their_own() -> None:
    drawn = highlighted(Document("d", "abcdefgh", mentions=mentions((0, 6), (2, 4), (5, 8), (7, 8))))
    lanes = {i: drawn.split(f'"m{i} {colour("AB"[i % 2])} l')[1][0] for i in range(4)}
    assert lanes == {0: "0", 1: "1", 2: "1", 3: "0"}


def test_a_mention_across_evidence_is_cut_at_its_ends_and_the_text_kept() -> None:
    text = "Lisinopril was begun. Cough and rash. It stopped."
    found = mentions((0, 10), (15, 27), (28, 49))
    sentences = (Span(0, 21), Span(22, 37), Span(38, 49))
    relations = (
        Relation("a", "T0", "T1", None, {"evidence": "1 7 <b> 01"}),
        Relation("b", "T0", "T2", None, {"evidence": "2 1"}),
        Relation("c", "T0", "T2", None, {"evidence": "9" * 5000}),
    )
    drawn = highlighted(Document("d", text, sentences, found, entities_by_concept(found), relations), "d4")
    reader = read(drawn, inside=True)
    assert reader.text == text
    assert reader.under == {f"d4m{i}": list(range(*span)) for i, span in enumerate(((0, 10), (15, 27), (28, 49)))}
    assert [part.split('"')[0] for part in drawn.split('<span class="')[1:]] == ["d4s1", "d4s2"]
    first = drawn.split('<span class="d4s1">')[1].split("</span>")[0]
    assert read(first, inside=True).text == "Cough and rash."


def test_a_page_quotes_evidence_where_there_is_some_and_keeps_lists_of_pairs_to_itself() -> None:
    plain = extraction_page([document()], "Found")
    assert "its two ends in the text; click" in plain
    assert "<q" not in plain
    assert "data-evidence" not in plain
    reported = replace(
        document(evidence="1"),
        sentences=(Span(0, 24), Span(25, 44)),
        attributes={"pairs": '[["D1","T2"]]', "ward": "3"},
    )
    page = extraction_page([reported], "Found")
    assert "shaded, the evidence" in page
    assert '<q class="why">Lisinopril stopped.</q>' in page
    assert page.count('data-evidence="d0s1"') == 1
    assert '<p class="sub">ward 3</p>' in page


def document(**more: str) -> Document:
    text = "Lisinopril caused cough. Lisinopril stopped."
    found = (
        Mention(0, 10, "Drug", "T1", "D1"),
        Mention(18, 23, "Disease", "T2"),
        Mention(25, 35, "Drug", "T3", "D1"),
    )
    relations = (
        Relation("low", "D1", "T2", (2, 1), {"score": "0.125"}),
        Relation("high", "D1", "T2", None, {"score": "0.875"} | more),
        Relation("unscored", "D1", "T2"),
        Relation("odd", "D1", "T2", None, {"score": "sure"}),
    )
    return Document("note <1>", text, (), found, entities_by_concept(found), relations, {"hospital": "<i>"})


def test_relations_point_to_their_mentions_best_first() -> None:
    page = extraction_page([document()], "Found")
    assert page.index(">high<") < page.index(">low<") < page.index(">unscored<") < page.index(">odd<")
    assert 'data-head="d0m0 d0m2" data-tail="d0m1"' in page
    assert 'data-head="d0m2" data-tail="d0m1"' in page
    assert ">0.88<" in page
    assert ">sure<" in page
    assert "Lisinopril → cough" in page


def test_several_documents_keep_their_marks_apart() -> None:
    reader = read(extraction_page([document(), Document("empty", ""), document()], "Found"))
    assert reader.text == document().text * 2
    assert set(reader.under) == {f"d{d}m{m}" for d in (0, 2) for m in range(3)}


def test_everything_is_escaped_and_nothing_asked_from_outside() -> None:
    hostile = "</script><script>alert(1)</script>"
    mention = Mention(0, 4, hostile, "T1", hostile)
    entities = entities_by_concept([mention])
    relation = Relation(hostile, hostile, hostile, None, {"score": hostile, "evidence": "0"})
    page = extraction_page(
        [Document(hostile, hostile, (Span(0, len(hostile)),), (mention,), entities, (relation,), {hostile: hostile})],
        hostile,
    )
    assert read(page).tags.count("script") == 1
    assert read(page).text == hostile
    assert "http" not in page.replace("http-equiv", "")


def test_a_long_note_takes_a_moment() -> None:
    text = "the patient has pain and fever; " * 3200
    spans = [(i, i + 4 + i % 60) for i in range(0, 100_000, 20)]
    started = time.process_time()
    page = extraction_page([Document("long", text, mentions=mentions(*spans))], "Long")
    assert time.process_time() - started < 5
    assert read(page).text == text
