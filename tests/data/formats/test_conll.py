"""CoNLL: schemes, repairs, exact values, and what is refused."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import read, write
from grandrounds.data.formats.conll import SCHEMES, Tag, decode, detect_scheme, encode, parse, render
from grandrounds.errors import DataError, GrandRoundsError

FILE = "Liver\tB-Disease\nfailure\tI-Disease\n.\tO\n\nAspirin\tB-Drug\nibuprofen\tB-Drug\n\n"


def documents(content: str, warnings: Counter[str] | None = None, **options: object) -> list[Document]:
    return list(parse(content, Path("a.tsv"), Counter() if warnings is None else warnings, **options))  # type: ignore[arg-type]


def found(content: str, **options: object) -> list[tuple[str, str]]:
    return [(d.surface(m), m.type) for d in documents(content, **options) for m in d.mentions]


def test_each_sentence_is_a_document_unless_the_file_says_otherwise():
    first, second = documents(FILE)
    assert first == Document(
        "a.tsv:1",
        "Liver failure .",
        (Span(0, 15),),
        (Mention(0, 13, "Disease", "T1"),),
        (Entity("T1", "Disease", (0,)),),
        attributes={"tokens": "between white space"},
    )
    assert (second.id, second.text) == ("a.tsv:5", "Aspirin ibuprofen")
    (both,) = documents(FILE, sentences_per_document=2)
    assert both.text == "Liver failure .\nAspirin ibuprofen"
    assert both.sentences == (Span(0, 15), Span(16, 33))
    assert [both.surface(mention) for mention in both.mentions] == ["Liver failure", "Aspirin", "ibuprofen"]
    marked = documents("-DOCSTART- -X- O\n\n" + FILE + "-DOCSTART-\n\n-DOCSTART-\n\nx O\n", warnings := Counter())
    assert [len(document.sentences) for document in marked] == [2, 1]
    assert warnings == {"documents without a sentence, left out": 1}


def test_columns_and_separators_are_found_or_given(tmp_path: Path):
    path = tmp_path / "a.conll"
    path.write_text("Liver NN B-NP B-D\nfails VB O O\n")
    corpus = read(path, "conll")
    assert corpus.documents[0].text == "Liver fails"
    assert corpus.warnings == {"columns besides token and tag left out": 4}
    assert read(path, "conll", tag_column=2).documents[0].mentions[0].type == "NP"
    path.write_text("B-D|Liver\nO|fails\n")
    given = read(path, "conll", separator="|", token_column=1, tag_column=0).documents[0]
    assert (given.text, given.mentions[0].type) == ("Liver fails", "D")


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("B-A I-A O B-B", "BIO"),
        ("B-A I-A O I-B", "BIO"),
        ("I-A I-A B-A O I-B", "IOB1"),
        ("I-A O", "IOB1"),
        ("B-A E-A O", "BIOES"),
        ("S-A O", "BIOES"),
        ("O O", "BIO"),
    ],
)
def test_schemes_are_detected(tags: str, scheme: str):
    assert detect_scheme([[_tag(tag) for tag in tags.split()]]) == scheme


@pytest.mark.parametrize(
    ("scheme", "tags", "mentions", "mended"),
    [
        ("BIO", "O I-A I-A O", ["b c"], 1),
        ("BIO", "B-A I-B O O", ["a", "b"], 1),
        ("BIO", "B-A B-A I-A O", ["a", "b c"], 0),
        ("IOB1", "I-A B-A I-A O", ["a", "b c"], 0),
        ("IOB1", "B-A I-A O O", ["a b"], 1),
        ("BIOES", "B-A I-A E-A S-A", ["a b c", "d"], 0),
        ("BIOES", "B-A I-A O S-A", ["a b", "d"], 1),
        ("BIOES", "I-A E-A E-A O", ["a b", "c"], 2),
    ],
)
def test_broken_sequences_are_mended_as_conlleval_does_and_counted(scheme, tags, mentions, mended):
    content = "".join(f"{token}\t{tag}\n" for token, tag in zip("abcd", tags.split(), strict=True))
    warnings: Counter[str] = Counter()
    (document,) = documents(content, warnings, scheme=scheme)
    assert [document.surface(mention) for mention in document.mentions] == mentions
    assert sum(warnings.values()) == mended
    assert mended == 0 or f"tags that break the {scheme} scheme, mended as conlleval does" in warnings


def test_io_tags_are_read_as_iob1_where_neighbours_of_a_type_are_one():
    warnings: Counter[str] = Counter()
    (document,) = documents("a I-A\nb I-A\nc I-B\nd O\ne I-A\n", warnings)
    assert [(document.surface(m), m.type) for m in document.mentions] == [("a b", "A"), ("c", "B"), ("e", "A")]
    assert warnings == {}


def test_tags_without_a_type_are_entities():
    assert found("x\tB\ny\tI\nz\tO\n") == [("x y", "Entity")]


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.data(), st.sampled_from(sorted(SCHEMES)))
def test_decode_is_the_inverse_of_encode_in_every_scheme(data, scheme):
    borders = sorted(data.draw(st.sets(st.integers(0, 8), max_size=6)))
    types = data.draw(st.lists(st.sampled_from("AB"), min_size=9, max_size=9))
    mentions = [(a, b, type) for a, b in pairwise(borders) if (type := types[a]) and data.draw(st.booleans())]
    assert decode([_tag(tag) for tag in encode(8, mentions, scheme)]) == mentions


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_what_was_read_is_written_with_the_same_tokens_and_mentions(scheme: str, tmp_path: Path):
    for content in (FILE, "-DOCSTART-\tO\n\n" + FILE):
        before = documents(content)
        assert write("conll", before, tmp_path / "a.tsv", scheme=scheme) == {}
        after = read(tmp_path / "a.tsv", "conll", scheme=scheme)
        assert after.warnings == {}
        assert [(d.text, d.sentences, d.mentions) for d in after.documents] == [
            (d.text, d.sentences, d.mentions) for d in before
        ]
        if scheme == "BIO":
            assert (tmp_path / "a.tsv").read_text() == content


def test_running_text_is_written_in_words_parted_at_mentions():
    document = Document(
        "x",
        "Aspirin-induced, 3.5mg.",
        (Span(0, 23),),
        (Mention(0, 7, "Drug", "T1", "D1"), Mention(20, 22, "Unit", "T2")),
        (Entity("D1", "Drug", (0,)),),
        (Relation("r", "D1", "D1"),),
    )
    warnings: Counter[str] = Counter()
    assert render([document], warnings).replace("\n", " ").replace("\t", "/").strip() == (
        "Aspirin/B-Drug -/O induced/O ,/O 3/O ./O 5/O mg/B-Unit ./O"
    )
    assert warnings == {
        "relations left out, which CoNLL has no place for": 1,
        "concepts left out, which CoNLL has no place for": 1,
    }


@pytest.mark.parametrize(
    ("mentions", "message"),
    [
        ([Mention(0, 3, "A", "T1"), Mention(2, 5, "A", "T2")], "mention 2-5 overlaps mention 0-3, which CoNLL can't"),
        ([Mention(0, 5, "A", "T1", fragments=(Span(0, 1), Span(4, 5)))], "mention 0-5 is discontinuous"),
        ([Mention(0, 9, "A", "T1")], "mention 0-9 lies in no sentence"),
        ([Mention(0, 1, "a b", "T1")], "mention 0-1 has a type with white space"),
        ([Mention(3, 4, "A", "T1")], "mention 3-4 is white space only"),
    ],
)
def test_what_conll_cannot_hold_is_refused(mentions: list[Mention], message: str):
    document = Document("x", "one two. End.", (Span(0, 8), Span(9, 13)), tuple(mentions))
    with pytest.raises(DataError, match=message):
        render([document], Counter())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x\tO\nsecret\n", "a.tsv:2: 1 columns where the first line has 2"),
        ("secret\n", "a.tsv:1: one column where a token and a tag should be"),
        ("x\tO\nsecret\tsecret\n", "a.tsv:2: a tag that is not O, B-TYPE"),
        ("x\tO\n\tO\n", "a.tsv:2: an empty token"),
    ],
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(content: str, message: str):
    with pytest.raises(DataError, match=message) as caught:
        documents(content)
    assert "secret" not in str(caught.value)


def test_options_are_checked(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text("x\tS-A\n")
    with pytest.raises(DataError, match=r"a\.tsv:1: a tag with S, which BIO does not have; read with scheme BIOES"):
        read(path, "conll", scheme="BIO")
    with pytest.raises(GrandRoundsError, match="unknown tag scheme 'IOBES'"):
        read(path, "conll", scheme="IOBES")
    with pytest.raises(GrandRoundsError, match="unknown tag scheme 'auto'"):
        write("conll", [], path, scheme="auto")
    with pytest.raises(GrandRoundsError, match="sentences_per_document must be 1 or more"):
        read(path, "conll", sentences_per_document=0)
    with pytest.raises(DataError, match="2 columns, but token_column is 5 and tag_column -1"):
        read(path, "conll", token_column=5)


def _tag(tag: str) -> Tag:
    return Tag(*tag.split("-")) if tag != "O" else Tag("O", "")
