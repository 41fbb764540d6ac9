"""FedLCC (2024): tables 1 and 3 to 7 and figures 2 to 4, by the settings of its table 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grandrounds.data.corpora import SYNTHETIC
from grandrounds.papers.corpora import DOCUMENTS, pair_counts, partitioned
from grandrounds.papers.figures import by_round
from grandrounds.papers.measures import (
    beside,
    describe_left_out,
    describe_selection,
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
from grandrounds.reports.plots import Curve, PartitionRows, documents_and_entropy
from grandrounds.reports.runs import Run

METHODS = {"fedavg": "FedAvg", "fedatt": "FedAtt", "fedlcc": "FedLCC"}
IID, ENTROPY = "iid", "structural_entropy"
SPLITS = {IID: "Federated training (IID)", ENTROPY: "Federated training (non-IID, by structural entropy)"}
PARTS = {"train": "train", "validation": "dev", "test": "test"}
COUNTED = ("documents", "positive pairs", "negative pairs")
FRACTIONS = (0.1, 0.3, 0.5, 1.0)
SCIBERT = "allenai/scibert_scivocab_cased"
STATED = {
    "encoder": Said("SciBERT, cased", (Path(SCIBERT).name,)),
    "warm-up epochs": 0,
    "partition": Said(f"{IID}; {ENTROPY}", (IID, ENTROPY)),
    "sites, C": 10,
    "fraction a round, F": 1,
    "batch size, B": 3,
    "local epochs, E": 1,
    "learning rate": 2.5e-05,
    "server's share of train": 0,
    "share of train at sites": 1,
    "rounds, T": 50,
    "optimizer": "adam",
    "contrast's weight, mu": 0.1,
    "contrast's temperature, tau": 0.5,
    "a site weighs": "FedAvg by size, FedLCC alike",
}
LETTERS = {"sites, K": "sites, C", "fraction a round, C": "fraction a round, F", "rounds": "rounds, T"}
SETTINGS_HERE: Mapping[str, Tell] = {
    **{LETTERS.get(name, name): tell for name, tell in SETTINGS.items()},
    "share of train at sites": At("data.train_share"),
    "validation": At("data.validation", lambda part: "a file" if isinstance(part, str) else part),
    "contrast's weight, mu": At("algorithm.mu"),
    "contrast's temperature, tau": At("algorithm.temperature"),
    "a site weighs": At("federation.weight_by", lambda by: by or "FedAvg by size, FedLCC alike"),
}


def content(corpus: str, options: ReproduceOptions) -> dict[str, Any]:
    """The paper's protocol as a config; `tiny` learns its vocabulary and a start from a share of train, as in FedED."""
    encoder = options.encoder or ("tiny" if corpus == SYNTHETIC else SCIBERT)
    scratch = encoder == "tiny"
    return {
        "task": {"name": "document_re", **DOCUMENTS[corpus].task},
        "data": {**DOCUMENTS[corpus].section(), "public": 0.2 if scratch else 0.0},
        "partition": {"scheme": IID, "sites": 10},
        "model": {"encoder": encoder, "warm_up": 8 if scratch else 0},
        "training": {
            "epochs": 1,
            "batch_size": 3,
            "learning_rate": 5e-4 if scratch else 2.5e-5,
            "optimizer": "adam",
            "weight_decay": 0.0,
        },
        "federation": {"rounds": options.rounds, "evaluate_on": ["validation", "test"]},
        "algorithm": {"name": "fedlcc"},
    }


def arm(name: str, split: str, options: ReproduceOptions) -> Overrides:
    """What an arm changes of the protocol."""
    changes = {"algorithm.name": name, **partition_overrides(split, options)}
    # One learner with all its data at hand trains on from epoch to epoch, so its moments live on.
    return {**changes, "training.optimizer_state": "keep"} if name == "centralized" else changes


def partition_overrides(split: str, options: ReproduceOptions) -> Overrides:
    """What the overrides say of H is for sites that are partitioned by it alone."""
    about_h = [key for key in ("partition.entropy", "partition.edges") if key in options.overrides and split == IID]
    return {"partition.scheme": split, **dict.fromkeys(about_h)}


