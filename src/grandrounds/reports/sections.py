"""The parts of a run's page, each a function of the run; a part that has nothing to say is empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from grandrounds.data.partition import SiteRow
from grandrounds.metrics.score import AUC, DECIDED_ANSWERS, LOSS, Score
from grandrounds.reports import plots
from grandrounds.reports.markup import Html, join, table, tag
from grandrounds.reports.runs import Run
from grandrounds.reports.wording import ABSENT, H_COLUMN, count, duration, listed, megabytes, plural, score, spread

NONE = "None"
"""The label of tasks.task, which would load torch."""
MOST_ROWS = 100
MOST_OPEN = 15
MEANING = {
    "F1": "the harmonic mean of precision and recall",
    "AUC": "the area under the curve of precision over recall",
    LOSS.name: f"in {LOSS.unit}, the lower the better",
}

DIAGNOSTICS = {
    "contrast": ("contrast", "The contrast is Eq. 12 of FedLCC, 0.69 where both cosines are equal"),
    "cosine_global": ("cosine to global", "the cosines are those of what is contrasted, to what the global model sees"),
    "cosine_previous": ("cosine to previous", "and to what the site's model of a round ago sees"),
    "gradient_share": (
        "share of gradient",
        "the share is the norm of the contrast's gradient, over that and the norm of the task's, in the 2nd, 4th, 8th "
        "... batch of a site",
    ),
}


def unfinished(run: Run) -> Html:
    if run.result:
        return Html("")
    of = f" of {count(run.planned)}" if run.planned else ""
    torn = " The last line of metrics.jsonl is incomplete and was left away." if run.torn else ""
    state = f"This run has not finished: {count(len(run.rounds))}{of} rounds are recorded.{torn}"
    return tag("p", f"{state} What follows is what there is so far.", class_="notice")


def lead(run: Run) -> Html:
    """What came out, against what costs nothing."""
    test, objective, reported = run.test, run.objective, []
    value = test.value(objective) if test else None
    if test is None or value is None:
        reported.append("No score on a test set was recorded.")
    else:
        size = " with ".join(plural(number, thing) for thing, number in test.size.items())
        size = f" of {size}" if size else ""
        who = "the sites' own models reach" if test.learners else "the model reaches"
        reported.append(f"On the test set{size}, {who} {objective.name} {score(value)}.")
        if run.baseline:
            name, bar = run.baseline
            gap = value - bar
            side = f"{score(gap)} above" if gap > 0 else f"{score(-gap)} below" if gap < 0 else "exactly"
            reported.append(f"That is {side} the trivial baseline ({name}: {score(bar)}).")
            if not objective.better(value, bar):
                reported.append("A rule that reads no text does as well.")
    if run.result and run.result.best_round is not None and run.result.selected_by == "validation":
        reported.append(f"The model of round {run.result.best_round} was kept, the best on the validation set.")
    elif run.result:
        reported.append("The model of the last round was kept; none was chosen by its score.")
    return tag("p", " ".join(reported), class_="lead")


def figures(run: Run) -> Html:
    """The headline: a handful of numbers with what they mean."""
    test, result = run.test, run.result
    bar = f"trivial baseline {score(run.baseline[1])}" if run.baseline else ""
    memory = result.peak_memory_mb if result else None
    sites = f"{plural(len(result.sites), 'site')}" if result and result.sites else ""
    cells = [
        (f"{run.objective.name} on the test set", score(test.value(run.objective) if test else None), "", bar),
        ("rounds", count(result.rounds if result else len(run.rounds)), "", sites),
        ("up, per site and round", megabytes(run.bytes_up), "MB", f"down {megabytes(run.bytes_down)} MB"),
        ("in all", *(duration(run.seconds).split() if run.rounds or result else (ABSENT, "")), ""),
        (
            "peak memory",
            ABSENT if memory is None else count(round(memory)),
            "" if memory is None else "MB",
            "",
        ),
    ]
    return tag("dl", *(_figure(*cell) for cell in cells), class_="figures")


def by_round(run: Run) -> Html:
    kept = run.result.best_round if run.result else None
    curves = [plots.Curve(f"{split} set", run.points(split), kept) for split in ("validation", "test")]
    if not any(curve.points for curve in curves):
        return Html("")
    word = run.objective.name
    reported = [f"{word}, {MEANING[word]}, after each round." if word in MEANING else f"{word} after each round."]
    if run.baseline:
        reported.append("The dashed line is the trivial baseline on the test set: what it takes no model to reach.")
    if run.kept_is_shown:
        reported.append(f"The ring marks round {kept}, whose model was kept.")
    if curves[0].points and curves[1].points:
        reported.append("Test scores are shown for the reader only; the choice of a round never sees them.")
    picture = plots.by_round(f"{word} after each round", curves, dict([run.baseline] if run.baseline else []), word)
    return join([tag("h2", "Round by round"), tag("figure", picture, tag("figcaption", " ".join(reported)))])


def by_rank(run: Run) -> Html:
    """Where answers are ranked: the curve, its areas, and what it takes no model to reach."""
    test = run.test
    if test is None or test.auc is None:
        return Html("")
    return join([tag("h2", "Precision by recall"), ranked([run], ["test set"]), _ranking(test), _learners(run, test)])


def ranked(runs: Sequence[Run], names: Sequence[str]) -> Html:
    """Precision over recall of one or several runs, of those that have a curve."""
    curves = [plots.Curve(name, (run.test or Score()).points()) for name, run in zip(names, runs, strict=True)]
    if not any(curve.points for curve in curves):
        return Html("")
    lines = dict(sorted({run.baseline for run in runs if run.objective == AUC and run.baseline}))
    reported = "Precision and recall of the N most confident answers, for every N; the area under a curve is its AUC."
    if lines:
        reported += " The dashed line is the share of right answers among all: what any order of them comes to."
    alone = list(dict.fromkeys(name for name, run in zip(names, runs, strict=True) if run.test and run.test.learners))
    if alone:
        reported += f" Without a curve, since each site has a model of its own: {listed(alone)}."
    picture = plots.precision_by_recall("Precision over recall on the test set", curves, lines)
    return tag("figure", picture, tag("figcaption", reported))


def by_diagnostics(run: Run) -> Html:
    picture = diagnosed([run], [run.algorithm])
    return join([tag("h2", "Inside the algorithm"), picture]) if picture else Html("")


def by_epsilon(run: Run) -> Html:
    """What the site that spent most had spent after each round."""
    spent = [(line.round, max(line.epsilon.values())) for line in run.rounds if line.epsilon]
    if not spent:
        return Html("")
    picture = plots.diagnostics("Epsilon spent, by round", {"epsilon": [plots.Curve(run.algorithm, spent)]})
    caption = tag("figcaption", "Of the sites that were asked, the one that has spent most on privacy so far.")
    return join([tag("h2", "Privacy"), tag("figure", picture, caption)])


def diagnosed(runs: Sequence[Run], names: Sequence[str]) -> Html:
    """What the algorithms of one or several runs reported by round, a panel each; empty where none did."""
    given = dict.fromkeys(name for run in runs for line in run.rounds for name in line.diagnostics)
    if not given:
        return Html("")
    panels = {
        DIAGNOSTICS.get(reported, (reported, ""))[0]: [
            plots.Curve(name, run.diagnosed(reported)) for name, run in zip(names, runs, strict=True)
        ]
        for reported in given
    }
    meanings = [DIAGNOSTICS[reported][1] for reported in given if reported in DIAGNOSTICS]
    reported = f"Means over the sites of each round. {'; '.join(meanings)}." if meanings else "Means over the sites."
    return tag("figure", plots.diagnostics("Inside the algorithm, by round", panels), tag("figcaption", reported))


def by_class(run: Run) -> Html:
    test = run.test
    if test is None or (test.auc is not None and not test.per_class):
        return Html("")
    if test.loss is not None:
        return join([tag("h2", "Masked word pieces"), _language(test), _learners(run, test)])
    parts = [tag("h2", "Class by class")]
    if test.per_class:
        reported = "Each bar is a class's F1, with its precision and recall marked; its support stands in brackets."
        more = f" The {plots.MOST_BARS} commonest of {len(test.per_class)} are drawn."
        caption = reported + (more if len(test.per_class) > plots.MOST_BARS else "")
        parts.append(tag("figure", plots.f1_by_class(test.per_class), tag("figcaption", caption)))
    return join([*parts, _scores(test), _learners(run, test) if test.auc is None else ""])


def by_label(head: Sequence[str], rows: Sequence[Sequence[str]], *totals: Sequence[str]) -> Html:
    """A table with a row a class, and the totals below; many classes are folded."""
    if len(rows) <= MOST_OPEN:
        return table(head, [*rows, *totals])
    folded = tag("details", tag("summary", f"The {count(len(rows))} classes in numbers"), table(head, rows))
    return join([table(head, totals) if totals else "", folded])


def by_site(run: Run) -> Html:
    sites = run.result.sites if run.result else ()
    if not sites:
        return Html("")
    sizes = [site.examples for site in sites]
    reported = (
        f"{plural(len(sites), 'site holds', 'sites hold')} {plural(sum(sizes), 'example')}; "
        f"the smallest {count(min(sizes))}, the median {count(round(median(sizes)))}, "
        f"the largest {count(max(sizes))}."
    )
    largest = sorted(sites, key=lambda site: -site.examples)[:MOST_ROWS] if len(sites) > MOST_ROWS else sites
    by_entropy = any(site.entropy for site in sites)
    rows = [
        [
            site.name,
            ", ".join(f"{label} {count(n)}" for label, n in site.labels.items()),
            count(site.documents),
            count(site.examples),
            *([spread(site.entropy)] if by_entropy else []),
        ]
        for site in largest
    ]
    head = ["site", "labels", "documents", "examples", *([H_COLUMN] if by_entropy else [])]
    title = "The sites in numbers" + (f": the {MOST_ROWS} largest" if len(largest) < len(sites) else "")
    numbers = tag("details", tag("summary", title), table(head, rows, 2))
    picture = tag("figure", plots.holdings(sites), tag("figcaption", _reading(sites)))
    tangled = how_tangled(sites, run.result.left_out if run.result else ())
    return join([tag("h2", "Who holds what"), tag("p", reported), picture, tangled, numbers])


def how_tangled(sites: Sequence[SiteRow], left_out: Sequence[str]) -> Html:
    """Documents and structural entropy by site; empty where they were not partitioned by it."""
    if not any(site.entropy for site in sites):
        return Html("")
    reported = [
        "Documents were partitioned by their structural entropy H, an interval a site.",
        "Bars are documents, dots a site's mean H, lines the range from its plainest document to its most tangled.",
    ]
    if left_out:
        reported.append(f"An empty interval is left out: {listed(tuple(left_out))}.")
    picture = plots.documents_and_entropy("Documents and structural entropy at each site", plots.PartitionRows(sites))
    return tag("figure", picture, tag("figcaption", " ".join(reported)))


def missing(run: Run) -> Html:
    """Lost replies, abandoned rounds, sites left out, skipped input; that there is none is said too."""
    reasons = Counter((site, reason) for r in run.rounds for site, reason in r.lost.items())
    asked, lost = sum(len(r.sites) for r in run.rounds), reasons.total()
    abandoned = [str(r.round) for r in run.rounds if r.abandoned]
    parts = [tag("h2", "What went missing")]
    if lost:
        parts.append(tag("p", f"{count(lost)} of {plural(asked, 'reply', 'replies')} asked for did not count."))
        rows = [[site, reason, count(n)] for (site, reason), n in reasons.most_common(MOST_ROWS)]
        parts.append(table(["site", "reason", "times"], rows, 2))
    elif run.rounds:
        parts.append(tag("p", f"No reply was lost: {plural(asked, 'reply', 'replies')} asked for, all counted."))
    if abandoned:
        parts.append(tag("p", f"Abandoned for want of replies: round {listed(abandoned)}."))
    if run.result and run.result.left_out:
        names = run.result.left_out
        kind = plural(len(names), "site") + (" was" if len(names) == 1 else " were")
        parts.append(tag("p", f"{kind} left out, having no examples: {listed(names)}."))
    if run.result and run.result.warnings:
        parts.append(table(["what was skipped or changed", "times"], _warnings(run.result.warnings)))
    return join(parts)


def config(run: Run) -> Html:
    if not run.config_text:
        return Html("")
    return join(
        [
            tag("h2", "Config"),
            tag("details", tag("summary", "config.toml, complete"), tag("pre", run.config_text)),
        ]
    )


def _reading(sites: Sequence[SiteRow]) -> str:
    none = f" {NONE} counts examples in which there is nothing to find." if any(NONE in s.labels for s in sites) else ""
    if not all(site.labels for site in sites):
        none += " Between hosts a site tells how many examples of each label it has if its policy allows label_counts."
    if len(sites) <= plots.MOST_BARS:
        return f"Each bar is a site, each colour a label.{none}"
    return (
        "Above, how many examples each site holds; below, its mixture of labels, in another order. "
        f"Level bands mean sites that are alike, steep ones that labels gather at some of them.{none}"
    )


def _figure(name: str, value: str, unit: str, against: str) -> Html:
    shown = tag("dd", value, tag("span", unit, class_="unit") if unit else "", class_="value")
    return tag("div", tag("dt", name), shown, tag("dd", against, class_="against") if against else "")


def _ranking(test: Score) -> Html:
    """Areas and precisions, then what precision, recall and F1 are of."""
    rows = [[name, score(value)] for name, value in (test.areas() | test.precisions()).items()]
    if bar := test.trivial(AUC):
        rows.append([f"AUC {bar[0]} (trivial)", score(bar[1])])
    decided = (
        f"Of {DECIDED_ANSWERS}: precision {score(test.precision)}, recall {score(test.recall)}, F1 {score(test.f1)}"
    )
    if test.baseline_f1 is not None:
        decided += f"; {test.baseline or 'the trivial answer'} has F1 {score(test.baseline_f1)}"
    return join([table(["figure", "on the test set"], rows), tag("p", f"{decided}.", class_="soft")])


def _language(test: Score) -> Html:
    figures = {LOSS.name: test.loss, "perplexity": test.perplexity, "accuracy": test.accuracy} | test.further()
    rows = [[name.replace("_", " "), score(value)] for name, value in figures.items() if name != "log_likelihood"]
    return table(["figure", "on the test set"], rows)


def _scores(test: Score) -> Html:
    """The classes, all of them together, and a task's further numbers."""
    rows = [
        [label, score(c.precision), score(c.recall), score(c.f1), count(c.support)]
        for label, c in sorted(test.per_class.items(), key=lambda item: (-item[1].support, item[0]))
    ]
    total = ["all", score(test.precision), score(test.recall), score(test.f1), count(test.support_of_all)]
    further = {"accuracy": test.accuracy} | test.further()
    reported = ", ".join(
        f"{name.replace('_', ' ').replace('f1', 'F1')} {score(value)}"
        for name, value in further.items()
        if value is not None
    )
    return join(
        [
            by_label(["class", "precision", "recall", "F1", "support"], rows, total),
            tag("p", f"Further figures: {reported}.", class_="soft") if reported else "",
        ]
    )


def _learners(run: Run, test: Score) -> Html:
    """Where each site has a model of its own, their spread matters as much as their mean."""
    objective = run.objective
    found = {name: learner.value(objective) for name, learner in test.learners.items()}
    scores = {name: value for name, value in found.items() if value is not None}
    if not scores:
        return Html("")
    values = sorted(scores.values())
    word, std = objective.name, test.std(objective)
    deviation = "" if std is None else f", standard deviation {score(std)}"
    reported = (
        f"Each of {plural(len(scores), 'site')} has a model of its own. {word} lies between {score(values[0])} and "
        f"{score(values[-1])}, median {score(median(values))}{deviation}."
    )
    best = sorted(scores.items(), key=lambda item: (objective.rank(item[1]), item[0]))
    rows = [[name, score(value)] for name, value in best[:MOST_ROWS]]
    title = f"{word} by site" + (f": the {MOST_ROWS} best" if len(best) > MOST_ROWS else "")
    return join([tag("p", reported), tag("details", tag("summary", title), table(["site", word], rows))])


def _warnings(warnings: dict[str, int]) -> list[list[str]]:
    return [[warning, count(n)] for warning, n in sorted(warnings.items(), key=lambda item: (-item[1], item[0]))]
