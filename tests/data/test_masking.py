"""What is masked, what is not, and where all the rest then stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grandrounds.data.documents import Document, Entity, Mention, Span
from grandrounds.data.masking import PLACEHOLDER, choose, mask, mask_overlap, overlapping, written_alike
from tests.conftest import corpus, sentence

ASPIRIN, PAIN = ("aspirin", "drug"), ("pain", "effect")


def surfaces(document: Document) -> list[tuple[str, str]]:
    return [(document.surface(mention), mention.type) for mention in document.mentions]


def test_a_mention_gives_way_and_others_keep_their_text() -> None:
    document = sentence(
        "d", ["Of ", ASPIRIN, " no ", PAIN, ", of Aspirin and ", ("mild  Pain", "effect"), " some."], {}
    )
    masked = mask(document, {"aspirin"}, {0})
    assert masked.text == f"Of {PLACEHOLDER} no pain, of Aspirin and mild  Pain some."
    assert surfaces(masked) == [("pain", "effect"), ("mild  Pain", "effect")]
    assert masked.sentences == (Span(0, len(masked.text)),)
    assert surfaces(mask(document, {"mild pain"}, {0})) == [("aspirin", "drug"), ("pain", "effect")]
    assert mask(document, {"heparin"}, {0}) == document


def test_only_the_sentences_that_are_named_change() -> None:
    parts = [sentence("d", ["No ", ASPIRIN, "."], {}) for _ in range(3)]
    text = " ".join(part.text for part in parts)
    starts = [text.index("No", 12 * i) for i in range(3)]
    document = Document(
        "d",
        text,
        tuple(Span(start, start + 11) for start in starts),
        tuple(Mention(start + 3, start + 10, "drug", f"T{i}") for i, start in enumerate(starts)),
        (Entity("E", "drug", (0, 1, 2)),),
    )
    masked = mask(document, {"aspirin"}, {0, 2})
    assert masked.text == f"No {PLACEHOLDER}. No aspirin. No {PLACEHOLDER}."
    assert [masked.surface(span) for span in masked.sentences] == [
        f"No {PLACEHOLDER}.",
        "No aspirin.",
        f"No {PLACEHOLDER}.",
    ]
    assert surfaces(masked) == [("aspirin", "drug")]
    assert masked.entities == ()


@pytest.mark.parametrize(
    ("other", "left"),
    [
        ((4, 9), []),  # inside
        ((4, 20), ["MASKED and"]),  # beyond its end
        ((0, 9), ["The MASKED"]),  # before its start
        ((0, 20), ["The MASKED and"]),  # around it
        ((16, 20), [" and"]),  # right after it
        ((0, 4), ["The "]),  # right before it
        ((17, 20), ["and"]),
    ],
)
def test_what_overlaps_it(other: tuple[int, int], left: list[str]) -> None:
    document = Document(
        "d",
        "The aspirin pain and more",
        (Span(0, 25),),
        (Mention(4, 16, "drug", "T1"), Mention(*other, "effect", "T2")),
    )
    masked = mask(document, {"aspirin pain"}, {0})
    assert masked.text == "The MASKED and more"
    assert [masked.surface(mention) for mention in masked.mentions] == left


def test_overlapping_and_touching_masks_are_one_placeholder() -> None:
    document = Document(
        "d",
        "acute chest pain-free",
        (Span(0, 21),),
        (Mention(0, 11, "a", "T1"), Mention(6, 16, "a", "T2"), Mention(16, 21, "b", "T3")),
    )
    masked = mask(document, {"acute chest", "chest pain", "-free"}, {0})
    assert (masked.text, masked.mentions) == (PLACEHOLDER, ())


def test_pieces_of_a_mention_move_with_it() -> None:
    pieces = Mention(8, 25, "effect", "T2", fragments=(Span(8, 12), Span(20, 25)))
    document = Document(
        "d", "aspirin left (or any) chest", (Span(0, 27),), (Mention(0, 7, "drug", "T1"), replace(pieces, end=27))
    )
    masked = mask(document, {"aspirin"}, {0})
    (moved,) = masked.mentions
    assert [masked.surface(piece) for piece in moved.fragments] == ["left", ") che"]
    assert masked.surface(moved) == "left (or any) chest"


def test_a_share_is_drawn_by_the_seed_and_grows_into_a_greater_one() -> None:
    names = [f"drug {i}" for i in range(40)]
    half = choose(names, 0.5, seed=1)
    assert len(half) == 20
    assert half == choose(reversed(names), 0.5, seed=1) != choose(names, 0.5, seed=2)
    assert choose(names, 0.25, seed=1) < half < choose(names, 1.0, seed=1) == frozenset(names)
    assert choose(names, 0.0, seed=1) == frozenset()


def test_entities_of_several_sites_are_told_by_their_words() -> None:
    assert overlapping([["a", "b", "b"], ["b", "c"], ["c", "d"]]) == ["b", "c"]
    assert written_alike("Chest \n pain") == written_alike("chest pain") != written_alike("chestpain")


def test_of_several_sites_only_what_is_trained_on_changes() -> None:
    documents = corpus(12)
    # Site one holds all but documents 0 and 1, site two these; document 11 is tested on.
    trained = {"one": {i: {0} for i in range(2, 11)}, "two": {0: {0}, 1: {0}}}
    masked, counted = mask_overlap(documents, trained, 1.0, seed=1)
    two, one = ({m.concept for d in some for m in d.mentions} for some in (documents[:2], documents[2:11]))
    hidden = one & two
    assert len(hidden) == counted["entities in the training data of several sites"] > 1
    assert counted["of these entities, masked"] == len(hidden)
    gone = sum(m.concept in hidden for d in documents[:11] for m in d.mentions)
    assert counted["mentions masked"] == gone == sum(d.text.count(PLACEHOLDER) for d in masked)
    assert all(m.concept not in hidden for d in masked[:11] for m in d.mentions)
    assert masked[11] == documents[11]
    assert mask_overlap(documents, trained, 0.0, seed=1)[0] == documents


def test_a_document_without_sentences_keeps_those_that_the_rules_find() -> None:
    document = Document("d", "He had St. Anne fever. No more.", (), (Mention(7, 15, "a", "T1"),))
    other = sentence("e", [("St. Anne", "a"), " again."], {})
    (masked, _), _ = mask_overlap([document, other], {"one": {0: {0, 1}}, "two": {1: {0}}}, 1.0, seed=1)
    assert [masked.surface(span) for span in masked.sentences] == [f"He had {PLACEHOLDER} fever.", "No more."]


def test_a_document_that_is_dealt_out_by_sentences_is_masked_at_each_site() -> None:
    document = Document(
        "d",
        "No pain. No pain. No pain.",
        tuple(Span(i, i + 8) for i in (0, 9, 18)),
        tuple(Mention(i + 3, i + 7, "effect", f"T{i}") for i in (0, 9, 18)),
    )
    (masked,), _ = mask_overlap([document], {"one": {0: {0}}, "two": {0: {1}}}, 1.0, seed=1)
    assert masked.text == f"No {PLACEHOLDER}. No {PLACEHOLDER}. No pain."
    assert surfaces(masked) == [("pain", "effect")]
