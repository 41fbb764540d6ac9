"""Mentions of one thing become one entity: by concept, by name, by an abbreviation that the text defines."""

from __future__ import annotations

import time
from dataclasses import replace

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span, entities_by_concept
from grandrounds.pipeline.entities import group_entities


def document(*named: tuple[str, str, str | None], text: str | None = None) -> Document:
    """With a mention for each (name, type, concept), in the order of the text."""
    whole = ", ".join(name for name, _, _ in named) if text is None else text
    mentions, at = [], 0
    for i, (name, type, concept) in enumerate(named, start=1):
        at = whole.index(name, at)
        mentions.append(Mention(at, at + len(name), type, f"T{i}", concept))
        at += len(name)
    return Document("d", whole, mentions=tuple(mentions))


def groups(found: Document) -> list[tuple[int, ...]]:
    return [entity.mentions for entity in group_entities(found).entities]


def test_the_same_concept_or_the_same_normalised_name_of_a_type() -> None:
    found = document(
        ("gout", "Disease", "D1"),
        ("podagra", "Disease", "D1"),
        ("Gout", "Disease", None),
        ("gout", "Drug", None),
        ("seizures", "Disease", "-1"),
        ("seizure", "Disease", None),
        ("fever", "Disease", None),
    )
    assert groups(found) == [(0, 1, 2), (3,), (4, 5), (6,)]
    assert [entity.id for entity in group_entities(found).entities] == ["T1", "T4", "T5", "T7"]
    assert [entity.type for entity in group_entities(found).entities] == ["Disease", "Drug", "Disease", "Disease"]


def test_different_concepts_stay_apart_whatever_their_names() -> None:
    assert groups(document(("MI", "Disease", "D1"), ("MI", "Disease", "D2"), ("MI", "Disease", None))) == [(0, 2), (1,)]


def test_a_name_without_a_concept_does_not_join_two_concepts() -> None:
    text = "hypertension (HTN), HTN"
    found = document(("hypertension", "Disease", "D1"), ("HTN", "Disease", None), ("HTN", "Disease", "D2"), text=text)
    assert groups(found) == [(0,), (1, 2)]


def test_an_abbreviation_is_one_with_its_long_form_wherever_it_stands() -> None:
    text = "HTN. Hypertension (HTN) was severe. HTN again; hypertensions. COPD"
    names = ("HTN", "Hypertension", "HTN", "HTN", "hypertensions", "COPD")
    assert groups(document(*((name, "Disease", None) for name in names), text=text)) == [(0, 1, 2, 3, 4), (5,)]
    mixed = document(("Hypertension", "Disease", None), ("HTN", "Gene", None), text="Hypertension (HTN)")
    assert groups(mixed) == [(0,), (1,)], "of another type it is another thing"


def test_a_mention_that_ends_with_the_long_form_is_taken_for_it() -> None:
    text = "severe arterial hypertension (AH)"
    named = (("severe arterial hypertension", "Disease", None), ("AH", "Disease", None))
    assert groups(document(*named, text=text)) == [(0, 1)]


def test_relations_follow_and_are_kept_once() -> None:
    found = document(
        ("aspirin", "Drug", None), ("gout", "Disease", None), ("Aspirin", "Drug", None), ("Gout", "Disease", None)
    )
    found = replace(
        found,
        entities=tuple(Entity(f"E{i}", m.type, (i,)) for i, m in enumerate(found.mentions)),
        relations=(
            Relation("treats", "E0", "E1", attributes={"score": "0.9"}),
            Relation("treats", "E2", "E3", attributes={"score": "0.1"}),
            Relation("treats", "E2", "E3", (2, 3)),
            Relation("causes", "E2", "E1"),
        ),
    )
    grouped = group_entities(found)
    assert grouped.entities == (Entity("E0", "Drug", (0, 2)), Entity("E1", "Disease", (1, 3)))
    assert grouped.relations == (
        Relation("treats", "E0", "E1", attributes={"score": "0.9"}),
        Relation("treats", "E0", "E1", (2, 3)),
        Relation("causes", "E0", "E1"),
    )
    assert group_entities(grouped) == grouped


def test_what_a_source_has_grouped_stands() -> None:
    found = document(
        ("gout", "Disease", None),
        ("gout", "Disease", None),
        ("gout", "Disease", None),
        ("gout", "Disease", None),
        ("Gout", "Disease", None),
    )
    found = replace(found, entities=(Entity("X", "Disease", (0, 1)), Entity("Y", "Disease", (2, 3))))
    assert group_entities(found).entities == (Entity("X", "Disease", (0, 1, 4)), Entity("Y", "Disease", (2, 3)))


def test_a_mention_of_two_concepts_keeps_both_entities() -> None:
    found = document(("renal and liver failure", "Disease", "D1|D2"), ("renal and liver failure", "Disease", None))
    found = replace(found, entities=entities_by_concept(found.mentions[:1]))
    assert [(e.id, e.mentions) for e in group_entities(found).entities] == [("D1", (0,)), ("D2", (0,)), ("T2", (1,))]


def test_names_without_a_letter_or_digit_are_not_the_same() -> None:
    assert groups(document(("+", "Sign", None), ("-", "Sign", None))) == [(0,), (1,)]


def test_pieces_of_a_discontinuous_mention_are_its_name() -> None:
    text = "high systolic blood pressure; high blood pressure"
    mentions = (
        Mention(0, 28, "Disease", "T1", fragments=(Span(0, 4), Span(14, 28))),
        Mention(30, 49, "Disease", "T2"),
    )
    assert groups(Document("d", text, mentions=mentions)) == [(0, 1)]


def test_a_document_without_mentions_stays() -> None:
    empty = Document("d", "")
    assert group_entities(empty) == empty


def test_twenty_thousand_mentions_take_seconds() -> None:
    names = [f"name{i % 2000}" for i in range(20_000)]
    found = document(*((name, "Disease", None) for name in names))
    start = time.process_time()
    grouped = group_entities(found)
    assert time.process_time() - start < 5
    assert len(grouped.entities) == 2000
