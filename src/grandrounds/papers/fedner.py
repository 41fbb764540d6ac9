"""FedNER (Ge et al., 2020): tables 1 and 2 and figures 3 to 6, by the settings of its section 4.1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from grandrounds.data import masking
from grandrounds.errors import ConfigError
from grandrounds.papers.fedner_arms import (
    BERT,
    ELMO,
    SETTINGS,
    STATED,
    TITLES,
    alone_and_together,
    arm,
    content,
    full,
    languages,
    mixed_schemes,
    splits,
    taggers,
    with_language,
)
from grandrounds.papers.figures import by_setting, dots
from grandrounds.papers.measures import NOT_THEIRS, describe_selection, percent, printed
from grandrounds.papers.options import Overrides, ReproduceOptions
from grandrounds.papers.paper import Cell, PaperTable, Row
from grandrounds.papers.platforms import PLATFORMS, ROLES, THEIRS, count_platforms, shared_names
from grandrounds.papers.protocol import Paper, Study, Target
from grandrounds.reports.runs import Run

ALONE, TOGETHER = "alone", "FedNER"
MIXED = "FedNER, tag schemes mixed"
STRICT, RELAXED = "strict F1", "relaxed F1"
SCORES = {
    STRICT: "f1",
    "strict P": "precision",
    "strict R": "recall",
    RELAXED: "relaxed_f1",
    "relaxed P": "relaxed_precision",
    "relaxed R": "relaxed_recall",
}
SHARES = (0.1, 1.0, 0.5, 0.25)
"""Of figure 3. The ends come first, for a sweep that is cut short."""
MASKS = (0.0, 1.0, 0.5, 0.25, 0.75)
"""Of figure 5, likewise."""


def numbers() -> Any:
    """What the paper prints."""
    return printed("fedner")


def table1(study: Study) -> PaperTable:
    (corpus,) = study.places.values()
    counted, theirs = count_platforms(study.config(corpus), study.base), numbers()["table1"]
    rows, reported = [], []
    for role in ROLES:
        found, title = counted[PLATFORMS[corpus].of_role(role).name], PLATFORMS[corpus].called(role)
        measured = (found.sentences, len(found.types), found.mentions, len(found.names))
        paper = (theirs[role]["sentences"], theirs[role]["types"], None, theirs[role]["entities"])
        rows.append(Row(title, [Cell(p, [m]) for p, m in zip(paper, measured, strict=True)]))
        reported.append(f"{title}: {', '.join(found.types)}.")
    several = [("at several platforms", "", theirs["overlapping"], shared_names(counted))]
    several.append(("at several, whatever their case", NOT_THEIRS, None, shared_names(counted, masking.written_alike)))
    rows += [Row(name, [*[Cell()] * 3, Cell(p, [m])], section) for name, section, p, m in several]
    footnotes = [
        "Entities are counted once for all mentions that are written alike, in train and test together: so counted, "
        "the ADE corpus has nearly as many as the paper says.",
        *reported,
    ]
    columns = ["sentences", "types", "mentions", "entities"]
    return PaperTable(study.name, "", "count", "platform", columns, rows, footnotes)


def table2(study: Study) -> PaperTable:
    (corpus,) = study.places.values()
    options = study.options
    arms = {f"{tagger}-alone": arm(tagger, "local_only", options) for tagger in taggers(options) if tagger != "elmoner"}
    models = {title: (f"{tagger}-alone", tagger) for tagger, title in TITLES.items() if tagger != "elmoner"}
    for kind in (ELMO, BERT):
        own = with_language(kind, options) or {}
        arms |= own
        alone, together = own or ("", "")
        models[_titled(TITLES["elmoner"], kind)] = (alone, "elmoner" if kind == ELMO else "")
        models[_titled(TOGETHER, kind)] = (together, "fedner" if kind == ELMO else "")
    if not languages(options):
        together = f"{full(options)}-fedner"
        arms[together] = arm(full(options), "fedner", options)
        models[f"{TOGETHER} without a language model"] = (together, "")
    mixed, scheme = mixed_schemes(corpus, options)
    arms[mixed] = scheme
    models[MIXED] = (mixed, "")
    runs = study.run(corpus, arms)
    rows, printed = [], numbers()["table2"]
    for role in ROLES:
        site, section = PLATFORMS[corpus].of_role(role).name, PLATFORMS[corpus].called(role)
        for title, (name, tagger) in models.items():
            theirs = printed[role].get(tagger, [None] * len(SCORES))
            cells = [_cell(runs.get(name, ()), site, s, p) for p, s in zip(theirs, SCORES.values(), strict=True)]
            rows.append(Row(title, cells, section, not_run=not name))
    first = PLATFORMS[corpus].called(ROLES[0])
    footnotes = [
        _RELAXED,
        f"{MIXED}: {first} tags in BIOES, the others in BIO. The paper has no such row.",
        describe_selection(runs),
        *_describe_language(options),
        _FOOTNOTE,
    ]
    return PaperTable(study.name, "", "percent", "model", list(SCORES), rows, footnotes)


def figure3(study: Study) -> PaperTable:
    options, tagger = study.options, full(study.options)
    (corpus,) = study.places.values()
    whole, epochs = study.config(corpus).data.train_share, study.config(corpus).training.epochs

    def changed(share: float) -> dict[str, Overrides]:
        arms = alone_and_together(tagger, options)
        if share == 1:
            return arms
        less = {"data.train_share": share * whole}
        more = {"training.epochs": round(epochs / share)}
        return {
            f"{name}-share{share:g}": {**own, **less, **(more if own["algorithm.name"] == "local_only" else {})}
            for name, own in arms.items()
        }

    note = "On a share of train as many steps are taken as on all of it: alone, in so many more epochs."
    return _sweep(study, "ADE Corpus", "share of train", SHARES, changed, [note])


def figure4(study: Study) -> PaperTable:
    """A panel and a section a tagger."""
    _not_set(study, "algorithm.private")
    (corpus,) = study.places.values()
    chosen = taggers(study.options)[: study.options.cells]
    made = {tagger: splits(tagger, study.options) for tagger in chosen}
    runs = study.run(corpus, {name: own for arms in made.values() for name, own in arms.values()})
    site = PLATFORMS[corpus].of_role("ADE Corpus").name
    rows, best = [], {}
    panels: dict[str, dict[str, dict[str, float | None]]] = {}
    for tagger, arms in made.items():
        title = TITLES[tagger]
        chances = {shared: _validated(runs[name], site) for shared, (name, _) in arms.items()}
        best[title] = max(chances, key=lambda shared: fmean(chances[shared]))
        panels[title] = {}
        for shared, (name, _) in arms.items():
            cells = [_cell(runs[name], site, SCORES[score]) for score in (STRICT, RELAXED)]
            rows.append(Row(shared, [*cells, Cell(None, chances[shared], mean=True)], title))
            panels[title][shared] = {STRICT: cells[0].middle, RELAXED: cells[1].middle}
    footnotes = [
        _on(study, "ADE Corpus"),
        "The best split by validation: " + "; ".join(f"{title}: {shared}" for title, shared in best.items()) + ".",
        "Rows are what is shared: embeddings are the modules words, characters and language, as far as a tagger has "
        "them. With everything shared there is one model, over all entity types.",
        describe_selection(runs),
        *_describe_language(study.options),
        _NO_NUMBERS,
    ]
    figure = dots(study.target.title, "F1, %", panels)
    columns = [STRICT, RELAXED, "strict F1 on validation"]
    return PaperTable(study.name, "", "percent", "shared", columns, rows, footnotes, figure=figure)


def figure5(study: Study) -> PaperTable:
    _not_set(study, "data.mask_overlap")
    arms = alone_and_together(full(study.options), study.options)

    def changed(share: float) -> dict[str, Overrides]:
        own = {"data.mask_overlap": share}
        return {f"{name}-masked{share:g}": {**arm, **own} for name, arm in arms.items()} if share else arms

    def observe(runs: Mapping[float, Sequence[Run]]) -> list[str]:
        masked = [f"{_warned(repeats, masking.MASKED)} at {share:g}" for share, repeats in runs.items()]
        there = max(_warned(repeats, masking.OVERLAPPING) for repeats in runs.values())
        return [f"Entities in several platforms' training data: {there or 'not counted'}; masked: {', '.join(masked)}."]

    note = (
        "Masked: of that share of the entities in several platforms' training data, whatever their case, every mention "
        f"there is the word {masking.PLACEHOLDER}, without a label. Tests are as they were."
    )
    return _sweep(study, "CADEC", "share masked", MASKS, changed, [note], observe)


def figure6(study: Study) -> PaperTable:
    (corpus,) = study.places.values()
    made: dict[str, tuple[str, dict[str, Overrides]]] = {
        title: (tagger, alone_and_together(tagger, study.options))
        for tagger, title in TITLES.items()
        if tagger != "elmoner"
    }
    for kind, tagger in ((ELMO, "elmoner"), (BERT, "")):
        made[_titled(TITLES["elmoner"], kind)] = (tagger, with_language(kind, study.options) or {})
    runs = study.run(corpus, {name: own for _, both in made.values() for name, own in both.items()})
    site, printed = PLATFORMS[corpus].of_role("ADE Corpus").name, numbers()["table2"]["ADE Corpus"]
    rows, panel = [], {}
    for title, (tagger, both) in made.items():
        alone, together = (runs[name] for name in both) if both else ((), ())
        cells = []
        for score in (STRICT, RELAXED):
            at = list(SCORES).index(score)
            cells.append(_cell(alone, site, SCORES[score], printed[tagger][at] if tagger else None))
            cells.append(_cell(together, site, SCORES[score], printed["fedner"][at] if tagger == "elmoner" else None))
        rows.append(Row(title, cells, not_run=not both))
        if both:
            panel[title] = {ALONE: cells[0].middle, TOGETHER: cells[1].middle}
    footnotes = [
        _on(study, "ADE Corpus"),
        "The paper draws this figure without numbers: those beside are of its table 2. It takes the best split of each "
        "tagger, which figure 4 looks for; here words and CNN are shared, as by default.",
        describe_selection(runs),
        *_describe_language(study.options),
        _FOOTNOTE,
    ]
    columns = [f"{score}, {how}" for score in (STRICT, RELAXED) for how in (ALONE, TOGETHER)]
    figure = dots(study.target.title, f"{STRICT}, %", {"": panel})
    return PaperTable(study.name, "", "percent", "tagger", columns, rows, footnotes, figure=figure)


_RELAXED = "Strict: the same words and type. Relaxed: a word in common, and the same type."
_NO_NUMBERS = "The paper draws this figure without numbers."


def _sweep(
    study: Study,
    role: str,
    label: str,
    settings: Sequence[float],
    changed: Callable[[float], Mapping[str, Overrides]],
    footnotes: Sequence[str],
    observe: Callable[[Mapping[float, Sequence[Run]]], Sequence[str]] = lambda runs: (),
) -> PaperTable:
    """Alone and under FedNER at one platform, by a setting; `observe` makes further notes of FedNER's runs."""
    (corpus,) = study.places.values()
    chosen = sorted(settings[: study.options.cells])
    arms = {setting: changed(setting) for setting in chosen}
    runs = study.run(corpus, {name: own for both in arms.values() for name, own in both.items()})
    site, rows = PLATFORMS[corpus].of_role(role).name, []
    for setting, both in arms.items():
        repeats = [runs[name] for name in both]
        cells = [_cell(some, site, SCORES[score]) for score in (STRICT, RELAXED) for some in repeats]
        gains = [_difference(*(_scores(some, site, SCORES[score]) for some in repeats)) for score in (STRICT, RELAXED)]
        cells += [Cell(None, gain, mean=True) for gain in gains]
        rows.append(Row(f"{setting:g}", cells))
    curves = {
        score: {how: [row.cells[2 * i + j].middle for row in rows] for j, how in enumerate((ALONE, TOGETHER))}
        for i, score in enumerate((STRICT, RELAXED))
    }
    columns = [f"{score}, {how}" for score in (STRICT, RELAXED) for how in (ALONE, TOGETHER)]
    columns += [f"gain, {score.removesuffix(' F1')}" for score in (STRICT, RELAXED)]
    together = {setting: runs[list(both)[-1]] for setting, both in arms.items()}
    reported = [
        _on(study, role),
        *footnotes,
        *observe(together),
        describe_selection(runs),
        *_describe_language(study.options),
        _NO_NUMBERS,
    ]
    figure = by_setting(study.target.title, label, chosen, curves)
    return PaperTable(study.name, "", "percent", label, columns, rows, reported, figure=figure)


