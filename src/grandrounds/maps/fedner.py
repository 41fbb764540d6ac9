"""FedNER against sharing all or nothing: how far sites' annotation guides differ, by how much each has annotated.

Where guides agree, one model for all learns from everybody's mentions; where each has its own, one model can't tell
whose guide to follow, and a site alone has only its own notes to learn words from.
"""

from __future__ import annotations

from grandrounds.data.synthetic.guides import KINDS, own_name
from grandrounds.data.synthetic.vocabulary import PROBLEM, TEST, TREATMENT
from grandrounds.maps.declaration import Arm, Dial, Map, Overrides, Point

SITES = ("st-anne", "riverside", "northgate")
LABELS = (PROBLEM, TREATMENT, TEST, *(own_name(kind, site) for site in SITES for kind in KINDS))
"""All that any guide may have: few notes need not show every label that a test has."""
BATCH, ITERATIONS = 48, 20
SENTENCES = 5.2
"""That a note gives to train on: 6.9 of them, less the quarter for validation."""


def declare() -> Map:
    return Map(
        system="fedner",
        question="When should sites share only the bottom layers of a tagger (FedNER)?",
        config={
            "task": {"name": "ner", "tagger": "cnn_crf", "word_width": 50, "filters": 64, "labels": list(LABELS)},
            "data": {"validation": 0.25},
            "sites": {
                name: {"format": "synthetic", "options": {"hospitals": 1, "first": number, "test": 20}}
                for number, name in enumerate(SITES, start=1)
            },
            "model": {"encoder": "words", "vocabulary": "sites", "vocabulary_documents": 1},
            "training": {
                "batch_size": BATCH // len(SITES),
                "optimizer": "adam",
                "weight_decay": 0.0,
                "optimizer_state": "keep",
            },
            "federation": {
                "rounds": 40,
                "early_stopping": 5,
                "evaluate_on": ["validation"],
                "checkpoint_every": 20,
            },
        },
        x=Dial("kinds of mentions under a guide of the site's own (%)", (0, 25, 50, 100), _disagreement),
        y=Dial("notes a site", (10, 20, 40, 80), _notes),
        arm=Arm("fedner", _sharing()),
        rivals=(
            Arm("alone", {"algorithm.name": "local_only"}),
            Arm("one model for all labels", {**_sharing(), "algorithm.private": []}),
        ),
        references=(Arm("fedner, embeddings shared", {**_sharing(), "algorithm.private": "all but embeddings"}),),
        learning_rates=(1e-3, 3e-3, 1e-2),
        points=(
            Point(
                "ADE, PsyTAR, BC5CDR (a tenth)",
                100,
                round(368 / SENTENCES),
                "No two of the corpora share a label. A tenth of what experiments/three-platforms.toml trains on is "
                "299, 396 and 410 sentences, as many as 71 synthetic notes give "
                "(python experiments/map_points.py --data DIR).",
            ),
        ),
        seeded=_seeded,
    )


def _sharing() -> dict[str, object]:
    return {"algorithm.name": "fedner", "algorithm.batch": BATCH, "algorithm.iterations": ITERATIONS}


def _at_sites(option: str, value: int) -> dict[str, object]:
    return {f"sites.{site}.options.{option}": value for site in SITES}


def _disagreement(percent: float) -> Overrides:
    return _at_sites("disagreement", int(percent))


def _notes(count: float) -> Overrides:
    """A site alone takes about as many steps a round as FedNER does."""
    steps = SENTENCES * count / (BATCH // len(SITES))
    return {**_at_sites("notes", int(count)), "training.epochs": max(1, round(ITERATIONS / steps))}


def _seeded(seed: int) -> Overrides:
    """Other patients, notes and guides too."""
    return {"seed": seed, **_at_sites("seed", seed)}
