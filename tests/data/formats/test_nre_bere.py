"""NRE's text and BERE's JSON: names looked for in the sentence; exact values and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import read
from grandrounds.errors import DataError

NRE = (
    "m.1\tm.2\tAda_Lovelace\tLondon\t/people/born\tAda_Lovelace was born in London. ###END### \n"
    "m.1\tm.3\tAda_Lovelace\tParis\tNA\tAda_Lovelace saw Paris.\t###END###\n"
    "m.1\tm.4\tAda_Lovelace\tRome\tNA\tAda_Lovelace saw nothing. ###END###\n"
    "m.5\tm.5\tRome\tRome\t/same\tRome is Rome . ###END###\n"
)
BERE: list[dict[str, Any]] = [
    {
        "pmid": "7",
        "head": {"word": "Xenomab", "id": "DB1"},
        "tail": {"word": "kinase", "id": "P1"},
        "sentence": "The kinase is stopped by xenomab .",
        "relation": "inhibitor",
        "score": 1,
    },
    {
        "head": {"word": "Xenomab", "id": "DB1"},
        "tail": {"word": "kinase", "id": "P1"},
        "sentence": "No kinase here .",
        "relation": "NA",
    },
]


def test_nre_finds_names_and_leaves_out_what_it_can_not_find(tmp_path: Path):
    path = tmp_path / "a.tsv"
    path.write_text(NRE)
    corpus = read(path, "nre")
    first, second, third = corpus.documents
    assert first == Document(
        "a.tsv:1",
        "Ada_Lovelace was born in London.",
        (Span(0, 32),),
        (Mention(0, 12, "entity", "T1", "m.1"), Mention(25, 31, "entity", "T2", "m.2")),
        (Entity("m.1", "entity", (0,)), Entity("m.2", "entity", (1,))),
        (Relation("/people/born", "m.1", "m.2", (0, 1)),),
    )
    assert (second.id, second.text, second.relations) == ("a.tsv:2", "Ada_Lovelace saw Paris.", ())
    assert (third.id, third.entities) == ("a.tsv:4", (Entity("m.5", "entity", (0, 1)),))
    assert corpus.warnings == {"sentences in which the head or the tail can't be found, left out": 1}
    typed = read(path, "nre", head_type="miRNA", tail_type="Gene").documents[0]
    assert [mention.type for mention in typed.mentions] == ["miRNA", "Gene"]


def test_nre_is_read_gzipped_with_windows_line_ends_and_a_byte_order_mark(tmp_path: Path):
    (tmp_path / "a.tsv").write_text(NRE)
    packed = tmp_path / "a.tsv.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + NRE.replace("\n", "\r\n").encode()))
    texts = [[document.text for document in read(p, "nre").documents] for p in (tmp_path / "a.tsv", packed)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("m.1\tm.2\tsecret\tB\tsecret B ###END###", "a.tsv:2: 5 tab-separated columns, or an empty one; a line has 6"),
        ("m.1\tm.2\tsecret\t\tNA\tsecret B ###END###", "a.tsv:2: 6 tab-separated columns, or an empty one"),
        ("m.1\tm.2\tsecret\tB\tNA\tsecret B", "a.tsv:2: a sentence that does not end in ###END###; is the line whole"),
    ],
)
def test_bad_lines_of_nre_are_named_but_not_shown(line: str, message: str, tmp_path: Path):
    (tmp_path / "a.tsv").write_text(f"{NRE.splitlines()[0]}\n{line}\n")
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / "a.tsv", "nre")
    assert "secret" not in str(caught.value)


def test_bere_keeps_its_other_strings_as_attributes(tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(BERE, indent=1))
    corpus = read(path, "bere")
    assert corpus.documents == (
        Document(
            "a.json:1",
            "The kinase is stopped by xenomab .",
            (Span(0, 34),),
            (Mention(25, 32, "Drug", "T1", "DB1"), Mention(4, 10, "Target", "T2", "P1")),
            (Entity("DB1", "Drug", (0,)), Entity("P1", "Target", (1,))),
            (Relation("inhibitor", "DB1", "P1", (0, 1)),),
            {"pmid": "7"},
        ),
    )
    assert corpus.warnings == {"sentences in which the head or the tail can't be found, left out": 1}


def _without(key: str) -> str:
    return json.dumps([BERE[0], {name: value for name, value in BERE[0].items() if name != key}])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_without("relation"), "a.json:1: sentences\\[1\\] lacks 'relation'"),
        (json.dumps([{**BERE[0], "tail": {"word": "", "id": "P1"}}]), "sentences\\[0\\].tail has an empty id or word"),
        (json.dumps([{**BERE[0], "head": "xenomab"}]), "sentences\\[0\\].head must be an object"),
        (json.dumps([{**BERE[0], "relation": ""}]), "sentences\\[0\\]: an empty relation"),
        (json.dumps(BERE[0]), "a.json:1: not JSON at column 1 \\(Expecting '\\['\\); the file is one list"),
        (json.dumps(BERE)[:-1], "Expecting ','"),
        (json.dumps(BERE) + "xenomab", "Extra data"),
        ("[" + json.dumps(BERE[0]) + ",]", "Expecting value"),
        ("[" * 100_000, "nested too deeply"),
        ('[{"head": 1, "head": 2}]', "a key given twice"),
    ],
)
def test_bad_values_of_bere_are_named_but_not_shown(content: str, message: str, tmp_path: Path):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / "a.json", "bere")
    assert "enomab" not in str(caught.value)


def test_an_empty_list_holds_no_documents(tmp_path: Path):
    (tmp_path / "a.json").write_text(" [ ]\n")
    with pytest.raises(DataError, match="no documents found"):
        read(tmp_path / "a.json", "bere")
