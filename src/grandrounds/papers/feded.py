"""FedED (Sui et al., EMNLP 2020): tables 1 to 8 and figure 2, by the protocol of its section 4.2."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from grandrounds.config.schema import Config
from grandrounds.metrics.score import ClassScore
from grandrounds.papers.corpora import SENTENCES, label_counts
from grandrounds.papers.figures import rounds_needed
from grandrounds.papers.measures import (
    NOT_THEIRS,
    beside,
    describe_target,
    grid_cell,
    grid_changes,
    percent,
    printed,
    quoted,
    rounds_to_target,
    scores,
    trivial,
)
from grandrounds.papers.options import Overrides, ReproduceOptions
from grandrounds.papers.paper import Cell, PaperTable, Row
from grandrounds.papers.protocol import SETTINGS, Paper, Study, Target
from grandrounds.papers.settings import At, Said, Tell
from grandrounds.reports.runs import Run

SITES = {"i2b2": 100, "gad": 50, "eu-adr": 50, "synthetic": 100}
AS_PRINTED = "feded-as-printed"
METHODS = {"fedavg": "FedAvg", "fedatt": "FedAtt", "feded": "FedED", AS_PRINTED: "FedED as printed"}
WEIGHTS_AND_PREDICTIONS = ("fedavg", "fedatt", "feded")
"""The ways to learn that differ in what is uploaded."""
LITERALLY: Overrides = {
    "algorithm.name": "feded",
    "algorithm.average": "probabilities",
    "algorithm.temperature": 1.0,
    "algorithm.tempered_student": False,
    "algorithm.weight": None,
    "algorithm.hard_labels": True,
    "server.epochs": 1,
}
"""Eqs. 4 to 6 and Algorithm 1 to the letter, with the tau that changes nothing, as the paper does not say its own."""
HEADS = {"Lee et al. (2020)": "cls", "Chauhan et al. (2019)": "ranking_cnn"}
"""Other papers' systems that are heads of the task."""
CNN_RATE = 1e-3
"""A CNN upon a frozen encoder starts from nothing, and would not get far at an encoder's rate."""
ENCODINGS = ("fp32", "fp16", "int8")
TO_TARGET = 60
"""Rounds that a method has to reach a target: in the paper some need 48, and one misses it."""
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
    "dropout": 0.1,
    "server's share of train": 0.2,
    "Eq. 5 averages": Said("probabilities; in its text logits", ("probabilities",)),
    "Eq. 6 softens the student": "no",
    "Eq. 6 weighs": "CE + KL",
    "epochs of distillation": 1,
}
SETTINGS_HERE: Mapping[str, Tell] = {
    **SETTINGS,
    "Eq. 5 averages": At("algorithm.average"),
    "Eq. 4's temperature, tau": At("algorithm.temperature"),
    "Eq. 6 softens the student": At(
        "algorithm.tempered_student", lambda on: "yes, KL times tau squared" if on else "no"
    ),
    "Eq. 6 weighs": At("algorithm.weight", lambda w: "CE + KL" if w is None else f"{1 - w:g} CE + {w:g} KL"),
    "epochs of distillation": lambda config: config.server_training().epochs if _distils(config) else None,
}
# One learner with all its data at hand trains on from epoch to epoch, so its moments live on.
EPOCH_A_ROUND = {"training.epochs": 1, "training.optimizer_state": "keep"}


def content(corpus: str, options: ReproduceOptions) -> dict[str, Any]:
    """The paper's protocol as a config; `tiny` starts from nothing, so it gets a warm-up and a rate to learn by."""
    encoder = options.encoder or ("tiny" if corpus == "synthetic" else CLINICAL_BERT)
    scratch = encoder == "tiny"
    return {
        "task": {"name": "sentence_re"},
        "data": {**SENTENCES[corpus].section(), "public": 0.2},
        "partition": {"scheme": "iid", "sites": SITES[corpus]},
        "model": {"encoder": encoder, "warm_up": 8 if scratch else 0},
        "training": {"epochs": 2, "batch_size": 4, "learning_rate": 5e-4 if scratch else 2.5e-5},
        "federation": {"rounds": options.rounds, "fraction": 0.1, "evaluate_on": ["test"]},
        "algorithm": {"name": "fedavg"},
    }


