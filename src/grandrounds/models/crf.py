"""A linear-chain conditional random field (Lafferty et al., 2001; Lample et al., 2016), and what reads tags off states.

    s(x, y) = start[y_1] + sum_t emission[t, y_t] + sum_t transition[y_t-1, y_t] + end[y_n]
    log p(y | x) = s(x, y) - log sum over y' of exp s(x, y')

All sentences of a batch go together, a step a word. What a tag scheme forbids has the score -inf, so that neither the
sum nor the best sequence ever contains it. Emissions are [sentences, words, tags], `lengths` [sentences], each at
least 1; what stands past a sentence's end has no influence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.errors import GrandRoundsError
from grandrounds.metrics.spans import split, tag_names
from grandrounds.models.decoder import Decoder


class LinearChainCRF(nn.Module):
    """Scores of sequences of tags; with a scheme (BIO, BIOES, IO) only of those that it allows."""

    may_follow: Tensor
    may_start: Tensor
    may_end: Tensor

    def __init__(self, tags: Sequence[str], scheme: str | None = None) -> None:
        super().__init__()
        self.tags, self.scheme = tuple(tags), scheme
        self.transitions = nn.Parameter(torch.empty(len(tags), len(tags)).uniform_(-0.1, 0.1))
        self.start = nn.Parameter(torch.empty(len(tags)).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(len(tags)).uniform_(-0.1, 0.1))
        follow, start, end = allowed(tags, scheme)
        for name, rule in (("may_follow", follow), ("may_start", start), ("may_end", end)):
            self.register_buffer(name, rule, persistent=False)

    def log_likelihood(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """log p of each sentence's tags, [sentences]; tags that the scheme forbids are an error."""
        inside = words_inside(lengths, emissions.shape[1])
        tags = tags.masked_fill(~inside, 0)
        self._check(tags, inside)
        return self._score(self._clean(emissions, inside), tags, inside) - self.log_partition(emissions, lengths)

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The log of the sum over all sequences, [sentences]."""
        inside = words_inside(lengths, emissions.shape[1])
        last = self._forward(self._clean(emissions, inside), inside)[-1]
        return (last + self._tables()[2]).logsumexp(dim=1)

    def decode(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The best sequence of each sentence (Viterbi), [sentences, words], 0 past its end."""
        inside = words_inside(lengths, emissions.shape[1])
        transitions, start, end = self._tables()
        stay = torch.arange(len(self.tags), device=emissions.device).expand(len(emissions), -1)
        steps = self._clean(emissions, inside).unbind(dim=1)
        best, came_from = start + steps[0], list[Tensor]()
        for emission, here in zip(steps[1:], inside.T[1:, :, None], strict=True):
            value, before = (best[:, :, None] + transitions).max(dim=1)
            best = torch.where(here, value + emission, best)
            came_from.append(torch.where(here, before, stay))
        path = [(best + end).argmax(dim=1, keepdim=True)]
        for before in reversed(came_from):
            path.append(before.gather(1, path[-1]))
        return torch.cat(path[::-1], dim=1).masked_fill(~inside, 0)

    def marginals(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The probability of each tag at each word, [sentences, words, tags], 0 past the end (forward-backward)."""
        inside = words_inside(lengths, emissions.shape[1])
        emissions = self._clean(emissions, inside)
        transitions, _, end = self._tables()
        forward = self._forward(emissions, inside)
        to_come = [end.expand(len(emissions), -1)]
        for t in range(len(forward) - 1, 0, -1):
            following = (transitions + (emissions[:, t] + to_come[-1])[:, None, :]).logsumexp(dim=2)
            to_come.append(torch.where(inside[:, t, None], following, end))
        whole = (forward[-1] + end).logsumexp(dim=1)
        scores = torch.stack(forward, dim=1) + torch.stack(to_come[::-1], dim=1)
        return (scores - whole[:, None, None]).exp().masked_fill(~inside[:, :, None], 0)

    def _forward(self, emissions: Tensor, inside: Tensor) -> list[Tensor]:
        """By word: the log of the sum over all beginnings that end there with each tag; the last word's stays on."""
        transitions, start, _ = self._tables()
        steps = emissions.unbind(dim=1)
        sums = [start + steps[0]]
        for emission, here in zip(steps[1:], inside.T[1:, :, None], strict=True):
            longer = (sums[-1][:, :, None] + transitions).logsumexp(dim=1) + emission
            sums.append(torch.where(here, longer, sums[-1]))
        return sums

    def _score(self, emissions: Tensor, tags: Tensor, inside: Tensor) -> Tensor:
        transitions, start, end = self._tables()
        at_words = emissions.gather(2, tags[:, :, None])[:, :, 0].masked_fill(~inside, 0)
        between = transitions[tags[:, :-1], tags[:, 1:]].masked_fill(~inside[:, 1:], 0)
        last = tags.gather(1, inside.sum(dim=1, keepdim=True) - 1)[:, 0]
        return start[tags[:, 0]] + at_words.sum(dim=1) + between.sum(dim=1) + end[last]

    def _tables(self) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.transitions.masked_fill(~self.may_follow, -torch.inf),
            self.start.masked_fill(~self.may_start, -torch.inf),
            self.end.masked_fill(~self.may_end, -torch.inf),
        )

    def _clean(self, emissions: Tensor, inside: Tensor) -> Tensor:
        # Sums over long sentences need float32, whatever autocast left.
        return emissions.to(self.transitions.dtype).masked_fill(~inside[:, :, None], 0)

    def _check(self, tags: Tensor, inside: Tensor) -> None:
        follows = self.may_follow[tags[:, :-1], tags[:, 1:]] | ~inside[:, 1:]
        last = tags.gather(1, inside.sum(dim=1, keepdim=True) - 1)[:, 0]
        good = follows.all(dim=1) & self.may_start[tags[:, 0]] & self.may_end[last]
        if not good.all():
            row = int(good.logical_not().nonzero()[0, 0])
            raise GrandRoundsError(
                f"the gold tags of sentence {row} of a batch break the scheme {self.scheme} "
                f"({self._first_break(tags[row], inside[row])}); make them of spans with tags_of"
            )

    def _first_break(self, tags: Tensor, inside: Tensor) -> str:
        sequence = tags[inside].tolist()
        if not self.may_start[sequence[0]]:
            return f"{self.tags[sequence[0]]} begins it"
        for word, (before, tag) in enumerate(pairwise(sequence), start=2):
            if not self.may_follow[before, tag]:
                return f"{self.tags[tag]} follows {self.tags[before]} at word {word}"
        return f"{self.tags[sequence[-1]]} ends it"


