"""FedLCC against other ways to hold sites together: how far their contexts have drifted apart, by their documents.

Where all sites say a relation in the same words, local models see the same contexts and there is nothing to contrast.
Where each has words of its own, its model can forget between two rounds what the others' words mean.
"""

from __future__ import annotations

from grandrounds.maps.declaration import Arm, Dial, Map, Overrides

SITES = 3
MOST = 80
"""Documents a site; with fewer, an evaluation comes after more rounds, so that it comes after about as many steps."""


def declare() -> Map:
    return Map(
        system="fedlcc",
        question="When does the contrast of localized contexts help document-level extraction (FedLCC)?",
        config={
            "task": {"name": "document_re", "block": 16},
            "data": {
                "format": "synthetic-documents",
                "validation": 0.2,
                "options": {"sites": SITES, "test": 40},
            },
            "partition": {"scheme": "by", "by": "site"},
            "model": {
                "encoder": "new",
                "vocabulary": "sites",
                "vocabulary_documents": 2,
                "layers": 2,
                "width": 64,
                "heads": 2,
                "pieces": 600,
                "dropout": 0.0,
            },
            "training": {"epochs": 1, "batch_size": 4, "weight_decay": 0.0},
            "federation": {
                "early_stopping": 6,
                "weight_by": "uniform",  # as FedLCC does, so that the contrast is all that differs
                "evaluate_on": ["validation"],
                "checkpoint_every": 20,
            },
        },
        x=Dial("statements in words of the site's own (%)", (0, 50, 100), lambda v: {"data.options.drift": int(v)}),
        y=Dial("documents a site", (30, 50, MOST), _documents),
        arm=Arm("fedlcc", {"algorithm.name": "fedlcc"}),
        rivals=tuple(Arm(name, {"algorithm.name": name}) for name in ("fedavg", "fedprox", "moon")),
        references=tuple(Arm(name, {"algorithm.name": name}) for name in ("centralized", "local_only")),
        learning_rates=(1e-3, 2e-3, 4e-3),
        seeded=_seeded,
    )


def _documents(count: float) -> Overrides:
    apart = round(2 * MOST / count)
    return {
        "data.options.documents": int(count),
        "federation.evaluate_every": apart,
        "federation.rounds": 30 * apart,
    }


def _seeded(seed: int) -> Overrides:
    """Other words and other documents too."""
    return {"seed": seed, "data.options.seed": seed}
