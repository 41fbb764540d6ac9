"""A score as a table for people."""

from __future__ import annotations

from rich.table import Table

from grandrounds.metrics.score import AUC, DECIDED_ANSWERS, LOSS, ClassScore, Score
from grandrounds.reports.wording import plural
from grandrounds.reports.wording import score as figure

CLASSES_SHOWN = 20
FURTHER = {
    "f1_types": "types, without task.attribute",
    "f1_within": "pairs within a sentence",
    "f1_across": "pairs across sentences",
    "ign_f1": "without facts of training (Ign-F1)",
    "entity_f1": "mentions (micro)",
}


LANGUAGE = {
    "perplexity": "perplexity",
    "accuracy": "masked word pieces found",
    "next_loss": "loss of next-sentence prediction",
    "next_accuracy": "second segments recognised",
}


def score_table(title: str, score: Score) -> Table:
    """A score with its classes, or with what its ranking comes to, and the trivial baseline beside it."""
    if score.loss is not None:
        return _by_loss(title, score)
    return _by_class(title, score) if score.auc is None else _by_rank(title, score)


def _by_loss(title: str, score: Score) -> Table:
    table = Table(title=title, caption=plural(score.n or 0, "masked word piece"))
    table.add_column("figure")
    table.add_column("value", justify="right")
    table.add_row(f"{LOSS.name}, {LOSS.unit}", f"{figure(score.loss)}{_spread(score.loss_std)}", style="bold")
    further = {name: value for name, value in score.further().items() if name in LANGUAGE}
    for name, value in {"perplexity": score.perplexity, "accuracy": score.accuracy, **further}.items():
        table.add_row(LANGUAGE[name], figure(value))
    return table


def _by_rank(title: str, score: Score) -> Table:
    size = ", ".join(plural(number, thing) for thing, number in score.size.items())
    table = Table(title=title, caption=size or None)
    for name in ("answers", "precision", "recall", "F1", "AUC"):
        table.add_column(name, justify="left" if name == "answers" else "right")
    (judged, value), *others = score.areas().items()
    table.add_row(judged, "", "", "", f"{value:.3f}{_spread(score.auc_std)}", style="bold")
    for name, value in others:
        table.add_row(name, "", "", "", f"{value:.3f}")
    for name, value in score.precisions().items():
        table.add_row(name, f"{value:.3f}")
    table.add_row(DECIDED_ANSWERS, *map(figure, (score.precision, score.recall, score.f1)))
    for label, row in sorted(score.per_class.items(), key=lambda item: -item[1].support)[:CLASSES_SHOWN]:
        table.add_row(f"  of {label}", *_figures(row))
    further = score.further()
    if "sentence_f1" in further:
        by_sentence = (further[f"sentence_{name}"] for name in ("precision", "recall", "f1"))
        table.add_row("sentences that state their relation", *map(figure, by_sentence))
    table.add_section()
    table.add_row(f"trivial: {score.baseline}", "", "", figure(score.baseline_f1), "", style="dim")
    answer, bar = score.trivial(AUC) or ("", None)
    table.add_row(f"trivial: {answer}", "", "", "", figure(bar), style="dim")
    return table


def _by_class(title: str, score: Score) -> Table:
    table = Table(title=title)
    for name in ("class", "precision", "recall", "F1", "support"):
        table.add_column(name, justify="left" if name == "class" else "right")
    classes = sorted(score.per_class.items(), key=lambda item: -item[1].support)
    listed = dict(classes[:CLASSES_SHOWN])
    for label, row in score.per_class.items():
        if label in listed:
            table.add_row(label, *_figures(row), str(row.support))
    if len(classes) > len(listed):
        table.add_row(f"and {len(classes) - len(listed)} rarer ones", "", "", "", "", style="dim")
    table.add_section()
    precision, recall, f1 = _figures(score)
    f1 += _spread(score.f1_std)
    table.add_row("all (micro)", precision, recall, f1, str(score.support_of_all), style="bold")
    further = score.further()
    for name, what in FURTHER.items():
        if name in further:
            table.add_row(what, "", "", figure(further[name]), "")
    table.add_row(f"trivial: {score.baseline}", "", "", figure(score.baseline_f1), "", style="dim")
    return table


def _figures(row: ClassScore) -> list[str]:
    return [figure(value) for value in (row.precision, row.recall, row.f1)]


def _spread(std: float | None) -> str:
    return "" if std is None else f" ± {std:.3f}"
