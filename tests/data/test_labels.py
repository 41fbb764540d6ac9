"""data.map_labels: types are renamed or dropped with all that hangs on them, and unknown names are refused."""

from __future__ import annotations

from collections import Counter

import pytest

from grandrounds.data import labels
from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.labels import LabelMap
from grandrounds.data.pairs import PAIRS, list_pairs, listed_pairs
from grandrounds.errors import ConfigError

DOCUMENT = Document(
    "1",
    "a b c d",
    (Span(0, 7),),
    (
        Mention(0, 1, "Species", "T1"),
        Mention(2, 3, "Chemical", "T2"),
        Mention(4, 5, "Disease", "T3"),
        Mention(6, 7, "Chemical", "T4"),
    ),
    (Entity("S", "Species", (0, 3)), Entity("C", "Chemical", (1,)), Entity("D", "Disease", (2,))),
    (
        Relation("CID", "C", "D", (1, 2)),
        Relation("treats", "C", "D", (1, 2)),
        Relation("in", "C", "S", (1, 0)),
        Relation("near", "D", "S", (2, 3)),
        Relation("near", "D", "C"),
    ),
    {PAIRS: list_pairs([("C", "D"), ("C", "S")])},
)


def test_types_are_renamed_and_dropped_with_what_hangs_on_them():
    mapping = LabelMap({"Species": "", "Chemical": "Drug", "treats": "CID", "near": ""})
    warnings: Counter[str] = Counter()
    (document,) = mapping.apply([DOCUMENT], warnings)
    assert [(m.id, m.type) for m in document.mentions] == [("T2", "Drug"), ("T3", "Disease"), ("T4", "Drug")]
    assert document.entities == (
        Entity("S", "Drug", (2,)),  # what is left of it
        Entity("C", "Drug", (0,)),
        Entity("D", "Disease", (1,)),
    )
    assert document.relations == (Relation("CID", "C", "D", (0, 1)),)
    assert warnings == {labels.MENTIONS: 1, labels.RELATIONS: 3, labels.TWICE: 1}
    mapping.check()


def test_pairs_of_entities_that_are_gone_are_no_longer_listed():
    (document,) = LabelMap({"Species": "", "Chemical": ""}).apply([DOCUMENT], Counter())
    assert [entity.id for entity in document.entities] == ["D"]
    assert listed_pairs(document, PAIRS) == ()
    assert document.relations == ()


def test_nothing_changes_without_names():
    warnings: Counter[str] = Counter()
    assert LabelMap({}).apply([DOCUMENT], warnings) == (DOCUMENT,)
    assert LabelMap({"Gene": "x"}).apply([DOCUMENT], warnings) == (DOCUMENT,)
    assert not warnings


def test_a_name_that_no_document_has_is_refused_with_the_nearest():
    mapping = LabelMap({"Chemica": "Drug"})
    mapping.apply([DOCUMENT], Counter())
    with pytest.raises(ConfigError, match=r"data\.map_labels: unknown type 'Chemica'; did you mean 'Chemical'\?"):
        mapping.check()
