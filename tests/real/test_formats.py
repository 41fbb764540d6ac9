"""The readers on the corpora beside the project: published counts, and the same bytes when written again."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from grandrounds.data import knowledge_base
from grandrounds.data.distant import label
from grandrounds.data.documents import Document, Mention
from grandrounds.data.formats import (
    Corpus,
    ade,
    brat,
    chemdisgene,
    conll,
    documents_json,
    opennre,
    pair_sentence,
    pubtator_lines,
    read,
    write,
)
from grandrounds.data.formats.source import lines, load
from grandrounds.data.knowledge_base import read_facts
from grandrounds.data.pairs import (
    NOT_INCLUDE,
    PAIRS,
    candidate_pairs,
    convention,
    listed_pairs,
    related_types,
    stated_types,
)
from tests.real.corpora import DATA

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not DATA.is_dir(), reason="the corpora are not beside the project; set GRANDROUNDS_DATA"),
]

PARTS = ("train", "dev", "test")
CDR = "cdr/pubtator/CDR_{}Set.PubTator.txt"


def noted(format: str, name: str, **options: str) -> Corpus:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not in the data folder")
    return read(DATA / name, format, **options)


def corpus(format: str, name: str) -> tuple[Document, ...]:
    found = noted(format, name)
    assert found.warnings == {}, "a published corpus needs no mending"
    return found.documents


@pytest.mark.parametrize(
    ("name", "documents", "mentions", "relations"),
    [
        (CDR.format("Training"), 500, 9385, 1038),
        (CDR.format("Development"), 500, 9591, 1012),
        (CDR.format("Test"), 500, 9809, 1066),
        ("biored/Train.PubTator", 400, 13351, 4178),
        ("biored/Dev.PubTator", 100, 3533, 1162),
        ("chemdisgene/dev_abstracts.txt.gz", 1521, 41430, 0),
        ("chemdisgene/test_abstracts.txt.gz", 1939, 57382, 0),
        ("chemdisgene/curated/abstracts.txt.gz", 523, 14286, 0),
    ],
)
def test_pubtator_counts_and_the_same_bytes_again(name: str, documents: int, mentions: int, relations: int):
    found = corpus("pubtator", name)
    assert len(found) == documents
    assert sum(len(document.mentions) for document in found) == mentions
    assert sum(len(document.relations) for document in found) == relations
    assert all(document.sentence_of(mention) is not None for document in found for mention in document.mentions)
    warnings: Counter[str] = Counter()
    assert pubtator_lines.render(found, warnings) == load(DATA / name)
    assert not warnings


def test_biored_counts_by_type_and_novelty():
    relations = [
        relation for document in corpus("pubtator", "biored/Train.PubTator") for relation in document.relations
    ]
    assert Counter(relation.type for relation in relations) == {
        "Association": 2192,
        "Positive_Correlation": 1089,
        "Negative_Correlation": 763,
        "Bind": 61,
        "Cotreatment": 31,
        "Comparison": 28,
        "Drug_Interaction": 11,
        "Conversion": 3,
    }
    assert Counter(relation.attributes["novelty"] for relation in relations) == {"Novel": 2838, "No": 1340}
    ends = [end for relation in relations for end in (relation.head, relation.tail)]
    assert sum("|" in end for end in ends) == 320
    assert not any(end in ("p", "c", "g", "SUB", "DEL") for end in ends)


def test_maccrobat_has_all_its_mentions_and_relations_and_few_nest():
    found = noted("brat", "maccrobat").documents
    assert (len(found), sum(len(d.mentions) for d in found), sum(len(d.relations) for d in found)) == (10, 1080, 710)
    pairs = [pair for document in found for pair in combinations(sorted(document.mentions, key=_outer_first), 2)]
    within = [(a, b) for a, b in pairs if b.end <= a.end]
    same_words = [(a, b) for a, b in within if (a.start, a.end) == (b.start, b.end)]
    nested = Counter(a.type == b.type for a, b in within if (a, b) not in same_words)
    assert (len(same_words), nested[False], nested[True]) == (3, 6, 2)
    assert not [(a, b) for a, b in pairs if b.start < a.end < b.end]


def _outer_first(mention: Mention) -> tuple[int, int]:
    return mention.start, -mention.end


@pytest.mark.parametrize("part", ["Training", "Development", "Test"])
def test_cdr_keeps_its_mentions_through_json_brat_and_conll(part: str):
    found = corpus("pubtator", CDR.format(part))
    assert tuple(documents_json.parse(documents_json.render(found), Path("a"))) == found
    for document in found:
        ann = brat.render(document, Counter())
        again = brat.parse(document.text, ann, document.id, Path("a"), Counter())
        assert [(m.start, m.end, m.type) for m in again.mentions] == [
            (m.start, m.end, m.type) for m in document.mentions
        ]
        assert len(again.relations) == len(document.relations)
    tagged = conll.parse(conll.render(found, Counter()), Path("a"), Counter())
    assert [_surfaces(document) for document in tagged] == [_surfaces(document) for document in found]


@pytest.mark.parametrize("to", ["bioc", "bioc-json", "pubannotation"])
@pytest.mark.parametrize(
    ("format", "name", "mentions", "relations"),
    [
        ("pubtator", CDR.format("Training"), 9385, 1038),
        ("pubtator", "biored/Train.PubTator", 13351, 4178),
        ("pubtator", "biored/Dev.PubTator", 3533, 1162),
        ("brat", "maccrobat", 1080, 710),
    ],
)
def test_corpora_come_through_bioc_and_pubannotation_whole(
    format: str, name: str, mentions: int, relations: int, to: str, tmp_path: Path
):
    found = noted(format, name).documents
    assert sum(len(document.mentions) for document in found) == mentions
    assert sum(len(document.relations) for document in found) == relations
    assert write(to, found, tmp_path / "a") == {}
    again = read(tmp_path / "a", to)
    assert again.documents == found
    assert again.warnings == {}
    if to == "bioc":
        from bioc import biocxml

        with (tmp_path / "a").open(encoding="utf-8") as file:
            collection = biocxml.load(file)
        assert sum(len(passage.annotations) for d in collection.documents for passage in d.passages) == mentions
        assert sum(len(d.relations) for d in collection.documents) == relations
    if to == "bioc-json":
        from bioc import biocjson

        with (tmp_path / "a").open(encoding="utf-8") as file:
            collection = biocjson.load(file)
        assert sum(len(passage.annotations) for d in collection.documents for passage in d.passages) == mentions
        assert sum(len(d.relations) for d in collection.documents) == relations


def _surfaces(document: Document) -> list[tuple[str, str]]:
    ordered = sorted(document.mentions, key=lambda mention: mention.start)
    return [(re.sub(r"\s", "", document.surface(mention)), mention.type) for mention in ordered]


@pytest.mark.parametrize(
    ("name", "rows", "positive"),
    [
        ("gad/1/train.tsv", 4796, 2520),
        ("gad/1/test.tsv", 534, 281),
        ("gad/2/train.tsv", 4797, 2521),
        ("gad/2/test.tsv", 533, 280),
        ("eu-adr/1/train.tsv", 318, 235),
        ("eu-adr/1/test.tsv", 37, 27),
        ("eu-adr/2/train.tsv", 318, 235),
        ("eu-adr/2/test.tsv", 37, 27),
    ],
)
def test_biobert_counts(name: str, rows: int, positive: int):
    found = corpus("biobert-tsv", name)
    assert len(found) == rows
    assert sum(len(document.relations) for document in found) == positive
    for document in found:
        assert sorted(document.surface(mention) for mention in document.mentions) == ["@DISEASE$", "@GENE$"]


@pytest.mark.parametrize(
    ("part", "related", "unrelated", "not_included", "warnings"),
    [("train", 1038, 4202, 192, 0), ("dev", 1012, 4075, 174, 10), ("test", 1066, 4138, 201, 5)],
)
def test_eog_gives_the_pairs_of_cdr(part: str, related: int, unrelated: int, not_included: int, warnings: int):
    found = noted("eog", f"cdr/eog/{part}_filter.data")
    assert sum(found.warnings.values()) == warnings
    assert set(found.warnings) <= {"mentions named by a part of their tokens, of which they cover the whole"}
    assert len(found.documents) == 500
    assert Counter(r.type for document in found.documents for r in document.relations) == {"CID": related}
    stated = unstated = left_out = 0
    for document in found.documents:
        relations = {(relation.head, relation.tail) for relation in document.relations}
        pairs, without = (set(listed_pairs(document, kind)) for kind in (PAIRS, NOT_INCLUDE))
        stated, unstated = stated + len(pairs & relations), unstated + len(pairs - relations)
        left_out += len(without)
        # What a file without a list of pairs would give, so the list says nothing that the rule does not.
        ruled = replace(document, attributes={k: v for k, v in document.attributes.items() if k != PAIRS})
        assert set(candidate_pairs(ruled, {("Chemical", "Disease")})) == pairs
        assert all(document.sentence_of(mention) is not None for mention in document.mentions)
    assert (stated, unstated, left_out) == (related, unrelated, not_included)


@pytest.mark.parametrize(
    ("name", "part", "related", "unrelated", "not_included"),
    [
        ("Training", "train", 1038, 4202, 192),
        ("Development", "dev", 1012, 4075, 174),
        ("Test", "test", 1066, 4138, 201),
    ],
)
def test_cdr_from_pubtator_with_a_list_of_hypernyms_has_the_pairs_of_eog(
    name: str, part: str, related: int, unrelated: int, not_included: int, tmp_path: Path
):
    published = {document.id: document for document in noted("eog", f"cdr/eog/{part}_filter.data").documents}
    rows = [(id, *pair) for id, document in published.items() for pair in listed_pairs(document, NOT_INCLUDE)]
    (tmp_path / "list.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    found = noted("pubtator", CDR.format(name), not_include=str(tmp_path / "list.tsv"))
    assert found.warnings == {}
    stated = unstated = 0
    for document in found.documents:
        pairs = candidate_pairs(document, convention("cdr").types)
        assert set(pairs) == set(listed_pairs(published[document.id], PAIRS))
        types = stated_types(document, pairs).values()
        stated, unstated = stated + len([1 for t in types if t]), unstated + len([1 for t in types if not t])
    assert (stated, unstated, len(rows)) == (related, unrelated, not_included)


CURATED = "chemdisgene/curated/abstracts.txt.gz"


@pytest.mark.parametrize(
    ("name", "options", "documents", "relations", "warnings"),
    [
        # Of the lines left out, one and two are about a gene with the number of a species, of which alone there is a
        # mention (10090, 10116).
        ("chemdisgene/dev_abstracts.txt.gz", {}, 1521, 3288, (3290, 1, 2)),
        ("chemdisgene/test_abstracts.txt.gz", {}, 1939, 5115, (5116, 2, 1)),
        (CURATED, {"relations": "approved_relns_ctd_v0.tsv.gz"}, 523, 1277, (0, 0, 0)),
        (CURATED, {"relations": "approved_relns_*.tsv.gz"}, 523, 3126, (0, 0, 0)),
    ],
)
def test_chemdisgene_counts(
    name: str, options: dict[str, str], documents: int, relations: int, warnings: tuple[int, int, int]
):
    found = noted("chemdisgene", name, **options)
    kinds = (chemdisgene.TURNED, chemdisgene.NO_MENTION, chemdisgene.TWICE)
    assert found.warnings == {kind: count for kind, count in zip(kinds, warnings, strict=True) if count}
    assert len(found.documents) == documents
    stated = [relation for document in found.documents for relation in document.relations]
    assert len(stated) == relations
    assert related_types(found.documents) == convention("chemdisgene").types


def test_the_relations_of_both_parts_of_chemdisgene_have_the_same_names():
    derived = noted("chemdisgene", "chemdisgene/test_abstracts.txt.gz").documents
    curated = noted("chemdisgene", CURATED, relations="approved_relns_ctd_v0.tsv.gz").documents
    names = [{relation.type for document in part for relation in document.relations} for part in (derived, curated)]
    assert names[0] == names[1]
    assert len(names[0]) == 14


@pytest.mark.parametrize(
    ("part", "sentences", "entities", "listed", "relations", "with_evidence"),
    [("dev", 4110, 9684, 13189, 17284, 7473), ("test", 3966, 9779, 13018, 17448, 7547)],
)
def test_docred_counts(part: str, sentences: int, entities: int, listed: int, relations: int, with_evidence: int):
    found = noted("docred", f"re-docred/{part}_revised.json")
    assert found.warnings == {
        "entities whose mentions differ in type, which have the first one's": 9,
        "mentions whose name is not that of their tokens, which count": 3,
    }
    assert len(found.documents) == 500
    assert sum(len(document.sentences) for document in found.documents) == sentences
    assert sum(len(document.entities) for document in found.documents) == entities
    assert sum(len(entity.mentions) for document in found.documents for entity in document.entities) == listed
    stated = [relation for document in found.documents for relation in document.relations]
    assert len(stated) == relations
    assert sum("evidence" in relation.attributes for relation in stated) == with_evidence


@pytest.mark.parametrize(
    ("format", "name", "sentences", "unrelated", "facts", "unrelated_pairs", "overlapping"),
    [
        ("bere", "bere-dti/valid.json", 6133, 4686, 83, 4686, 49),
        ("bere", "bere-dti/test.json", 6312, 4734, 83, 4734, 57),
        # The 1,082 facts that GIDS counts are 816 and 266 pairs without a relation.
        ("nre", "gids/dev.tsv", 1864, 447, 816, 266, 1),
    ],
)
def test_distant_supervision_counts_and_no_sentence_lost(
    format: str, name: str, sentences: int, unrelated: int, facts: int, unrelated_pairs: int, overlapping: int
):
    found = noted(format, name)
    assert found.warnings == {pair_sentence.OVERLAP: overlapping}
    assert len(found.documents) == sentences
    assert sum(not document.relations for document in found.documents) == unrelated
    stated = [relation for document in found.documents for relation in document.relations]
    assert len({(relation.head, relation.type, relation.tail) for relation in stated}) == facts
    without = [tuple(m.concept for m in document.mentions) for document in found.documents if not document.relations]
    assert len(set(without)) == unrelated_pairs
    warnings: Counter[str] = Counter()
    written = opennre.render(found.documents, warnings)
    assert not warnings
    assert tuple(opennre.parse(lines(written), Path("a"), warnings)) == found.documents


def test_facts_of_ctd_label_the_abstracts_of_chemdisgene():
    warnings: Counter[str] = Counter()
    abstracts = corpus("pubtator", "chemdisgene/dev_abstracts.txt.gz")
    facts = read_facts(DATA / "chemdisgene/train_relationships.tsv.gz", warnings, columns=(4, 2, 3))
    assert (facts.facts, warnings) == (93_812, {knowledge_base.TWICE: 167_016 - 93_812})
    # Without types, 29 instances would be about genes that have the number of a species.
    labelled = label(abstracts, facts, warnings, types=convention("chemdisgene").types)
    reported = labelled.statistics
    assert reported["types"] == {"Chemical:Disease": 2339, "Chemical:Gene": 3229, "Gene:Disease": 533}
    assert (reported["instances"], reported["instances of NA"], reported["sentences"]) == (2 * 6101, 6101, 16_532)
    assert len(reported["relation"]) == 14 + 1
    found = {(r.head, r.type, r.tail) for document in labelled.documents(abstracts) for r in document.relations}
    assert len(found) == reported["facts found"]


@pytest.mark.parametrize(
    ("name", "sentences", "mentions"),
    [
        ("bc5cdr-ner/train.tsv", 4560, 9385),
        ("bc5cdr-ner/devel.tsv", 4581, 9593),
        ("bc5cdr-ner/test.tsv", 4797, 9809),
        ("psytar/train.txt", 3850, 3535),
        ("psytar/dev.txt", 550, 431),
        ("psytar/test.txt", 1191, 1077),
    ],
)
def test_conll_counts_and_the_same_bytes_again(name: str, sentences: int, mentions: int):
    found = corpus("conll", name)
    assert len(found) == sum(len(document.sentences) for document in found) == sentences
    assert sum(len(document.mentions) for document in found) == mentions
    assert conll.render(found, Counter()) == load(DATA / name)


@pytest.mark.parametrize(
    "name", [f"bc5cdr-ner/{part}.tsv" for part in ("train", "devel", "test")] + [f"psytar/{p}.txt" for p in PARTS]
)
def test_mentions_of_conll_are_those_that_seqeval_finds(name: str):
    get_entities = pytest.importorskip("seqeval.metrics.sequence_labeling").get_entities
    documents = corpus("conll", name)
    blocks = [block.split("\n") for block in load(DATA / name).strip("\n").split("\n\n")]
    assert len(blocks) == len(documents)
    for block, document in zip(blocks, documents, strict=True):
        words, tags = zip(*(line.split("\t") for line in block), strict=True)
        expected = [(type, " ".join(words[first : last + 1])) for type, first, last in get_entities(list(tags))]
        assert [(mention.type, document.surface(mention)) for mention in document.mentions] == expected


@pytest.mark.parametrize(
    ("name", "sentences", "mentions", "relations", "warnings"),
    [
        # Of 4,272 sentences one is in two abstracts, with the same relation in both.
        ("DRUG-AE.rel", 4271, {"AdverseEffect": 5775, "Drug": 5062}, 6820, {ade.AGAIN: 1, ade.TWICE: 1}),
        ("DRUG-DOSE.rel", 213, {"Dose": 230, "Drug": 261}, 279, {}),
        ("ADE-NEG.txt", 16625, {}, 0, {ade.AGAIN: 70}),
    ],
)
def test_ade_counts_and_no_mention_lost_or_guessed(
    name: str, sentences: int, mentions: dict[str, int], relations: int, warnings: dict[str, int]
):
    found = noted("ade", f"ade-corpus/{name}")
    assert found.warnings == warnings
    assert len(found.documents) == sentences
    assert Counter(m.type for document in found.documents for m in document.mentions) == mentions
    assert sum(len(document.relations) for document in found.documents) == relations
    if not relations:
        return
    # Each relation joins the names of a line, as far apart as that line's offsets are.
    stated: set[tuple[str, str, str, int]] = set()
    for line in filter(None, lines(load(DATA / "ade-corpus" / name))):
        _, text, other, _, end, drug, _, drug_end = line.split("|")
        apart = int(end) - len(other.lstrip()) - int(drug_end) + len(drug.lstrip())
        stated.add((text, other.strip(), drug.strip(), apart))
    joined = set()
    for document in found.documents:
        for relation in document.relations:
            drug, other = (document.mentions[i] for i in relation.mentions or ())
            joined.add((document.text, document.surface(other), document.surface(drug), other.start - drug.start))
    assert joined == stated


def test_chemprot_counts():
    found = corpus("chemprot", "chemprot/dev.txt")
    assert len(found) == sum(len(document.relations) for document in found) == 2427
    assert len({document.attributes["patient"] for document in found}) == 910
    assert Counter(document.relations[0].type for document in found).most_common(2) == [
        ("INHIBITOR", 812),
        ("SUBSTRATE", 322),
    ]


def test_ade_whole_has_doses_beside_effects():
    found = noted("ade", "ade-corpus")
    assert len(found.documents) == 4271 + 16625
    mentions = Counter(m.type for document in found.documents for m in document.mentions)
    assert mentions == {"AdverseEffect": 5775, "Drug": 5062, "Dose": 230}
    overlapping = 0
    for document in found.documents:
        ordered = sorted(document.mentions, key=lambda mention: mention.start)
        overlapping += sum(b.start < a.end for i, a in enumerate(ordered) for b in ordered[i + 1 :])
    assert overlapping == 121


def test_sentences_agree_with_those_published_for_the_same_abstracts():
    both = ours = theirs = 0
    for cdr, ner in (("Training", "train"), ("Development", "devel"), ("Test", "test")):
        published = [_squeezed(document.text) for document in corpus("conll", f"bc5cdr-ner/{ner}.tsv")]
        stream = "".join(published)
        ends, length = [], 0
        for sentence in published:
            length += len(sentence)
            ends.append(length)
        for document in corpus("pubtator", CDR.format(cdr)):
            text = _squeezed(document.text)
            at = stream.index(text)
            gold = {end - at for end in ends[bisect_right(ends, at) : bisect_left(ends, at + len(text) + 1)]}
            found = {len(_squeezed(document.text[: sentence.end])) for sentence in document.sentences}
            both, ours, theirs = both + len(gold & found), ours + len(found), theirs + len(gold)
    assert both / ours > 0.997
    assert both / theirs > 0.996


def _squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)