def allowed(tags: Sequence[str], scheme: str | None) -> tuple[Tensor, Tensor, Tensor]:
    """Which tag may follow which, [from, to], which may begin a sentence and which may end it."""
    every = torch.ones(len(tags), dtype=torch.bool)
    if scheme is None:
        return every.expand(len(tags), -1).clone(), every, every
    parts = [split(tag) for tag in tags]
    types = list(dict.fromkeys(type for _, type in parts if type))
    if sorted(tags) != sorted(tag_names(types, scheme)):
        raise GrandRoundsError(f"{', '.join(tags)} are not the tags of {scheme}; make them with tag_names")
    if scheme == "IO":
        return allowed(tags, None)
    goes_on = torch.tensor([letter in "IE" for letter, _ in parts])
    is_open = torch.tensor([letter in "BI" for letter, _ in parts])
    same_type = torch.tensor([[type == other for _, other in parts] for _, type in parts])
    within = is_open[:, None] & goes_on & same_type
    if scheme == "BIO":
        return within | ~goes_on, ~goes_on, every
    return within | (~is_open[:, None] & ~goes_on), ~goes_on, ~is_open  # BIOES: what is open must end with E


class TagDecoder(Decoder):
    """States to emissions, and these to tags."""

    def __init__(self, width: int, tags: Sequence[str]) -> None:
        super().__init__()
        self.emit = nn.Linear(width, len(tags))

    def forward(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.emit(states))

    def outputs(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """[sentences, words, 1 + tags]: the word's tag in the best sequence, then the probability of each tag."""
        likely = self.marginals(emissions, lengths).float()  # bfloat16 could not count to 300 tags
        return torch.cat([self.decode(emissions, lengths)[:, :, None], likely], dim=2)

    @abstractmethod
    def decode(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The best tags, [sentences, words], 0 past the end."""

    @abstractmethod
    def marginals(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The probability of each tag at each word, 0 past the end."""


class CRFDecoder(TagDecoder):
    """A CRF over linear emissions (FedNER, Eq. 1, as the mean over sentences)."""

    def __init__(self, width: int, tags: Sequence[str], scheme: str | None) -> None:
        super().__init__(width, tags)
        self.chain = LinearChainCRF(tags, scheme)

    def loss(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        return -self.chain.log_likelihood(emissions, tags, lengths).mean()

    def decode(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        return self.chain.decode(emissions, lengths)

    def marginals(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        return self.chain.marginals(emissions, lengths)


class SoftmaxDecoder(TagDecoder):
    """Each word for itself: cross-entropy as the mean over words."""

    def loss(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        inside = words_inside(lengths, emissions.shape[1])
        return F.cross_entropy(emissions[inside], tags[inside])

    def decode(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        return emissions.argmax(dim=-1).masked_fill(~words_inside(lengths, emissions.shape[1]), 0)

    def marginals(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        outside = ~words_inside(lengths, emissions.shape[1])
        return emissions.softmax(dim=-1).masked_fill(outside[:, :, None], 0)


def words_inside(lengths: Tensor, words: int) -> Tensor:
    """[sentences, words]: whether a place holds a word."""
    return torch.arange(words, device=lengths.device) < lengths[:, None]
