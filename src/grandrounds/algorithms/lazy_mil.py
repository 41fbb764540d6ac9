"""Lazy multiple instance learning (FedDS, 2020, Algorithms 1 and 2): before sites train, they agree on the one reliable
sentence of each fact.

Eq. 2  LazyMIL.score: a site's most confident sentence        Alg. 1  winners        Eq. 3  LazyMIL.train
Eq. 5  mean, uniform

A fact travels as a digest keyed with a secret that the server does not know, with two bytes for the site's confidence;
nobody else learns which sentence it is. The confidence is offset by a value secret from the server, new for each fact
and round: the server can compare sites, but does not see the level, which would reveal the relation.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from grandrounds import (
    Algorithm,
    BagScores,
    Cohort,
    Parameters,
    Selection,
    Server,
    Site,
    TensorState,
    algorithm,
    mean,
    on_site,
)
from grandrounds.federation.payloads import DIGEST_BYTES
from grandrounds.federation.privacy.settings import Unit
from grandrounds.tasks.abilities import Bagged
from grandrounds.tasks.task import NONE

GLOBAL, BEST = "global model", "best sentences"


@algorithm("lazy_mil")
class LazyMIL(Algorithm):
    needs_secret: ClassVar[bool] = True
    needs: ClassVar[Sequence[type]] = (Bagged,)
    weight_by: ClassVar[str] = "uniform"  # Eq. 5

    na: Literal["agree", "own"] = "agree"
    """"agree": sites also agree on a sentence of each NA fact, as in the paper, where NA is a normal relation (footnote
    2); "own": NA facts do not travel, and each site trains on its own choice for each."""
    choose: Literal["surest", "random"] = "surest"
    """Which of a fact's sentences to train on: Eq. 2, or for comparison a random one, each with equal chance."""

    def unaccounted(self, unit: Unit) -> str:
        return "which facts a site has, and how confident it is, leaves without noise ('bag_scores')"

    def not_averaged(self) -> str:
        return "the server compares the bag scores of single sites"

    def round(self, server: Server, cohort: Cohort) -> None:
        scores = {r.site.site: r.payload for r in cohort.ask(self.score, Parameters.of(server.model))}
        won = winners(scores, server.round)
        server.load(mean(cohort.ask_each(self.train, {site: (Selection(mask),) for site, mask in won.items()})))

    @on_site
    def score(self, site: Site, parameters: Parameters) -> BagScores:
        """Eq. 2 for each fact of the site; which sentence was chosen stays at the site."""
        site.load(parameters)
        confidence = self.confidence(site)
        chosen = {fact: rows[confidence[rows].argmax()] for fact, rows in site.facts("train")}
        own = [row for fact, row in chosen.items() if not self.agrees(fact)]
        best = {keyed(site.secret, fact): row for fact, row in chosen.items() if self.agrees(fact)}
        rows = np.array([row for _, row in sorted(best.items())], dtype=np.int64)
        digests = np.frombuffer(b"".join(sorted(best)), dtype=np.uint8).reshape(-1, DIGEST_BYTES)
        site.keep(GLOBAL, site.model)
        site.keep(BEST, TensorState(rows=torch.from_numpy(rows), own=torch.tensor(own, dtype=torch.int64)))
        offsets = np.array([offset(site.secret, digest, site.round) for digest in sorted(best)], dtype=np.int64)
        return BagScores(torch.from_numpy(digests.copy()), two_bytes(rounded(confidence[rows]) + offsets))

    def agrees(self, fact: tuple[str, ...]) -> bool:
        _, relation, _ = fact
        return self.na == "agree" or relation != NONE

    def confidence(self, site: Site) -> NDArray[np.float32]:
        """[sentences]: the model's confidence in each, or for a random choice a uniform number. Then every sentence of
        all sites has the same chance to be the largest, and uploads look the same. The secret is part of the seed, or
        the server could repeat the draw."""
        if self.choose == "random":
            draw = site.seeded("choice", site.secret.hex())
            return torch.rand(sum(len(rows) for _, rows in site.facts("train")), generator=draw).numpy()
        task = site.spec.task
        assert isinstance(task, Bagged)  # by needs
        return site.infer("train", task.confidence).values[:, 0].numpy()

    @on_site
    def train(self, site: Site, selection: Selection) -> Parameters:
        """Eq. 3 on the sentences that won, and on the site's own choices for facts that do not travel; a site without
        either returns the weights it got."""
        best = TensorState()
        site.recall(GLOBAL, site.model)
        site.recall(BEST, best)
        site.train(only=[*best["rows"][selection.chosen.bool()].tolist(), *best["own"].tolist()])
        return Parameters.of(site.model)


def rounded(p: NDArray[np.float32]) -> NDArray[np.int64]:
    """0 to 255, in even steps of the log-odds from -8 to 8: in steps of p itself, all confident answers would be
    equal."""
    bounded = p.astype(np.float64).clip(1e-6, 1 - 1e-6)
    odds = np.log(bounded) - np.log1p(-bounded)
    steps: NDArray[np.int64] = np.rint((odds.clip(-8, 8) + 8) * 255 / 16).astype(np.int64)
    return steps


def keyed(secret: bytes, fact: tuple[str, ...]) -> bytes:
    """A fact's digest, which reveals nothing without the sites' secret."""
    return hmac.digest(secret, "\x1f".join(fact).encode(), "sha256")[:DIGEST_BYTES]


def offset(secret: bytes, digest: bytes, round: int) -> int:
    """What all sites add to their confidence in a fact in a round; with 255 more it still fits two bytes."""
    drawn = hmac.digest(secret, digest + round.to_bytes(4, "big"), "sha256")
    return int.from_bytes(drawn[:8], "big") % (65536 - 255)


def two_bytes(values: NDArray[np.int64]) -> Tensor:
    """[n] -> [n, 2], the higher first."""
    return torch.from_numpy(np.stack([values >> 8, values & 255], axis=1).astype(np.uint8))


def winners(scores: Mapping[str, BagScores], round: int) -> dict[str, Tensor]:
    """Algorithm 1 on the server: for each fact the most confident site. Ties are broken by a hash of the round and of
    all that is known of the fact, so that no site is favoured and every runtime decides alike."""
    reports: dict[bytes, list[tuple[int, str, int]]] = {}
    for site, payload in sorted(scores.items()):
        values = payload.values.numpy().astype(np.int64) @ (256, 1)
        for place, (fact, value) in enumerate(zip(payload.facts.numpy(), values.tolist(), strict=True)):
            reports.setdefault(fact.tobytes(), []).append((value, site, place))
    chosen = {site: np.zeros(len(payload.facts), dtype=np.uint8) for site, payload in scores.items()}
    for reported in reports.values():
        top = max(value for value, _, _ in reported)
        equals = [(site, place) for value, site, place in reported if value == top]
        if len(equals) > 1:
            known = repr((round, [(site, top - value) for value, site, _ in reported]))
            equals = [min(equals, key=lambda one: (_drawn(known, one[0]), one))]
        ((site, place),) = equals
        chosen[site][place] = 1
    return {site: torch.from_numpy(mask) for site, mask in chosen.items()}


def _drawn(known: str, site: str) -> bytes:
    return blake2b(f"{known} {site}".encode(), digest_size=8).digest()
