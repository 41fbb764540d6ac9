"""The CRF against sums over all sequences; padding and neighbours have no say; forbidden tags never occur."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from torch import Tensor

from grandrounds.errors import GrandRoundsError
from grandrounds.metrics.spans import spans_of, tag_names, tags_of
from grandrounds.models.crf import CRFDecoder, LinearChainCRF, SoftmaxDecoder, allowed

SCHEMES = ("BIO", "BIOES", "IO", None)


def crf(scheme: str | None, types: tuple[str, ...] = ("A",), seed: int = 0) -> LinearChainCRF:
    torch.manual_seed(seed)
    chain = LinearChainCRF(tag_names(types, scheme or "BIO"), scheme).double()
    for parameter in chain.parameters():
        torch.nn.init.normal_(parameter, std=1.5)
    return chain


def batch(chain: LinearChainCRF, lengths: list[int], seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    emissions = torch.randn(len(lengths), max(lengths), len(chain.tags), generator=generator, dtype=torch.float64)
    return 2 * emissions, torch.tensor(lengths)


def valid(tags: list[str], scheme: str | None) -> bool:
    """Whether tags are those of the mentions that they say: a test of the rules that knows none of them."""
    return scheme is None or tags_of(spans_of(tags), len(tags), scheme) == tags


def by_hand(chain: LinearChainCRF, emissions: np.ndarray) -> dict[tuple[int, ...], float]:
    """The score of every allowed sequence."""
    transitions, start, end = (p.detach().numpy() for p in (chain.transitions, chain.start, chain.end))
    scores = {}
    for sequence in product(range(len(chain.tags)), repeat=len(emissions)):
        if valid([chain.tags[tag] for tag in sequence], chain.scheme):
            score = start[sequence[0]] + end[sequence[-1]]
            score += sum(emissions[word, tag] for word, tag in enumerate(sequence))
            scores[sequence] = score + sum(transitions[a, b] for a, b in pairwise(sequence))
    return scores


CASES = [(scheme, seed) for seed in range(50) for scheme in SCHEMES]


@pytest.mark.parametrize(("scheme", "seed"), CASES)
def test_sum_best_sequence_and_marginals_are_those_over_all_sequences(scheme: str | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    types = ("A", "B")[: 1 + seed % 2]
    longest = 4 if len(tag_names(types, scheme or "BIO")) > 5 else 5
    chain = crf(scheme, types, seed)
    emissions, lengths = batch(chain, [int(n) for n in rng.integers(1, longest + 1, 3)], seed)
    whole, best = chain.log_partition(emissions, lengths), chain.decode(emissions, lengths)
    shares = chain.marginals(emissions, lengths)
    for row, length in enumerate(lengths.tolist()):
        scores = by_hand(chain, emissions[row, :length].numpy())
        expected = np.logaddexp.reduce(list(scores.values()))
        assert whole[row].item() == pytest.approx(expected, abs=1e-9)
        assert tuple(best[row, :length].tolist()) == max(scores, key=scores.__getitem__)
        marginal = np.zeros((length, len(chain.tags)))
        for sequence, score in scores.items():
            marginal[np.arange(length), sequence] += np.exp(score - expected)
        np.testing.assert_allclose(shares[row, :length].detach().numpy(), marginal, atol=1e-9)
        sequence = list(scores)[rng.integers(len(scores))]
        likelihood = chain.log_likelihood(emissions[row : row + 1, :length], torch.tensor([sequence]), lengths[[row]])
        assert likelihood.item() == pytest.approx(scores[sequence] - expected, abs=1e-9)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_gradients_are_those_of_finite_differences(scheme: str | None) -> None:
    chain = crf(scheme)
    emissions, lengths = batch(chain, [4, 1, 3])
    tags = chain.decode(emissions, lengths)

    def likelihood(emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
        given = {"transitions": transitions, "start": start, "end": end}
        return torch.func.functional_call(_Likelihood(chain), {f"chain.{k}": v for k, v in given.items()}, emissions)

    class _Likelihood(torch.nn.Module):
        def __init__(self, chain: LinearChainCRF) -> None:
            super().__init__()
            self.chain = chain

        def forward(self, emissions: Tensor) -> Tensor:
            return self.chain.log_likelihood(emissions, tags, lengths)

    values = (emissions, chain.transitions.detach(), chain.start.detach(), chain.end.detach())
    assert torch.autograd.gradcheck(likelihood, tuple(v.clone().requires_grad_() for v in values))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_stands_past_the_end_and_beside_a_sentence_has_no_say(scheme: str | None) -> None:
    chain = crf(scheme, ("A", "B"))
    emissions, lengths = batch(chain, [7, 2, 5, 1])
    tags = chain.decode(emissions, lengths)
    emissions.requires_grad_()
    together = chain.log_likelihood(emissions, tags, lengths)
    (gradient,) = torch.autograd.grad(together.sum(), emissions)
    spoilt, strange = emissions.detach().clone(), tags.clone()
    for row, length in enumerate(lengths.tolist()):
        alone = emissions[row : row + 1, :length].detach()
        np.testing.assert_allclose(
            chain.log_likelihood(alone, tags[row : row + 1, :length], lengths[[row]]).item(),
            together[row].item(),
            rtol=1e-12,
        )
        assert chain.decode(alone, lengths[[row]])[0].tolist() == tags[row, :length].tolist()
        assert tags[row, length:].tolist() == [0] * (7 - length)
        assert gradient[row, length:].abs().sum() == 0
        spoilt[row, length:], strange[row, length:] = torch.nan, -100
    assert torch.equal(chain.log_likelihood(spoilt, strange, lengths), together)
    assert torch.equal(chain.decode(spoilt, lengths), tags)
    assert torch.equal(chain.marginals(spoilt, lengths), chain.marginals(emissions, lengths))


@pytest.mark.parametrize("scheme", ["BIO", "BIOES", "IO"])
def test_the_rules_are_those_of_tags_that_mean_what_they_say(scheme: str) -> None:
    tags = tag_names(("A", "B"), scheme)
    follow, start, end = allowed(tags, scheme)
    for pair in product(range(len(tags)), repeat=2):
        said = bool(start[pair[0]] and follow[pair] and end[pair[1]])
        assert said == valid([tags[tag] for tag in pair], scheme), [tags[tag] for tag in pair]


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_emissions_of_any_size_never_make_a_forbidden_sequence(scheme: str) -> None:
    chain = crf(scheme, ("A", "B")).float()
    emissions, lengths = batch(chain, [9, 6, 1, 3])
    emissions = 1e6 * emissions.float()
    for row, length in zip(chain.decode(emissions, lengths), lengths, strict=True):
        assert valid([chain.tags[tag] for tag in row[:length]], scheme)


def test_forbidden_transitions_are_never_trained_and_nothing_is_nan() -> None:
    chain = crf("BIOES", ("A", "B"))
    emissions, lengths = batch(chain, [6, 1, 2])
    emissions.requires_grad_()
    chain.log_likelihood(emissions, chain.decode(emissions, lengths), lengths).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in (*chain.parameters(), emissions))
    assert chain.transitions.grad[~chain.may_follow].abs().sum() == 0
    assert chain.transitions.grad[chain.may_follow].abs().min() > 0


@pytest.mark.parametrize(
    ("scheme", "tags", "why"),
    [
        ("BIO", ["O", "I-A", "O"], "I-A follows O at word 2"),
        ("BIO", ["I-A", "O", "O"], "I-A begins it"),
        ("BIO", ["O", "B-A", "I-B"], "I-B follows B-A at word 3"),
        ("BIOES", ["B-A", "O", "O"], "O follows B-A at word 2"),
        ("BIOES", ["O", "B-A", "I-A"], "I-A ends it"),
    ],
)
def test_gold_tags_that_break_the_scheme_are_named(scheme: str, tags: list[str], why: str) -> None:
    chain = crf(scheme, ("A", "B"))
    emissions, lengths = batch(chain, [3, 3])
    gold = torch.tensor([[0, 0, 0], [chain.tags.index(tag) for tag in tags]])
    with pytest.raises(GrandRoundsError, match=rf"sentence 1 of a batch break the scheme {scheme} \({why}\)"):
        chain.log_likelihood(emissions, gold, lengths)


@pytest.mark.parametrize(("tags", "scheme"), [(["O", "I-A"], "BIO"), (["O", "B-A", "I-A"], "BIOES"), (["O"], "BILOU")])
def test_tags_that_are_not_the_schemes_are_refused(tags: list[str], scheme: str) -> None:
    with pytest.raises(GrandRoundsError, match=r"not the tags of|unknown tag scheme"):
        LinearChainCRF(tags, scheme)


def test_the_decoders_loss_is_a_mean_over_sentences_or_over_words() -> None:
    tags = tag_names(("A",), "BIO")
    torch.manual_seed(0)
    states, lengths, gold = torch.randn(2, 4, 6), torch.tensor([4, 2]), torch.tensor([[0, 1, 2, 0], [1, 0, -100, 7]])
    with_crf, each = CRFDecoder(6, tags, "BIO"), SoftmaxDecoder(6, tags)
    emissions = with_crf(states)
    expected = -with_crf.chain.log_likelihood(emissions, gold, lengths).sum() / 2
    assert with_crf.loss(emissions, gold, lengths).item() == pytest.approx(expected.item(), abs=1e-6)
    shares = each(states).softmax(-1)
    logs = [shares[row, word, gold[row, word]].log().item() for row, n in enumerate((4, 2)) for word in range(n)]
    assert each.loss(each(states), gold, lengths).item() == pytest.approx(-np.mean(logs), abs=1e-6)
    assert each.decode(each(states), lengths)[1, 2:].tolist() == [0, 0]
    assert each.marginals(each(states), lengths).sum(-1).tolist() == [
        pytest.approx([1, 1, 1, 1]),
        pytest.approx([1, 1, 0, 0]),
    ]


def test_a_chain_learns_what_only_transitions_can_tell() -> None:
    """A word's tag is that of the word before: without transitions nothing could be known."""
    chain = LinearChainCRF(["x", "y"])
    gold = torch.tensor([[0] * 5, [1] * 5] * 4)
    emissions = torch.zeros(8, 5, 2)
    emissions[torch.arange(8), 0, gold[:, 0]] = 3
    lengths = torch.full((8,), 5)
    optimizer = torch.optim.Adam(chain.parameters(), lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        (-chain.log_likelihood(emissions, gold, lengths).mean()).backward()
        optimizer.step()
    assert torch.equal(chain.decode(emissions, lengths), gold)