def named(name: str, split: str) -> str:
    """An arm's folder, which tables and figures share."""
    return f"{name}-{'iid' if split == IID else 'entropy'}"


def numbers() -> Any:
    """What the paper prints."""
    return printed("fedlcc")


def table1(study: Study) -> PaperTable:
    counted = {theirs: pair_counts(study.config(ours), study.base) for theirs, ours in study.places.items()}
    rows = []
    for corpus, parts in numbers()["table1"].items():
        title = DOCUMENTS[corpus].title + ("" if corpus in counted else " (not at hand)")
        for i, what in enumerate(COUNTED):
            found = {part: list(vars(c).values())[i] for part, c in counted.get(corpus, {}).items()}
            cells = [Cell(parts[part][i], [found[part]] if part in found else None) for part in PARTS]
            rows.append(Row(what, cells, title))
    note = (
        "A pair is positive if any relation joins its entities; pairs that are no examples (not_include) do not count."
    )
    return PaperTable(study.name, "", "count", "corpus", list(PARTS.values()), rows, [note])


def precision_recall_f1(study: Study) -> PaperTable:
    """Tables 3, 4 and 5."""
    (corpus,) = study.places.values()
    arms = {"centralized": arm("centralized", IID, study.options)}
    arms |= {named(m, split): arm(m, split, study.options) for split in SPLITS for m in METHODS}
    runs = study.run(corpus, arms)
    theirs, apart = numbers()[study.name], "Centralised training"
    rows = quoted(theirs["quoted"], apart)
    rows.append(Row("the paper's model", beside(theirs["centralized"], scores(runs["centralized"])), apart))
    for split, section in SPLITS.items():
        for method, title in METHODS.items():
            cells = beside(theirs[split][method], scores(runs[named(method, split)]))
            rows.append(Row(title, cells, section))
    rows.append(trivial(runs["centralized"]))
    footnotes = [describe_selection(runs), *describe_left_out(runs)]
    return PaperTable(study.name, "", "percent", "method", ["P", "R", "F1"], rows, footnotes)


def table6(study: Study) -> PaperTable:
    grid = numbers()["table6"][: study.options.cells]
    # A target is one of the test F1, whatever else is measured by round.
    iid = {**partition_overrides(IID, study.options), "federation.evaluate_on": ["test"]}
    arms = {method: {"algorithm.name": method} for method in METHODS}
    needed = rounds_to_target(study, {cell: {**iid, **own} for cell, own in grid_changes(grid).items()}, arms)
    rows = [Row(grid_cell(cell), [Cell(cell[m], needed[grid_cell(cell), m]) for m in METHODS]) for cell in grid]
    footnotes = [describe_target(study.options), "The paper counts to 80% on CHR."]
    return PaperTable(study.name, "", "rounds", "B and E", list(METHODS.values()), rows, footnotes)


def table7(study: Study) -> PaperTable:
    (corpus,) = study.places.values()
    arms = {"centralized": arm("centralized", IID, study.options)}
    arms |= {named(method, IID): arm(method, IID, study.options) for method in METHODS}
    runs = study.run(corpus, arms)
    theirs, measured = numbers()["table7"], {name: scores(repeats, ("ign_f1", "f1")) for name, repeats in runs.items()}
    rows = [Row("the paper's model", beside(theirs["centralized"], measured["centralized"]), "Centralised training")]
    rows += [Row(t, beside(theirs[m], measured[named(m, IID)]), SPLITS[IID]) for m, t in METHODS.items()]
    rows.append(trivial(runs["centralized"], columns=2))
    note = "Ign F1 leaves out of precision what the sites' training documents state of entities of the same names."
    columns = ["Dev-Ign F1", "Dev-F1"]
    return PaperTable(study.name, "", "percent", "method", columns, rows, [describe_selection(runs), note])


def figure2(study: Study) -> PaperTable:
    own = {"partition.scheme": ENTROPY}
    corpora = [
        partitioned(study.config(ours, own), study.base, DOCUMENTS[ours].title)
        for ours in dict.fromkeys(study.places.values())
    ]
    rows = [row for corpus in corpora for row in _site_rows(corpus)]
    footnotes = ["All of train is partitioned, whatever share of it sites get in runs.", _NO_NUMBERS]
    figure = documents_and_entropy(study.target.title, *corpora)
    columns = ["documents", "least H", "mean H", "greatest H"]
    return PaperTable(study.name, "", "number", "site", columns, rows, footnotes, figure=figure)


