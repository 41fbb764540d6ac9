"""The data model: what can't be built, and what can be asked of it."""

from __future__ import annotations

import pytest

from grandrounds.data.documents import (
    Document,
    Entity,
    Mention,
    Relation,
    Span,
    entities_by_concept,
    entities_by_synonyms,
)
from grandrounds.errors import DataError

TEXT = "Aspirin helps. It caused bleeding."
ASPIRIN = Mention(0, 7, "Drug", "T1", "D001241")
IT = Mention(15, 17, "Drug", "T2", "D001241")
BLEEDING = Mention(25, 33, "Disease", "T3", "D006470")
ENTITIES = (Entity("D001241", "Drug", (0, 1)), Entity("D006470", "Disease", (2,)))


def build(**changes: object) -> Document:
    values: dict[str, object] = {
        "id": "patient-4711",
        "text": TEXT,
        "sentences": (Span(0, 14), Span(15, 34)),
        "mentions": (ASPIRIN, IT, BLEEDING),
        "entities": ENTITIES,
        "relations": (Relation("CID", "D001241", "D006470", (1, 2)),),
    }
    return Document(**{**values, **changes})  # type: ignore[arg-type]


def test_a_document_points_back_to_its_characters():
    document = build()
    assert [document.surface(mention) for mention in document.mentions] == ["Aspirin", "It", "bleeding"]
    assert document.surface(document.sentences[1]) == "It caused bleeding."
    assert document.entity("D001241").mentions == (0, 1)


def test_sentence_of_is_none_for_a_span_over_two_sentences_or_between_them():
    document = build()
    assert [document.sentence_of(mention) for mention in document.mentions] == [0, 1, 1]
    assert document.sentence_of(Span(8, 17)) is None
    assert document.sentence_of(Span(14, 15)) is None
    assert build(sentences=(Span(15, 34),)).sentence_of(ASPIRIN) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sentences": (Span(0, 14), Span(10, 34))}, "sentence 10-34 is empty, outside"),
        ({"sentences": (Span(5, 5),)}, "sentence 5-5 is empty"),
        ({"sentences": (Span(0, 35),)}, r"outside the text \(0-34\)"),
        ({"mentions": (ASPIRIN, IT, ASPIRIN)}, "mention 0-7 has the id of an earlier one"),
        ({"mentions": (ASPIRIN, IT, Mention(9, 4, "Drug", "T9"))}, "mention 9-4 is empty or inverted"),
        ({"mentions": (ASPIRIN, IT, Mention(30, 40, "Drug", "T9"))}, r"mention 30-40 lies outside the text"),
        (
            {"mentions": (ASPIRIN, IT, Mention(0, 7, "Drug", "T9", fragments=(Span(0, 4), Span(3, 7))))},
            "overlapping or outlying fragment 3-7",
        ),
        ({"entities": (*ENTITIES, ENTITIES[0])}, "two entities have the same id"),
        ({"entities": (*ENTITIES, Entity("x", "Drug", ()))}, "entity number 3 has no mention"),
        ({"entities": (*ENTITIES, Entity("x", "Drug", (3,)))}, "entity number 3 has no mention, or one"),
        ({"relations": (Relation("CID", "D001241", "x"),)}, "relation number 1 refers to an entity"),
        ({"relations": (Relation("CID", "D001241", "D006470", (0, 7)),)}, "number 1 refers to a mention"),
    ],
)
def test_inconsistent_documents_are_refused_without_naming_ids(changes: dict[str, object], message: str):
    with pytest.raises(DataError, match=message) as caught:
        build(**changes)
    assert "4711" not in str(caught.value)
    assert "D00" not in str(caught.value)


def test_mentions_are_grouped_by_concept_and_composite_ones_belong_to_each():
    mentions = [
        Mention(0, 1, "Disease", "T1", "D1"),
        Mention(1, 2, "Disease", "T2", "D2|D1"),
        Mention(2, 3, "Drug", "T3", "-1"),
        Mention(3, 4, "Drug", "T4"),
    ]
    assert entities_by_concept(mentions) == (
        Entity("D1", "Disease", (0, 1)),
        Entity("D2", "Disease", (1,)),
        Entity("T3", "Drug", (2,)),
        Entity("T4", "Drug", (3,)),
    )


def test_synonyms_join_mentions_through_chains_of_shared_ids():
    concepts = ["A", "B|C", "D", "C|A", "-1", "E|F", None, "D"]
    mentions = [Mention(i, i + 1, "X", f"T{i}", concept) for i, concept in enumerate(concepts)]
    found = {entity.id: entity.mentions for entity in entities_by_synonyms(mentions)}
    assert found == {"A|B|C": (0, 1, 3), "D": (2, 7), "T4": (4,), "E|F": (5,), "T6": (6,)}
    joined = entities_by_synonyms(mentions, [("F", "G"), ("G", "D"), ("H", "-1"), ("-1", "E"), ("-1", "A")])
    assert [(entity.id, entity.mentions) for entity in joined][:2] == [("A|B|C", (0, 1, 3)), ("D|E|F", (2, 5, 7))]
