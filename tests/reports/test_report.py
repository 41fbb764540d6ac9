"""The page says what the run's files say, safely and on its own."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from grandrounds.data.partition import SiteRow
from grandrounds.data.structural_entropy import Spread
from grandrounds.errors import ConfigError
from grandrounds.metrics.outcomes import Record
from grandrounds.metrics.score import ClassScore
from grandrounds.reports import plots
from grandrounds.reports.comparison import write_comparison
from grandrounds.reports.markup import Html, table, tag
from grandrounds.reports.report import write_report
from grandrounds.reports.svg import OTHER, SERIES, name_colours
from tests.reports.fixture_runs import (
    FAIR,
    GOOD,
    leave,
    outcomes,
    ranked,
    score,
    write_language,
    write_ranked,
    write_run,
)
from tests.reports.pages import elements, outside_links, words
from tests.reports.scripts import SCRIPTS


def test_a_run_shows_its_figures(tmp_path: Path) -> None:
    out = write_report([write_run(tmp_path / "gad-1", f1=0.8)], tmp_path / "new" / "report.html")
    page = out.read_text("utf-8")
    reported = words(page)
    assert elements(page).count("svg") == 3
    assert "On the test set of 160 examples, the model reaches F1 0.800." in reported
    assert "0.109 above the trivial baseline (all &#x27;associated&#x27;: 0.691)" in reported
    assert "The model of round 9 was kept" in reported
    assert "up, per site and round 1.20 MB down 1.30 MB" in reported
    assert "peak memory 912 MB" in reported
    assert "1 of 40 replies asked for did not count" in reported
    assert "site-01 late 1" in reported
    assert "1 site was left out, having no examples: site-99" in reported
    assert "sentences longer than 512 tokens were cut 7" in reported
    assert "associated 0.780 0.820 0.800 99" in reported
    assert "scheme = &quot;iid&quot;" in reported


def test_a_score_below_the_baseline_is_called_so(tmp_path: Path) -> None:
    reported = words(write_report([write_run(tmp_path / "a", f1=0.6)], tmp_path / "r.html").read_text("utf-8"))
    assert "0.091 below the trivial baseline" in reported
    assert "A rule that reads no text does as well." in reported


def test_the_page_asks_nothing_from_outside(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", algorithm="feded")]
    page = write_report(runs, tmp_path / "r.html").read_text("utf-8")
    assert outside_links(page) == []
    assert not {"script", "link", "img", "iframe"} & set(elements(page))
    assert "@import" not in page
    assert "url(" not in page.replace("url(#", "")


def test_scripts_in_names_of_sites_labels_and_runs_are_text(tmp_path: Path) -> None:
    classes = {script: {"f1": 0.5, "support": 3} for script in (*SCRIPTS, "$x_$")}
    test = score(0.8) | {"per_class": classes, "baseline": SCRIPTS[0]}
    test |= {"learners": {script: {"f1": 0.1} for script in SCRIPTS}}
    sites = [{"name": script, "documents": 1, "examples": 2, "labels": {script: 2}} for script in SCRIPTS]
    more = {"left_out": SCRIPTS, "warnings": dict.fromkeys(SCRIPTS, 1), "test": test, "sites": sites}
    runs = [write_run(tmp_path / name, site=SCRIPTS[0], **more) for name in ("a<b>", "<script>alert(1)<")]
    for name, given in {"one.html": runs[:1], "two.html": runs}.items():
        page = write_report(given, tmp_path / name).read_text("utf-8")
        there = elements(page)
        assert not {"script", "img", "iframe", "link", "object", "base", "a", "math"} & set(there)
        assert (there.count("body"), there.count("style"), there.count("meta")) == (1, 1 + there.count("svg"), 4)
        for script in SCRIPTS:
            assert unescape(page).count(script) >= 4


def test_an_unfinished_run_is_reported_as_far_as_it_goes(tmp_path: Path) -> None:
    page = write_report([write_run(tmp_path / "a", finished=False)], tmp_path / "r.html").read_text("utf-8")
    assert "This run has not finished: 5 of 10 rounds are recorded." in words(page)
    assert "svg" in elements(page)


def test_a_run_that_has_only_its_config_is_reported(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", finished=False)
    (folder / "metrics.jsonl").unlink()
    reported = words(write_report([folder], tmp_path / "r.html").read_text("utf-8"))
    assert "0 of 10 rounds are recorded" in reported
    assert "No score on a test set was recorded." in reported


def test_several_runs_are_compared(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"avg-{s}", seed=s, f1=0.8 + s / 100) for s in (1, 2, 3)]
    runs.append(write_run(tmp_path / "ed", algorithm="feded", f1=0.6, bytes_up=4200))
    runs.append(write_run(tmp_path / "late", algorithm="fedatt", finished=False))
    page = write_report(runs, tmp_path / "r.html").read_text("utf-8")
    reported = words(page)
    assert "The best mean F1 on the test set is 0.820, by fedavg." in reported
    assert "Not above it: feded." in reported
    assert "fedavg 3 0.820 0.820 0.010 0.800 0.840 480 12.3k 48.0 52.0 2 min" in reported
    assert "(trivial) – 0.691" in reported
    assert "Not finished, and so not in the table: late." in reported
    assert "4.2 kB" in reported
    assert elements(page).count("details") == 5 + 4 + 5  # a run each, sites of the finished, configs


def test_a_comparison_says_which_differences_can_be_shown(tmp_path: Path) -> None:
    arms = {"fedavg": FAIR, "feded": GOOD, "fedatt": FAIR}
    for name, rows in arms.items():
        rounds = 6 if name == "fedatt" else 10
        leave(write_run(tmp_path / name, algorithm=name, rounds=rounds), Record("server", "test", outcomes(rows)))
    reported = words(write_report([tmp_path / name for name in arms], tmp_path / "r.html").read_text("utf-8"))
    assert "F1 95% interval median" in reported
    assert "F1 minus that of fedavg algorithm difference 95% interval p " in reported
    assert "No difference from fedavg can be shown for fedatt." in reported
    assert "different numbers of rounds: fedatt for 6; fedavg and feded for 10." in reported
    assert "There was one seed" in reported


def test_a_comparison_calls_its_arms_and_its_baseline_as_the_command_did(tmp_path: Path) -> None:
    for name, rows in (("short", FAIR), ("long", GOOD)):
        leave(write_run(tmp_path / name), Record("server", "test", outcomes(rows)))
    write_comparison([("short", tmp_path / "short"), ("long", tmp_path / "long")], "long", tmp_path)
    reported = words((tmp_path / "report.html").read_text("utf-8"))
    assert "F1 minus that of long" in reported
    assert "short, seed 1 (short)" in reported


def test_many_classes_are_folded_and_all_counts_what_they_count(tmp_path: Path) -> None:
    classes = {f"class {i}": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": i} for i in range(1, 41)}
    many = write_run(tmp_path / "many", task="ner", test=score(0.5) | {"per_class": classes})
    few = write_run(tmp_path / "few")
    page = write_report([many], tmp_path / "r.html").read_text("utf-8")
    (folded,) = re.findall(r"<details><summary>The 40 classes in numbers</summary>.*?</details>", page)
    assert "class 40" in words(folded)
    assert "all 0.480 0.520 0.500 820" in words(page.replace(folded, ""))
    assert "classes in numbers" not in write_report([few], tmp_path / "r.html").read_text("utf-8")
    together = write_report([many, few], tmp_path / "r.html").read_text("utf-8")
    assert "The 42 classes in numbers" in together


def test_a_ring_is_spoken_of_only_where_one_is_drawn(tmp_path: Path) -> None:
    ringed = write_run(tmp_path / "a")
    last = write_run(tmp_path / "b", best_round=None, selected_by="last round")
    unmeasured = write_run(tmp_path / "c", best_round=11)
    for runs, there in (([ringed], True), ([last], False), ([unmeasured], False), ([last, unmeasured], False)):
        page = write_report(runs, tmp_path / "r.html").read_text("utf-8")
        assert bool(re.search("(The|A) ring marks", page)) is there


def test_a_run_is_called_by_its_folder_once(tmp_path: Path) -> None:
    assert '<p class="sub">run · seed 1' in write_report([write_run(tmp_path / "run")], tmp_path / "r.html").read_text()


def test_a_legend_is_no_wider_than_the_page() -> None:
    names = [f"an arm with settings, number {i}" for i in range(5)]
    figure = Figure(figsize=(7.4, 4))
    for axes in figure.subplots(2):
        for name in names:
            axes.plot([0, 1], [0, 1], label=name)
    name_colours(figure)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    assert 0.5 * figure.bbox.width < legend.get_window_extent().width <= figure.bbox.width


def test_sites_that_learned_alone_show_their_spread(tmp_path: Path) -> None:
    alone = {"f1_std": 0.05, "learners": {f"s{i}": {"f1": i / 10} for i in (5, 6, 9)}}
    run = write_run(tmp_path / "a", algorithm="local_only", test=score(0.66) | alone, bytes_up=0)
    reported = words(write_report([run], tmp_path / "r.html").read_text("utf-8"))
    assert "Each of 3 sites has a model of its own. F1 lies between 0.500 and 0.900, median 0.600" in reported
    assert "own models reach F1 0.660" in reported


def test_a_run_of_ranked_answers_shows_auc_and_its_curve(tmp_path: Path) -> None:
    page = write_report([write_ranked(tmp_path / "a", auc=0.5)], tmp_path / "r.html").read_text("utf-8")
    reported = words(page)
    assert elements(page).count("svg") == 3  # by round, precision over recall, who holds what
    assert "On the test set of 60 pairs with 21 facts, the model reaches AUC 0.500." in reported
    assert "0.433 above the trivial baseline (in any order: 0.067)" in reported
    assert "AUC on the test set 0.500 trivial baseline 0.067" in reported
    assert "AUC, the area under the curve of precision over recall, after each round." in reported
    assert 'aria-label="Precision over recall on the test set"' in page
    assert "trivial: in any order" in reported
    assert (
        "AUC (all points) 0.500 AUC (first 2,000) 0.400 P@20 0.900 P@100 0.750 AUC in any order (trivial) 0.067"
        in reported
    )
    assert (
        "Of answers of at least 0.5: precision 0.600, recall 0.300, F1 0.400; "
        "every relation of every pair has F1 0.125." in reported
    )
    assert "Class by class" not in reported


def test_several_runs_of_ranked_answers_share_a_picture_of_their_curves(tmp_path: Path) -> None:
    runs = [write_ranked(tmp_path / f"avg-{s}", seed=s, auc=0.3 + s / 10) for s in (1, 2)]
    runs.append(write_ranked(tmp_path / "lazy", algorithm="lazy_mil", auc=0.6))
    alone = {key: value for key, value in ranked(0.2).items() if key != "curve"}
    alone |= {"auc_std": 0.1, "learners": {f"s{i}": {"auc": i / 10, "f1": 0.9} for i in (1, 2, 3)}}
    runs.append(write_ranked(tmp_path / "alone", algorithm="local_only", test=alone))
    reported = words(write_report(runs, tmp_path / "r.html").read_text("utf-8"))
    assert "The best mean AUC on the test set is 0.600, by lazy_mil." in reported
    assert "The trivial baseline, in any order, has 0.067. All are above it." in reported
    assert "algorithm runs AUC median spread precision recall F1 steps examples MB up MB down time" in reported
    assert "fedavg 2 0.450 0.450 0.071 0.600 0.300 0.400" in reported
    assert "AUC after each round." in reported
    assert "Precision by recall" in reported
    assert "Without a curve, since each site has a model of its own: local_only." in reported
    assert (
        "Each of 3 sites has a model of its own. AUC lies between 0.100 and 0.300, median 0.200, standard deviation "
        "0.100" in reported
    )


def test_runs_judged_otherwise_are_drawn_apart(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_ranked(tmp_path / "b", algorithm="lazy_mil")]
    reported = words(write_report(runs, tmp_path / "r.html").read_text("utf-8"))
    for heading in (
        "F1 on the test set",
        "F1 on the validation set",
        "AUC on the test set",
        "AUC on the validation set",
    ):
        assert heading in reported
    assert "The best mean AUC on the test set is 0.500, by lazy_mil." in reported
    assert "The best mean F1 on the test set is 0.800, by fedavg." in reported


def diagnosed(folder: Path, algorithm: str, shift: float) -> Path:
    """A run that told of its rounds from the second on."""
    write_run(folder, algorithm=algorithm)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines[1:]:
        near, far = 0.99 - shift / line["round"], 0.97 - shift
        reported = {"contrast": 0.68, "cosine_global": near, "cosine_previous": far, "gradient_share": 0.1 + shift}
        line["diagnostics"] = reported
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_run_that_told_of_its_rounds_shows_it_in_four_panels(tmp_path: Path) -> None:
    page = write_report([diagnosed(tmp_path / "a", "fedlcc", 0.02)], tmp_path / "r.html").read_text("utf-8")
    reported = words(page)
    assert elements(page).count("svg") == 4
    for word in ("contrast", "cosine to global", "cosine to previous", "share of gradient"):
        assert f">{word}</text>" in page
    assert "0.69 where both cosines are equal" in reported
    plain = write_report([write_run(tmp_path / "b")], tmp_path / "p.html").read_text("utf-8")
    assert "Inside the algorithm" not in plain


def test_a_private_run_shows_what_was_spent_by_round(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["epsilon"] = {"site-01": 1.5 * line["round"], "site-02": 0.5}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = write_report([folder], tmp_path / "r.html").read_text("utf-8")
    (picture,) = re.findall(r"Privacy</h2>.*?</figure>", page, re.DOTALL)
    assert ">epsilon</text>" in picture
    plain = write_report([write_run(tmp_path / "b")], tmp_path / "p.html").read_text("utf-8")
    assert "Privacy</h2>" not in plain


def test_runs_that_told_of_their_rounds_share_panels(tmp_path: Path) -> None:
    folders = [diagnosed(tmp_path / name, name, shift) for name, shift in (("fedlcc", 0.02), ("moon", 0.05))]
    page = write_report([*folders, write_run(tmp_path / "c")], tmp_path / "r.html").read_text("utf-8")
    (picture,) = re.findall(r"Inside the algorithms</h2>.*?</figure>", page, re.DOTALL)
    assert picture.count(">moon</text>") == picture.count(">fedlcc</text>") == 1  # a legend for all panels
    assert ">fedavg</text>" not in picture
    assert page.count("Inside the algorithm</h2>") == 2


def test_precision_is_drawn_over_recall_a_colour_a_name() -> None:
    line = [(0.1, 1.0), (0.5, 0.6), (1.0, 0.2)]
    curves = [plots.Curve("none", []), plots.Curve("a", line), plots.Curve("a", line[1:]), plots.Curve("b", line)]
    axes = Figure().subplots()
    plots.draw_pr(curves, {"in any order": 0.1}, axes)
    drawn = [line for line in axes.get_lines() if len(line.get_xdata())]
    assert [line.get_color() for line in drawn] == [SERIES[1], SERIES[1], SERIES[2], OTHER]
    assert [list(line.get_ydata()) for line in drawn[:2]] == [[1.0, 0.6, 0.2], [0.6, 0.2]]
    assert axes.get_legend_handles_labels()[1] == ["a", "b", "trivial: in any order"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("recall", "precision")


def test_ten_thousand_sites_give_a_page_of_modest_size(tmp_path: Path) -> None:
    sites = [
        {"name": f"s{i}", "documents": 1, "examples": 1 + i % 50, "labels": {"a": 1, f"b{i % 20}": i % 50}}
        for i in range(10_000)
    ]
    page = write_report([write_run(tmp_path / "a", sites=sites)], tmp_path / "r.html").read_text("utf-8")
    assert len(page) < 500_000
    assert "14 other labels" in page
    assert "10\u202f000 sites, from the largest to the smallest" in page
    assert "The sites in numbers: the 100 largest" in page


def test_a_site_that_tells_no_labels_has_a_bar_of_its_own_colour(tmp_path: Path) -> None:
    drawn = plots.holdings([SiteRow("a", 2, 7, {"x": 4, "y": 3}), SiteRow("b", 2, 9, {})])
    assert ">labels not told</text>" in drawn
    assert ">\u00a09</text>" in drawn


def test_a_federations_run_is_named_after_its_folder(tmp_path: Path) -> None:
    (tmp_path / "consortium").mkdir()
    (tmp_path / "consortium" / "founded.toml").write_text("")
    run = write_run(tmp_path / "consortium" / "run")
    assert "consortium · seed 1" in words(write_report([run], tmp_path / "r.html").read_text("utf-8"))


def test_sites_without_labels_are_drawn_by_their_examples() -> None:
    assert ">\u00a07</text>" in plots.holdings([SiteRow("a", 2, 7, {})])
    assert plots.holdings([SiteRow(f"s{i}", 2, 7, {}) for i in range(40)]).count("<svg") == 1


TANGLED = [
    SiteRow("site-01", 21, 60, {"yes": 60}, Spread(0.9, 1.125, 1.25)),
    SiteRow("site-03", 1234, 3000, {"yes": 3000}, Spread(1.75, 1.875, 2.0)),
]


def test_documents_and_entropy_show_a_bar_and_a_range_a_site() -> None:
    drawn = plots.documents_and_entropy("Figure 2", plots.PartitionRows(TANGLED, ["site-02"], "CDR"))
    for reported in (
        "21",
        "1\u202f234",
        "1.12",
        "1.88",
        "site-01",
        "site-03",
        "CDR",
        "structural entropy H: mean and range",
    ):
        assert f">{reported}</text>" in drawn
    assert "left out, having no document: site-02" in drawn
    assert drawn.count("fill: var(--s5") == 2 + 1  # the bars, and the legend's
    assert "left out" not in plots.documents_and_entropy("Figure 2", plots.PartitionRows(TANGLED))


def test_corpora_are_panels_of_one_picture() -> None:
    drawn = plots.documents_and_entropy(
        "Figure 2", *(plots.PartitionRows(TANGLED, (), name) for name in ("CDR", "GDA", "CHR"))
    )
    assert drawn.count("<svg") == 1
    assert drawn.count("fill: var(--s5") == 6 + 1  # a legend for all
    assert [name for name in re.findall(r">(\w+)</text>", drawn) if name in ("CDR", "GDA", "CHR")] == [
        "CDR",
        "GDA",
        "CHR",
    ]


def test_many_sites_and_equal_entropies_can_be_drawn() -> None:
    many = [SiteRow(f"site-{i:03d}", i, i, {}, Spread(1.0, 1.0, 1.0)) for i in range(200)]
    drawn = plots.documents_and_entropy("many", plots.PartitionRows(many, [f"site-{i}" for i in range(200, 220)]))
    assert len(re.findall(r">site-\d+</text>", drawn)) <= plots.MOST_BARS
    assert "and 14 more" in drawn


def test_a_run_dealt_by_entropy_shows_it(tmp_path: Path) -> None:
    sites = [row.to_dict() for row in TANGLED]
    run = write_run(tmp_path / "a", sites=sites, left_out=["site-02"])
    page = write_report([run], tmp_path / "r.html").read_text("utf-8")
    reported = words(page)
    assert elements(page).count("svg") == 4
    assert "An empty interval is left out: site-02." in reported
    assert "documents examples H: mean (range)" in reported
    assert "1\u202f234 3\u202f000 1.875 (1.750–2.000)" in page.replace('</td><td class="number">', " ")
    assert "structural entropy" not in words(write_report([write_run(tmp_path / "b")], tmp_path / "b.html").read_text())


def test_plots_are_the_same_twice_and_follow_the_pages_colours() -> None:
    classes = {"a": ClassScore(f1=0.5, precision=0.4, recall=0.6, support=3)}
    drawn = plots.f1_by_class(classes)
    assert drawn == plots.f1_by_class(classes)
    assert "var(--s5, #56b4e9)" in drawn
    assert "currentColor" in drawn
    assert isinstance(drawn, Html)


def test_nothing_that_travels_can_be_drawn_on_a_log_scale() -> None:
    assert plots.bytes_per_site_and_round(["local_only"], [0.0], [0.0]).count("nothing travels") >= 2


def test_markup_escapes_all_but_markup() -> None:
    assert tag("p", "a<b", tag("i", "&"), title='"') == '<p title="&quot;">a&lt;b<i>&amp;</i></p>'
    assert '<td>x</td><td class="number">1</td>' in table(["a", "b"], [["x", "1"]])


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one run"):
        write_report([], tmp_path / "r.html")


def test_the_lowest_loss_is_the_best(tmp_path: Path) -> None:
    losses = {"fedavg": 2.5, "fedprox": 1.5, "local_only": 3.5}
    runs = [write_language(tmp_path / name, algorithm=name, loss=loss) for name, loss in losses.items()]
    page = write_report(runs, tmp_path / "report.html").read_text("utf-8")
    assert "The best mean loss on the test set is 1.500, by fedprox." in page
    table = page[page.index("<table") : page.index("</table>")]
    assert sorted(losses, key=table.index) == ["fedprox", "fedavg", "local_only"]
