"""Attention as a network shows it: whatever the batch, without padding, a few documents at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import processors
from transformers import BigBirdConfig, BigBirdModel, LongformerConfig, LongformerModel

from grandrounds.errors import ConfigError
from grandrounds.metrics.attention import HeadSums
from grandrounds.models import attention
from grandrounds.models.attention import attentions, transformer_in
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions
from tests.conftest import FAMILIES, TEXTS, corpus


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_of_two_lengths_shows_what_each_alone_does(family: str, encoder_folder: Callable[[str], Path]) -> None:
    encoder = Encoder.find(str(encoder_folder(family)))
    network = transformer_in(encoder.build())
    texts = [TEXTS[0], " ".join(TEXTS[1:4])]
    together = list(attentions(network, encoder, texts, 64))
    alone = [next(attentions(network, encoder, [text], 64)) for text in texts]
    assert [len(seen[0, 0]) for seen in together] == [len(encoder.tokenizer(text).input_ids) for text in texts]
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(a.sum(dim=-1), torch.ones(a.shape[:3]))


def test_a_tokenizer_that_pads_at_the_left_shows_the_same(encoder_folder: Callable[[str], Path]) -> None:
    encoder = Encoder.find(str(encoder_folder("bert")))
    network, texts = transformer_in(encoder.build()), [TEXTS[0], " ".join(TEXTS[1:4])]
    usual = list(attentions(network, encoder, texts, 64))
    encoder.tokenizer.padding_side = "left"
    for a, b in zip(attentions(network, encoder, texts, 64), usual, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", ["longformer", "big_bird", "config"])
def test_matrices_that_are_not_from_every_token_to_every_token_are_refused(
    kind: str, encoder_folder: Callable[[str], Path]
) -> None:
    encoder = Encoder.find(str(encoder_folder("bert")))
    shape = {"vocab_size": len(encoder.tokenizer), "hidden_size": 16, "intermediate_size": 16}
    shape |= {"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 80}
    network: Any = transformer_in(
        LongformerModel(LongformerConfig(**shape, attention_window=8))
        if kind == "longformer"
        else BigBirdModel(BigBirdConfig(**shape))
        if kind == "big_bird"
        else encoder.build()
    )
    if kind == "config":
        network.config.num_attention_heads = 4
    with pytest.raises(ConfigError, match=r"does not show where each head looks .*; take BERT or RoBERTa"):
        list(attentions(network, encoder, TEXTS[:2], 64))


def test_rows_that_do_not_sum_to_one_are_refused(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    network = transformer_in(encoder.build())
    forward = network.forward

    def halved(*given: Any, **named: Any) -> Any:
        out = forward(*given, **named)
        out.attentions = tuple(layer * 0.99 for layer in out.attentions)
        return out

    monkeypatch.setattr(network, "forward", halved)
    with pytest.raises(ConfigError, match="does not show where each head looks"):
        list(attentions(network, encoder, TEXTS[:1], 64))


def test_a_text_without_a_piece_is_passed_over(encoder_folder: Callable[[str], Path]) -> None:
    encoder = Encoder.find(str(encoder_folder("bert")))
    encoder.tokenizer.backend_tokenizer.post_processor = processors.Sequence([])  # neither [CLS] nor [SEP]
    network, sums = transformer_in(encoder.build()), HeadSums()
    for texts in (["\u200b"], ["\u200b", TEXTS[0]]):
        for seen in attentions(network, encoder, texts, 64):
            sums.add(seen)
    assert (sums.documents, sums.tokens) == (1, len(encoder.pieces(TEXTS[:1])[0]))


def test_it_is_what_the_network_attends_by(encoder: Encoder) -> None:
    """By hand, from the first layer's own queries and keys."""
    network = transformer_in(encoder.build())
    (seen,) = attentions(network, encoder, TEXTS[:1], 64)
    ids = torch.tensor([encoder.tokenizer(TEXTS[0]).input_ids])
    own = network.encoder.layer[0].attention.self
    with torch.no_grad():
        states = network.embeddings(ids)
        query, key = (part(states)[0].view(-1, 2, 16).transpose(0, 1) for part in (own.query, own.key))
    torch.testing.assert_close(seen[0], (query @ key.transpose(1, 2) / 4).softmax(dim=-1), atol=1e-6, rtol=1e-5)


def test_a_long_text_is_cut_to_what_is_asked_for_and_to_the_window(encoder: Encoder) -> None:
    network, text = transformer_in(encoder.build()), " ".join(TEXTS)
    assert next(attentions(network, encoder, [text], 10)).shape == (2, 2, 10, 10)
    assert next(attentions(network, encoder, [text], 1000)).shape == (2, 2, 64, 64)


def test_no_more_than_a_batch_is_held_of_any_number_of_texts(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "AT_ONCE", 4 * 16**2)

    def most_alive(texts: int) -> int:
        held: list[weakref.ref[torch.Tensor]] = []
        most = 0
        for seen in attentions(network, encoder, iter(TEXTS[:1] * texts), 16):
            held = [ref for ref in held if ref() is not None] + [weakref.ref(seen)]
            most = max(most, len(held))
        return most

    network = transformer_in(encoder.build())
    assert most_alive(40) == most_alive(10) <= 5


def test_the_encoder_is_found_within_a_tasks_network(encoder: Encoder) -> None:
    task = DocumentRE.of(DocumentREOptions(block=16), corpus())
    network = transformer_in(task.model(encoder))
    assert next(attentions(network, encoder, TEXTS[:1], 64)).shape[:2] == (2, 2)


def test_a_network_without_heads_is_refused() -> None:
    with pytest.raises(ConfigError, match="no attention heads"):
        transformer_in(Encoder.find("words", public=TEXTS).build())


def test_of_a_text_without_a_piece_there_is_nothing(encoder: Encoder) -> None:
    network = transformer_in(encoder.build())
    shown = list(attentions(network, encoder, [TEXTS[0], "\u200b\u0301", TEXTS[1]], 64))
    assert [seen.numel() > 0 for seen in shown] == [True, False, True]


def test_attention_that_is_no_number_is_refused(encoder: Encoder) -> None:
    network = transformer_in(encoder.build())
    with torch.no_grad():
        next(network.parameters()).fill_(torch.nan)
    with pytest.raises(ConfigError, match="its weights are broken, or nan"):
        list(attentions(network, encoder, TEXTS[:2], 64))
