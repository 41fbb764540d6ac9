"""A hundred thousand broken files: each is read with every record in its place, or refused without its text."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import pytest

from grandrounds.data.documents import Document
from grandrounds.data.formats import (
    ade,
    align,
    bere,
    biobert_tsv,
    bioc_documents,
    bioc_json,
    bioc_xml,
    brat,
    cadec,
    chemdisgene,
    chemprot,
    conll,
    docred,
    documents_json,
    eog,
    exchange,
    i2b2_2010,
    i2b2_2012,
    nre,
    opennre,
    pair_lists,
    pair_sentence,
    pieces,
    pubannotation,
    pubtator,
    smm4h,
)
from grandrounds.data.formats.source import Lenient, Warnings, decode, lines
from grandrounds.data.pairs import listed_pairs
from grandrounds.errors import DataError
from tests.data.formats.samples import (
    ADE,
    ANN,
    BERE,
    BIOC_JSON,
    BIOC_XML,
    CADEC,
    CHANGES,
    CHEMPROT,
    CHR,
    CON,
    CONLL,
    CTD,
    DOCRED,
    EOG,
    I2B2,
    JSON,
    LIST,
    NRE,
    OPENNRE,
    PATH,
    PUBANNOTATION,
    PUBTATOR,
    REL,
    SMM4H,
    TEXT,
    TSV,
    XML,
)

EACH = 5_000
PRIVATE = re.compile("Xenomab|grumpitis|Quuxoline|PMC4711", re.IGNORECASE)


def broken(draw: random.Random, contents: tuple[str, ...]) -> list[bytes]:
    """The files of a document with one to three changes in them."""
    files = [content.encode() for content in contents]
    for _ in range(draw.randint(1, 3)):
        i = draw.randrange(len(files))
        if files[i]:
            files[i] = draw.choice(CHANGES)(files[i], draw.randrange(2**16), draw.randrange(2**16))
    return files


def attempt(
    files: list[bytes], parse: Callable[..., list[Document]]
) -> tuple[list[str], list[Document], Warnings] | None:
    """The contents, documents and notes; or None after a proper refusal. Anything else fails the test."""
    warnings: Warnings = Counter()
    refusal = ""
    try:
        contents = [decode(data, PATH) for data in files]
        return contents, parse(*contents, warnings), warnings
    except DataError as error:
        refusal = str(error)
    assert refusal.startswith(str(PATH)), "an error without its file"
    assert "\n" not in refusal
    assert not PRIVATE.search(refusal), "an error that shows text"
    return None


def many(*contents: str, each: int = EACH) -> Callable[[Callable[[list[bytes]], None]], Callable[[], None]]:
    """The test on that many broken files, drawn by number: hypothesis would take ten times as long to draw them."""

    def wrap(test: Callable[[list[bytes]], None]) -> Callable[[], None]:
        def run() -> None:
            for number in range(each):
                files = broken(random.Random(number), contents)
                try:
                    test(files)
                except Exception as problem:
                    raise AssertionError(f"file {number}: {files}") from problem

        return run

    return wrap


def filled(content: str) -> list[str]:
    return [line for line in content.split("\n") if line.strip()]


@many(PUBTATOR)
def test_pubtator_has_a_place_for_every_line(files):
    if done := attempt(files, lambda content, warnings: list(pubtator.parse(content, PATH, warnings))):
        (content,), documents, warnings = done
        parts = [1 + ("\n" in d.text) + len(d.mentions) + len(d.relations) for d in documents]
        assert len(filled(content)) == sum(parts) + sum(warnings.values())


@many(CHR)
def test_chr_has_a_place_for_every_line(files):
    if done := attempt(files, lambda content, warnings: list(pubtator.parse(content, PATH, warnings, joined="same"))):
        (content,), documents, warnings = done
        parts = [1 + ("\n" in d.text) + len(d.mentions) + len(d.relations) for d in documents]
        assert len(filled(content)) == sum(parts) + sum(warnings.values())


@many(LIST)
def test_a_list_of_pairs_has_a_place_for_every_line(files):
    def parse(content: str, warnings: Warnings) -> list[Document]:
        return list(pair_lists.leave_out(pubtator.parse(PUBTATOR, PATH), content, PATH, warnings))

    if done := attempt(files, parse):
        (content,), documents, warnings = done
        kept = {(document.id, *pair) for document in documents for pair in listed_pairs(document, "not_include")}
        reported = [line for line in filled(content) if tuple(line.removesuffix("\r").split("\t")) not in kept]
        assert sum(warnings.values()) == len(reported)


@many(PUBTATOR.replace("PMC4711\tCID\tD1\tD2\nPMC4711\tCID\tD1\tD3\n", ""), CTD)
def test_chemdisgene_has_a_place_for_every_relation(files):
    def parse(abstracts: str, relations: str, warnings: Warnings) -> list[Document]:
        return list(chemdisgene.parse(abstracts, PATH, {PATH: relations}, warnings))

    if done := attempt(files, parse):
        (abstracts, relations), documents, warnings = done
        if len({document.id for document in documents}) == len(documents) and "CID" not in abstracts:
            reported = sum(warnings.values()) - warnings[chemdisgene.TURNED]
            torn = [row.split("\t") for row in abstracts.splitlines() if row.count("\t") >= 3]
            reported -= sum(not row[1].isdigit() for row in torn)  # mentions that read as relations
            assert len(filled(relations)) == sum(len(document.relations) for document in documents) + reported


@many(TEXT, ANN)
def test_brat_has_a_place_for_every_line(files):
    def parse(text: str, ann: str, warnings: Warnings) -> list[Document]:
        return [brat.parse(text, ann, "x", PATH, warnings)]

    if done := attempt(files, parse):
        (_, ann), (document,), warnings = done
        kinds = Counter(line[0] for line in filled(ann))
        kept = document.attributes.get("brat", "")
        between_events = warnings["relations between events kept for writing, of no other use here"]
        assert kinds["T"] == len(document.mentions)
        assert kinds["R"] == len(document.relations) + between_events + warnings[brat.UNPLACED]
        assert kinds["E"] + kinds["#"] <= len(filled(kept))
        own = {"brat_id", "brat_roles", "brat_event", "concept_name"}
        holders = (*document.mentions, *document.relations)
        attributes = sum(len(holder.attributes.keys() - own) for holder in holders)
        concepts = sum(mention.concept.count("|") + 1 for mention in document.mentions if mention.concept)
        reported = warnings["attributes given twice, of which the first was kept"]
        reported += warnings["attributes of events kept for writing, of no other use here"] + warnings[brat.OF_UNPLACED]
        assert kinds["A"] + kinds["M"] + kinds["N"] <= attributes + concepts + reported
        ids = [{document.mentions[i].id for i in entity.mentions} for entity in document.entities]
        for line in filled(ann):
            if line[0] == "*":
                name, *members = line.split("\t")[1].split()
                kept = name != "Equiv" and line in document.attributes["brat"].split("\n")
                assert kept or any(set(members) <= group for group in ids)


@many(CONLL)
def test_conll_has_a_place_for_every_token_and_tag(files):
    if done := attempt(files, lambda content, warnings: list(conll.parse(content, PATH, warnings))):
        (content,), documents, warnings = done
        rows = [line for line in filled(content.replace("\r\n", "\n")) if not line.startswith("-DOCSTART-")]
        tokens = sum(len(re.split("[ \n]", document.text)) for document in documents)
        tagged = sum(document.surface(m).count(" ") + 1 for document in documents for m in document.mentions)
        if warnings["tokens with white space, which writing will part"]:
            assert len(rows) <= tokens
        else:
            assert len(rows) == tokens
            assert sum(not re.search(r"\sO$", row) for row in rows) == tagged


@many(TSV)
def test_biobert_has_a_document_for_every_row(files):
    if done := attempt(files, lambda content, warnings: list(biobert_tsv.parse(content, PATH, warnings))):
        (content,), documents, _ = done
        header = content.split("\n")[0].split("\t")[-1].strip().lower() == "label"
        assert len(documents) == len(filled(content)) - header
        assert all(len(document.mentions) == 2 for document in documents)


@many(I2B2, CON, REL)
def test_i2b2_has_a_place_for_every_line(files):
    def parse(text: str, con: str, rel: str, warnings: Warnings) -> list[Document]:
        return [i2b2_2010.parse(text, con, rel, i2b2_2010.Files(PATH, PATH, PATH), warnings)]

    if done := attempt(files, parse):
        (text, con, rel), (document,), warnings = done
        assert len(filled(con)) == len(document.mentions) + warnings["concepts given twice, kept once"]
        reported = warnings["relations given twice, kept once"] + warnings[i2b2_2010.UNPLACED]
        assert len(filled(rel)) == len(document.relations) + reported
        covered = {i for start, end in document.sentences for i in range(start, end)}
        assert all(i in covered for i, character in enumerate(text) if not character.isspace())


@many(EOG)
def test_eog_has_a_place_for_every_pair(files):
    if done := attempt(files, lambda content, warnings: list(eog.parse(content, PATH, warnings))):
        (content,), documents, warnings = done
        rows = filled(content.removeprefix("\ufeff"))
        assert len(documents) == len(rows)
        pairs = sum((row.count("\t") - 1) // 17 for row in rows)
        listed = [listed_pairs(document, kind) for document in documents for kind in ("pairs", "not_include")]
        assert sum(map(len, listed)) + warnings["pairs given twice with the same label, kept once"] == pairs


@many(DOCRED)
def test_docred_has_a_place_for_every_record(files):
    if done := attempt(files, lambda content, warnings: list(docred.parse(content, PATH, warnings))):
        (content,), documents, warnings = done
        rows = json.loads(content.removeprefix("\ufeff"))
        assert len(documents) == len(rows)
        for row, document in zip(rows, documents, strict=True):
            assert len(row["sents"]) == len(document.sentences)
            assert [len(entity) for entity in row["vertexSet"]] == [len(e.mentions) for e in document.entities]
            reported = warnings["relations given twice, of which the first was kept"] + warnings[docred.UNPLACED]
            assert len(row.get("labels", [])) == len(document.relations) + reported


@many(NRE)
def test_nre_has_a_document_for_every_line(files):
    if done := attempt(files, lambda content, warnings: list(nre.parse(lines(content), PATH, warnings))):
        (content,), documents, warnings = done
        assert len(filled(content.removeprefix("\ufeff"))) == len(documents) + warnings[pair_sentence.LOST]
        assert all(len(document.mentions) == 2 for document in documents)


@many(OPENNRE)
def test_opennre_has_a_document_for_every_line(files):
    if done := attempt(files, lambda content, warnings: list(opennre.parse(lines(content), PATH, warnings))):
        (content,), documents, warnings = done
        rows = [json.loads(line) for line in filled(content.removeprefix("\ufeff"))]
        assert [row["relation"] for row in rows] == [d.relations[0].type if d.relations else "NA" for d in documents]
        further = sum(len(row.keys() - {"id", "text", "token", "h", "t", "relation"}) for row in rows)
        assert further == sum(len(document.attributes) for document in documents) + warnings[opennre.PASSED_OVER]


@many(BERE)
def test_bere_has_a_document_for_every_sentence(files):
    if done := attempt(files, lambda content, warnings: list(bere.parse(content, PATH, warnings))):
        (content,), documents, warnings = done
        rows = json.loads(content.removeprefix("\ufeff"))
        assert len(rows) == len(documents) + warnings[pair_sentence.LOST]


@many(CHEMPROT, each=10_000)
def test_chemprot_has_a_document_for_every_line(files):
    if done := attempt(files, lambda content, warnings: list(chemprot.parse(lines(content), PATH, warnings))):
        (content,), documents, _ = done
        rows = [json.loads(line) for line in filled(content.removeprefix("\ufeff"))]
        assert [row["label"] for row in rows] == [d.relations[0].type if d.relations else "NA" for d in documents]
        assert [len(row["text"]) - 12 for row in rows] == [len(document.text) for document in documents]


@many(BIOC_JSON, each=10_000)
def test_bioc_json_has_a_place_for_every_record(files):
    if done := attempt(files, lambda content, warnings: list(bioc_json.parse(content, PATH, warnings))):
        (content,), documents, warnings = done
        rows = json.loads(content.removeprefix("\ufeff"))["documents"]
        assert len(rows) == len(documents)
        placed_in_bioc(rows, documents, warnings)


@many(BIOC_XML, each=10_000)
def test_bioc_xml_has_a_place_for_every_element(files):
    # XML says of itself how it is encoded; we decode it first, as `attempt` does.
    def parse(content: str, warnings: Warnings) -> list[Document]:
        return list(bioc_xml.parse(BytesIO(content.encode()), PATH, warnings))

    if done := attempt(files, parse):
        (content,), documents, warnings = done
        utf8 = ElementTree.XMLParser(encoding="utf-8")
        kinds = Counter(element.tag for element in ElementTree.fromstring(content.encode(), utf8).iter())
        unknown = warnings[bioc_xml.UNKNOWN]
        assert kinds["document"] <= len(documents) + unknown
        mentions = sum(len(document.mentions) for document in documents) + warnings[bioc_documents.NO_LOCATION]
        assert mentions <= kinds["annotation"] <= mentions + unknown
        relations = sum(len(document.relations) for document in documents)
        relations += warnings[bioc_documents.NOT_TWO] + warnings[exchange.UNPLACED]
        assert relations <= kinds["relation"] <= relations + unknown


@many(PUBANNOTATION, each=10_000)
def test_pubannotation_has_a_place_for_every_record(files):
    if done := attempt(files, lambda content, warnings: list(pubannotation.parse(content, PATH, warnings))):
        (content,), documents, warnings = done
        rows = json.loads(content.removeprefix("\ufeff"))
        rows = rows if isinstance(rows, list) else [rows]
        assert [row["text"] for row in rows] == [document.text for document in documents]
        for row, document in zip(rows, documents, strict=True):
            assert len(row.get("denotations", [])) == len(document.mentions)
        relations = sum(len(document.relations) for document in documents) + warnings[exchange.UNPLACED]
        assert sum(len(row.get("relations", [])) for row in rows) == relations


def placed_in_bioc(rows, documents, warnings):
    levels = [level for row in rows for level in (row, *row["passages"])]
    mentions = sum(len(document.mentions) for document in documents) + warnings[bioc_documents.NO_LOCATION]
    assert sum(len(level.get("annotations") or []) for level in levels) == mentions
    relations = sum(len(document.relations) for document in documents)
    relations += warnings[bioc_documents.NOT_TWO] + warnings[exchange.UNPLACED]
    assert sum(len(level.get("relations") or []) for level in levels) == relations
    for row, document in zip(rows, documents, strict=True):
        assert "".join(passage.get("text") or "" for passage in row["passages"]) == document.text.replace("\n", "")


@many(ADE)
def test_ade_has_a_place_for_every_line(files):
    if done := attempt(files, lambda content, warnings: list(ade.parse(content, Path("a.txt-AE"), warnings))):
        (content,), documents, warnings = done
        negative = sum(" NEG" in line for line in filled(content.removeprefix("\ufeff")))
        relations = sum(len(document.relations) for document in documents)
        reported = warnings[ade.TWICE] + warnings[ade.UNRELATED]
        assert len(filled(content)) == negative + relations + reported
        assert negative <= len(documents) + warnings[ade.AGAIN]


@many(TEXT, CADEC)
def test_cadec_has_a_place_for_every_line(files):
    def parse(text: str, ann: str, warnings: Warnings) -> list[Document]:
        return [cadec.parse(text, ann, "x", PATH, warnings)]

    if done := attempt(files, parse):
        (_, ann), (document,), warnings = done
        reported = warnings["annotators' notes left out"] + warnings[cadec.TWICE] + warnings[align.LOST]
        assert len(filled(ann)) == len(document.mentions) + reported
        assert sum(bool(m.fragments) for m in document.mentions) <= warnings[pieces.CHOICES["keep"]]


@many(SMM4H)
def test_smm4h_has_a_place_for_every_row(files):
    if done := attempt(files, lambda content, warnings: list(smm4h.parse(content, PATH, warnings))):
        (content,), documents, warnings = done
        header, *rows = filled(content) or [""]
        mentions = sum(len(document.mentions) for document in documents)
        if header == SMM4H.split("\n")[0]:
            cells = [[cell.strip() for cell in row.split("\t")] for row in rows]
            annotated = sum(not {cell[1], cell[4]} <= {"-", "", "_"} for cell in cells)
            assert annotated == mentions + warnings[smm4h.TWICE] + warnings[align.LOST]
            assert [document.id for document in documents] == list(dict.fromkeys(cell[0] for cell in cells))


@many(XML)
def test_i2b2_2012_has_a_place_for_every_tag(files):
    if done := attempt(files, lambda content, warnings: [i2b2_2012.parse(content, PATH, warnings)]):
        (content,), (document,), warnings = done
        outside = re.sub(r"<!\[CDATA\[.*?\]\]>", "", content, flags=re.DOTALL)
        kinds = Counter(re.findall(r"<(\w[^\s>]*)", outside))
        for once in ("ClinicalNarrativeTemporalAnnotation", "TEXT", "TAGS"):
            kinds.pop(once, None)
        reported = warnings[i2b2_2012.OTHERS] + warnings[i2b2_2012.SECTIONS]
        reported += (
            warnings[align.LOST] + warnings[i2b2_2012.NO_TYPE] + warnings[i2b2_2012.NO_END] + warnings[i2b2_2012.TWICE]
        )
        assert kinds.total() == len(document.mentions) + len(document.relations) + reported


@many(JSON)
def test_json_has_a_place_for_every_record(files):
    if done := attempt(files, lambda content, warnings: list(documents_json.parse(content, PATH))):
        (content,), documents, _ = done
        rows = [json.loads(line) for line in filled(content.removeprefix("\ufeff"))]
        assert len(documents) == len(rows)
        for row, document in zip(rows, documents, strict=True):
            for field in ("sentences", "mentions", "entities", "relations", "attributes"):
                assert len(row.get(field, ())) == len(getattr(document, field))


LENIENT: list[tuple[str, Callable[[str, Warnings], object]]] = [
    (PUBTATOR, lambda content, warnings: list(pubtator.parse(content, PATH, warnings))),
    (ANN, lambda content, warnings: brat.parse(TEXT, content, "x", PATH, warnings)),
    (CHEMPROT, lambda content, warnings: list(chemprot.parse(lines(content), PATH, warnings))),
    (DOCRED, lambda content, warnings: list(docred.parse(content, PATH, warnings))),
    (BIOC_JSON, lambda content, warnings: list(bioc_json.parse(content, PATH, warnings))),
    (BIOC_XML, lambda content, warnings: list(bioc_xml.parse(BytesIO(content.encode()), PATH, warnings))),
    (PUBANNOTATION, lambda content, warnings: list(pubannotation.parse(content, PATH, warnings))),
]


@pytest.mark.parametrize(("content", "parse"), LENIENT, ids=range(len(LENIENT)))
def test_lenient_reading_refuses_nothing_and_counts_what_others_refuse(content: str, parse):
    for number in range(500):
        (data,) = broken(random.Random(number), (content,))
        try:
            text = decode(data, PATH)
        except DataError:
            continue
        found, refused = Lenient(), False
        parse(text, found)
        try:
            parse(text, Counter())
        except DataError:
            refused = True
        assert refused == bool(found.kinds), f"file {number}: {data!r}"
        assert all(error.path == PATH and not PRIVATE.search(str(error)) for error in found.problems)


@pytest.mark.parametrize("content", [PUBTATOR, CONLL, TSV, JSON])
def test_the_files_before_the_changes_are_good(content: str):
    parse = {PUBTATOR: pubtator.parse, JSON: documents_json.parse}.get(content)
    others = biobert_tsv.parse if content == TSV else conll.parse
    found = list(parse(content, PATH) if parse else others(content, PATH, Counter()))
    assert len(found) >= 2
    assert brat.parse(TEXT, ANN, "x", PATH, Counter()).relations
    assert len(list(eog.parse(EOG, PATH, Counter()))) == 2
    assert len(list(docred.parse(DOCRED, PATH, Counter()))) == 1
    assert len(list(nre.parse(lines(NRE), PATH, Counter()))) == 3
    assert (
        len(list(opennre.parse(lines(OPENNRE), PATH, Counter()))) == len(list(bere.parse(BERE, PATH, Counter()))) == 2
    )
    assert i2b2_2010.parse(I2B2, CON, REL, i2b2_2010.Files(PATH, PATH, PATH), Counter()).relations
    assert len(list(ade.parse(ADE, Path("AE"), warnings := Counter()))) == 3
    assert len(cadec.parse(TEXT, CADEC, "x", PATH, warnings).mentions) == 3
    assert [len(document.mentions) for document in smm4h.parse(SMM4H, PATH, warnings)] == [2, 0]
    assert i2b2_2012.parse(XML, PATH, warnings).relations
    assert warnings == {"annotators' notes left out": 1, pieces.CHOICES["keep"]: 1}
