"""FedED against averaging weights: how many labelled sentences the server has, by how many sites share the rest.

With many labels the server needs no site; with few it has little to distil on. With many sites each has little to learn
from, so its predictions are poor. Ten sites at most are asked in a round, as the paper does of its hundred.
"""

from __future__ import annotations

from grandrounds.maps.declaration import Arm, Dial, Map, Overrides, Point

ASKED = 10
PATIENCE = {5: 8, 20: 10, 100: 15}
"""Rounds without a better one, by the number of sites: the fewer examples a round has, the more rounds it takes."""
PAPER = "Section 4.1 of the paper: 20% of the training data at the server, K = {k}, a tenth of the sites in a round."


def declare() -> Map:
    return Map(
        system="feded",
        question="When is it enough to upload predictions instead of weights (FedED)?",
        config={
            "task": {"name": "sentence_re"},
            "data": {
                "format": "synthetic",
                "public": 0.2,
                "validation": 0.15,
                "options": {"hospitals": 1, "notes": 80},
            },
            "partition": {"scheme": "iid"},
            "model": {"encoder": "tiny", "warm_up": 8},
            "training": {"epochs": 1, "batch_size": 8},
            "federation": {"evaluate_on": ["validation"], "checkpoint_every": 10},
        },
        x=Dial(
            "share of labelled sentences that are at the server (%)",
            (5, 10, 20, 40),
            lambda v: {"data.public": v / 100},
        ),
        y=Dial("number of sites that share the rest", tuple(PATIENCE), _sites),
        arm=Arm("feded", {"algorithm.name": "feded"}),
        rivals=(
            Arm("fedavg", {"algorithm.name": "fedavg"}),
            Arm("fedavg, server too", {"algorithm.name": "fedavg", "server.epochs": 1}),
            Arm(
                "server alone",
                {
                    "algorithm.name": "validation_only",
                    "training.epochs": 1,
                    "training.optimizer_state": "keep",
                },
            ),
        ),
        learning_rates=(2e-4, 5e-4, 1e-3),
        points=(
            Point("i2b2-2010", 20, 100, PAPER.format(k=100)),
            Point("GAD, EU-ADR", 20, 50, PAPER.format(k=50)),
        ),
        seeded=lambda seed: {"seed": seed, "data.options.seed": seed},
    )


def _sites(number: float) -> Overrides:
    return {
        "partition.sites": int(number),
        "federation.fraction": min(1.0, ASKED / number),
        "federation.early_stopping": PATIENCE[int(number)],
        "federation.rounds": 10 * PATIENCE[int(number)],
    }
