"""Lazy MIL against each site's own way with noisy bags: how noisy they are, by how scattered they are.

Where all sentences of a fact are at one site, there is nothing to agree about; where all say their fact, agreeing on
one throws the others away. Where few say it and they are scattered, no site sees enough of a bag to tell truth from
noise.
"""

from __future__ import annotations

from grandrounds.maps.declaration import Arm, Dial, Map, Overrides

SITES = 10


def declare() -> Map:
    return Map(
        system="lazy_mil",
        question="When should sites agree on one sentence a fact (Lazy MIL)?",
        config={
            "task": {"name": "distant_re"},
            "data": {
                "format": "synthetic-bags",
                "public": 0.1,  # the vocabulary's; no arm trains on it
                "validation": 0.15,
                "options": {"facts": 200, "unrelated": 400, "size": 6, "test": 200, "sites": SITES},
            },
            "partition": {"scheme": "by", "by": "site"},
            "model": {"encoder": "words"},
            "training": {"epochs": 2, "batch_size": 32, "decay": 0.01},
            "federation": {
                "rounds": 100,
                "early_stopping": 10,
                "weight_by": "uniform",
                "evaluate_on": ["validation"],
                "checkpoint_every": 10,
            },
        },
        x=Dial(
            "share of a fact's sentences that say it (%)", (15, 30, 60, 100), lambda v: {"data.options.true": int(v)}
        ),
        y=Dial(
            "share of its sentences scattered over all sites (%)",
            (0, 50, 100),
            lambda v: {"data.options.scatter": int(v)},
        ),
        arm=Arm("lazy_mil", {"algorithm.name": "lazy_mil"}),
        rivals=(
            *(Arm(bag, {"algorithm.name": "fedavg", "task.bag": bag}) for bag in ("one", "ave", "att", "att_ra")),
            Arm("random sentence", {"algorithm.name": "lazy_mil", "algorithm.choose": "random"}),
        ),
        learning_rates=(5e-3, 1e-2, 2e-2, 4e-2),
        seeded=_seeded,
    )


def _seeded(seed: int) -> Overrides:
    """Other facts and other sentences too."""
    return {"seed": seed, "data.options.seed": seed}