def _scores(runs: Sequence[Run], site: str, score: str) -> list[float | None]:
    """A platform's own, in percent, a value a seed."""
    return [percent(getattr(run.test.learners.get(site), score, None)) if run.test else None for run in runs]


def _cell(runs: Sequence[Run], site: str, score: str, paper: float | None = None) -> Cell:
    return Cell(paper, _scores(runs, site, score) if runs else None, mean=True)


def _difference(alone: Sequence[float | None], together: Sequence[float | None]) -> list[float | None]:
    pairs = zip(alone, together, strict=True)
    return [None if before is None or after is None else after - before for before, after in pairs]


def _validated(runs: Sequence[Run], site: str) -> list[float]:
    """Strict F1 on the platform's validation data, in percent."""
    scores = [run.result.validation.learners.get(site) for run in runs if run.result and run.result.validation]
    return [100 * ((score.f1 if score else None) or 0.0) for score in scores]


def _warned(runs: Sequence[Run], warning: str) -> int:
    """As many as runs counted, whose seeds draw alike but not the same."""
    return round(fmean(run.result.warnings.get(warning, 0) if run.result else 0 for run in runs))


def _not_set(study: Study, key: str) -> None:
    if key in study.options.overrides:
        raise ConfigError(f"{study.name} tries one value of '{key}' after another; leave it out")


