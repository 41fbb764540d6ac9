"""Pairs of mentions: which there are, how they are marked, and what fits the window."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.errors import ConfigError, DataError
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.sentence_re import ACROSS, MARKERS, PairExample, PairFeatures, SentenceRE, SentenceREOptions
from grandrounds.tasks.sentence_re import mark_pair as mark
from tests.conftest import sentence

DRUG, PAIN, FEVER, SCAN = ("heparin", "treatment"), ("pain", "problem"), ("fever", "problem"), ("ct scan", "test")
TREATS = ("treatment", "problem")
MARKER_IDS = dict(zip(MARKERS, (901, 902, 911, 912), strict=True))


def make(pairs: list[tuple[str, str]], **options: object) -> SentenceRE:
    return SentenceRE(SentenceREOptions(**options), ("TrIP", "PIP"), pairs)


def decoded(task: SentenceRE, encoder: Encoder, document: Document) -> list[str]:
    features = task.features(task.examples([document])[0], encoder)
    return [
        encoder.tokenizer.decode(features.ids[a:b].tolist())
        for a, b in zip(features.starts[:-1], features.starts[1:], strict=True)
    ]


def pairs_of(task: SentenceRE, document: Document) -> list[tuple[tuple[int, int], str]]:
    return [(example.mentions, example.label) for example in task.examples([document])[0]]


# What a sentence becomes


def test_mentions_are_blinded_by_their_types_and_marked_by_their_roles(encoder: Encoder) -> None:
    document = sentence("d", ["The ", DRUG, " eased the ", PAIN, " ."], {})
    assert decoded(make([TREATS]), encoder, document) == [
        "[CLS] the <e1> @ treatment $ </e1> eased the <e2> @ problem $ </e2>. [SEP]"
    ]


def test_a_head_that_stands_after_its_tail_is_still_e1(encoder: Encoder) -> None:
    document = sentence("d", ["No ", PAIN, " before ", DRUG, " ."], {})
    assert decoded(make([TREATS]), encoder, document) == [
        "[CLS] no <e2> @ problem $ </e2> before <e1> @ treatment $ </e1>. [SEP]"
    ]


def test_without_blinding_the_mentions_own_words_stand_between_the_markers(encoder: Encoder) -> None:
    document = sentence("d", ["The ", DRUG, " eased the ", PAIN, " ."], {})
    assert decoded(make([TREATS], blind=False), encoder, document) == [
        "[CLS] the <e1> heparin </e1> eased the <e2> pain </e2>. [SEP]"
    ]


def test_what_a_corpus_has_already_blinded_is_left_as_it_is(encoder: Encoder) -> None:
    document = sentence("d", ["No ", ("fever", "problem"), " before ", ("insulin", "treatment"), " ."], {})
    marked = tuple(replace(m, attributes={"blinded": "yes"}) for m in document.mentions)
    assert decoded(make([TREATS]), encoder, replace(document, mentions=marked)) == [
        "[CLS] no <e2> fever </e2> before <e1> insulin </e1>. [SEP]"
    ]


def test_only_the_sentence_of_the_pair_is_read_and_other_mentions_keep_their_words(encoder: Encoder) -> None:
    text = "No fever . The heparin eased pain and fever ."
    found = [(3, 8, "problem"), (15, 22, "treatment"), (29, 33, "problem"), (38, 43, "problem")]
    mentions = tuple(Mention(a, b, type, f"T{i}") for i, (a, b, type) in enumerate(found))
    entities = tuple(Entity(m.id, m.type, (i,)) for i, m in enumerate(mentions))
    document = Document("d", text, (Span(0, 10), Span(11, 45)), mentions, entities)
    assert decoded(make([TREATS]), encoder, document) == [
        "[CLS] the <e1> @ treatment $ </e1> eased <e2> @ problem $ </e2> and fever. [SEP]",
        "[CLS] the <e1> @ treatment $ </e1> eased pain and <e2> @ problem $ </e2>. [SEP]",
    ]


def test_spans_point_at_the_pieces_between_the_markers(encoder: Encoder) -> None:
    for parts in (["The ", DRUG, " eased the ", PAIN, " ."], ["No ", PAIN, " before ", DRUG, " ."]):
        task = make([TREATS])
        features = task.features(task.examples([sentence("d", parts, {})])[0], encoder)
        ids = features.ids.tolist()
        e1, past1, e2, past2 = features.spans[0]
        assert encoder.tokenizer.convert_ids_to_tokens(ids[e1:past1]) == ["@", "treatment", "$"]
        assert encoder.tokenizer.convert_ids_to_tokens(ids[e2:past2]) == ["@", "problem", "$"]


# Which pairs there are


def test_every_pair_of_types_that_a_relation_may_join_is_an_example_and_no_other() -> None:
    document = sentence("d", [DRUG, " for ", PAIN, " and ", FEVER, " after ", SCAN, " ."], {(0, 2): "TrIP"})
    assert pairs_of(make([TREATS]), document) == [((0, 1), "None"), ((0, 2), "TrIP")]
    assert pairs_of(make([TREATS, ("test", "problem")]), document) == [
        ((0, 1), "None"),
        ((0, 2), "TrIP"),
        ((3, 1), "None"),
        ((3, 2), "None"),
    ]


def test_both_directions_are_examples_where_both_are_joined() -> None:
    document = sentence("d", [DRUG, " for ", PAIN, " ."], {(1, 0): "PIP"})
    both = make([TREATS, ("problem", "treatment")])
    assert pairs_of(both, document) == [((0, 1), "None"), ((1, 0), "PIP")]


@pytest.mark.parametrize("gold", [(0, 1), (1, 0)])
def test_a_pair_of_equal_types_comes_once_in_text_order_whatever_the_gold_direction(gold: tuple[int, int]) -> None:
    document = sentence("d", [PAIN, " with ", FEVER, " ."], {gold: "PIP"})
    assert pairs_of(make([("problem", "problem")]), document) == [((0, 1), "PIP")]


def test_text_order_is_by_offset_not_by_the_order_of_mentions() -> None:
    document = sentence("d", [PAIN, " with ", FEVER, " ."], {})
    turned = replace(document, mentions=document.mentions[::-1], entities=(), relations=())
    assert pairs_of(make([("problem", "problem")]), turned) == [((1, 0), "None")]


def test_types_and_labels_are_those_of_the_corpus_sorted() -> None:
    documents = [
        sentence("a", [DRUG, " for ", PAIN], {(0, 1): "TrIP"}),
        sentence("b", [SCAN, " of ", PAIN, " with ", DRUG], {(0, 1): "TeRP"}),
    ]
    task = SentenceRE.of(SentenceREOptions(), documents)
    assert task.labels == ("None", "TeRP", "TrIP")
    assert task.pairs == {TREATS, ("test", "problem")}
    assert pairs_of(task, documents[1]) == [((0, 1), "TeRP"), ((2, 1), "None")]


def test_a_relation_between_entities_holds_for_each_two_mentions_in_a_sentence() -> None:
    text = "heparin for pain . heparin alone ."
    mentions = (Mention(0, 7, "treatment", "T1"), Mention(12, 16, "problem", "T2"), Mention(19, 26, "treatment", "T3"))
    entities = (Entity("H", "treatment", (0, 2)), Entity("P", "problem", (1,)))
    document = Document("d", text, (Span(0, 18), Span(19, 34)), mentions, entities, (Relation("TrIP", "H", "P"),))
    task = SentenceRE.of(SentenceREOptions(), [document])
    examples, notes = task.examples([document])
    assert [(example.mentions, example.label, example.sentence) for example in examples] == [((0, 1), "TrIP", 0)]
    assert notes == {}


# What is left out is counted


def test_overlapping_mentions_are_no_pair_and_counted() -> None:
    document = sentence("d", [DRUG, " for ", PAIN, " ."], {})
    wide = Mention(0, 16, "problem", "T9")
    examples, notes = make([TREATS]).examples([replace(document, mentions=(*document.mentions, wide))])
    assert [example.mentions for example in examples] == [(0, 1)]
    assert notes == {"pairs of overlapping mentions, which can't both be marked": 1}


def test_touching_mentions_do_not_overlap() -> None:
    document = sentence("d", [DRUG, PAIN], {})
    assert pairs_of(make([TREATS]), document) == [((0, 1), "None")]


def test_a_relation_across_sentences_is_counted_and_its_mentions_are_not_paired() -> None:
    document = sentence("d", [DRUG, " . ", PAIN], {(0, 1): "TrIP"})
    apart = replace(document, sentences=(Span(0, 9), Span(10, 14)))
    assert make([TREATS]).examples([apart]) == ([], {ACROSS: 1})
    by_entity = replace(apart, relations=(Relation("TrIP", "T1", "T2"),))
    assert make([TREATS]).examples([by_entity]) == ([], {ACROSS: 1})


def test_a_mention_across_a_sentence_boundary_is_counted() -> None:
    document = replace(sentence("d", [DRUG, " . ", PAIN], {}), sentences=(Span(0, 4), Span(5, 14)))
    assert make([TREATS]).examples([document]) == ([], {"mentions across a sentence boundary, in no pair": 1})


def test_a_second_relation_of_a_pair_is_counted_and_the_first_holds() -> None:
    document = sentence("d", [DRUG, " for ", PAIN], {(0, 1): "TrIP"})
    twice = replace(document, relations=(*document.relations, Relation("PIP", "T1", "T2", (0, 1))))
    examples, notes = make([TREATS]).examples([twice])
    assert [example.label for example in examples] == ["TrIP"]
    assert notes == {"second relations of a pair, which has one class": 1}


def test_a_label_outside_the_label_set_is_an_error_that_names_it() -> None:
    document = sentence("d", [DRUG, " for ", PAIN], {(0, 1): "TrWP"})
    with pytest.raises(DataError, match=r"'TrWP' is not in the label set \(TrIP, PIP\).*task\.labels"):
        make([TREATS]).examples([document])


def test_a_corpus_without_relations_and_the_label_none_are_refused() -> None:
    with pytest.raises(DataError, match="no relation"):
        SentenceRE.of(SentenceREOptions(), [sentence("d", [DRUG], {})])
    with pytest.raises(ConfigError, match="'None' is the absence of a relation"):
        SentenceRE.of(SentenceREOptions(), [sentence("d", [DRUG, PAIN], {(0, 1): "None"})])


# The window


def segments(left: int, first: int, middle: int, second: int, right: int, role: int = 1) -> list[tuple[list[int], int]]:
    """Pieces that tell where they stood: 100.. left, 200.. first mention, 300.. middle, 400.. second, 500.. right."""
    sizes = ((left, 0), (first, role), (middle, 0), (second, 3 - role), (right, 0))
    return [([100 * k + i for i in range(size)], who) for k, (size, who) in enumerate(sizes, start=1)]


@pytest.mark.parametrize("role", [1, 2])
@pytest.mark.parametrize(
    "sizes", [(0, 1, 0, 1, 0), (50, 3, 4, 2, 60), (2, 3, 70, 2, 3), (90, 1, 1, 1, 0), (0, 1, 1, 1, 90), (9, 5, 1, 5, 4)]
)
def test_a_row_never_exceeds_the_window_and_wastes_none_of_it(sizes: tuple[int, ...], role: int) -> None:
    for window in range(16, 40):
        row = mark(segments(*sizes, role=role), window, 1, 2, MARKER_IDS)
        assert len(row.ids) == min(sum(sizes) + 6, window)
        assert (row.ids[0], row.ids[-1]) == (1, 2)
        e1, past1, e2, past2 = row.spans
        mentions = {1: row.ids[e1:past1], 2: row.ids[e2:past2]}
        assert mentions[role] == [200 + i for i in range(sizes[1])]
        assert mentions[3 - role] == [400 + i for i in range(sizes[3])]
        assert (row.ids[e1 - 1], row.ids[past1], row.ids[e2 - 1], row.ids[past2]) == (901, 902, 911, 912)


def test_context_is_given_up_farthest_first_on_both_sides() -> None:
    row = mark(segments(50, 2, 3, 2, 50), 21, 1, 2, MARKER_IDS)
    assert [i for i in row.ids if 100 <= i < 200] == [146, 147, 148, 149]
    assert [i for i in row.ids if 500 <= i < 600] == [500, 501, 502, 503]


def test_what_one_side_does_not_need_the_other_gets() -> None:
    row = mark(segments(1, 2, 3, 2, 50), 21, 1, 2, MARKER_IDS)
    assert [i for i in row.ids if 100 <= i < 200] == [100]
    assert [i for i in row.ids if 500 <= i < 600] == [500 + i for i in range(7)]


def test_a_middle_too_long_keeps_what_stands_next_to_each_mention() -> None:
    row = mark(segments(5, 2, 50, 2, 5), 19, 1, 2, MARKER_IDS)
    assert [i for i in row.ids if 300 <= i < 400] == [300, 301, 302, 303, 304, 346, 347, 348, 349]
    assert not [i for i in row.ids if 100 <= i < 200 or 500 <= i < 600]


def test_mentions_longer_than_the_window_are_an_error_that_says_what_to_do() -> None:
    assert len(mark(segments(3, 5, 3, 5, 3), 16, 1, 2, MARKER_IDS).ids) == 16
    with pytest.raises(DataError, match=r"6 and 5 word pieces don't fit the window of 16; raise task\.max_length"):
        mark(segments(3, 6, 3, 5, 3), 16, 1, 2, MARKER_IDS)


def test_the_window_is_the_encoders_where_that_is_shorter(encoder: Encoder) -> None:
    document = sentence("d", ["pain " * 200, DRUG, " for ", PAIN, " pain" * 200], {})
    for wanted, length in ((20, 20), (64, 64), (500, 64)):
        task = make([TREATS], max_length=wanted)
        assert task.features(task.examples([document])[0], encoder).lengths.tolist() == [length]


def test_a_sentence_of_a_hundred_thousand_words_is_read_in_seconds(encoder: Encoder) -> None:
    document = sentence("d", ["fever " * 50_000, DRUG, " for ", PAIN, " and ", FEVER, " fever" * 50_000], {})
    task, began = make([TREATS]), time.perf_counter()
    features = task.features(task.examples([document])[0], encoder)
    assert time.perf_counter() - began < 20
    assert features.lengths.tolist() == [64, 64]


# Features


@pytest.fixture(scope="module")
def features(task: SentenceRE, documents: list[Document], encoder: Encoder) -> PairFeatures:
    return task.features(task.examples(documents)[0], encoder)


def test_a_batch_is_the_rows_padded_to_the_longest_of_them(features: PairFeatures) -> None:
    rng = np.random.default_rng(0)
    for chosen in (rng.permutation(len(features.labels))[:9], np.array([len(features.labels) - 1]), np.array([3, 3])):
        batch = features.batch(chosen)
        rows = [features.ids[features.starts[i] : features.starts[i + 1]].tolist() for i in chosen]
        longest = max(map(len, rows))
        assert batch.input_ids.tolist() == [row + [features.pad] * (longest - len(row)) for row in rows]
        assert batch.attention_mask.tolist() == [[1] * len(row) + [0] * (longest - len(row)) for row in rows]
        assert batch.labels.tolist() == [features.labels[i] for i in chosen]
        assert batch.spans.tolist() == [features.spans[i].tolist() for i in chosen]
        assert batch.index.tolist() == chosen.tolist()


def test_labels_are_numbered_with_none_first(
    task: SentenceRE, features: PairFeatures, documents: list[Document]
) -> None:
    examples: list[PairExample] = task.examples(documents)[0]
    assert [task.labels[i] for i in features.labels] == [example.label for example in examples]
    assert task.labels == ("None", "TeRP", "TrIP")


def test_a_schema_restores_the_same_task(task: SentenceRE) -> None:
    import json

    again = SentenceRE.restore(json.loads(json.dumps(task.schema())))
    assert (again.labels, again.pairs, again.options) == (task.labels, task.pairs, task.options)
