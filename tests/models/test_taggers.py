"""All taggers: a sentence reads the same alone and beside others; layers have the names by which they are shared."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from grandrounds.algorithms.fedner import FedNER
from grandrounds.errors import ConfigError
from grandrounds.metrics.spans import tag_names
from grandrounds.models.encoder import Encoder
from grandrounds.models.taggers import (
    TAGGERS,
    BertTagger,
    Inputs,
    Shape,
    SpanTagger,
    Tagger,
    WordTagger,
)
from grandrounds.tasks.ner import NER, NEROptions

TAGS = tag_names(("ADE", "Drug"), "BIO")
INPUTS = Inputs(words=30, characters=20, language=5)
SMALL = Shape(word_width=7, character_width=4, filters=10, hidden=6)
LENGTHS = [6, 1, 9, 3]
BERTS = ("bert with crf", "bert")


def word_batch(lengths: list[int] = LENGTHS, seed: int = 0) -> SimpleNamespace:
    generator = torch.Generator().manual_seed(seed)
    size = (len(lengths), max(lengths))
    inside = torch.arange(size[1]) < torch.tensor(lengths)[:, None]
    letters = torch.randint(1, 8, size, generator=generator)
    spelt = torch.arange(7) < letters[:, :, None]
    return SimpleNamespace(
        words=torch.randint(1, 30, size, generator=generator) * inside,
        characters=torch.randint(1, 20, (*size, 7), generator=generator) * (spelt & inside[:, :, None]),
        language=torch.randn(*size, 5, generator=generator) * inside[:, :, None],
        lengths=torch.tensor(lengths),
    )


def piece_batch(lengths: list[int] = LENGTHS) -> SimpleNamespace:
    """Every second word has two pieces."""
    first = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    pieces = [1 + n + n // 2 + 1 for n in lengths]
    ids = torch.randint(5, 60, (len(lengths), max(pieces)), generator=torch.Generator().manual_seed(0))
    for row, n in enumerate(lengths):
        first[row, :n] = row * max(pieces) + torch.tensor([1 + word + word // 2 for word in range(n)])
    mask = torch.arange(max(pieces)) < torch.tensor(pieces)[:, None]
    return SimpleNamespace(input_ids=ids * mask, attention_mask=mask.long(), first=first, lengths=torch.tensor(lengths))


def best_tags(tagger: Tagger, batch: SimpleNamespace) -> Tensor:
    decoder: Any = tagger.decoder
    best: Tensor = decoder.decode(tagger(batch), batch.lengths)
    return best


def row_of(batch: SimpleNamespace, row: int) -> SimpleNamespace:
    """One sentence without any padding: of words, of characters or of pieces."""
    length = int(batch.lengths[row])
    if hasattr(batch, "first"):
        pieces = int(batch.attention_mask[row].sum())
        return SimpleNamespace(
            input_ids=batch.input_ids[row : row + 1, :pieces],
            attention_mask=batch.attention_mask[row : row + 1, :pieces],
            first=batch.first[row : row + 1, :length] - row * batch.input_ids.shape[1],
            lengths=batch.lengths[row : row + 1],
        )
    longest = int((batch.characters[row] > 0).sum(dim=-1).max())
    return SimpleNamespace(
        words=batch.words[row : row + 1, :length],
        characters=batch.characters[row : row + 1, :length, :longest],
        language=batch.language[row : row + 1, :length],
        lengths=batch.lengths[row : row + 1],
    )


def gold(lengths: list[int] = LENGTHS) -> Tensor:
    tags = torch.full((len(lengths), max(lengths)), -100)
    for row, n in enumerate(lengths):
        tags[row, :n] = torch.tensor([[1, 2, 0, 3, 4, 4, 0, 0, 1][word] for word in range(n)])
    return tags


@pytest.fixture(params=[*TAGGERS, *BERTS])
def tagger(request: pytest.FixtureRequest, encoder: Encoder) -> Tagger:
    torch.manual_seed(0)
    if request.param in BERTS:
        return BertTagger(encoder, TAGS, crf=request.param != "bert").eval()
    return TAGGERS[request.param](INPUTS, TAGS, shape=SMALL).eval()


def batch_for(tagger: Tagger, lengths: list[int] = LENGTHS) -> SimpleNamespace:
    return piece_batch(lengths) if isinstance(tagger, BertTagger) else word_batch(lengths)


def test_a_sentence_has_the_same_scores_tags_and_loss_alone_and_in_a_batch(tagger: Tagger) -> None:
    batch, tags = batch_for(tagger), gold()
    with torch.no_grad():
        together, best = tagger(batch), best_tags(tagger, batch)
        losses = []
        for row, length in enumerate(LENGTHS):
            alone = row_of(batch, row)
            np.testing.assert_allclose(tagger(alone)[0].numpy(), together[row, :length].numpy(), atol=2e-6)
            assert best_tags(tagger, alone)[0].tolist() == best[row, :length].tolist()
            losses.append(tagger.loss(alone, tags[row : row + 1, :length]).item())
        weights = LENGTHS if isinstance(tagger, BertTagger) and tagger.top == "output" else None
        assert tagger.loss(batch, tags).item() == pytest.approx(np.average(losses, weights=weights), rel=1e-5)


def test_what_stands_past_the_end_has_no_say(tagger: Tagger) -> None:
    batch = batch_for(tagger)
    with torch.no_grad():
        before = tagger(batch)
        for row, length in enumerate(LENGTHS):
            if isinstance(tagger, BertTagger):
                batch.input_ids[row, batch.attention_mask[row].sum() :] = 17
            else:
                batch.words[row, length:] = 3
                batch.characters[row, length:] = 5
                batch.language[row, length:] = 1e3
        after = tagger(batch)
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(after[row, :length].numpy(), before[row, :length].numpy(), atol=2e-6)


def test_every_parameter_learns(tagger: Tagger) -> None:
    tagger.train()
    tagger.loss(batch_for(tagger), gold()).backward()
    without = {name for name, p in tagger.named_parameters() if p.grad is None or not p.grad.abs().sum()}
    assert {name for name in without if "pooler" not in name} == set()


def test_dropout_acts_in_training_only(tagger: Tagger) -> None:
    batch = batch_for(tagger)
    assert torch.equal(tagger(batch), tagger(batch))
    tagger.train()
    assert not torch.equal(tagger(batch), tagger(batch))


def test_a_tagger_learns_a_few_sentences_by_heart(tagger: Tagger) -> None:
    batch, tags = batch_for(tagger), gold()
    tagger.train()
    for module in tagger.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    optimizer = torch.optim.Adam(tagger.parameters(), lr=0.01)
    for _ in range(80):
        optimizer.zero_grad()
        tagger.loss(batch, tags).backward()
        optimizer.step()
    assert torch.equal(best_tags(tagger.eval(), batch), tags.clamp(min=0))


PARTS = {
    "cnn_crf": {"words", "cnn", "crf"},
    "lstm_crf": {"words", "lstm", "crf"},
    "gram_cnn": {"words", "characters", "cnn", "crf"},
    "cnn_lstm_crf": {"words", "characters", "lstm", "crf"},
    "s_lstm_crf": {"words", "characters", "lstm", "crf"},
    "cnn_clstm_crf": {"words", "characters", "cnn", "lstm", "crf"},
    "elmoner": {"words", "characters", "language", "cnn", "lstm", "crf"},
}


def private_parameters(model: nn.Module, private: Sequence[str]) -> set[str]:
    """What FedNER would keep at a site."""
    algorithm, names = FedNER(private=tuple(private)), [name for name, _ in model.named_parameters()]
    algorithm.check(names)
    return {name for name in names if not algorithm.shared(name)}


@pytest.mark.parametrize("name", TAGGERS)
def test_parts_have_the_names_by_which_they_are_shared(name: str) -> None:
    inputs = Inputs(30, 20, language=5, language_layers=3)
    model = TAGGERS[name](inputs, TAGS, shape=SMALL)
    assert {parameter.split(".")[0] for parameter, _ in model.named_parameters()} == PARTS[name]
    splits = {split: private_parameters(model, parts) for split, parts in TAGGERS[name].splits().items()}
    kept = {split: {parameter.split(".")[0] for parameter in private} for split, private in splits.items()}
    assert kept == {
        "default": PARTS[name] & {"lstm", "crf"},
        "all but embeddings": PARTS[name] - {"words", "characters", "language"},
        "decoder": {"crf"},
        "nothing": set(),
    }
    private = splits["default"]
    other = TAGGERS[name](inputs, tag_names(("Dose",), "BIOES"), "BIOES", SMALL)
    shapes, others = ({n: p.shape for n, p in m.named_parameters() if n not in private} for m in (model, other))
    assert shapes == others  # sites with tags of their own can share all the rest


def test_a_transformer_keeps_its_top_private(encoder: Encoder) -> None:
    for crf, top in ((True, "crf"), (False, "output")):
        model = BertTagger(encoder, TAGS, crf=crf)
        private = private_parameters(model, NER.private_parts(NEROptions(tagger="bert", crf=crf), "any")["default"])
        assert {name.split(".")[0] for name in private} == {top}
        assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"encoder", top}


def test_spans_keep_their_head_private(encoder: Encoder) -> None:
    model, other = SpanTagger(encoder, classes=3, longest=4), SpanTagger(encoder, classes=8, longest=4)
    private = private_parameters(model, NER.private_parts(NEROptions(tagger="spans"), "any")["default"])
    assert {name.split(".")[0] for name in private} == {"spans"}
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"encoder", "spans"}
    shapes, others = ({n: p.shape for n, p in m.named_parameters() if n not in private} for m in (model, other))
    assert shapes == others  # sites with types of their own can share all the rest


def test_private_modules_may_lie_deeper_and_unknown_ones_are_named() -> None:
    model = TAGGERS["s_lstm_crf"](INPUTS, TAGS, shape=SMALL)
    upper = private_parameters(model, ["lstm.layers.1", "crf"])
    assert {name for name in upper if name.startswith("lstm")} == {
        name for name, _ in model.named_parameters() if name.startswith("lstm.layers.1.")
    }
    with pytest.raises(ConfigError, match="unknown part of the model 'lstmm'; did you mean 'lstm'"):
        private_parameters(model, ["lstmm"])


def test_the_papers_widths_are_the_defaults() -> None:
    model = TAGGERS["elmoner"](Inputs(40, 50, language=1024), TAGS)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert shapes["words.weight"] == (40, 300)
    assert shapes["characters.embedding.weight"] == (50, 100)
    assert shapes["characters.convolution.weight"] == (200, 100, 3)
    assert shapes["cnn.convolution.weight"] == (200, 300 + 200 + 1024, 3)
    assert shapes["lstm.layers.0.forwards.weight_hh_l0"] == shapes["lstm.layers.0.backwards.weight_hh_l0"] == (800, 200)
    assert shapes["crf.emit.weight"] == (5, 400)
    assert model.dropout.p == 0.2
    assert TAGGERS["gram_cnn"](Inputs(40, 50), TAGS).cnn.width == 200
    assert TAGGERS["s_lstm_crf"](Inputs(40, 50), TAGS).characters.width == 200


def test_a_word_is_its_three_vectors_side_by_side() -> None:
    torch.manual_seed(0)
    model = TAGGERS["elmoner"](INPUTS, TAGS, shape=SMALL).eval()
    batch = word_batch()
    words = model.represent(batch)
    assert torch.equal(words[2, 4, :7], model.words.weight[batch.words[2, 4]])
    assert torch.allclose(words[2, 4, 7:17], model.characters(batch.characters[2, 4:5])[0], atol=1e-6)
    assert torch.equal(words[2, 4, 17:], batch.language[2, 4])
    assert words[0, 6:].abs().sum() == 0


def test_pretrained_vectors_are_taken_over_and_tuned() -> None:
    vectors = torch.randn(30, 7)
    model = TAGGERS["lstm_crf"](INPUTS, TAGS, shape=SMALL, vectors=vectors)
    assert torch.equal(model.words.weight[1:], vectors[1:])
    assert model.words.weight[0].abs().sum() == 0
    assert model.words.weight.requires_grad
    with pytest.raises(ConfigError, match="word vectors are 30 x 9, but the tagger has 30 x 7"):
        TAGGERS["lstm_crf"](INPUTS, TAGS, shape=SMALL, vectors=torch.zeros(30, 9))


def test_a_language_model_that_is_missing_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="tagger 'elmoner' reads a language model's states; name one"):
        TAGGERS["elmoner"](Inputs(30, 20), TAGS)
    batch = word_batch()
    batch.language = None
    with pytest.raises(ConfigError, match="a batch has none"):
        TAGGERS["elmoner"](INPUTS, TAGS, shape=SMALL)(batch)
    assert TAGGERS["cnn_clstm_crf"](INPUTS, TAGS, shape=SMALL)(batch).shape == (4, 9, 5)


def test_layers_of_a_language_model_are_mixed_by_learnt_weights() -> None:
    torch.manual_seed(0)
    inputs, batch = Inputs(30, 20, language=5, language_layers=3), word_batch()
    model: WordTagger = TAGGERS["elmoner"](inputs, TAGS, shape=SMALL).eval()
    batch.language = torch.randn(4, 9, 3, 5)
    mixed = model.represent(batch)[2, :, 17:]
    np.testing.assert_allclose(mixed.detach().numpy(), batch.language[2].mean(dim=1).numpy(), atol=1e-6)
    model.loss(batch, gold()).backward()
    assert model.language.weight.grad.abs().min() > 0


def test_a_transformer_reads_each_words_first_piece(encoder: Encoder) -> None:
    torch.manual_seed(0)
    model, batch = BertTagger(encoder, TAGS, crf=False).eval(), piece_batch()
    with torch.no_grad():
        states = model.encoder(batch.input_ids, batch.attention_mask).last_hidden_state
        expected = model.output(states[2, [1, 2, 4, 5, 7, 8, 10, 11, 13]])
        np.testing.assert_allclose(model(batch)[2].numpy(), expected.numpy(), atol=1e-6)