def arm(name: str, options: ReproduceOptions) -> Overrides:
    """What an arm of tables 3 to 6 changes of the protocol."""
    match name:
        case "centralized":
            rounds = min(CENTRALIZED_EPOCHS, options.rounds)
            return {"algorithm.name": name, "federation.rounds": rounds, **EPOCH_A_ROUND}
        case "validation_only":
            return {"algorithm.name": name, **EPOCH_A_ROUND}
        case "fedavg-server-labels":
            return {"algorithm.name": "fedavg", "server.epochs": 1}
        case "centralized-cls":
            return {**arm("centralized", options), "task.head": "cls"}
        case "centralized-ranking_cnn":
            return {**arm("centralized", options), "task.head": "ranking_cnn", "training.head_learning_rate": CNN_RATE}
        case "feded-as-printed":
            return LITERALLY
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
    theirs = numbers()[study.name]
    heads = {who: f"centralized-{HEADS[who]}" for who in theirs["quoted"] if who in HEADS}
    names = ("centralized", *heads.values(), *METHODS, "validation_only", "fedavg-server-labels")
    runs = study.run(corpus, {name: arm(name, study.options) for name in names})
    apart, together = "Centralised training", "Federated training"

    def row(arm: str, name: str, section: str) -> Row:
        return Row(name, beside(theirs.get(_printed_as(arm), [None] * 3), scores(runs[arm])), section)

    rows = quoted({who: paper for who, paper in theirs["quoted"].items() if who not in heads}, apart)
    for who, name in heads.items():
        rows.append(Row(f"{who}: {_HEAD_TOLD[who]}", beside(theirs["quoted"][who], scores(runs[name])), apart))
    rows.append(row("centralized", "the paper's model", apart))
    rows += [row(name, title, together) for name, title in METHODS.items()]
    rows.append(row("validation_only", "the server's set alone", NOT_THEIRS))
    rows.append(row("fedavg-server-labels", "FedAvg + server labels", NOT_THEIRS))
    rows.append(trivial(runs["centralized"]))
    footnotes = [_LAST_ROUND, _PRINTED, *(_SAME_ENCODER.format(who) for who in heads)]
    return PaperTable(study.name, "", "percent", "method", ["P", "R", "F1"], rows, footnotes)


def table6(study: Study) -> PaperTable:
    arms = {"validation_only": "server's set", **METHODS}
    runs = study.run(study.places["i2b2"], {name: arm(name, study.options) for name in arms})
    theirs: Mapping[str, Mapping[str, float]] = numbers()["table6"]
    scored = {name for repeats in runs.values() for run in repeats for name in (run.test.per_class if run.test else {})}
    rows = []
    for label in [*theirs, *sorted(scored - set(theirs))]:
        measured = {name: _class_f1(runs[name], label) if label in scored else None for name in arms}
        printed = theirs.get(label, {})
        rows.append(Row(label, [Cell(printed.get(_printed_as(name)), measured[name]) for name in arms]))
    footnotes = [_LAST_ROUND, _PRINTED]
    return PaperTable(study.name, "", "percent", "relation", list(arms.values()), rows, footnotes)


