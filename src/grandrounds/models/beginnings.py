"""How a new BERT begins: positions as sinusoids, and heads that look at the words beside.

From random weights a small BERT takes most of an hour of a core to find out that neighbours matter. With sinusoids a
step to the side is the same turn everywhere, so that a head can be told where to look, and learns on from there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SHARPNESS = 4.5
"""By how many nats a head's scores prefer the place that it looks at to one far away."""
LEAST_ROOM = 16
"""Coordinates without which places come round again, as the hours of a clock do."""


def sinusoids(positions: int, width: int) -> Tensor:
    """[positions, width]: those of Vaswani et al. (2017, section 3.5), of variance 1."""
    turns = torch.arange(positions)[:, None] / _slowness(width)
    return torch.stack([turns.sin(), turns.cos()], dim=2).flatten(1)[:, :width] * 2**0.5


def look_beside(bert: Any) -> None:
    """Heads of the first half of the layers begin by looking one place to the left, one to the right, two to the left
    ...; positions must be sinusoids. What tells places apart is added to the random weights of queries and keys, and
    the coordinates that it reads are the positions' alone: a word would be most like itself, and win."""
    layers, width = bert.encoder.layer, bert.config.hidden_size
    room = room_for_places(width, bert.config.num_attention_heads)
    with torch.no_grad():
        for embeddings in (bert.embeddings.word_embeddings, bert.embeddings.token_type_embeddings):
            embeddings.weight[:, :room] = 0
        for layer in layers[: (len(layers) + 1) // 2]:
            attention = layer.attention.self
            size = attention.attention_head_size
            gain = (SHARPNESS * size**0.5 / (positions_share(room, width) * room)) ** 0.5
            for head in range(attention.num_attention_heads):
                own = slice(head * size, head * size + room)
                attention.query.weight[own] += gain * _shifted(0, room, width)
                attention.key.weight[own] += gain * _shifted(offset(head), room, width)


def room_for_places(width: int, heads: int) -> int:
    """Coordinates that positions get for themselves: what a head reads at once, and a quarter at most."""
    return min(width // heads, width // 4) // 2 * 2


def offset(head: int) -> int:
    """-1, 1, -2, 2, ..."""
    return (head // 2 + 1) * (1 if head % 2 else -1)


def positions_share(room: int, width: int) -> float:
    """Their variance where they have coordinates for themselves, after the embeddings' layer norm: words, positions and
    segments begin with the same spread."""
    return 1 / (1 + 2 * (1 - room / width))


def _shifted(places: int, room: int, width: int) -> Tensor:
    """[room, width]: takes a position's fastest sinusoids, as they stand so many places before it."""
    turn = torch.zeros(room, width)
    for i, slowness in enumerate(_slowness(width)[: room // 2]):
        angle = torch.tensor(places) / slowness
        sine, cosine = 2 * i, 2 * i + 1
        turn[sine, sine] = turn[cosine, cosine] = angle.cos()
        turn[sine, cosine], turn[cosine, sine] = -angle.sin(), angle.sin()
    return turn


def _slowness(width: int) -> Tensor:
    return 10_000 ** (torch.arange(0, width, 2) / width)
