"""Notes as rows, what is drawn for them, and the loss and score of what is found again."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForMaskedLM, BertForPreTraining

import grandrounds
from grandrounds.data.documents import Document, Span
from grandrounds.errors import ConfigError, DataError, GrandRoundsError
from grandrounds.models.encoder import Encoder, Size
from grandrounds.tasks.batching import predict_outputs
from grandrounds.tasks.language_features import LanguageFeatures, pack
from grandrounds.tasks.masked_lm import MaskedLM, MaskedLMOptions
from grandrounds.tasks.saved import Extractor, load, save_model
from tests.conftest import DRUGS, PROBLEMS

CPU = torch.device("cpu")


def notes(count: int = 12, sentences: int = 9) -> list[Document]:
    """Each of several sentences; a note's words differ from the next one's."""
    return [
        Document(
            f"n{i}",
            " ".join(
                f"The {DRUGS[(i + j) % 4]} eased {PROBLEMS[(i * j) % 5]} {'again ' * (j % 3)}."
                for j in range(sentences)
            ),
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def encoder(encoder_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.find(str(encoder_folder("bert")))


def made(encoder: Encoder, documents: list[Document], **options: Any) -> tuple[MaskedLM, LanguageFeatures]:
    task = MaskedLM.of(MaskedLMOptions(**{"length": 32, **options}), documents)
    return task, task.features(task.examples(documents)[0], encoder)


def network(task: MaskedLM, encoder: Encoder) -> nn.Module:
    torch.manual_seed(3)
    return task.model(encoder).eval()


# Rows


def test_sentences_are_packed_whole_into_rows_and_a_long_one_goes_on_between_words() -> None:
    continues = np.array([False, False, True])
    packed = pack([[1, 1, 1], [1, 1], [1, 2, 1, 2, 2, 1, 1]], room=4, continues=continues)
    assert packed.ends == [3, 5, 7, 11, 12]
    assert packed.ids.tolist() == [1, 1, 1, 1, 1, 1, 2, 1, 2, 2, 1, 1]
    assert np.flatnonzero(packed.opens).tolist() == [0, 3, 5, 7, 11]


def test_rows_hold_every_word_piece_of_every_note_once_and_in_order(encoder: Encoder) -> None:
    documents = notes()
    task, features = made(encoder, documents)
    for i, note in enumerate(task.examples(documents)[0]):
        expected = [piece for pieces in encoder.pieces([note.text[a:b] for a, b in note.sentences]) for piece in pieces]
        rows = task.rows(features, np.array([i]))
        assert np.concatenate([features._body(row) for row in rows.tolist()]).tolist() == expected
    assert features.lengths.max() <= 32
    assert task.rows(features, np.arange(len(documents))).tolist() == list(range(len(features.lengths)))


def test_a_batch_is_cls_pieces_sep_with_targets_where_something_is_masked(encoder: Encoder) -> None:
    _, features = made(encoder, notes())
    batch = features.batch([0, 5])
    ids = batch.input_ids.clone().flatten()
    ids[batch.places] = batch.targets
    for row, given in zip((0, 5), ids.view(batch.input_ids.shape).tolist(), strict=True):
        there = [encoder.tokenizer.cls_token_id, *features._body(row).tolist(), encoder.tokenizer.sep_token_id]
        assert given == there + [encoder.tokenizer.pad_token_id] * (len(given) - len(there))
    special = {encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id, encoder.tokenizer.pad_token_id}
    assert not special & set(batch.targets.tolist())


def test_an_empty_document_is_left_out_and_said(encoder: Encoder) -> None:
    task, _ = made(encoder, notes())
    unread = ["  ", "\ufeff", "\u200b \n", "\u0301", "\ufffd"]
    documents = [Document("a", "Well."), *(Document(str(i), text) for i, text in enumerate(unread)), Document("b", "?")]
    examples, left = task.examples(documents)
    assert ([example.document for example in examples], left) == ([0, 6], {"documents without text": 5})
    assert not any(encoder.pieces(unread))


def test_where_there_is_no_row_that_is_said(encoder: Encoder, tmp_path: Path) -> None:
    task, features = made(encoder, notes())
    model, none = network(task, encoder), np.zeros(0, dtype=np.int64)
    counts = task.counts(predict_outputs(task, model, features, none, CPU), features, none)
    assert counts == {"nats": 0, "masked": 0, "right": 0, "rows": 0}
    for text, why in (("\u200b", "1 documents without text"), ("a \u200b", "1 documents without a word piece")):
        silent = Document("a", text, (Span(len(text) - 1, len(text)),))
        with pytest.raises(DataError, match=f"the corpus holds no example of masked_lm .left out: .*{why}"):
            Extractor(task, encoder, model).evaluate([silent])


# What is drawn


def test_masks_hang_on_the_seed_and_the_row_not_on_its_number_or_batch(encoder: Encoder) -> None:
    documents = notes()
    task, features = made(encoder, documents)
    _, reversed_ = made(encoder, documents[::-1])
    here, there = task.rows(features, np.array([2])), task.rows(reversed_, np.array([9]))
    one = task.redraw(features, here, 5).batch(here)
    other = task.redraw(reversed_, there, 5).batch(there)
    assert torch.equal(one.input_ids, other.input_ids)
    assert torch.equal(one.places, other.places)
    last = task.redraw(features, here, 5).batch(here[-1:])
    length = int(features.lengths[here[-1]])
    assert torch.equal(last.input_ids[0], one.input_ids[-1][:length])
    assert not torch.equal(one.input_ids, task.redraw(features, here, 6).batch(here).input_ids)


def test_a_test_has_the_same_masks_each_time(encoder: Encoder) -> None:
    task, features = made(encoder, notes())
    model, rows = network(task, encoder), np.arange(8)
    drawn = task.redraw(features, rows, 77)
    once, again = (predict_outputs(task, model, given, rows, CPU) for given in (features, drawn))
    assert once.tobytes() == again.tobytes()


def test_half_of_second_segments_follow_and_the_others_are_of_other_notes_of_the_site(encoder: Encoder) -> None:
    documents = [
        Document(f"n{i}", f"{'a b c d . ' * 3}{letter} {letter} {letter} . " * 2)
        for i, letter in enumerate("efghij" * 30)
    ]
    task, features = made(encoder, documents, next_sentence=True)
    site = task.rows(features, np.flatnonzero(np.arange(len(documents)) % 6 < 3))  # notes with e, f and g
    named = {letter: encoder.tokenizer.convert_tokens_to_ids(letter) for letter in "efghij"}
    labels = []
    for seed in range(20):
        drawn = task.redraw(features, site, seed)
        for row in site[::7].tolist():
            u = np.random.default_rng(seed * 1000 + row).random(4)
            other = drawn._another(row, u[2])
            first, second = drawn._segments(row, u, other)
            assert not set(second.tolist()) & {named[letter] for letter in "hij"}
            assert len(first) + len(second) + 3 <= 32
            assert other is not None
            assert features.documents[other] != features.documents[row]
            joined = np.concatenate(drawn._segments(row, u, None))
            assert joined.tolist() == features._body(row).tolist()
        batch = drawn.batch(site)
        assert batch.unrelated is not None
        labels += batch.unrelated.tolist()
    assert np.mean(labels) == pytest.approx(0.5, abs=3 * 0.5 / math.sqrt(len(labels)))


def of_sentences(name: str, sentences: list[str]) -> Document:
    ends = np.cumsum([len(sentence) + 1 for sentence in sentences]).tolist()
    spans = tuple(Span(end - 1 - len(sentence), end - 1) for end, sentence in zip(ends, sentences, strict=True))
    return Document(name, " ".join(sentences), spans)


def test_the_shape_of_a_row_does_not_tell_whether_b_follows(encoder: Encoder) -> None:
    """Neither its length nor how B begins and ends: guessing by these is hardly better than by a coin."""
    rng = np.random.default_rng(1)
    sentences = [["a", *rng.choice(list("bcd"), rng.integers(1, 7)), "."] for _ in range(2400)]
    documents = [of_sentences(str(i), [" ".join(words) for words in sentences[i::120]]) for i in range(120)]
    task, features = made(encoder, documents, next_sentence=True)
    rows, a, stop = np.arange(len(features.documents)), *encoder.tokenizer.convert_tokens_to_ids(["a", "."])
    lengths: dict[int, list[int]] = {0: [], 1: []}
    for seed in range(8):
        drawn = task.redraw(features, rows, seed)
        batch = drawn.batch(rows)
        assert batch.unrelated is not None
        for length, label in zip(batch.attention_mask.sum(dim=1).tolist(), batch.unrelated.tolist(), strict=True):
            lengths[label].append(length)
        for row in rows[::5].tolist():
            u = rng.random(4)
            _, second = drawn._segments(row, u, drawn._another(row, u[2]))
            assert (second[0], second[-1]) == (a, stop)
    longest = max(map(max, lengths.values()))
    shares = [np.bincount(lengths[label], minlength=longest + 1) / len(lengths[label]) for label in (0, 1)]
    assert np.maximum(*shares).sum() / 2 < 0.6


def test_a_site_of_one_note_has_no_other_text_to_take(encoder: Encoder) -> None:
    task, features = made(encoder, notes(), next_sentence=True)
    only = task.rows(features, np.array([3]))
    for seed in range(10):
        unrelated = task.redraw(features, only, seed).batch(only).unrelated
        assert unrelated is not None
        assert not unrelated.any()


def test_segments_are_numbered_and_masks_keep_off_their_ends(encoder: Encoder) -> None:
    task, features = made(encoder, notes(), next_sentence=True)
    rows = np.arange(10)
    batch = task.redraw(features, rows, 1).batch(rows)
    assert batch.segments is not None
    ids = batch.input_ids.clone().flatten()
    ids[batch.places] = batch.targets
    for given, segments in zip(ids.view(batch.input_ids.shape), batch.segments, strict=True):
        ends = (given == encoder.tokenizer.sep_token_id).nonzero().flatten().tolist()
        assert len(ends) == 2
        assert segments[: ends[0] + 1].tolist() == [0] * (ends[0] + 1)
        assert segments[ends[0] + 1 : ends[1] + 1].tolist() == [1] * (ends[1] - ends[0])
    assert encoder.tokenizer.sep_token_id not in batch.targets


# Loss and score


def test_the_head_at_masked_places_is_the_full_head_there(encoder: Encoder) -> None:
    task, features = made(encoder, notes())
    model: Any = network(task, encoder)
    batch = features.batch([0, 3, 4])
    states = model.bert(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
    full = model.vocabulary(states).flatten(0, 1)[batch.places]
    assert torch.allclose(task.read(model, batch).logits, full, atol=1e-6)


def test_the_loss_is_the_mean_over_masked_pieces_as_numpy_derives_it(encoder: Encoder) -> None:
    task, features = made(encoder, notes(), next_sentence=True)
    model: Any = network(task, encoder)
    rows = np.arange(6)
    batch = task.redraw(features, rows, 0).batch(rows)
    read = model.bert(input_ids=batch.input_ids, attention_mask=batch.attention_mask, token_type_ids=batch.segments)
    weights = {name: value.double().numpy() for name, value in model.state_dict().items()}
    h = read.last_hidden_state.detach().double().numpy().reshape(-1, 32)[batch.places.numpy()]
    h = h @ weights["cls.predictions.transform.dense.weight"].T + weights["cls.predictions.transform.dense.bias"]
    h = 0.5 * h * (1 + np.vectorize(math.erf)(h / math.sqrt(2)))
    h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + model.bert.config.layer_norm_eps)
    h = h * weights["cls.predictions.transform.LayerNorm.weight"] + weights["cls.predictions.transform.LayerNorm.bias"]
    scores = h @ weights["bert.embeddings.word_embeddings.weight"].T + weights["cls.predictions.bias"]
    targets = batch.targets.numpy()
    nats = np.log(np.exp(scores).sum(1)) - scores[np.arange(len(targets)), targets]
    pooled = read.pooler_output.detach().double().numpy()
    two = pooled @ weights["cls.seq_relationship.weight"].T + weights["cls.seq_relationship.bias"]
    assert batch.unrelated is not None
    labels = batch.unrelated.numpy()
    next_nats = np.log(np.exp(two).sum(1)) - two[np.arange(6), labels]
    assert float(task.loss(model, batch).detach()) == pytest.approx(nats.mean() + next_nats.mean(), rel=1e-5)
    score = task.score(task.counts(predict_outputs(task, model, features, rows, CPU), features, rows))
    assert score["loss"] == pytest.approx(nats.mean(), rel=1e-5)
    assert score["perplexity"] == pytest.approx(np.exp(nats.mean()), rel=1e-5)
    assert score["accuracy"] == pytest.approx((scores.argmax(1) == targets).mean())
    assert score["next_accuracy"] == pytest.approx((two.argmax(1) == labels).mean())
    assert (score["log_likelihood"], score["n"]) == (-score["loss"], len(targets))


def test_counts_of_parts_sum_to_those_of_the_whole(encoder: Encoder) -> None:
    task, features = made(encoder, notes())
    model = network(task, encoder)
    counted = [
        task.counts(predict_outputs(task, model, features, rows, CPU), features, rows)
        for rows in (np.arange(10), np.arange(4), np.arange(4, 10))
    ]
    assert {k: counted[1][k] + counted[2][k] for k in counted[0]} == pytest.approx(dict(counted[0]), rel=1e-5)


def test_a_frozen_encoder_stays_and_the_head_learns(encoder: Encoder) -> None:
    task, features = made(encoder, notes(), freeze_encoder=True)
    model = network(task, encoder)
    task.loss(model, features.batch([0, 1])).backward()  # type: ignore[no-untyped-call]  # untyped in torch
    moved = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert moved == {name for name, _ in model.named_parameters() if name.startswith("cls.")}
    assert len(moved) == 5


# As others see it


@pytest.mark.parametrize("next_sentence", [False, True])
def test_a_saved_model_is_one_of_hugging_faces(encoder: Encoder, tmp_path: Path, next_sentence: bool) -> None:
    task, features = made(encoder, notes(), next_sentence=next_sentence)
    model: Any = network(task, encoder)
    save_model(tmp_path / "model", task, encoder, model)
    theirs, reported = AutoModelForMaskedLM.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not reported["missing_keys"]
    assert not reported["mismatched_keys"]
    batch = features.batch([0, 1, 2])
    seen = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask, "token_type_ids": batch.segments}
    full = theirs.eval()(**seen).logits.flatten(0, 1)[batch.places]
    assert torch.allclose(task.read(model, batch).logits, full, atol=1e-5)
    if next_sentence:
        whole = BertForPreTraining.from_pretrained(tmp_path / "model").eval()(**seen)
        assert torch.allclose(model.states(batch)[1], whole.seq_relationship_logits, atol=1e-5)
    again = load(tmp_path / "model")
    assert again.evaluate(notes()) == Extractor(task, encoder, model).evaluate(notes())
    assert torch.equal(again.task.read(again.model, batch).logits, task.read(model, batch).logits)
    assert "cls.predictions.decoder.weight" not in model.state_dict()


def test_a_checkpoint_with_heads_keeps_them(encoder: Encoder, tmp_path: Path) -> None:
    task, _ = made(encoder, notes(), next_sentence=True)
    model = network(task, encoder)
    save_model(tmp_path / "model", task, encoder, model)
    torch.manual_seed(99)
    again = task.model(Encoder.find(str(tmp_path / "model"))).state_dict()
    assert again.keys() == model.state_dict().keys()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())


def test_what_is_not_a_bert_is_refused(encoder_folder: Callable[[str], Path]) -> None:
    task = MaskedLM(MaskedLMOptions())
    with pytest.raises(ConfigError, match="masked_lm trains BERT"):
        task.model(Encoder.find(str(encoder_folder("roberta"))))


def test_a_bert_of_one_segment_can_learn_no_next_sentence(encoder: Encoder) -> None:
    config = copy.deepcopy(encoder.config)
    config.type_vocab_size = 1
    one = replace(encoder, config=config, weights=None)
    MaskedLM(MaskedLMOptions()).model(one)
    with pytest.raises(ConfigError, match=r"knows but one segment: leave out task\.next_sentence"):
        MaskedLM(MaskedLMOptions(next_sentence=True)).model(one)


def test_rows_longer_than_the_encoder_reads_are_refused(encoder: Encoder) -> None:
    with pytest.raises(ConfigError, match=r"task.length is 128, and the encoder reads 64"):
        made(encoder, notes(), length=128)


def test_it_finds_nothing_in_a_document_and_says_what_it_is_for(encoder: Encoder, tmp_path: Path) -> None:
    task, _ = made(encoder, notes())
    save_model(tmp_path / "model", task, encoder, network(task, encoder))
    with pytest.raises(GrandRoundsError, match=r"model\.encoder of another task"):
        grandrounds.load(tmp_path / "model").extract(notes()[0])


def test_text_outside_of_sentences_is_told(encoder: Encoder) -> None:
    task, _ = made(encoder, notes())
    whole = Document("a", "Well. Home.", (Span(0, 5), Span(6, 11)))
    after = Document("b", "Well. Home.", (Span(0, 5),))
    between = Document("c", "Well. And Home.", (Span(0, 5), Span(10, 15)))
    outside = {"documents with text outside of their sentences, which is not learnt": 2}
    assert task.examples([whole, after, between])[1] == outside


def test_notes_of_which_the_vocabulary_knows_little_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("the\n##s\n", encoding="utf-8")
    poor = Encoder.new(Size(1, 8, 2, 100, 0.0), (), path)
    with pytest.raises(ConfigError, match=r"100% of the notes' words are none of the 7 word pieces of encoder 'new'"):
        made(poor, [Document("a", "Fever and cough")])
    made(poor, [Document("a", "the the cough")])


def test_a_test_without_a_masked_piece_has_no_score(encoder: Encoder) -> None:
    task, _ = made(encoder, notes())
    with pytest.raises(DataError, match="no word piece that can be masked"):
        task.score({"nats": 0, "masked": 0, "right": 0, "rows": 1})
