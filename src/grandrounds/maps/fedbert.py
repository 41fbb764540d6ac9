"""Federated BERT against silos by themselves: how different their text is, by how much of it each has.

A silo with much text like everybody's needs nobody. A silo with little, or with other text than it will meet, does; but
models of silos that differ much may have little to average.
"""

from __future__ import annotations

from grandrounds.maps.declaration import Arm, Dial, Map, Overrides

SILOS = 3


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
                "width": 64,
                "heads": 2,
                "pieces": 600,
                "dropout": 0.0,
                "positions": "sinusoidal",
                "attention": "beside",
            },
            "training": {"epochs": 1, "batch_size": 4},
            "federation": {
                "rounds": 100,
                "early_stopping": 5,
                "weight_by": "patients",
                "evaluate_every": 2,
                "evaluate_on": ["validation"],
                "checkpoint_every": 20,
            },
        },
        x=Dial(
            "patients whose notes are in their hospital's silo, not in any (%)",
            (0, 50, 100),
            lambda v: {"data.options.divergence": int(v)},
        ),
        y=Dial("notes a silo", (20, 40, 80), lambda v: {"data.options.notes": int(v)}),
        arm=Arm("fedavg", {"algorithm.name": "fedavg"}),
        rivals=(Arm("silos alone", {"algorithm.name": "local_only"}),),
        references=(Arm("centralized", {"algorithm.name": "centralized"}),),
        learning_rates=(1e-3, 2e-3, 4e-3),
        seeded=_seeded,
    )


def _seeded(seed: int) -> Overrides:
    """Other patients and notes too."""
    return {"seed": seed, "data.options.seed": seed}
