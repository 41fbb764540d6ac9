"""BioC, XML and JSON: documents come back whole, the reference package reads them, and a stranger's XML is harmless."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import bioc_documents, bioc_json, bioc_xml, exchange, read, write
from grandrounds.errors import DataError
from tests.data.formats.exchanged import documents

bioc = pytest.importorskip("bioc")

XML = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE collection SYSTEM "BioC.dtd">
<collection><source>PubTator</source><date/><key>k</key>
<document><id>12</id><infon key="journal">J</infon>
<passage><infon key="type">title</infon><offset>0</offset><text>Aspirin &amp; pain</text>
<annotation id="0"><infon key="type">Chemical</infon><infon key="MESH">D1</infon>
<location offset="0" length="7"/><text>Aspirin</text></annotation></passage>
<passage><offset>15</offset>
<sentence><offset>15</offset><text>It did. Not</text></sentence>
<sentence><offset>27</offset><text>here.</text>
<annotation id="1"><infon key="type">Disease</infon><infon key="identifier">D2</infon>
<location offset="27" length="4"/><text>here</text></annotation></sentence></passage>
<relation id="R0"><infon key="relation">CID</infon><infon key="Chemical">D1</infon>
<infon key="Disease">D2</infon></relation>
<relation id="R1"><infon key="type">Bind</infon><infon key="novel">No</infon><infon key="entity1">D2</infon>
<infon key="entity2">D1</infon></relation>
<relation id="R2"><infon key="type">near</infon><node refid="0" role="a"/><node refid="1" role="b"/></relation>
<relation id="R3"><infon key="type">near</infon><node refid="0" role="a"/><node refid="9" role="b"/></relation>
<relation id="R4"><infon key="type">near</infon><node refid="0" role="a"/></relation>
</document></collection>
"""


@pytest.mark.parametrize("format", ["bioc", "bioc-json"])
@pytest.mark.parametrize("name", ["a.out", "a.out.gz"])
def test_documents_come_back_whole(format: str, name: str, tmp_path: Path):
    path = tmp_path / name
    assert write(format, documents(), path) == {}
    again = read(path, format)
    assert again.warnings == {}
    assert again.documents == documents()


def test_others_files_are_read_with_concepts_sentences_and_relations(tmp_path: Path):
    path = tmp_path / "a.xml"
    path.write_text(XML)
    corpus = read(path, "bioc")
    assert corpus.documents == (
        Document(
            "12",
            "Aspirin & pain\nIt did. Not\nhere.",
            (Span(0, 14), Span(15, 22), Span(23, 26), Span(27, 32)),
            (Mention(0, 7, "Chemical", "0", "D1"), Mention(27, 31, "Disease", "1", "D2")),
            (Entity("D1", "Chemical", (0,)), Entity("D2", "Disease", (1,))),
            (
                Relation("CID", "D1", "D2"),
                Relation("Bind", "D2", "D1", attributes={"novelty": "No"}),
                Relation("near", "D1", "D2", (0, 1)),
            ),
            {"journal": "J"},
        ),
    )
    assert corpus.warnings == {bioc_documents.OF_PASSAGES: 1, exchange.UNPLACED: 1, bioc_documents.NOT_TWO: 1}


def test_the_sentences_of_a_file_count_where_all_passages_have_them(tmp_path: Path):
    path = tmp_path / "a.xml"
    path.write_text(
        XML.replace(
            "<text>Aspirin &amp; pain</text>\n",
            "<sentence><offset>0</offset><text>Aspirin &amp; pain</text></sentence>",
        )
    )
    (document,) = read(path, "bioc").documents
    assert document.sentences == (Span(0, 14), Span(15, 26), Span(27, 32))


def test_the_reference_package_reads_what_we_write(tmp_path: Path):
    from bioc import biocjson, biocxml

    xml, plain = tmp_path / "a.xml", tmp_path / "a.json"
    write("bioc", documents(), xml)
    write("bioc-json", documents(), plain)
    with xml.open(encoding="utf-8") as file:
        one = biocxml.load(file)
    with plain.open(encoding="utf-8") as file:
        other = biocjson.load(file)
    for collection in (one, other):
        assert [found.id for found in collection.documents] == [document.id for document in documents()]
        for found, document in zip(collection.documents, documents(), strict=True):
            annotations = [a for passage in found.passages for a in passage.annotations]
            assert [a.id for a in annotations] == [mention.id for mention in document.mentions]
            assert [a.infons["type"] for a in annotations] == [mention.type for mention in document.mentions]
            for a, mention in zip(annotations, document.mentions, strict=True):
                spans = mention.fragments or (Span(mention.start, mention.end),)
                assert [(place.offset, place.offset + place.length) for place in a.locations] == list(spans)
            assert [r.infons["type"] for r in found.relations] == [r.type for r in document.relations]
    title, abstract = one.documents[0].passages
    assert (title.text, abstract.offset) == ("V600E and BRAF", 15)


