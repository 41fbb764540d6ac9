"""Federated BERT (Liu and Miller, 2020): tables 1 and 2, and what its section 3.2 says of cycles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, islice
from math import isnan
from typing import Any

import numpy as np

from grandrounds.errors import ConfigError
from grandrounds.metrics.attention import Heads, HeadSums
from grandrounds.models.attention import attentions, transformer_in
from grandrounds.papers.fedbert_stages import (
    CENTRALIZED,
    FEDERATED,
    MIMIC,
    NOTES,
    SCRATCH,
    SETTINGS,
    STAGES,
    START,
    STATED,
    check_of_notes,
    content,
    cycles,
    encoder,
    one_seed,
    overrides,
    pretraining_arms,
    tuning_arm,
)
from grandrounds.papers.figures import by_setting, dots
from grandrounds.papers.measures import NOT_THEIRS, beside, describe_selection, printed, scores
from grandrounds.papers.paper import Cell, PaperTable, Row
from grandrounds.papers.protocol import Left, Paper, Study, Target
from grandrounds.reports.attention import MEASURES, pictures
from grandrounds.reports.runs import Run
from grandrounds.simulation.prepare import held_out
from grandrounds.tasks.saved import load

PRETRAINING = {START: "none", CENTRALIZED: "centralised", FEDERATED: "federated"}
TUNING = {CENTRALIZED: "centralised", FEDERATED: "federated"}
LOSSES = {
    "federated pre-training alone": (FEDERATED, CENTRALIZED),
    "federated fine-tuning alone": (CENTRALIZED, FEDERATED),
    "both federated": (FEDERATED, FEDERATED),
}
"""What is federated, and the cell of the grid that shows it."""
MOST_READ = 1000
"""Held-out notes whose attention is looked at; as many texts as Clark et al. (2019) took."""


def numbers() -> Any:
    """What the paper prints."""
    return printed("fedbert")


def table1(study: Study) -> PaperTable:
    _check(study)
    rows, footnotes, runs, panels = list[Row](), list[str](), dict[str, Sequence[Run]](), {}
    for theirs, grid in numbers()["table1"].items():
        ours = study.places.get(theirs)
        found = _grid(study, ours) if ours else {}
        title = STAGES[ours or theirs].title
        section = title if ours else f"{title}: not run"
        own = [
            Row(_named(arm), beside(paper, scores(found[arm])) if ours else [Cell(p) for p in paper], section)
            for arm, paper in grid.items()
        ]
        rows += own
        if ours:
            f1 = {arm: row.cells[-1] for arm, row in zip(grid, own, strict=True)}
            footnotes += _describe_losses(title, f1)
            panels[title] = {
                f"{before} pre-training" if pre != START else "no pre-training": {
                    f"{how} fine-tuning": f1[_arm(pre, tuning)].middle for tuning, how in TUNING.items()
                }
                for pre, before in PRETRAINING.items()
            }
            runs |= found
    footnotes += [_describe_cycle(study), *_describe_language(study), describe_selection(runs)]
    figure = dots(study.target.title, "strict F1, %", panels)
    return PaperTable(
        study.name, "", "percent", "pre-training, fine-tuning", ["P", "R", "F1"], rows, footnotes, figure=figure
    )


def table2(study: Study) -> PaperTable:
    ((theirs, place),) = study.places.items()
    if STAGES[place].entities is not None:
        study.config(place)  # overrides of the second stage are checked, though nothing of it runs
    else:
        check_of_notes(place, study.options)
    notes = STAGES[place].notes
    study.places = {theirs: notes}
    _pretrain(study, notes)
    found = [_heads(study, notes, seed) for seed in _seeds(study)]
    rows = []
    for one, other in combinations(PRETRAINING, 2):
        cells = []
        for measure in ("spearman", "distance_sum", "distance"):
            paper = numbers()["table2"].get(measure, {}).get(f"{one}-{other}")
            values = [MEASURES[measure](models[one], models[other]) for models in found]
            cells.append(Cell(paper, [None if isnan(value) else value for value in values]))
        rows.append(Row(f"{PRETRAINING[one]}, {PRETRAINING[other]}", [*cells, Cell()]))
    for name, title in PRETRAINING.items():
        layers = [models[name].entropy_by_layer for models in found]
        deeper = Cell(None, [float(own[-1] - own[0]) for own in layers])
        rows.append(Row(f"entropy by depth: {title}", [*[Cell()] * 3, deeper], NOT_THEIRS))
    first = next(iter(found[0].values()))
    reported = [
        f"Over {first.documents} held-out notes, {first.tokens} word pieces. Spearman: of the heads' entropies. "
        "Distance: of the heads' Jensen-Shannon divergences, summed over word pieces, as in the paper, which grows "
        "with the corpus, or their mean, which does not.",
        f"Entropy of a head in nats, by layer: {_describe_entropies(found)}. The paper finds it to fall with depth.",
        _describe_cycle(study),
        *_describe_language(study),
    ]
    columns = ["Spearman", "distance, sum", "distance, mean", "entropy, last layer less first"]
    figure = pictures({f"pre-training: {PRETRAINING[name]}": heads for name, heads in found[0].items()})["entropy.svg"]
    return PaperTable(study.name, "", "figure", "pre-training", columns, rows, reported, figure=str(figure))


def by_cycle(study: Study) -> PaperTable:
    """F1 after centralised fine-tuning, and the loss of pre-training, by federated pre-training's cycles."""
    _check(study)
    (place,) = study.places.values()
    notes, last = STAGES[place].notes, cycles(study.options)
    pretrained = _pretrain(study, notes)[FEDERATED]
    count = max(2, study.options.cells or last + 1)
    shown = np.unique(np.linspace(0, last, min(count, last + 1)).round().astype(int)).tolist()
    arms = {cycle: _tuned(study, place, FEDERATED if cycle else START, CENTRALIZED, cycle) for cycle in shown}
    runs = study.run(place, dict(arms.values()))
    rows = []
    for cycle, (name, _) in arms.items():
        (f1,) = scores(runs[name], ["f1"])
        losses = [dict(run.points("validation", "loss")).get(cycle) for run in pretrained] if cycle else None
        rows.append(Row(str(cycle), [Cell(None, f1), Cell(None, losses)]))
    curve = {"centralised fine-tuning": [row.cells[0].middle for row in rows]}
    figure = by_setting(study.target.title, "cycle", shown, {"strict F1": curve})
    describe_notes = [
        "The loss is in nats a masked word piece, on validation notes. Cycle 0 is the encoder before pre-training.",
        describe_selection(runs),
        "The paper says that F1 levels out about cycle 10, and prints no numbers.",
    ]
    return PaperTable(study.name, "", "percent", "cycle", ["F1", "loss"], rows, describe_notes, figure=figure)


