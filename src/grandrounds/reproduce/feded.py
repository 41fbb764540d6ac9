"""FedED (Sui et al., EMNLP 2020): tables 1 to 8 and figure 2, by the protocol of its section 4.2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from grandrounds.metrics.score import ClassScore
from grandrounds.reports.runs import Run
from grandrounds.reproduce.corpora import SENTENCES, label_counts
from grandrounds.reproduce.figures import rounds_needed
from grandrounds.reproduce.measures import (
    NOT_THEIRS,
    beside,
    grid_cell,
    grid_changes,
    percent,
    printed,
    quoted,
    rounds_to_target,
    scores,
    target_told,
    trivial,
)
from grandrounds.reproduce.paper import Cell, PaperTable, Row
from grandrounds.reproduce.protocol import Paper, Study, Target
from grandrounds.reproduce.wish import Overrides, Wish

SITES = {"i2b2": 100, "gad": 50, "eu-adr": 50, "synthetic": 100}
METHODS = {"fedavg": "FedAvg", "fedatt": "FedAtt", "feded": "FedED"}
ENCODINGS = ("fp32", "fp16", "int8")
FRACTIONS = (0.1, 0.2, 0.5, 1.0)
CENTRALIZED_EPOCHS = 4
CLINICAL_BERT = "emilyalsentzer/Bio_ClinicalBERT"
STATED = {
    "encoder": "Bio_ClinicalBERT",
    "warm-up epochs": 0,
    "partition": "iid",
    "fraction a round, C": 0.1,
    "batch size, B": 4,
    "local epochs, E": 2,
    "learning rate": 2.5e-05,
    "server's share of train": 0.2,
}
# One learner with all its data at hand trains on from epoch to epoch, so its moments live on.
EPOCH_A_ROUND = {"training.epochs": 1, "training.optimizer_state": "keep"}


def content(corpus: str, wish: Wish) -> dict[str, Any]:
    """The paper's protocol as a config; `tiny` starts from nothing, so it gets a warm-up and a rate to learn by."""
    encoder = wish.encoder or ("tiny" if corpus == "synthetic" else CLINICAL_BERT)
    scratch = encoder == "tiny"
    return {
        "task": {"name": "sentence_re"},
        "data": {**SENTENCES[corpus].section(), "public": 0.2},
        "partition": {"scheme": "iid", "sites": SITES[corpus]},
        "model": {"encoder": encoder, "warm_up": 8 if scratch else 0},
        "training": {"epochs": 2, "batch_size": 4, "learning_rate": 5e-4 if scratch else 2.5e-5},
        "federation": {"rounds": wish.rounds, "fraction": 0.1, "evaluate_on": ["test"]},
        "algorithm": {"name": "fedavg"},
    }


def arm(name: str, wish: Wish) -> Overrides:
    """What an arm of tables 3 to 6 changes of the protocol."""
    match name:
        case "centralized":
            rounds = min(CENTRALIZED_EPOCHS, wish.rounds)
            return {"algorithm.name": name, "federation.rounds": rounds, **EPOCH_A_ROUND}
        case "validation_only":
            return {"algorithm.name": name, **EPOCH_A_ROUND}
        case "fedavg-server-labels":
            return {"algorithm.name": "fedavg", "algorithm.server_epochs": 1}
    return {"algorithm.name": name}


def numbers() -> Any:
    """What the paper prints."""
    return printed("feded")


def table1(study: Study) -> PaperTable:
    counted = {place: _counts(study, ours) for place, ours in study.places.items()}
    rows = []
    for corpus, theirs in numbers()["table1"].items():
        cells = [Cell(theirs[p], [counted[corpus][p].total()] if corpus in counted else None) for p in theirs]
        rows.append(Row(SENTENCES[corpus].title, cells))
    note = "Counted: examples of the task, that is pairs of mentions in a sentence, those without a relation included."
    return PaperTable(study.name, "", "count", "corpus", ["train", "test"], rows, [note])


def table2(study: Study) -> PaperTable:
    parts = _counts(study, study.places["i2b2"])
    found: Counter[str] = parts["train"] + parts["test"]
    theirs = numbers()["table2"]
    names = [*theirs, *(name for name in sorted(found) if name not in theirs)]
    rows = [Row(name, [Cell(theirs.get(name), [found[name]])]) for name in names]
    note = "Counted in train and test together, whose sizes in the paper's table 1 add up to this table's total."
    return PaperTable(study.name, "", "count", "relation", ["instances"], rows, [note])


def precision_recall_f1(study: Study) -> PaperTable:
    """Tables 3, 4 and 5."""
    (corpus,) = study.places.values()
    names = ("centralized", *METHODS, "validation_only", "fedavg-server-labels")
    runs = study.run(corpus, {name: arm(name, study.wish) for name in names})
    theirs = numbers()[study.name]
    apart, together = "Centralised training", "Federated training"

    def row(arm: str, name: str, section: str) -> Row:
        return Row(name, beside(theirs.get(arm, [None] * 3), scores(runs[arm])), section)

    rows = quoted(theirs["quoted"], apart)
    rows.append(row("centralized", "the paper's model", apart))
    rows += [row(name, title, together) for name, title in METHODS.items()]
    rows.append(row("validation_only", "the server's set alone", NOT_THEIRS))
    rows.append(row("fedavg-server-labels", "FedAvg + server labels", NOT_THEIRS))
    rows.append(trivial(runs["centralized"]))
    return PaperTable(study.name, "", "percent", "method", ["P", "R", "F1"], rows, [_LAST_ROUND])