def table7(study: Study) -> PaperTable:
    """One round tells: every round's message is of the same size."""
    one: Overrides = {"federation.rounds": 1}
    arms: dict[str, Overrides] = {name: {**arm(name, study.options), **one} for name in WEIGHTS_AND_PREDICTIONS}
    arms |= {f"feded-{e}": {"algorithm.name": "feded", "federation.compression": e, **one} for e in ENCODINGS[1:]}
    titles = {"fedavg": "FedAvg", "fedatt": "FedAtt", "feded": "FedED, fp32"}
    runs = {place: study.run(ours, arms, by_round=True) for place, ours in study.places.items()}
    rows = []
    for name in arms:
        theirs = numbers()["table7"][name.partition("-")[0]]
        sent = {corpus: [run.bytes_up for run in runs[corpus][name]] if corpus in runs else None for corpus in theirs}
        cells = []
        for corpus, measured in sent.items():
            minutes = None if measured is None else [None if b is None else b / BYTES_A_MINUTE for b in measured]
            cells += [Cell(theirs[corpus], measured), Cell(theirs[corpus] / BYTES_A_MINUTE, minutes)]
        rows.append(Row(titles.get(name) or f"FedED, {name.partition('-')[2]}", cells))
    corpora = [SENTENCES[corpus].title for corpus in numbers()["table7"]["feded"]]
    columns = [column for corpus in corpora for column in (corpus, f"{corpus}, minutes")]
    footnotes = [
        "Bytes that a site uploads in a round, as counted on the wire. The paper does not say how predictions are "
        "encoded: its one figure for FedED stands beside all three encodings. FedED as printed uploads as much.",
        "Minutes are those of the upload at 1 MB/s, the most that the paper's introduction reckons with; those in the "
        "paper's columns are computed from its bytes.",
    ]
    units = ["bytes", "minutes"] * len(corpora)
    return PaperTable(study.name, "", "bytes", "method", columns, rows, footnotes, units=units)


def table8(study: Study) -> PaperTable:
    grid = numbers()["table8"][: study.options.cells]
    needed = rounds_to_target(study, grid_changes(grid), _methods(study))
    rows = [
        Row(grid_cell(cell), [Cell(cell[_printed_as(m)], needed[grid_cell(cell), m]) for m in METHODS]) for cell in grid
    ]
    footnotes = [describe_target(study.options), _PRINTED]
    return PaperTable(study.name, "", "rounds", "B and E", list(METHODS.values()), rows, footnotes)


def figure2(study: Study) -> PaperTable:
    fractions = FRACTIONS[: study.options.cells]
    changed: dict[str, Overrides] = {f"C{c}": {"federation.fraction": c} for c in fractions}
    needed = rounds_to_target(study, changed, _methods(study))
    rows = [Row(f"C={c}", [Cell(None, needed[f"C{c}", m]) for m in METHODS]) for c in fractions]
    curves = {title: [row.cells[i].middle for row in rows] for i, title in enumerate(METHODS.values())}
    figure = rounds_needed(study.target.title, "C, fraction of sites a round", fractions, curves, study.options.rounds)
    footnotes = [describe_target(study.options), _PRINTED, "The paper draws this figure without numbers."]
    return PaperTable(study.name, "", "rounds", "C", list(METHODS.values()), rows, footnotes, figure=figure)


BYTES_A_MINUTE = 60 * 10**6
_PRINTED = (
    "FedED as printed: Eq. 5 averages probabilities, Eq. 4 takes their softmax at tau = 1, Eq. 6 is CE + KL with the "
    "student as it is, in one epoch. FedED is as this project has it by default."
)
_HEAD_TOLD = {"Lee et al. (2020)": "[CLS] alone", "Chauhan et al. (2019)": "CNN upon a frozen encoder, by ranking"}
_SAME_ENCODER = "{} is measured with the encoder of all other rows, not with its authors' own."
_LAST_ROUND = "Measured after the last round, in percent: nothing is selected on the test set."


def _printed_as(name: str) -> str:
    """Both readings of FedED stand beside the paper's one."""
    return "feded" if name == AS_PRINTED else name


def _methods(study: Study) -> dict[str, Overrides]:
    return {name: arm(name, study.options) for name in METHODS}


def _distils(config: Config) -> bool:
    return config.make_algorithm().name == "feded"


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
        "table8": Target("rounds to a target, by batch size and local epochs", ("i2b2",), table8, rounds=TO_TARGET),
        "figure2": Target("rounds to a target, by fraction of sites", ("i2b2",), figure2, rounds=TO_TARGET),
    },
    content,
    lambda corpus: {**STATED, "sites, K": SITES[corpus]},
    "9, the median",
    SENTENCES,
    SETTINGS_HERE,
)