def _check(study: Study) -> None:
    """A mistake in the second stage is reported before the first one runs."""
    for place in study.places.values():
        if STAGES[place].entities is None:
            raise ConfigError(f"{STAGES[place].title} has no mentions to be found; take --corpus cdr or synthetic")
        study.config(place)


def _pretrain(study: Study, notes: str) -> dict[str, list[Run]]:
    """Finished arms are read, so that every target may ask."""
    return study.run(notes, pretraining_arms(study.options), _seeds(study), by_round=True)


def _seeds(study: Study) -> Sequence[int]:
    """Of pre-training."""
    once = one_seed(study.options)
    return study.seeds if once is None else [once]


def _grid(study: Study, place: str) -> dict[str, list[Run]]:
    """The six runs, by the names of the paper's numbers."""
    _pretrain(study, STAGES[place].notes)
    last = cycles(study.options)
    arms = {_arm(pre, tuning): _tuned(study, place, pre, tuning, last) for tuning in TUNING for pre in PRETRAINING}
    runs = study.run(place, dict(arms.values()))
    return {cell: runs[name] for cell, (name, _) in arms.items()}


def _arm(pretraining: str, tuning: str) -> str:
    return f"{pretraining}-then-{tuning}"


def _tuned(study: Study, place: str, pretraining: str, tuning: str, cycle: int) -> tuple[str, Mapping[str, Any]]:
    """An arm of the second stage; its name tells the cycle, so that more cycles leave it as it is."""
    start = encoder(STAGES[place].notes, pretraining, cycle, study.options)
    named = pretraining if pretraining == START else f"{pretraining}-cycle{cycle}"
    return _arm(named, tuning), tuning_arm(tuning, start, study.options)