def figure3(study: Study) -> PaperTable:
    arms = {named(method, ENTROPY): arm(method, ENTROPY, study.options) for method in METHODS}
    runs = {ours: study.run(ours, arms) for ours in study.places.values()}
    return _by_round(study, runs, dict(zip(arms, METHODS.values(), strict=True)))


def figure4(study: Study) -> PaperTable:
    runs, titles = {}, {}
    for ours in study.places.values():
        arms: dict[str, Overrides] = {}
        for fraction in FRACTIONS[: study.options.cells]:
            name, own = named("fedlcc", IID), arm("fedlcc", IID, study.options)
            if fraction != study.config(ours).federation.fraction:
                name, own = f"{name}-F{fraction}", {**own, "federation.fraction": fraction}
            arms[name], titles[name] = own, f"F={fraction}"
        runs[ours] = study.run(ours, arms)
    return _by_round(study, runs, titles)


_NO_NUMBERS = "The paper draws this figure without numbers."


def _by_round(study: Study, runs: Mapping[str, Mapping[str, Sequence[Run]]], titles: Mapping[str, str]) -> PaperTable:
    """F1 by round of the arms, a panel and a section a corpus."""
    everyone = [run for arms in runs.values() for repeats in arms.values() for run in repeats]
    split = "test" if all(run.points("test") for run in everyone) else "validation"
    rows, panels, baselines = [], {}, {}
    for corpus, arms in runs.items():
        section = DOCUMENTS[corpus].title
        points = {name: [dict(run.points(split)) for run in repeats] for name, repeats in arms.items()}
        measured = sorted({round for repeats in points.values() for run in repeats for round in run})
        for round in measured:
            cells = [Cell(None, [percent(run.get(round)) for run in points[name]]) for name in titles]
            rows.append(Row(f"round {round}", cells, section))
        panels[section] = [Curve(titles[n], sorted(run.items())) for n, repeats in points.items() for run in repeats]
        trivial_f1 = [run.baseline[1] for repeats in arms.values() for run in repeats if run.baseline]
        if split == "test" and trivial_f1:
            baselines[section] = trivial_f1[0]
    figure = by_round(study.target.title, panels, baselines)
    footnotes = [f"F1 on {split} data after each round, in percent.", _NO_NUMBERS]
    return PaperTable(study.name, "", "percent", "round", list(titles.values()), rows, footnotes, figure=figure)


def _site_rows(corpus: PartitionRows) -> list[Row]:
    rows = []
    for site in corpus.sites:
        h = site.entropy
        spread = [Cell(None, [value]) for value in ((h.min, h.mean, h.max) if h else (None,) * 3)]
        rows.append(Row(site.name, [Cell(None, [site.documents]), *spread], corpus.name))
    rows += [Row(f"{name} (left out)", [Cell(None, [0]), *[Cell()] * 3], corpus.name) for name in corpus.left_out]
    return rows


THREE = ("cdr", "chr", "gda")
PAPER = Paper(
    "fedlcc",
    "FedLCC",
    {
        "table1": Target("documents and pairs of the corpora", THREE, table1),
        "table3": Target("results on CDR", ("cdr",), precision_recall_f1),
        "table4": Target("results on CHR", ("chr",), precision_recall_f1),
        "table5": Target("results on GDA", ("gda",), precision_recall_f1),
        "table6": Target("rounds to a target, by batch size and local epochs", ("chr",), table6),
        "table7": Target("results on DocRED", ("docred",), table7),
        "figure2": Target("documents and structural entropy of sites", THREE, figure2),
        "figure3": Target("F1 by round under structural entropy", THREE, figure3),
        "figure4": Target("F1 of FedLCC by round and fraction of sites", THREE, figure4),
    },
    content,
    lambda corpus: STATED,
    "not said",
    DOCUMENTS,
    SETTINGS_HERE,
    rounds=50,
    target_f1=0.8,
)
