"""A score as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from grandrounds.metrics.score import DECIDED_TOLD, Score
from grandrounds.reports.wording import plural
from grandrounds.reports.wording import score as figure

CLASSES_SHOWN = 20
FURTHER = {
    "f1_within": "pairs within a sentence",
    "f1_across": "pairs across sentences",
    "ign_f1": "without facts of training (Ign-F1)",
}


LANGUAGE = {
    "perplexity": "perplexity",
    "accuracy": "masked word pieces found",
    "next_loss": "loss of next-sentence prediction",
    "next_accuracy": "second segments told apart",
}


def brief(split: str, score: Mapping[str, Any]) -> str:
    headline = Score.model_validate(score).headline
    return f"{split} {headline.word} {headline.value:.3f}"


def score_table(title: str, score: Mapping[str, Any]) -> Table:
    """A score with its classes, or with what its ranking comes to, and the trivial baseline beside it."""
    read = Score.model_validate(score)
    if read.loss is not None:
        return _by_loss(title, read)
    return _by_class(title, score) if read.auc is None else _by_rank(title, read)


def _by_loss(title: str, score: Score) -> Table:
    table = Table(title=title, caption=plural(score.n or 0, "masked word piece"))
    table.add_column("figure")
    table.add_column("value", justify="right")
    spread = "" if score.loss_std is None else f" ± {score.loss_std:.3f}"
    table.add_row("loss, nats a masked word piece", f"{figure(score.loss)}{spread}", style="bold")
    further = {name: value for name, value in score.further().items() if name in LANGUAGE}
    for name, value in {"perplexity": score.perplexity, "accuracy": score.accuracy, **further}.items():
        table.add_row(LANGUAGE[name], figure(value))
    return table


def _by_rank(title: str, score: Score) -> Table:
    size = ", ".join(plural(number, thing) for thing, number in score.size.items())
    table = Table(title=title, caption=size or None)
    for name in ("answers", "precision", "recall", "F1", "AUC"):
        table.add_column(name, justify="left" if name == "answers" else "right")
    headline = score.headline
    (judged, value), *others = score.areas().items()
    spread = "" if headline.std is None else f" ± {headline.std:.3f}"
    table.add_row(judged, "", "", "", f"{value:.3f}{spread}", style="bold")
    for name, value in others:
        table.add_row(name, "", "", "", f"{value:.3f}")
    for name, value in score.precisions().items():
        table.add_row(name, f"{value:.3f}")
    table.add_row(DECIDED_TOLD, *map(figure, (score.precision, score.recall, score.f1)))
    table.add_section()
    table.add_row(f"trivial: {score.baseline}", "", "", figure(score.baseline_f1), "", style="dim")
    table.add_row(f"trivial: {headline.answer}", "", "", "", figure(headline.trivial), style="dim")
    return table


def _by_class(title: str, score: Mapping[str, Any]) -> Table:
    table = Table(title=title)
    for name in ("class", "precision", "recall", "F1", "examples"):
        table.add_column(name, justify="left" if name == "class" else "right")
    classes = sorted(score["per_class"].items(), key=lambda item: -item[1]["support"])
    listed = dict(classes[:CLASSES_SHOWN])
    for label, row in score["per_class"].items():
        if label in listed:
            table.add_row(label, *_figures(row), str(row["support"]))
    if len(classes) > len(listed):
        table.add_row(f"and {len(classes) - len(listed)} rarer ones", "", "", "", "", style="dim")
    table.add_section()
    spread = f" ± {score['f1_std']:.3f}" if "f1_std" in score else ""
    table.add_row("all (micro)", *_figures(score)[:2], f"{score['f1']:.3f}{spread}", str(score["n"]), style="bold")
    for name, what in FURTHER.items():
        if name in score:
            table.add_row(what, "", "", f"{score[name]:.3f}", "")
    table.add_row(f"trivial: {score['baseline']}", "", "", f"{score['baseline_f1']:.3f}", "", style="dim")
    return table


def _figures(row: Mapping[str, Any]) -> list[str]:
    return [f"{row[name]:.3f}" for name in ("precision", "recall", "f1")]
