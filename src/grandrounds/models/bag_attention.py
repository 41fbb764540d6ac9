"""Bags of sentences as one vector: ONE, AVE, ATT and ATT_RA, each with its rule for training and for a test.

Sentences of a bag stand together: `bag` is each sentence's bag, 0, 0, 0, 1, 1 ...

    ONE      the sentence most confident of the bag's relation (Zeng et al., 2015); in a test, of each relation
    AVE      the mean of the sentences (Lin et al., 2016)
    ATT      e_i = x_i A q_r, weights softmax(e) for the bag's relation r (Lin et al., 2016, Eqs. 6 to 9); in a test
             each relation is scored by its own query
    ATT_RA   each relation by its own query in training too (Ye and Ling, NAACL 2019, Eqs. 4 to 6)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Method = Literal["one", "ave", "att", "att_ra"]


def bag_mean(x: Tensor, bag: Tensor, bags: int) -> Tensor:
    """AVE: [sentences, width] -> [bags, width]."""
    count = torch.bincount(bag, minlength=bags).to(x.dtype)
    return x.new_zeros(bags, x.shape[1]).index_add(0, bag, x) / count[:, None]


def bag_softmax(scores: Tensor, bag: Tensor, bags: int) -> Tensor:
    """[sentences, ...]: a softmax over the sentences of each bag."""
    index = bag.reshape(-1, *[1] * (scores.ndim - 1)).expand_as(scores)
    top = scores.new_full((bags, *scores.shape[1:]), -torch.inf).scatter_reduce(0, index, scores, "amax")
    powers = (scores - top[bag].detach()).exp()
    return powers / powers.new_zeros(bags, *scores.shape[1:]).index_add(0, bag, powers)[bag]


def attended(x: Tensor, bag: Tensor, bags: int, queries: Tensor) -> Tensor:
    """[bags, relations, width]: each relation's view of a bag, sentences weighed by softmax(x q_r)."""
    weights = bag_softmax(x @ queries.T, bag, bags)  # [sentences, relations]
    out = x.new_zeros(bags, len(queries), x.shape[1])
    return out.index_add(0, bag, weights[:, :, None] * x[:, None, :])


def attended_by_label(x: Tensor, bag: Tensor, labels: Tensor, queries: Tensor) -> Tensor:
    """[bags, width]: the view of each bag's own relation."""
    weights = bag_softmax((x * queries[labels[bag]]).sum(dim=1), bag, len(labels))
    return x.new_zeros(len(labels), x.shape[1]).index_add(0, bag, weights[:, None] * x)


def most_confident(log_p: Tensor, bag: Tensor, labels: Tensor) -> Tensor:
    """ONE in training: for each bag the place of the sentence with the largest probability of its relation."""
    own = log_p.detach()[torch.arange(len(bag)), labels[bag]]
    top = own.new_full((len(labels),), -torch.inf).scatter_reduce(0, bag, own, "amax")
    place = torch.arange(len(bag), device=bag.device)
    winners = torch.where(own == top[bag], place, len(bag))
    return winners.new_full((len(labels),), len(bag)).scatter_reduce(0, bag, winners, "amin")


def largest_in_bag(p: Tensor, bag: Tensor, bags: int) -> Tensor:
    """ONE in a test: [bags, relations], for each relation the largest over the bag's sentences."""
    return p.new_zeros(bags, p.shape[1]).scatter_reduce(0, bag[:, None].expand_as(p), p, "amax", include_self=False)
