"""Scores after each round: overall, by site, and beside what each site reaches alone."""

from __future__ import annotations

from math import isfinite

from grandrounds.metrics.score import Score
from grandrounds.reports.markup import Html, join, table, tag
from grandrounds.reports.runs import Run
from grandrounds.reports.wording import count, duration, megabytes, score, signed
from grandrounds.web.view.following import FollowedRun
from grandrounds.web.view.parts import MOST_ROWS, more, section
from grandrounds.web.view.pictures import THIN, Curve, Level, by_round
from grandrounds.web.view.run_state import planned

MOST_CURVES, MOST_ROUNDS = 20, 30


def scores(view: FollowedRun) -> Html:
    run = view.run
    if run is None:
        return Html("")
    key_name, word = run.objective.key, run.objective.name
    best = _best(view, run)
    curves = [
        Curve(f"{split} set", [p for p in run.points(split, key_name) if isfinite(p[1])], style, best)
        for split, style in (("validation", "s0"), ("test", "s1"))
    ]
    curves = [*_by_learner(run), *(curve for curve in curves if curve.points)]
    if not curves:
        return Html("")
    levels = [Level(f"trivial: {run.baseline[0]}", run.baseline[1])] if run.baseline else []
    alone = view.alone.test if view.alone else None
    if alone is not None and (value := alone.value(run.objective)) is not None:
        levels.append(Level("each site alone (mean)", value, "s4"))
    picture = by_round(f"{word} after each round", curves, levels, planned(view) or 1)
    told = f"{word} after each round."
    if any(THIN in curve.style for curve in curves):
        told += " Thin lines are the sites' own models."
    told += f" A ring marks round {best}, the best one so far on the validation set." if best else ""
    numbers = tag("details", tag("summary", "Round by round in numbers"), _numbers(run))
    return section("Scores", tag("p", told), tag("figure", picture), _by_site(view, run), numbers)


def _best(view: FollowedRun, run: Run) -> int | None:
    return run.result.best_round if run.result else view.resume.best_round if view.resume else None


def _by_learner(run: Run) -> list[Curve]:
    """Where each site has a model of its own."""
    found: dict[str, list[tuple[int, float]]] = {}
    for line in run.rounds:
        for name, one in (line.test.learners if line.test else {}).items():
            if (value := one.value(run.objective)) is not None and isfinite(value):
                found.setdefault(name, []).append((line.round, value))
    return [Curve(name, points, f"s5 {THIN}") for name, points in list(found.items())[:MOST_CURVES]]


def _by_site(view: FollowedRun, run: Run) -> Html:
    """Each site's score in the federation, beside what it reaches alone."""
    together, alone = run.test or Score(), (view.alone.test if view.alone else None) or Score()
    ours = {name: one.value(run.objective) for name, one in together.learners.items()}
    theirs = {name: one.value(run.objective) for name, one in alone.learners.items()}
    names = sorted(ours.keys() | theirs.keys())
    if not names:
        return Html("")
    rows = []
    for name in names[:MOST_ROWS]:
        one, other = ours.get(name), theirs.get(name)
        gain = None if one is None or other is None else one - other
        rows.append([name, score(one), *([score(other), signed(gain)] if theirs else [])])
    head = ["site", f"{run.objective.name} in the federation", *(["alone", "difference"] if theirs else [])]
    shared = "" if ours else "The federation's model is one for all, and is scored on the coordinator's test set alone."
    return join([table(head, rows), more(len(names), MOST_ROWS), tag("p", shared, class_="soft") if shared else ""])


def _numbers(run: Run) -> Html:
    word = run.objective.name
    rows = [
        [
            f"{count(line.round)} (abandoned)" if line.abandoned else count(line.round),
            f"{count(line.replies)} of {count(line.replies + len(line.lost))}",
            score(line.validation.value(run.objective) if line.validation else None),
            score(line.test.value(run.objective) if line.test else None),
            duration(line.seconds),
            f"{megabytes(line.bytes_up)} MB",
            f"{megabytes(line.bytes_down)} MB",
        ]
        for line in run.rounds[: -MOST_ROUNDS - 1 : -1]
    ]
    head = ["round", "good replies", f"validation {word}", f"test {word}", "took", "sent by sites", "to sites"]
    return join([table(head, rows), more(len(run.rounds), MOST_ROUNDS)])
