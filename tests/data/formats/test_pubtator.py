"""PubTator: exact values, the same bytes again, and what is refused."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import pubtator, read, write
from grandrounds.data.formats.pubtator import parse
from grandrounds.data.formats.pubtator_ids import split_ids
from grandrounds.data.formats.pubtator_lines import render
from grandrounds.data.pairs import candidate_pairs, listed_pairs, stated_types
from grandrounds.errors import DataError, GrandRoundsError

FILE = (
    "10|t|Aspirin and renal toxicity\n"
    "10|a|It caused renal and liver failure. It did.\n"
    "10\t0\t7\tAspirin\tChemical\tD001241\n"
    "10\t12\t26\trenal toxicity\tDisease\tD007674\n"
    "10\t37\t60\trenal and liver failure\tDisease\tD051437|D017093\trenal failure|liver failure\n"
    "10\t27\t29\tIt\tChemical\t-1\n"
    "10\tCID\tD001241\tD017093\n"
    "10\tCID\tD001241\tD007674\tNovel\n"
    "\n"
    "11|t|A title alone\n"
    "11\t2\t7\ttitle\tThing\n"
    "11\t8\t13\talone\tGene\t12;13\n"
    "\n"
)


def documents(content: str) -> list[Document]:
    return list(parse(content, Path("a.txt")))


def test_a_file_becomes_documents():
    first, second = documents(FILE)
    assert first == Document(
        "10",
        "Aspirin and renal toxicity\nIt caused renal and liver failure. It did.",
        (Span(0, 26), Span(27, 61), Span(62, 69)),
        (
            Mention(0, 7, "Chemical", "T1", "D001241"),
            Mention(12, 26, "Disease", "T2", "D007674"),
            Mention(37, 60, "Disease", "T3", "D051437|D017093", attributes={"parts": "renal failure|liver failure"}),
            Mention(27, 29, "Chemical", "T4", "-1"),
        ),
        (
            Entity("D001241", "Chemical", (0,)),
            Entity("D007674", "Disease", (1,)),
            Entity("D051437", "Disease", (2,)),
            Entity("D017093", "Disease", (2,)),
            Entity("T4", "Chemical", (3,)),
        ),
        (
            Relation("CID", "D001241", "D017093"),
            Relation("CID", "D001241", "D007674", attributes={"novelty": "Novel"}),
        ),
    )
    assert second.text == "A title alone"
    assert [mention.concept for mention in second.mentions] == [None, "12|13"]


def test_what_was_read_is_written_with_the_same_bytes(tmp_path: Path):
    source, target = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text(FILE)
    assert write("pubtator", read(source, "pubtator").documents, target) == {}
    assert target.read_bytes() == source.read_bytes()
    write("pubtator", read(source, "pubtator").documents, tmp_path / "b.txt.gz")
    assert read(tmp_path / "b.txt.gz", "pubtator").documents == read(source, "pubtator").documents


def test_offsets_count_characters_beyond_ascii_and_unusual_line_separators():
    (document,) = documents("1|t|β\u2028α\x0b-blocker\n1|a|\n1\t5\t12\tblocker\tDrug\n")
    assert document.surface(document.mentions[0]) == "blocker"


def test_a_mention_may_run_on_from_title_to_abstract():
    content = "1|t|renal\n1|a|failure\n1\t0\t13\trenal failure\tDisease\tD1\n\n"
    (document,) = documents(content)
    assert document.sentences == (Span(0, 13),)
    assert render([document], Counter()) == content


def test_documents_of_other_sources_keep_entities_and_relations():
    mentions = (Mention(0, 1, "A", "T7", "C1"), Mention(2, 3, "B", "T2"), Mention(4, 5, "A", "T3"))
    document = Document(
        "x|y",
        "a\nb\tc",
        mentions=mentions,
        entities=(Entity("T7", "A", (0, 2)), Entity("T2", "B", (1,))),
        relations=(Relation("r", "T7", "T2", (2, 1)),),
    )
    warnings: Counter[str] = Counter()
    (again,) = documents(render([document], warnings))
    assert again.text == "a\nb c"
    assert [(entity.id, entity.mentions) for entity in again.entities] == [("T7", (0, 2)), ("T2", (1,))]
    assert again.relations == (Relation("r", "T7", "T2"),)
    assert warnings == {
        "document ids changed, which PubTator could not hold": 1,
        "line ends and tabs, written as spaces": 1,
        "concepts replaced by the ids of entities, which relations refer to": 1,
        "relations between mentions, written between their entities": 1,
    }


# CHR: chemicals and metabolites, by the ids of one database or of two for the same thing.
CHR = (
    "20|t|Glucose and phosphate\n"
    "20|a|Sugar with Pi and ATP. Water.\n"
    "20\t0\t7\tGlucose\tChemMet\tCHEBI:17234\n"
    "20\t12\t21\tphosphate\tChemMet\tHMDB:HMDB01429|CHEBI:18367\n"
    "20\t22\t27\tSugar\tChemMet\tHMDB:HMDB00122\n"
    "20\t33\t35\tPi\tChemMet\tCHEBI:18367\n"
    "20\t40\t43\tATP\tChemMet\tCHEBI:15422\n"
    "20\t45\t50\tWater\tChemMet\t-1\n"
    "20\tReact\tHMDB:HMDB01429|CHEBI:18367\tHMDB:HMDB00122|CHEBI:17234\n"
    "20\tReact\tCHEBI:15422\tHMDB:HMDB01429\n"
    "20\tReact\tCHEBI:15422\tCHEBI:18367\n"
    "20\tReact\tCHEBI:15422\tCHEBI:99999\n"
    "20\tReact\tCHEBI:18367\tHMDB:HMDB01429\n"
    "\n"
)
PHOSPHATE, GLUCOSE = "HMDB:HMDB01429|CHEBI:18367", "CHEBI:17234|HMDB:HMDB00122"


def test_in_chr_joined_ids_are_of_one_chemical_and_a_relation_may_name_any_of_them(tmp_path: Path):
    path = tmp_path / "train.pubtator"
    path.write_text(CHR)
    corpus = read(path, "pubtator", joined="same")
    (document,) = corpus.documents
    assert [(entity.id, entity.mentions) for entity in document.entities] == [
        (GLUCOSE, (0, 2)),  # only a relation says that these two ids are of one thing
        (PHOSPHATE, (1, 3)),
        ("CHEBI:15422", (4,)),
        ("T6", (5,)),
    ]
    assert document.relations == (Relation("React", PHOSPHATE, GLUCOSE), Relation("React", "CHEBI:15422", PHOSPHATE))
    assert corpus.warnings == {
        "relations with a concept that no mention has, left out": 1,
        "relations of a concept with itself, left out": 1,
        "relations given twice, of which the first was kept": 1,
    }


def test_chr_is_gzipped_or_not_and_can_be_written_again(tmp_path: Path):
    packed, again = tmp_path / "train.pubtator.gz", tmp_path / "again.pubtator"
    packed.write_bytes(gzip.compress(CHR.encode()))
    (document,) = read(packed, "pubtator", joined="same").documents
    write("pubtator", [document], again)
    (other,) = read(again, "pubtator", joined="same").documents
    assert [entity.mentions for entity in other.entities] == [entity.mentions for entity in document.entities]
    assert other.relations == document.relations


def test_chr_read_as_cdr_is_told_of_the_option(tmp_path: Path):
    path = tmp_path / "train.pubtator"
    path.write_text(CHR)
    corpus = read(path, "pubtator")
    assert len(corpus.documents[0].relations) == 1
    assert corpus.warnings == {pubtator.BY_SYNONYM: 1, pubtator.NO_MENTION: 3}
    with pytest.raises(GrandRoundsError, match=r"unknown way of joining 'sane'; did you mean 'same'\?"):
        read(path, "pubtator", joined="sane")
    with pytest.raises(GrandRoundsError, match=r"unknown choice of pairs 'state'; did you mean 'stated'\?"):
        read(path, "pubtator", pairs="state")


def test_chr_as_its_papers_count_it(tmp_path: Path):
    path = tmp_path / "train.pubtator"
    path.write_text(
        "1|t|abcde\n"
        "1\t0\t1\ta\tChemMet\tX:1|Y:1\n"
        "1\t1\t2\tb\tChemMet\tY:1\n"
        "1\t2\t3\tc\tChemMet\tX:3\n"
        "1\t3\t4\td\tChemMet\tX:4\n"
        "1\t4\t5\te\tChemMet\t-\n"
        "1\tReact\tX:3\tX:1|Y:1\n"
        "1\tReact\tX:1|Y:1\tX:3\n"
        "1\tReact\tX:4\tY:1\n"
        "1\tReact\tX:4\tX:4\n"
        "1\tReact\tX:4\tX:9\n"
    )
    corpus = read(path, "pubtator", joined="exact", pairs="stated")
    (document,) = corpus.documents
    assert [entity.id for entity in document.entities] == ["X:1|Y:1", "Y:1", "X:3", "X:4", "T5"]
    stated = [("X:3", "X:1|Y:1"), ("X:1|Y:1", "X:3"), ("X:4", "Y:1")]
    unrelated = [("X:1|Y:1", "Y:1"), ("X:1|Y:1", "X:4"), ("Y:1", "X:3"), ("X:3", "X:4")]
    assert listed_pairs(document, "pairs") == (*stated, *unrelated)
    assert candidate_pairs(document, None) == (*stated, *unrelated)
    assert [bool(types) for types in stated_types(document, candidate_pairs(document, None)).values()] == [
        *[True] * 3,
        *[False] * 4,
    ]
    assert corpus.warnings == {pubtator.WITH_ITSELF: 1, pubtator.NO_MENTION: 1}
    (ours,) = read(path, "pubtator", joined="same").documents
    assert [entity.id for entity in ours.entities] == ["X:1|Y:1", "X:3", "X:4", "T5"]


BIORED = (
    "1|t|V600E and BRAF or ERK, V600K\n"
    "1\t0\t5\tV600E\tSequenceVariant\tp|SUB|V|600|E\n"
    "1\t10\t14\tBRAF\tGeneOrGeneProduct\t673,5594\n"
    "1\t18\t21\tERK\tGeneOrGeneProduct\t5594;5595\n"
    "1\t23\t28\tV600K\tSequenceVariant\t|DEL|46|S\n"
    "1\tAssociation\tp|SUB|V|600|E\t5594\tNovel\n"
    "1\tBind\t673\t5595\tNo\n"
    "\n"
)


def test_biored_keeps_variants_whole_and_splits_lists():
    (document,) = documents(BIORED)
    assert [(entity.id, entity.mentions) for entity in document.entities] == [
        ("p|SUB|V|600|E", (0,)),
        ("673", (1,)),
        ("5594", (1, 2)),
        ("5595", (2,)),
        ("|DEL|46|S", (3,)),  # in no relation, and whole all the same
    ]
    assert document.relations == (
        Relation("Association", "p|SUB|V|600|E", "5594", attributes={"novelty": "Novel"}),
        Relation("Bind", "673", "5595", attributes={"novelty": "No"}),
    )
    assert [mention.concept for mention in document.mentions][1:3] == ["673|5594", "5594|5595"]
    warnings: Counter[str] = Counter()
    assert render([document], warnings) == BIORED
    assert not warnings


@pytest.mark.parametrize(
    ("concept", "whole", "ids"),
    [
        ("D1|D2", (), ["D1", "D2"]),
        ("D1|D2", ("D1|D2",), ["D1|D2"]),
        ("A,1;B", ("A,1",), ["A", "1", "B"]),
        ("A,1", ("A,1",), ["A,1"]),
        ("p|SUB|V|600|E;p|SUB|V|600|K", (), ["p|SUB|V|600|E", "p|SUB|V|600|K"]),
        ("p.P13K,A;RS#:1", (), ["p.P13K,A", "RS#:1"]),
        ("D1|-1", (), ["D1"]),
        ("-", (), []),
        (None, (), []),
    ],
)
def test_what_joins_ids(concept: str | None, whole: tuple[str, ...], ids: list[str]):
    assert split_ids(concept, whole) == ids


def test_a_relation_that_cannot_be_placed_is_counted(tmp_path: Path):
    path = tmp_path / "a.txt"
    path.write_text(FILE.replace("D001241\tD007674", "D001241\tD999999"))
    corpus = read(path, "pubtator")
    assert corpus.documents[0].relations == (Relation("CID", "D001241", "D017093"),)
    assert corpus.warnings == {pubtator.NO_MENTION: 1}


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (3, "10\t0\t7\tAspirin", "10\t1\t8\tAspirin", r"mention 1-8 does not match the text there \(7 characters exp"),
        (3, "10\t0\t7\tAspirin", "10\t7\t0\tAspirin", r"mention 7-0 is empty, inverted or outside the text \(0-69\)"),
        (3, "10\t0\t7\tAspirin", "10\t0\t700\tAspirin", r"mention 0-700 is empty, inverted or outside"),
        (3, "10\t0\t7\tAspirin", "10\t0\tseven\tAspirin", "the end of a mention is not a number"),
        (3, "10\t0\t7\tAspirin\tChemical", "10\t0\t7", "a line of 4 tab-separated columns"),
        (3, "10\t0\t7\t", "12\t0\t7\t", "a line with another id than the title above it"),
        (2, "10|a|It", "10|b|It", "another id than the title"),
        (1, "10|t|Asp", "10|a|Asp", "a line before the first title"),
        (10, "11|t|A title alone", "10|a|A title alone", "an abstract that is the second one"),
    ],
)
def test_bad_lines_are_named_by_file_and_line_but_not_shown(line: int, old: str, new: str, message: str):
    assert old in FILE
    with pytest.raises(DataError, match=message) as caught:
        documents(FILE.replace(old, new, 1))
    assert str(caught.value).startswith(f"a.txt:{line}: ")
    for private in ("spirin", "renal", "D001241", "D999999"):
        assert private not in str(caught.value)