def test_what_the_reference_package_writes_is_read(tmp_path: Path):
    from bioc import biocxml

    path = tmp_path / "a.xml"
    write("bioc", documents()[:2], path)  # of an empty infon it makes the word None
    with path.open(encoding="utf-8") as file:
        collection = biocxml.load(file)
    path.write_text(biocxml.dumps(collection), encoding="utf-8")
    assert read(path, "bioc").documents == documents()[:2]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('offset="0" length="7"', 'offset="1" length="7"', r"a\.xml:4: .*mention 1-8 does not match the text there"),
        ('offset="0" length="7"', 'offset="0" length="99"', r"a\.xml:4: .*mention 0-99 is empty, inverted or outside"),
        ('offset="0" length="7"', 'offset="x" length="7"', r"offset must be a whole number"),
        ('id="1"', 'id="0"', "has the id of an earlier one"),
        ("<offset>15</offset><t", "<offset>3</offset><t", r"sentences\[0\]\.offset is 3; 14 characters are before it"),
        ("<offset>15</offset>\n", "<offset>15</offset><text>It did.</text>", "is not in the text of its passage"),
        ("<offset>27</offset>", "<offset>999999999</offset>", "offset is 999999999; 26 characters are before it"),
        ("<id>12</id>", "", "document 1 lacks 'id'"),
        ("<id>12</id>", "<id>12</id>Aspirin", "text outside of the elements that hold it"),
        ("<id>12</id>", "<id>12</id><id>13</id>", "a second 'id'; remove one"),
        ('<infon key="journal">', "<infon>", "an infon without a key"),
        ("</document>", "", "not XML at column"),
        ("Aspirin &amp; pain", "Aspirin &pain; pain", "not XML at column|which holds text alone"),
        ('"BioC.dtd">', '"BioC.dtd" [<!ENTITY a "Aspirin">]>', "entities of its own, which are not expanded"),
    ],
)
def test_what_is_wrong_is_named_and_not_shown(old: str, new: str, message: str, tmp_path: Path):
    assert old in XML
    path = tmp_path / "a.xml"
    path.write_text(XML.replace(old, new, 1))
    with pytest.raises(DataError, match=message) as caught:
        read(path, "bioc")
    assert "spirin" not in str(caught.value)


def test_a_strangers_xml_is_harmless(tmp_path: Path):
    path = tmp_path / "a.xml"
    laughs = "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(9))
    for start in (
        f'<!DOCTYPE c [<!ENTITY l0 "ha">{laughs}]><collection><document><id>&l9;</id></document>',
        f'<!DOCTYPE c [<!ENTITY l0 "ha">{laughs}]><collection a="&l9;">',
        '<!DOCTYPE c [<!ENTITY x SYSTEM "file:///etc/passwd">]><collection><document><id>&x;</id></document>',
        f"<collection>{'<a>' * 10_000}",
    ):
        path.write_text(start + "</collection>")
        began = time.process_time()
        with pytest.raises(DataError, match=r"entities of its own|not XML"):
            read(path, "bioc")
        assert time.process_time() - began < 1


def test_the_place_that_is_not_utf8_is_found_in_a_long_file(tmp_path: Path):
    path = tmp_path / "a.xml"
    start = b"<collection>" + b" \n" * 100_000 + "<key>β".encode()
    path.write_bytes(start + b"\xce</key></collection>")
    with pytest.raises(DataError, match=rf"a\.xml:100001: not UTF-8 at byte {len(start)};"):
        read(path, "bioc")


def test_json_of_other_tools(tmp_path: Path):
    path = tmp_path / "a.json"
    annotation = {
        "id": 7,
        "infons": {"identifier": None, "type": "Gene", "valid": True, "more": [1]},
        "text": "ab",
        "locations": [{"offset": 0, "length": 2}],
    }
    nowhere = {"id": "8", "infons": {"type": "x"}, "text": "ab", "locations": []}
    untyped = {"id": "9", "infons": {}, "locations": [{"offset": 3, "length": 1}]}
    passage = {"offset": 0, "infons": {}, "text": "ab c", "annotations": [annotation, nowhere, untyped]}
    path.write_text(json.dumps({"documents": [{"id": 5, "passages": [passage]}]}))
    corpus = read(path, "bioc-json")
    (document,) = corpus.documents
    assert document.id == "5"
    assert document.mentions == (
        Mention(0, 2, "Gene", "7", attributes={"valid": "true"}),
        Mention(3, 4, "entity", "9"),
    )
    assert corpus.warnings == {
        bioc_documents.NESTED: 1,
        bioc_documents.NO_LOCATION: 1,
        bioc_documents.NO_TYPE: 1,
    }
    path.write_text('{"documents": [{"id": 5, "passages": [\n{}]}]}')
    with pytest.raises(DataError, match=r"a\.json:1: documents\[0\]\.passages\[0\] lacks 'offset'"):
        read(path, "bioc-json")
    path.write_text('{"document": []}')
    with pytest.raises(DataError, match=r"a\.json: no 'documents'; the file is one BioC collection"):
        read(path, "bioc-json")


def test_what_xml_cannot_hold_is_counted_and_offsets_stay(tmp_path: Path):
    path = tmp_path / "a.xml"
    document = Document("1", "a\x0bb c", (Span(0, 5),), (Mention(4, 5, "A", "T1"),))
    assert write("bioc", [document], path) == {bioc_xml.NOT_XML: 1}
    (again,) = read(path, "bioc").documents
    assert (again.text, again.surface(again.mentions[0])) == ("a b c", "c")


@pytest.mark.parametrize("format", [bioc_xml, bioc_json])
def test_time_grows_with_the_file_and_no_faster(format, tmp_path: Path):
    def seconds(copies: int) -> float:
        path = tmp_path / "a"
        format.write(documents() * copies, path, Counter())
        began = time.process_time()
        assert sum(1 for _ in format.read(path, Counter())) == 6 * copies
        return time.process_time() - began

    seconds(5)
    assert seconds(400) / seconds(50) < 16  # 8 where time is linear, 64 where it is quadratic


def test_a_torn_gzip_file_says_so(tmp_path: Path):
    path = tmp_path / "a.xml.gz"
    path.write_bytes(gzip.compress(XML.encode())[:-9])
    with pytest.raises(DataError, match="not a whole gzip file; fetch it again"):
        read(path, "bioc")
