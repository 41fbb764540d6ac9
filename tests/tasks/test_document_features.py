"""Markers and windows: no mention is lost, each has its context, and one window is the document itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.models import localized_context
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.document_features import CONTEXT, mark_document, shown_well, window_starts
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions
from tests.tasks.documents import long_document


@pytest.fixture(scope="module")
def bert(encoder_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.find(str(encoder_folder("bert")), DocumentRE.markers)


def named(text: str, *spans: tuple[int, int], sentences: tuple[Span, ...] = ()) -> Document:
    mentions = tuple(Mention(a, b, "drug" if i % 2 == 0 else "problem", f"T{i}") for i, (a, b) in enumerate(spans))
    entities = tuple(Entity(m.id, m.type, (i,)) for i, m in enumerate(mentions))
    relations = (Relation("eases", "T0", "T1"),) if len(spans) > 1 else ()
    return Document("d", text, sentences or (Span(0, len(text)),), mentions, entities, relations)


def words(encoder: Encoder, document: Document) -> list[str]:
    (marked,) = mark_document([document], encoder)
    found: list[str] = encoder.tokenizer.convert_ids_to_tokens(marked.ids.tolist())
    return found


def test_every_mention_stands_between_two_stars(bert: Encoder) -> None:
    source = named("the aspirin eased pain .", (4, 11), (18, 22))
    assert words(bert, source) == ["the", "*", "aspirin", "*", "eased", "*", "pain", "*", "."]
    (marked,) = mark_document([source], bert)
    assert marked.mentions.tolist() == [[1, 4], [5, 8]]


def test_nested_adjacent_and_equal_mentions_keep_their_markers(bert: Encoder) -> None:
    # "aspirin pain" with "aspirin" in it, the same span twice, and a mention that begins where another ends.
    source = named("aspirin pain", (0, 12), (0, 7), (0, 7), (7, 12))
    assert words(bert, source) == ["*", "aspirin", "*", "*", "pain", "*"]
    (marked,) = mark_document([source], bert)
    assert marked.mentions.tolist() == [[0, 6], [0, 3], [0, 3], [3, 6]]


def test_each_piece_knows_its_sentence(bert: Encoder) -> None:
    source = named("pain . no aspirin", (0, 4), (10, 17), sentences=(Span(0, 6), Span(7, 17)))
    (marked,) = mark_document([source], bert)
    assert words(bert, source) == ["*", "pain", "*", ".", "no", "*", "aspirin", "*"]
    assert marked.sentences.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


def test_byte_level_pieces_see_the_space_before_a_word(encoder_folder: Callable[[str], Path]) -> None:
    roberta = Encoder.find(str(encoder_folder("roberta")), DocumentRE.markers)
    source = named("the aspirin eased pain .", (4, 11), (18, 22))
    (marked,) = mark_document([source], roberta)
    kept = [piece for piece in marked.ids.tolist() if piece != roberta.tokenizer.convert_tokens_to_ids("*")]
    assert roberta.tokenizer.decode(kept).strip() == "the aspirin eased pain ."


@pytest.mark.parametrize("length", [10, 510, 511, 700, 1020, 1021, 5000])
def test_windows_cover_every_piece_and_give_every_mention_its_context(length: int) -> None:
    room, rng = 510, np.random.default_rng(length)
    opening = rng.integers(0, length - 9, size=200)
    mentions: NDArray[np.int64] = np.stack([opening, opening + rng.integers(3, 10, size=200)], axis=1)
    starts = window_starts(length, room, longest=9)
    ends = np.minimum(starts + room, length)
    assert len(starts) == 1 if length <= room else len(starts) > 1
    assert starts[0] == 0
    assert ends[-1] == length
    assert all(after <= end for end, after in zip(ends, starts[1:], strict=False)), "a piece is in no window"
    assert all(a < b for a, b in pairwise(starts.tolist())), "the same window twice"
    shown = shown_well(mentions, starts, length, room)
    assert shown.any(axis=1).all(), "a mention is lost"
    for (a, b), windows in zip(mentions, shown, strict=True):
        assert all(starts[windows] <= max(a - CONTEXT, 0))
        assert all(ends[windows] >= min(b + CONTEXT, length))


def test_a_mention_too_long_for_any_window_is_read_where_its_opening_stands_best() -> None:
    starts = window_starts(300, 100, longest=150)
    shown = shown_well(np.array([[60, 210]]), starts, 300, 100)
    chosen = starts[shown[0]]
    assert len(chosen) == 1
    assert abs(60 - (chosen[0] + 50)) <= 25


def test_a_document_of_one_window_reads_as_it_would_uncut(bert: Encoder) -> None:
    source = long_document(4)
    whole = DocumentRE.of(DocumentREOptions(block=16), [source])
    (example,), _ = whole.examples([source])
    features = whole.features([example], bert)
    assert features.lengths[0] <= 64
    torch.manual_seed(1)
    model = whole.model(bert).eval()
    batch = features.batch([0])
    assert batch.places.numel() == 0
    # The same through the way of several windows, with this one alone.
    length = batch.input_ids.shape[1]
    laid = type(batch)(**{**vars(batch), "places": torch.arange(length)[None]})
    plain, joined = model(batch), model(laid)
    for one, other in zip(plain, joined, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other.detach().numpy(), atol=1e-6)


def test_in_windows_no_mention_is_lost_and_far_ones_share_no_context(bert: Encoder) -> None:
    source = long_document(40)
    task = DocumentRE.of(DocumentREOptions(block=16, window=64), [source])
    (example,), _ = task.examples([source])
    features = task.features([example], bert)
    torch.manual_seed(1)
    model = task.model(bert).train()
    batch = features.batch([0])
    assert len(batch.input_ids) > 8, "few enough to be read at once"
    assert (batch.mentions >= 0).any(dim=1).all()
    states, marker_states, seen = model.encode(batch)
    assert states.shape[1] == len(features.rows[0].marked.ids) + 2
    assert (states.norm(dim=2) > 0).all()
    vectors = localized_context.mean_of(marker_states, batch.mentions)
    assert (vectors.norm(dim=1) > 0).all()
    np.testing.assert_allclose(seen.sum(dim=-1).detach().numpy(), 1, atol=1e-5)
    loss = task.loss(model, batch)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    # insulin's one mention, in the last window, and a mention of the first sentence alone have nothing in common.
    first = torch.tensor([[[0], [len(source.mentions) - 1]]])
    attention = localized_context.mean_of(localized_context.mean_of(seen, batch.mentions), first)
    context = localized_context.localized_context(states, attention)
    assert context[0, 0, 1].abs().max() == 0
    assert context[0, 1, 1].abs().max() > 0


def test_windows_read_a_few_at_a_time_give_what_all_at_once_give(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = long_document(40)
    task = DocumentRE.of(DocumentREOptions(block=16, window=64), [source])
    (example,), _ = task.examples([source])
    batch = task.features([example], bert).batch([0])
    torch.manual_seed(1)
    model = task.model(bert).eval()
    gradients = []
    for at_once in (3, 1000):
        monkeypatch.setattr(localized_context, "WINDOWS_AT_ONCE", at_once)
        model.zero_grad()
        task.loss(model, batch).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    np.testing.assert_allclose(gradients[0].numpy(), gradients[1].numpy(), atol=1e-6)


PEAK = """
import resource, sys, torch
torch.set_num_threads(1)
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions
from tests.tasks.documents import long_document, many_entities

source = (long_document if sys.argv[1] == "few" else many_entities)(int(sys.argv[2]))
task = DocumentRE.of(DocumentREOptions(), [source])
(example,), _ = task.examples([source])
encoder = Encoder.find("tiny", task.markers, [source.text] * 2)
features, model = task.features([example], encoder), task.model(encoder).train()
batch = features.batch([0])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
task.loss(model, batch).backward()
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(len(features.rows[0].marked.ids), len(example.pairs), (after - before) // 1024)
"""


@pytest.mark.parametrize(("kind", "sentences"), [("few", 480), ("many", 75)])
def test_a_document_of_five_thousand_pieces_is_trained_on_in_bounded_memory(kind: str, sentences: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, kind, str(sentences)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    pieces, pairs, megabytes = map(int, done.stdout.split())
    assert pieces >= 5000
    assert pairs == (2 if kind == "few" else 75**2)
    assert megabytes < 1500
