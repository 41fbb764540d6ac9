"""Where a transformer looks: the attention of all its heads, text by text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from grandrounds.errors import ConfigError
from grandrounds.models.encoder import Encoder

AT_ONCE = 2**17
"""How many pairs of tokens a batch holds at most: the attention of all layers is there at once."""

TOLERANCE = 1e-3
"""Of the sum of what a head gives all tokens, which is one."""


def transformer_in(network: nn.Module) -> PreTrainedModel:
    """The encoder within a task's network, or the network itself, ready to show its attention."""
    for part in network.modules():
        if isinstance(part, PreTrainedModel) and getattr(part.config, "num_attention_heads", False):
            part.set_attn_implementation("eager")  # the faster ones never make the matrices
            part.eval()
            return part
    raise ConfigError("the model has no attention heads; take one with a transformer, such as BERT")


def attentions(network: PreTrainedModel, encoder: Encoder, texts: Iterable[str], longest: int) -> Iterator[Tensor]:
    """Of each text, cut after so many word pieces, [layers, heads, tokens, tokens]; of padding there is nothing, and of
    a text without a piece nothing at all."""
    stream = iter(texts)
    longest = min(longest, encoder.window)
    while batch := list(islice(stream, max(1, AT_ONCE // longest**2))):
        yield from _together(network, encoder.name, _pieces(encoder.tokenizer, batch, longest))


def _pieces(tokenizer: Any, texts: list[str], longest: int) -> Any:
    return tokenizer(
        texts,
        truncation=True,
        max_length=longest,
        padding=True,
        padding_side="right",
        return_token_type_ids=False,
        return_special_tokens_mask=True,
        return_tensors="pt",
    )


@torch.inference_mode()
def _together(network: PreTrainedModel, name: str, batch: Any) -> list[Tensor]:
    read = batch.pop("special_tokens_mask").eq(0).any(dim=1)  # more than [CLS] and [SEP]
    sizes = (batch["attention_mask"].sum(dim=1) * read).tolist()
    if not any(sizes):
        return [torch.zeros(0, 0, 0, 0)] * len(sizes)
    layers = network(**batch, output_attentions=True).attentions or ()
    length, config = batch["attention_mask"].shape[1], network.config
    shown = [tuple(layer.shape) for layer in layers if layer is not None]
    if shown != [(len(sizes), config.num_attention_heads, length, length)] * config.num_hidden_layers:
        raise _not_whole(name)
    seen = [torch.stack([layer[i, :, :size, :size] for layer in layers]) for i, size in enumerate(sizes)]
    if not all(one.isfinite().all() for one in seen):
        raise ConfigError(f"the attention of '{name}' is not made of numbers: its weights are broken, or nan")
    if any(((one.sum(dim=-1) - 1).abs() > TOLERANCE).any() for one in seen):
        raise _not_whole(name)
    return seen


def _not_whole(name: str) -> ConfigError:
    return ConfigError(
        f"'{name}' does not show where each head looks from every token to every token; take BERT or RoBERTa"
    )
