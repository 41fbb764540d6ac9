"""FedED (Sui et al., EMNLP 2020): tables 1 to 8 and figure 2, by the protocol of its section 4.2."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from grandrounds.reports.runs import ClassScore, Run
from grandrounds.reports.wording import plural
from grandrounds.reproduce.corpora import CORPORA, label_counts
from grandrounds.reproduce.figures import rounds_needed
from grandrounds.reproduce.paper import Cell, PaperTable, Row
from grandrounds.reproduce.protocol import Overrides, Paper, Study, Target, Wish

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
        "data": {**CORPORA[corpus].section(), "public": 0.2},
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


@cache
def numbers() -> Any:
    """What the paper prints."""
    return json.loads((files("grandrounds.reproduce") / "numbers" / "feded.json").read_text(encoding="utf-8"))


def table1(study: Study) -> PaperTable:
    counted = {theirs: _counts(study, ours) for theirs, ours in study.places.items()}
    rows = []
    for corpus, printed in numbers()["table1"].items():
        cells = [Cell(printed[p], [counted[corpus][p].total()] if corpus in counted else None) for p in printed]
        rows.append(Row(CORPORA[corpus].title, cells))
    note = "Counted: examples of the task, that is pairs of mentions in a sentence, those without a relation included."
    return PaperTable(study.name, "", "count", "corpus", ["train", "test"], rows, [note])


def table2(study: Study) -> PaperTable:
    parts = _counts(study, study.places["i2b2"])
    found: Counter[str] = parts["train"] + parts["test"]
    printed = numbers()["table2"]
    names = [*printed, *(name for name in sorted(found) if name not in printed)]
    rows = [Row(name, [Cell(printed.get(name), [found[name]])]) for name in names]
    note = "Counted in train and test together, whose sizes in the paper's table 1 add up to this table's total."
    return PaperTable(study.name, "", "count", "relation", ["instances"], rows, [note])


def precision_recall_f1(study: Study) -> PaperTable:
    """Tables 3, 4 and 5."""
    (corpus,) = study.places.values()
    names = ("centralized", *METHODS, "validation_only", "fedavg-server-labels")
    runs = study.run(corpus, {name: arm(name, study.wish) for name in names})
    printed = numbers()[study.name]
    apart, together, ours = "Centralised training", "Federated training", "Not in the paper"

    def row(arm: str, name: str, section: str) -> Row:
        theirs = printed.get(arm, [None] * 3)
        return Row(name, [Cell(p, m) for p, m in zip(theirs, _scores(runs[arm]), strict=True)], section)

    rows = [Row(who, [Cell(p) for p in theirs], apart, quoted=True) for who, theirs in printed["quoted"].items()]
    rows.append(row("centralized", "the paper's model", apart))
    rows += [row(name, title, together) for name, title in METHODS.items()]
    rows.append(row("validation_only", "the server's set alone", ours))
    rows.append(row("fedavg-server-labels", "FedAvg + server labels", ours))
    rows.append(_trivial(runs["centralized"], ours))
    return PaperTable(study.name, "", "percent", "method", ["P", "R", "F1"], rows, [_LAST_ROUND])


def table6(study: Study) -> PaperTable:
    arms = {"validation_only": "server's set", **METHODS}
    runs = study.run(study.places["i2b2"], {name: arm(name, study.wish) for name in arms})
    printed: Mapping[str, Mapping[str, float]] = numbers()["table6"]
    scored = {name for repeats in runs.values() for run in repeats for name in (run.test.per_class if run.test else {})}
    rows = []
    for label in [*printed, *sorted(scored - set(printed))]:
        measured = {name: _class_f1(runs[name], label) if label in scored else None for name in arms}
        rows.append(Row(label, [Cell(printed.get(label, {}).get(name), measured[name]) for name in arms]))
    return PaperTable(study.name, "", "percent", "relation", list(arms.values()), rows, [_LAST_ROUND])


def table7(study: Study) -> PaperTable:
    """One round tells: every round's message is of the same size."""
    one: Overrides = {"federation.rounds": 1}
    arms: dict[str, Overrides] = {name: {**arm(name, study.wish), **one} for name in METHODS}
    arms |= {f"feded-{e}": {"algorithm.name": "feded", "federation.compression": e, **one} for e in ENCODINGS[1:]}
    titles = {"fedavg": "FedAvg", "fedatt": "FedAtt", "feded": "FedED, fp32"}
    runs = {theirs: study.run(ours, arms) for theirs, ours in study.places.items()}
    rows = []
    for name in arms:
        printed = numbers()["table7"][name.partition("-")[0]]
        cells = [Cell(printed[c], [r.bytes_up for r in runs[c][name]] if c in runs else None) for c in printed]
        rows.append(Row(titles.get(name) or f"FedED, {name.partition('-')[2]}", cells))
    corpora = [CORPORA[corpus].title for corpus in numbers()["table7"]["feded"]]
    note = (
        "Bytes that a site uploads in a round, as counted on the wire. The paper does not say how predictions are "
        "encoded: its one figure for FedED stands beside all three encodings."
    )
    return PaperTable(study.name, "", "bytes", "method", corpora, rows, [note])