def table6(study: Study) -> PaperTable:
    arms = {"validation_only": "server's set", **METHODS}
    runs = study.run(study.places["i2b2"], {name: arm(name, study.wish) for name in arms})
    theirs: Mapping[str, Mapping[str, float]] = numbers()["table6"]
    scored = {name for repeats in runs.values() for run in repeats for name in (run.test.per_class if run.test else {})}
    rows = []
    for label in [*theirs, *sorted(scored - set(theirs))]:
        measured = {name: _class_f1(runs[name], label) if label in scored else None for name in arms}
        rows.append(Row(label, [Cell(theirs.get(label, {}).get(name), measured[name]) for name in arms]))
    return PaperTable(study.name, "", "percent", "relation", list(arms.values()), rows, [_LAST_ROUND])


def table7(study: Study) -> PaperTable:
    """One round tells: every round's message is of the same size."""
    one: Overrides = {"federation.rounds": 1}
    arms: dict[str, Overrides] = {name: {**arm(name, study.wish), **one} for name in METHODS}
    arms |= {f"feded-{e}": {"algorithm.name": "feded", "federation.compression": e, **one} for e in ENCODINGS[1:]}
    titles = {"fedavg": "FedAvg", "fedatt": "FedAtt", "feded": "FedED, fp32"}
    runs = {place: study.run(ours, arms, by_round=True) for place, ours in study.places.items()}
    rows = []
    for name in arms:
        theirs = numbers()["table7"][name.partition("-")[0]]
        cells = [Cell(theirs[c], [r.bytes_up for r in runs[c][name]] if c in runs else None) for c in theirs]
        rows.append(Row(titles.get(name) or f"FedED, {name.partition('-')[2]}", cells))
    corpora = [SENTENCES[corpus].title for corpus in numbers()["table7"]["feded"]]
    note = (
        "Bytes that a site uploads in a round, as counted on the wire. The paper does not say how predictions are "
        "encoded: its one figure for FedED stands beside all three encodings."
    )
    return PaperTable(study.name, "", "bytes", "method", corpora, rows, [note])


def table8(study: Study) -> PaperTable:
    grid = numbers()["table8"][: study.wish.cells]
    needed = rounds_to_target(study, grid_changes(grid), METHODS)
    rows = [Row(grid_cell(cell), [Cell(cell[m], needed[grid_cell(cell), m]) for m in METHODS]) for cell in grid]
    return PaperTable(study.name, "", "rounds", "B and E", list(METHODS.values()), rows, [target_told(study.wish)])


def figure2(study: Study) -> PaperTable:
    fractions = FRACTIONS[: study.wish.cells]
    needed = rounds_to_target(study, {f"C{c}": {"federation.fraction": c} for c in fractions}, METHODS)
    rows = [Row(f"C={c}", [Cell(None, needed[f"C{c}", m]) for m in METHODS]) for c in fractions]
    curves = {title: [row.cells[i].middle for row in rows] for i, title in enumerate(METHODS.values())}
    figure = rounds_needed(study.target.title, "C, fraction of sites a round", fractions, curves, study.wish.rounds)
    notes = [target_told(study.wish), "The paper draws this figure without numbers."]
    return PaperTable(study.name, "", "rounds", "C", list(METHODS.values()), rows, notes, figure=figure)


_LAST_ROUND = "Measured after the last round, in percent: nothing is selected on the test set."


def _counts(study: Study, corpus: str) -> dict[str, Counter[str]]:
    return label_counts(study.config(corpus), study.base)


def _class_f1(runs: Sequence[Run], label: str) -> list[float | None]:
    return [percent((run.test.per_class if run.test else {}).get(label, ClassScore()).f1) for run in runs]


THREE = ("i2b2", "gad", "eu-adr")
PAPER = Paper(
    "feded",
    "FedED",
    {
        "table1": Target("examples of the corpora", THREE, table1),
        "table2": Target("instances of the relations", ("i2b2",), table2),
        "table3": Target("results on GAD", ("gad",), precision_recall_f1),
        "table4": Target("results on EU-ADR", ("eu-adr",), precision_recall_f1),
        "table5": Target("results on i2b2 2010", ("i2b2",), precision_recall_f1),
        "table6": Target("F1 of each relation on i2b2 2010", ("i2b2",), table6),
        "table7": Target("upload of a site and round", THREE, table7),
        "table8": Target("rounds to a target, by batch size and local epochs", ("i2b2",), table8),
        "figure2": Target("rounds to a target, by fraction of sites", ("i2b2",), figure2),
    },
    content,
    lambda corpus: {**STATED, "sites, K": SITES[corpus]},
    "9, the median",
    SENTENCES,
)