def _on(study: Study, role: str) -> str:
    (corpus,) = study.places.values()
    return f"Scores are of {PLATFORMS[corpus].called(role)}; every platform takes part."


def _titled(model: str, kind: str) -> str:
    """The paper's language model goes without saying."""
    return model if kind == ELMO else f"{model} with {kind}"


def _describe_language(options: ReproduceOptions) -> list[str]:
    given = languages(options)
    if not given:
        return [
            "--encoder names no language model: ELMoNER is left out, and FedNER is of CNN-CLSTM-CRF, which is ELMoNER "
            f"without one. {_GET_ELMO}"
        ]
    if ELMO not in given:
        return [f"--encoder names a transformer, which ELMoNER reads instead of ELMo. {_GET_ELMO}"]
    return [] if BERT in given else ["With --encoder ELMO,BERT both language models are run, as in its footnote 3."]


_FOOTNOTE = "In its footnote 3 the paper tried BERT too, and found ELMo better; it prints no numbers."
_GET_ELMO = (
    "ELMo is to be had at allenai.org/allennlp/software/elmo: put its ..._options.json and ..._weights.hdf5 into one "
    "folder and name that by --encoder ELMO, or --encoder ELMO,BERT for both."
)


PAPER = Paper(
    "fedner",
    "FedNER",
    {
        "table1": Target("sentences and entities of the platforms", (THEIRS,), table1),
        "table2": Target("strict and relaxed F1 of taggers alone and of FedNER", (THEIRS,), table2),
        "figure3": Target("F1 by the share of training data", (THEIRS,), figure3),
        "figure4": Target("F1 by what is shared", (THEIRS,), figure4),
        "figure5": Target("F1 by the share of overlapping entities masked", (THEIRS,), figure5),
        "figure6": Target("F1 of taggers alone and under FedNER", (THEIRS,), figure6),
    },
    content,
    lambda corpus: STATED,
    "10, the mean",
    PLATFORMS,
    SETTINGS,
    rounds=6,
    target_f1=None,
    average="mean",
)
