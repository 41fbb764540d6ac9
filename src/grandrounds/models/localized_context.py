"""Document-level relation extraction with localized context (FedLCC, 2024, section 3.2; ATLOP, Zhou et al., AAAI 2021).

    Eq. 1    H, and the last layer's attention                     encode
    Eq. 2    h_e = log sum_j exp h_m_j                             log_sum_exp
    Eqs. 3-5 q = sum over heads of A_s A_o, a = q / 1'q, c = H'a   localized_context, localized_attention
    Eqs. 6-7 z = tanh(W h_e + W_c c)                               LocalizedContext.forward
    Eqs. 8-10 sum over groups of z_s' W_r z_o + b_r                GroupedBilinear

A document longer than the encoder's window is read in windows that overlap; its pieces' states are the mean over the
windows that hold them. Everything is computed for all pairs of all documents of a batch at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from grandrounds.errors import ConfigError
from grandrounds.models.encoder import Encoder, showing_attention, states_and_attention

WINDOWS_AT_ONCE = 8
PAIRS_AT_ONCE = 2048
LARGEST = 1 << 24  # numbers in the attention of all pairs at once


class DocumentBatch(Protocol):
    """Documents cut into windows, [W, L] word pieces; N is the longest document's length. -1 fills up."""

    @property
    def input_ids(self) -> Tensor: ...
    @property
    def attention_mask(self) -> Tensor: ...
    @property
    def markers(self) -> Tensor:
        """[W, K]: where in a window the opening markers stand."""

    @property
    def places(self) -> Tensor:
        """[W, L]: which piece of its document each piece of a window is; nothing where every document is one window."""

    @property
    def window_document(self) -> Tensor:
        """[W]"""

    @property
    def mentions(self) -> Tensor:
        """[M, V]: the opening markers of a mention, as w K + k, one for each window that shows it well."""

    @property
    def entities(self) -> Tensor:
        """[D, E, J]: the mentions of each entity of each document."""

    @property
    def pairs(self) -> Tensor:
        """[P, 3]: document, subject and object."""


class PairReading(NamedTuple):
    """What the network makes of each pair."""

    logits: Tensor
    """[P, classes]"""
    pair: Tensor
    """[P, 2 width]: z_s and z_o, what is classified."""
    context: Tensor
    """[P, width]: c, zero where no piece has the attention of both entities."""
    looks: Tensor
    """[D, E, heads, N]: each entity's attention, from which `localized_attention` has a of Eq. 4."""


