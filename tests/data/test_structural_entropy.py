"""Structural entropy: a toy graph by hand, and intervals that hold what they should."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.partition import Partition, Unit, partition
from grandrounds.data.structural_entropy import Spread, degrees, entropies, interval_of, intervals, structural_entropy
from grandrounds.errors import ConfigError, DataError
from tests.data.entropy_matrix import by_matrix

# "c d . c ." in two sentences: the chemical in both, the disease in the first.
TOY = Document(
    "toy",
    "c d . c .",
    (Span(0, 5), Span(6, 9)),
    (Mention(0, 1, "Chemical", "T1"), Mention(6, 7, "Chemical", "T2"), Mention(2, 3, "Disease", "T3")),
    (Entity("C", "Chemical", (0, 1)), Entity("D", "Disease", (2,))),
    (Relation("CID", "C", "D"),),
)
PAIR = [("C", "D")]


def test_degrees_count_every_kind_of_edge():
    # C: 2 mentions, 2 sentences, 1 pair. D: 1, 1, and the pair where edges have no direction.
    # Mentions: sentence and entity, and in the first sentence each other. Sentences: mentions, entities, each other.
    assert degrees(TOY, PAIR, directed=False) == [5, 3, 3, 2, 3, 5, 3]
    assert degrees(TOY, PAIR, directed=True) == [5, 2, 3, 2, 3, 5, 3]


def test_pairs_count_once_whatever_their_direction_and_never_with_themselves():
    both = [("C", "D"), ("D", "C"), ("C", "D"), ("C", "C")]
    assert degrees(TOY, both, directed=False) == degrees(TOY, PAIR, directed=False)
    assert degrees(TOY, both, directed=True) == [5, 3, 3, 2, 3, 5, 3]


def test_the_papers_entropy_is_of_the_shares_of_distinct_degrees():
    # Of 7 nodes two have degree 5, four 3, one 2: 2/7 ln 7/2 + 4/7 ln 7/4 + 1/7 ln 7
    assert structural_entropy(TOY, PAIR) == pytest.approx(0.9557, abs=1e-5)


def test_the_codes_entropy_is_of_degrees_over_nodes():
    # 2 * 5/7 log2 7/5 + 2 * 2/7 log2 7/2 + 3 * 3/7 log2 7/3
    assert structural_entropy(TOY, PAIR, "code") == pytest.approx(3.297888, abs=1e-6)


def test_a_mention_of_two_entities_is_a_node_for_each():
    shared = replace(TOY, entities=(*TOY.entities, Entity("E", "Disease", (2,))))
    # E's mention meets the two others of the first sentence, which itself gains a mention and an entity.
    assert degrees(shared, PAIR, directed=True) == [5, 2, 2, 4, 2, 4, 4, 7, 3]


def test_a_mention_outside_all_sentences_has_its_entity_only():
    assert degrees(replace(TOY, sentences=()), PAIR, directed=True) == [3, 1, 1, 1, 1]


def test_a_document_without_entities_or_text_has_an_entropy():
    assert structural_entropy(Document("d", ""), []) == structural_entropy(Document("d", ""), [], "code") == 0
    assert structural_entropy(Document("d", "One.", (Span(0, 4),)), [], "code") == 0


def test_without_a_list_the_pairs_are_of_the_types_that_relations_join():
    unrelated = replace(TOY, relations=())
    assert entropies([TOY, unrelated]) == [structural_entropy(TOY, PAIR)] * 2
    assert entropies([unrelated]) == [structural_entropy(TOY, [])]


def test_a_value_on_an_edge_belongs_to_the_upper_interval_and_the_greatest_to_the_last():
    edges = intervals([1.0, 5.0, 3.0], 4)
    assert edges == [2.0, 3.0, 4.0]
    assert [interval_of(value, edges) for value in (1.0, 2.0, 2.5, 3.0, 5.0)] == [0, 1, 1, 2, 3]


def sentences(count: int) -> Document:
    """So many sentences of one mention each, all of one entity."""
    text = " ".join(["x"] * count)
    spans = [Span(2 * i, 2 * i + 1) for i in range(count)]
    mentions = tuple(Mention(*span, "X", f"T{i}") for i, span in enumerate(spans))
    return Document(f"d{count}", text, tuple(spans), mentions, (Entity("X", "X", tuple(range(count))),))


def deal(*documents: Document, **options: object) -> Partition:
    units = [Unit(str(i), "x", {}, (i,), (document,)) for i, document in enumerate(documents)]
    return partition(units, "structural_entropy", **{"sites": None, "seed": 1, **options})  # type: ignore[arg-type]


def test_the_code_gives_longer_documents_a_higher_entropy_and_a_later_site():
    documents = [sentences(count) for count in (2, 3, 12, 13)]
    low, _, high, _ = entropies(documents, "code")
    dealt = deal(*documents, entropy="code", sites=3)
    assert dealt.sites == {"site-01": (0, 1), "site-03": (2, 3)}
    assert dealt.left_out == ("site-02",)
    assert deal(*documents, entropy="code", edges=[(low + high) / 2]).sites == {"site-01": (0, 1), "site-02": (2, 3)}


def test_the_matrix_agrees_with_the_degrees():
    for reading in ("paper", "code"):
        assert by_matrix(TOY, PAIR, reading) == pytest.approx(structural_entropy(TOY, PAIR, reading), abs=1e-12)


def test_a_row_tells_the_entropy_of_each_document_at_the_site_once():
    documents = [sentences(count) for count in (2, 4, 12, 13)]
    low, middle, high, highest = (by_matrix(document, [], "code") for document in documents)
    # The first document is torn into two units, and counts once.
    units = [Unit(str(i), "x", {}, (i,), (documents[d],)) for i, d in enumerate((0, 0, 1, 2, 3))]
    dealt = partition(units, "structural_entropy", sites=3, seed=1, entropy="code")
    rows = dealt.table([("x",)] * 5, ["a", "a", "b", "c", "d"])
    assert [(row.name, row.documents, row.examples) for row in rows] == [("site-01", 2, 3), ("site-03", 2, 2)]
    for row, values in zip(rows, ([low, middle], [high, highest]), strict=True):
        assert row.to_dict()["entropy"] == pytest.approx({"min": values[0], "mean": sum(values) / 2, "max": values[1]})
    assert dealt.entropy.keys() == dealt.sites.keys()


def test_a_site_of_one_document_has_a_spread_of_nothing():
    h = structural_entropy(TOY, PAIR)
    assert deal(TOY, sites=1).entropy == {"site-01": Spread(h, h, h)}


def test_a_unit_of_several_documents_has_the_mean_of_their_entropies():
    documents = [sentences(2), sentences(12), sentences(20)]
    low, middle, high = entropies(documents, "code")
    assert low < (low + high) / 2 < middle < high
    units = [Unit("a", "x", {}, (0, 1), (documents[0], documents[2])), Unit("b", "x", {}, (2,), (documents[1],))]
    for edge, sites in ((middle - 1e-6, {"site-01": (0, 1), "site-02": (2,)}), (low, {"site-02": (0, 1, 2)})):
        dealt = partition(units, "structural_entropy", sites=None, seed=1, entropy="code", edges=[edge])
        assert dealt.sites == sites


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs a number of sites"),
        ({"sites": 2, "entropy": "papers"}, "did you mean 'paper'"),
        ({"edges": [2.0, 1.0]}, "partition.edges must be rising numbers"),
        ({"edges": [float("nan")]}, "partition.edges must be rising numbers"),
        ({"edges": []}, "partition.edges must be rising numbers"),
        ({"edges": [1.0, 2.0], "sites": 4}, "2 edges make 3 sites, not 4; remove partition.sites"),
        ({"sites": 2, "alpha": 1.0}, "does not use 'alpha'"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(options: dict[str, object], message: str):
    with pytest.raises(ConfigError, match=message):
        deal(TOY, **options)


def test_units_without_documents_are_refused():
    with pytest.raises(DataError, match="needs units with documents"):
        partition([Unit("a", "x", {}, (0,))], "structural_entropy", sites=2, seed=1)
