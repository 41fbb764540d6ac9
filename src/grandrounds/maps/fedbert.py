"""Federated BERT against silos by themselves: how different their text is, by how much of it each has.

A silo with much text like everybody's needs nobody. A silo with little, or with other text than it will meet, does; but
models of silos that differ much may have little to average.
"""

from __future__ import annotations

from grandrounds.maps.declaration import Arm, Dial, Map, Overrides, Point

SILOS = 2
MOST = 80
"""Notes a silo; with fewer, a round has more epochs, so that it has about as many steps."""


def declare() -> Map:
    return Map(
        system="fedbert",
        question="When does pre-training BERT across silos pay (federated BERT)?",
        config={
            "task": {"name": "masked_lm", "length": 64, "masked": 0.25},
            "data": {
                "format": "synthetic",
                "validation": 0.2,
                "options": {"hospitals": SILOS, "test": 20},
            },
            "partition": {"scheme": "by", "by": "silo", "unit": "patient"},
            "model": {
                "encoder": "new",
                "vocabulary": "sites",
                "vocabulary_documents": 2,
                "layers": 1,
                "width": 128,
                "heads": 4,
                "pieces": 600,
                "dropout": 0.0,
            },
            "training": {"batch_size": 8},
            "federation": {
                "rounds": 50,
                "early_stopping": 4,
                "weight_by": "patients",
                "evaluate_on": ["validation"],
                "checkpoint_every": 10,
            },
        },
        x=Dial(
            "patients whose notes are in their hospital's silo, not in any (%)",
            (0, 50, 100),
            lambda v: {"data.options.divergence": int(v)},
        ),
        y=Dial("notes a silo", (20, 40, MOST), _notes),
        arm=Arm("fedavg", {"algorithm.name": "fedavg"}),
        rivals=(Arm("silos alone", {"algorithm.name": "local_only"}),),
        references=(Arm("centralized", {"algorithm.name": "centralized"}),),
        learning_rates=(1e-3, 2e-3, 4e-3),
        points=(
            Point(
                "mtsamples",
                8,
                7891,
                "Two silos of specialties. The Jensen-Shannon divergence of their words is 0.018 nats above that of "
                "random silos, as much as that of synthetic silos at 8% (0.005 at 0%, 0.048 at 25%); 609,223 words a "
                "silo are 7,891 synthetic notes of 77 words (python experiments/map_points.py --data DIR).",
            ),
        ),
        seeded=_seeded,
    )


def _notes(count: float) -> Overrides:
    return {"data.options.notes": int(count), "training.epochs": 2 * MOST // int(count)}


def _seeded(seed: int) -> Overrides:
    """Other patients and notes too."""
    return {"seed": seed, "data.options.seed": seed}
