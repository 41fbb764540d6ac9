"""BERT as it is pre-trained (Devlin et al., NAACL 2019): what stands behind a mask, and whether B follows A.

The vocabulary is scored at masked places only, by the word embeddings themselves. Names of weights are those of Hugging
Face's `BertForPreTraining`, so that a saved model is one of theirs.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertForPreTraining

from grandrounds.errors import ConfigError
from grandrounds.models.encoder import Encoder

TRANSFORM, BIAS = "cls.predictions.transform.dense.weight", "cls.predictions.bias"
"""Names of the head's weights, by which a checkpoint tells that it has none."""
NEW_SCALE = 0.3
"""Of the layer norm in a new head over a pretrained encoder: at 1 its guesses are loud before they mean anything. Three
layers of MiniLM on PubMed begin at 7.1 nats with it and the identity, at 7.9 with a random head, both with counts."""


class MaskedBatch(Protocol):
    @property
    def input_ids(self) -> Tensor: ...
    @property
    def attention_mask(self) -> Tensor: ...
    @property
    def segments(self) -> Tensor | None:
        """0 for A, 1 for B; None where there is but one."""

    @property
    def places(self) -> Tensor:
        """The masked places of all rows end to end: row * length + position."""


class Predictions(nn.Module):
    """From a state to the vocabulary; the matrix is the word embeddings', and has no second entry here."""

    def __init__(self, transform: nn.Module, bias: Tensor) -> None:
        super().__init__()
        self.transform = transform
        self.bias = nn.Parameter(bias.detach().clone())

    def forward(self, states: Tensor, embeddings: Tensor) -> Tensor:
        return F.linear(self.transform(states), embeddings, self.bias)


class MaskedLanguage(nn.Module):
    def __init__(self, encoder: Encoder, next_sentence: bool, freeze_encoder: bool = False) -> None:
        super().__init__()
        if next_sentence and getattr(encoder.config, "type_vocab_size", 2) < 2:
            raise ConfigError(f"encoder '{encoder.name}' knows but one segment: leave out task.next_sentence")
        whole = _pretraining(encoder)
        self.bert = whole.bert
        self.cls = nn.ModuleDict(
            {"predictions": Predictions(whole.cls.predictions.transform, whole.cls.predictions.bias)}
        )
        if next_sentence:
            self.cls["seq_relationship"] = whole.cls.seq_relationship
        else:
            self.bert.pooler = None  # nothing else reads it
        if freeze_encoder:
            if encoder.lora is not None:
                raise ConfigError("task.freeze_encoder trains the head alone: leave out model.parameter_efficient")
            self.bert.requires_grad_(False)
        if encoder.lora is not None:
            # The word embeddings stand still, and with them the matrix that scores the vocabulary.
            self.bert = encoder.lora.put_into(self.bert, encoder.name)

    @property
    def embeddings(self) -> Tensor:
        weight: Tensor = self.bert.embeddings.word_embeddings.weight
        return weight

    def states(self, batch: MaskedBatch) -> tuple[Tensor, Tensor | None]:
        """Of the masked places, [masked, width]; and where there are two segments, the logits of whether B is any
        other text, [rows, 2]."""
        read = self.bert(input_ids=batch.input_ids, attention_mask=batch.attention_mask, token_type_ids=batch.segments)
        masked = read.last_hidden_state.flatten(0, 1).index_select(0, batch.places)
        return masked, self.cls["seq_relationship"](read.pooler_output) if "seq_relationship" in self.cls else None

    def vocabulary(self, states: Tensor) -> Tensor:
        """[..., width] -> [..., word pieces]"""
        scores: Tensor = self.cls["predictions"](states, self.embeddings)
        return scores


def _pretraining(encoder: Encoder) -> Any:
    """The network with both heads; a checkpoint without them gets new ones."""
    config = encoder.config
    if config.model_type != "bert":
        raise ConfigError(
            f"masked_lm trains BERT, and encoder '{encoder.name}' is of the kind '{config.model_type}'; "
            "name a BERT, or 'new'"
        )
    if len(encoder.tokenizer) > config.vocab_size:
        raise ConfigError(f"encoder '{encoder.name}' has {config.vocab_size} word embeddings, its tokenizer more")
    if encoder.weights is None:
        whole = BertForPreTraining(copy.deepcopy(encoder.config))
        lacked = frozenset({BIAS})
    else:
        whole, lacked = encoder.pretrained(BertForPreTraining, may_lack=("cls.", "bert.pooler."))
    head = whole.cls.predictions
    with torch.no_grad():
        if TRANSFORM in lacked:
            head.transform.dense.weight.copy_(torch.eye(config.hidden_size))
            head.transform.LayerNorm.weight.fill_(NEW_SCALE)
        if encoder.usage is not None and BIAS in lacked:
            # Else the bias, which moves by the learning rate a step, takes ten thousand steps to say how common words
            # are, and until then the word embeddings do.
            head.bias.copy_(((encoder.usage + 1) / (encoder.usage + 1).sum()).log())
    return whole