class LocalizedContext(nn.Module):
    threshold: Tensor

    def __init__(self, encoder: Encoder, classes: int, block: int = 64) -> None:
        super().__init__()
        self.encoder = showing_attention(encoder.build(), encoder.name)
        self.subject = nn.Linear(2 * encoder.width, encoder.width, bias=False)  # [W_s, W_c1]
        self.object = nn.Linear(2 * encoder.width, encoder.width, bias=False)  # [W_o, W_c2]
        self.bilinear = GroupedBilinear(encoder.width, classes, block)
        self.register_buffer("threshold", torch.zeros(1))
        """The logit from which a relation holds, chosen on validation data."""

    def forward(self, batch: DocumentBatch) -> PairReading:
        states, marker_states, marker_attention = self.encode(batch)
        mention, mention_attention = mean_of(marker_states, batch.mentions), mean_of(marker_attention, batch.mentions)
        entity = log_sum_exp(mention, batch.entities)
        looks = mean_of(mention_attention, batch.entities)
        document, s, o = batch.pairs.unbind(dim=1)
        c = localized_context(states, looks)[document, s, o]
        z_s = torch.tanh(self.subject(torch.cat([entity[document, s], c], dim=-1)))  # Eq. 6
        z_o = torch.tanh(self.object(torch.cat([entity[document, o], c], dim=-1)))  # Eq. 7
        return PairReading(in_parts(self.bilinear, PAIRS_AT_ONCE, z_s, z_o), torch.cat([z_s, z_o], dim=-1), c, looks)

    def encode(self, batch: DocumentBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. 1: states of the documents' pieces, [D, N, width]; states, [W K, width], and attention, [W K, heads, N],
        of the opening markers."""
        states, seen = self._read_windows(batch)
        seen = seen.transpose(1, 2)  # [W, K, heads, L]
        at = batch.markers.clamp(min=0)[:, :, None].expand(-1, -1, states.shape[2])
        marker_states = states.gather(1, at).flatten(0, 1)
        if batch.places.numel():
            length = int(batch.places.max()) + 1
            seen = _laid_out(seen, batch.places, length)
            states = _joined(states, batch.places, batch.window_document, len(batch.entities), length)
        return states, marker_states, seen.flatten(0, 1)

    def _read_windows(self, batch: DocumentBatch) -> tuple[Tensor, Tensor]:
        """A few windows at a time, or as many as documents: one of any length takes the memory of these and of
        what comes out."""
        at_once = max(WINDOWS_AT_ONCE, len(batch.entities))
        if len(batch.input_ids) <= at_once:
            return states_and_attention(self.encoder, batch.input_ids, batch.attention_mask, batch.markers)
        windows = zip(
            *(torch.split(part, at_once) for part in (batch.input_ids, batch.attention_mask, batch.markers)),
            strict=True,
        )
        read = [_sparingly(states_and_attention, self.encoder, *some) for some in windows]
        return torch.cat([states for states, _ in read]), torch.cat([seen for _, seen in read])


class GroupedBilinear(nn.Module):
    """Eqs. 8 to 10 before the sigmoid: both vectors in groups of `block`, a bilinear form for each group and class."""

    def __init__(self, width: int, classes: int, block: int = 64) -> None:
        super().__init__()
        if width % block:
            fitting = max(size for size in range(1, min(64, width) + 1) if width % size == 0)
            raise ConfigError(f"task.block = {block} does not divide the encoder's width of {width}; try {fitting}")
        self.block = block
        self.relation = nn.Linear(width * block, classes)

    def forward(self, z_s: Tensor, z_o: Tensor) -> Tensor:
        s, o = (z.reshape(len(z), -1, self.block) for z in (z_s, z_o))
        logits: Tensor = self.relation((s[..., :, None] * o[..., None, :]).flatten(1))
        return logits


def log_sum_exp(values: Tensor, members: Tensor) -> Tensor:
    """Eq. 2: [M, ...] and the members of each group, [..., J], -1 fills up; a group without any is zero."""
    absent = members < 0
    gathered = values[members.clamp(min=0)].masked_fill(absent[..., None], -torch.inf)
    empty = absent.all(dim=-1)[..., None]
    return gathered.masked_fill(empty[..., None], 0).logsumexp(dim=-2).masked_fill(empty, 0)


def mean_of(values: Tensor, members: Tensor) -> Tensor:
    """[M, ...] -> [..., ...]: the mean of each group's members, [..., J]; a group without any is zero."""
    group, place = (members.flatten(0, -2) >= 0).nonzero(as_tuple=True)
    chosen = members.flatten(0, -2)[group, place]
    count = torch.bincount(group, minlength=members.shape[:-1].numel()).clamp(min=1).to(values.dtype)
    shape = (len(count), *values.shape[1:])
    total = values.new_zeros(shape).index_add(0, group, values[chosen])
    mean = total / count.reshape(-1, *[1] * (values.ndim - 1))
    return mean.reshape(*members.shape[:-1], *values.shape[1:])


def localized_context(states: Tensor, looks: Tensor) -> Tensor:
    """Eqs. 3 to 5 for every two entities of a document: [D, N, width], [D, E, heads, N] -> [D, E, E, width]. Where
    their attention to all pieces would be large, a few subjects are taken at a time."""
    documents, entities, _, length = looks.shape
    at_once = max(1, LARGEST // (documents * entities * length))
    objects = looks.permute(0, 3, 2, 1)  # [D, N, heads, E]

    def context(subjects: Tensor) -> Tensor:
        q = subjects.permute(0, 3, 1, 2) @ objects  # Eq. 3: [D, N, some, E]
        c = normalised(q, dim=1).flatten(2).transpose(1, 2) @ states  # Eqs. 4 and 5
        return c.reshape(documents, -1, entities, states.shape[2])

    if at_once >= entities:
        return context(looks)
    return torch.cat([_sparingly(context, some) for some in torch.split(looks, at_once, dim=1)], dim=1)


def localized_attention(looks: Tensor, pairs: Tensor) -> Tensor:
    """Eqs. 3 and 4 for some pairs, [P, 3]: a, [P, N], over the pieces of the pair's document."""
    document, s, o = pairs.unbind(dim=1)
    return normalised((looks[document, s] * looks[document, o]).sum(dim=1), dim=1)


def normalised(q: Tensor, dim: int) -> Tensor:
    """Eq. 4: what sums to one, or to nothing where there is nothing."""
    total = q.sum(dim=dim, keepdim=True)
    return q / total.where(total > 0, 1)


def in_parts(function: Callable[..., Tensor], size: int, *given: Tensor) -> Tensor:
    """The function of rows, so many at a time."""
    if len(given[0]) <= size:
        return function(*given)
    return torch.cat([_sparingly(function, *some) for some in zip(*(torch.split(x, size) for x in given), strict=True)])


R = TypeVar("R")


def _sparingly(function: Callable[..., R], *given: Any) -> R:
    """In training, what is inside is computed again for the gradient instead of being held."""
    if not torch.is_grad_enabled():
        return function(*given)
    out: R = checkpoint(function, *given, use_reentrant=False)
    return out


def _laid_out(seen: Tensor, places: Tensor, length: int) -> Tensor:
    """Attention over a window's pieces, [W, K, heads, L], as attention over its document's, [W, K, heads, N], summing
    to one over those that have a place there."""
    at = places.where(places >= 0, length)[:, None, None, :].expand_as(seen)
    laid = seen.new_zeros(*seen.shape[:3], length + 1).scatter(3, at, seen)[..., :length]
    return laid / laid.sum(dim=-1, keepdim=True).clamp(min=1e-30)


def _joined(states: Tensor, places: Tensor, document: Tensor, documents: int, length: int) -> Tensor:
    """Windows' states, [W, L, width], as documents', [D, N, width]: the mean over the windows that hold a piece."""
    inside = places >= 0
    at = (document[:, None] * length + places)[inside]
    total = states.new_zeros(documents * length, states.shape[2]).index_add(0, at, states[inside])
    held = torch.bincount(at, minlength=documents * length).clamp(min=1).to(states.dtype)
    return (total / held[:, None]).reshape(documents, length, -1)