def _named(arm: str) -> str:
    pretraining, _, tuning = arm.partition("-then-")
    return f"{PRETRAINING[pretraining]}, {TUNING[tuning]}"


def _describe_losses(corpus: str, f1: Mapping[str, Cell]) -> list[str]:
    """The paper's 'federated communication loss', against the cell where nothing is federated."""
    reported = []
    for what, cell in LOSSES.items():
        ways = dict[str, Callable[[Cell], float | None]](paper=lambda c: c.paper, measured=lambda c: c.middle)
        parts = []
        for who, value in ways.items():
            whole, left = value(f1[_arm(CENTRALIZED, CENTRALIZED)]), value(f1[_arm(*cell)])
            if whole is not None and left is not None:
                share = f" ({100 * (whole - left) / whole:.1f}%)" if whole else ""
                parts.append(f"{who} {whole - left:.2f} points{share}")
        reported.append(f"F1 lost with {what}, on {corpus}: {', '.join(parts)}.")
    return reported


def _heads(study: Study, notes: str, seed: int) -> dict[str, Heads]:
    """Of the three encoders over the same held-out notes."""
    config = study.config(notes, {"seed": seed})
    texts = [document.text for document in islice(held_out(config, study.base), MOST_READ)]
    lefts = {name: encoder(notes, name, cycles(study.options), study.options) for name in PRETRAINING}
    return {name: _read(study, left, seed, texts, config.task_options().length) for name, left in lefts.items()}


def _read(study: Study, left: Left, seed: int, texts: Sequence[str], longest: int) -> Heads:
    found, sums = load(study.place(left, seed)), HeadSums()
    for seen in attentions(transformer_in(found.model), found.encoder, texts, longest):
        sums.add(seen)
    return sums.result()


def _describe_entropies(found: Sequence[Mapping[str, Heads]]) -> str:
    means = {name: np.mean([models[name].entropy_by_layer for models in found], axis=0) for name in PRETRAINING}
    return "; ".join(f"{PRETRAINING[name]} {', '.join(f'{x:.2f}' for x in layers)}" for name, layers in means.items())


def _describe_cycle(study: Study) -> str:
    once = one_seed(study.options)
    return (
        f"Pre-trained encoders are those of cycle {cycles(study.options)}; without pre-training it is the encoder that "
        f"they start from{_describe_pretrained(study)}."
        + (f" Pre-training ran once, with seed {once}." if once is not None else "")
    )


def _describe_pretrained(study: Study) -> str:
    """A start that is no random one changes what 'none' means."""
    named = study.options.encoder_place
    return "" if named is None or named in SCRATCH else ", which is pretrained on other text and here not further"


def _describe_language(study: Study) -> list[str]:
    """How well the encoders do what they were trained for."""
    reported = []
    for notes in dict.fromkeys(STAGES[place].notes for place in study.places.values()):
        last, runs = cycles(study.options), _pretrain(study, notes)
        cells = {
            name: Cell(None, [dict(run.points("validation", "loss")).get(last) for run in repeats])
            for name, repeats in runs.items()
        }
        parts = [f"{PRETRAINING[name]} {cell.middle:.3f}" for name, cell in cells.items() if cell.middle is not None]
        title = NOTES[notes].corpus.title
        reported.append(f"Nats a masked word piece on validation notes of {title}: {', '.join(parts)}.")
    return reported


PAPER = Paper(
    "fedbert",
    "Federated BERT",
    {
        "table1": Target("NER after pre-training and fine-tuning", ("i2b2-2010", "i2b2-2012"), table1),
        "table2": Target("attention heads after pre-training", (MIMIC,), table2),
        "cycles": Target("NER by cycle of federated pre-training", ("i2b2-2010",), by_cycle, asked=True),
    },
    content,
    lambda corpus: STATED,
    "not said",
    STAGES,
    SETTINGS,
    rounds=6,
    target_f1=None,
    overrides=overrides,
)