def table8(study: Study) -> PaperTable:
    grid = numbers()["table8"][: study.wish.cells]
    changed = {_cell(c): {"training.batch_size": c["B"], "training.epochs": c["E"]} for c in grid}
    needed = _rounds_to_target(study, changed)
    rows = [Row(_cell(cell), [Cell(cell[m], needed[_cell(cell), m]) for m in METHODS]) for cell in grid]
    return PaperTable(study.name, "", "rounds", "B and E", list(METHODS.values()), rows, [_target_told(study.wish)])


def figure2(study: Study) -> PaperTable:
    fractions = FRACTIONS[: study.wish.cells]
    needed = _rounds_to_target(study, {f"C{c}": {"federation.fraction": c} for c in fractions})
    rows = [Row(f"C={c}", [Cell(None, needed[f"C{c}", m]) for m in METHODS]) for c in fractions]
    curves = {title: [row.cells[i].median for row in rows] for i, title in enumerate(METHODS.values())}
    figure = rounds_needed(study.target.title, "C, fraction of sites a round", fractions, curves, study.wish.rounds)
    notes = [_target_told(study.wish), "The paper draws this figure without numbers."]
    return PaperTable(study.name, "", "rounds", "C", list(METHODS.values()), rows, notes, figure=figure)


_LAST_ROUND = "Measured after the last round, in percent: nothing is selected on the test set."


def _counts(study: Study, corpus: str) -> dict[str, Counter[str]]:
    return label_counts(study.config(corpus), study.base)


def _scores(runs: Sequence[Run]) -> list[list[float | None]]:
    """Precision, recall and F1 in percent, each a value a seed."""
    return [[_percent(getattr(run.test, name, None)) for run in runs] for name in ("precision", "recall", "f1")]


def _class_f1(runs: Sequence[Run], label: str) -> list[float | None]:
    return [_percent((run.test.per_class if run.test else {}).get(label, ClassScore()).f1) for run in runs]


def _trivial(runs: Sequence[Run], section: str) -> Row:
    answers = sorted({run.baseline[0] for run in runs if run.baseline})
    f1s = [_percent(run.baseline[1]) for run in runs if run.baseline]
    return Row(f"trivial: {' or '.join(answers)}", [Cell(), Cell(), Cell(None, f1s)], section)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _cell(cell: Mapping[str, Any]) -> str:
    return f"B={cell['B']} E={cell['E']}"


def _rounds_to_target(study: Study, changed: Mapping[str, Overrides]) -> dict[tuple[str, str], list[float | None]]:
    """For every change of the protocol and every method, the first round whose test F1 reaches the target."""
    (corpus,) = study.places.values()
    target = study.wish.target_f1
    stop: Overrides = {"federation.stop_at_f1": target, "federation.evaluate_every": 1}
    arms = {
        (change, method): (
            f"{method}-{change.replace('=', '').replace(' ', '-')}-to-{target:g}",
            {"algorithm.name": method, **own, **stop},
        )
        for change, own in changed.items()
        for method in METHODS
    }
    runs = study.run(corpus, dict(arms.values()))
    return {
        key: [next((round for round, f1 in run.points("test") if f1 >= target), None) for run in runs[name]]
        for key, (name, _) in arms.items()
    }


def _target_told(wish: Wish) -> str:
    limit = plural(wish.rounds, "round")
    return f"Rounds until the test F1 is {100 * wish.target_f1:g}%; – where it is not within {limit}."


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
)
