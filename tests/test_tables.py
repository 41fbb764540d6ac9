"""Tables in README and docs, the ledger of claims and the queue of runs say what the JSON of docs/results says."""

from __future__ import annotations

import json
import shlex
import shutil
import tomllib
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from experiments.effects import Effect, Part
from experiments.ledger import CONFIRMED, REFUTED, RUNS, UNKNOWN, Claim, Ledger, Run
from experiments.render import Renderer
from experiments.tables import CURE, filled, problems

from grandrounds.cli.compare import names_in
from grandrounds.config.schema import load_config, parse_override, read_settings
from grandrounds.papers import PAPERS
from grandrounds.papers.options import ReproduceOptions
from grandrounds.papers.paper import Cell, Row
from grandrounds.reports.compare import check_arms
from grandrounds.simulation.cells import cells_of, read_corpora
from grandrounds.simulation.sweep import arm_config

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
# Results of before commit, command and versions were recorded. Measured again, a file leaves this list; none joins it.
BEFORE_PROVENANCE = [
    "bench",
    "bere-dti-lazy-mil",
    "between-hosts",
    "cdr-fedlcc",
    "eu-adr-feded",
    "fedbert-cycles",
    "fedbert-longer",
    "fedbert-table1",
    "fedbert-table2",
    "feded-dirichlet",
    "feded-poisoned",
    "feded-search",
    "feded-two-encoders",
    "fedner-figure6",
    "fedner-table2",
    "gad-feded",
    "gad-lora",
    "gad-minilm",
    "gad-minilm-all",
    "gids-lazy-mil",
    "mtsamples-bert",
    "mtsamples-vocabulary",
    "namespaces",
    "noisy-bags",
    "three-platforms",
]


def test_what_is_written_is_what_the_json_says() -> None:
    assert [str(problem) for problem in problems(ROOT)] == []


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.json")), ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_result_names_commit_command_and_versions(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    whole = isinstance(content, dict) and all(content.get(key) for key in ("commit", "command", "versions"))
    older = path.stem in BEFORE_PROVENANCE and path.parent == RESULTS
    assert not (whole and older), "it was measured again: take it out of BEFORE_PROVENANCE"
    assert whole or older, "it must name commit, command and versions, as `grandrounds compare` writes them"


def test_the_list_of_older_results_names_files_that_are_there() -> None:
    assert [name for name in BEFORE_PROVENANCE if not (RESULTS / f"{name}.json").exists()] == []


@pytest.mark.parametrize(
    "path", sorted(RESULTS.glob("reproduce/*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_reproduced_table_in_markdown_has_the_numbers_of_its_json(path: Path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    lines = path.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    printed = any(cell["paper"] is not None for row in content["rows"] for cell in row["cells"].values())
    for row in content["rows"]:
        cells = [Cell(cell["paper"], cell.get("runs")) for cell in row["cells"].values()]
        texts = Row(row["name"], cells, quoted=row["quoted"]).texts(content["unit"])
        assert f"| {' | '.join([row['name'], *(texts if printed else texts[1::2])])} |" in lines


@pytest.fixture
def render(tmp_path: Path) -> Renderer:
    row = {"name": "fedavg", "task": "ner", "runs": 3, "f1_mean": 0.5, "f1_median": 0.5, "f1_spread": 0.1}
    row |= {"precision": None, "recall": None, "mb_up_per_site_round": 2.0, "seconds": 1.0, "low": 0.4, "high": 0.6}
    other = {
        **row,
        "name": "feded",
        "f1_mean": 0.55,
        "baseline": "fedavg",
        "difference": 0.05,
        "mb_up": 12.5,
        "steps": 40,
    }
    other |= {"difference_low": -0.01, "difference_high": 0.11, "best_is_last": 2, "mb_down": 3.0}
    made = {"commit": "0123456789abcdef", "command": "grandrounds compare x.toml", "rows": [row, other]}
    (tmp_path / "new.json").write_text(json.dumps(made))
    (tmp_path / "old.json").write_text(json.dumps({"command": "grandrounds demo", "rows": [row]}))
    (tmp_path / "tables.jinja").write_text(
        "{% block one %}\n| F1 |\n|---|\n"
        '| {{ one(load("new.json").rows, name="feded").f1_mean | fixed(2) }} |\n{% endblock %}'
    )
    return Renderer(tmp_path)


def test_a_comparison_shows_intervals_differences_costs_and_runs_that_ended_too_soon(render: Renderer) -> None:
    assert render.compare("new.json").splitlines() == [
        "| arm | runs | F1 | 95% interval | less `fedavg` | 95% interval of that | steps | MB up | MB down "
        "| best round was the last |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| `fedavg` | 3 | 0.500 | 0.400 to 0.600 | – | – | – | – | – | – |",
        "| `feded` | 3 | 0.550 | 0.400 to 0.600 | +0.050 | -0.010 to +0.110 | 40 | 12.5 | 3.00 | 2 of 3 |",
        "",
        "`grandrounds compare x.toml`, commit 0123456789ab.",
    ]


def test_a_result_without_a_commit_says_so(render: Renderer) -> None:
    assert render.compare("old.json").endswith("`grandrounds demo`, commit not recorded.")


def test_a_planted_number_is_found_by_its_line_and_put_right(render: Renderer) -> None:
    right = (
        "# T\n\n<!-- table: one -->\n| F1 |\n|---|\n| 0.55 |\n<!-- end -->\n\nso <!-- value: 1 + 1 -->2<!-- end -->.\n"
    )
    assert filled(right, render) == (right, [])
    for planted, line in ((right.replace("0.55", "0.56"), 3), (right.replace("2<!--", "3<!--"), 9)):
        done, found = filled(planted, render)
        assert done == right
        assert [at for at, _ in found] == [line]
        assert found[0][1].endswith(CURE)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("<!-- table: two --><!-- end -->", "tables.jinja has no block 'two'; add one, or correct the marker"),
        ("<!-- compare: none.json --><!-- end -->", "none.json is not in"),
        ('<!-- value: one(load("new.json").rows, name="x").f1_mean --><!-- end -->', "no row has {'name': 'x'}"),
        ('<!-- value: load("new.json").nothing.at_all --><!-- end -->', "nothing"),
        ("<!-- table: one -->\n| F1 |\n", "a table is opened and not ended; add <!-- end -->"),
    ],
)
def test_a_table_that_cannot_be_written_is_left_and_told(render: Renderer, text: str, reported: str) -> None:
    done, ((line, what),) = filled(text, render)
    assert (done, line) == (text, 1)
    assert reported in what


def test_the_command_names_file_and_line_of_a_difference(tmp_path: Path) -> None:
    for part in ("README.md", "docs", RUNS):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, tmp_path / part)
    ledger = tmp_path / "docs/results/claims.md"
    lines = ledger.read_text(encoding="utf-8").splitlines()
    lines[0] = "# All claims hold"
    ledger.write_text("\n".join(lines) + "\n", encoding="utf-8")
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    (tmp_path / "README.md").write_text(
        readme.replace("| FedED | predictions |", "| FedED | notes |"), encoding="utf-8"
    )
    at = readme[: readme.index("<!-- table: demo")].count("\n") + 1
    assert [(str(p.file), p.line) for p in problems(tmp_path)] == [("README.md", at), ("docs/results/claims.md", 1)]
    assert list(problems(tmp_path, write=True))
    assert list(problems(tmp_path)) == []


def compared(**arms: float) -> dict[str, Any]:
    """A comparison with the gap of each arm to 'base', from 0.01 less to 0.02 more, and two seeds of all else."""
    same = {"runs": 2, "best_is_last": 0, "f1_mean": 0.5}
    rows = [{"name": name, **same, "mb_up": 1 + gap} for name, gap in arms.items()]
    return {
        "rows": rows,
        "differences": [
            {"arm": "base", "over": name, "value": -gap, "low": -gap - 0.02, "high": -gap + 0.01}
            for name, gap in arms.items()
            if name != "base"
        ],
        "runs": [
            {
                "name": name,
                "seed": seed,
                "rounds": 4,
                "test": {"p@10": arms[name] + 0.1 * seed * (name == "base")},
                "validation": {"f1": arms[name]},
                "history": [{"round": 1, "validation": 0.3}, {"round": 2 + seed, "validation": 0.3 + arms[name]}],
            }
            for name in arms
            for seed in (1, 2)
        ],
    }


def read(content: dict[str, Any], **part: Any) -> Effect:
    return Part(run="x", **part).effect(lambda file: content)


def test_a_difference_is_read_either_way_round() -> None:
    content = compared(base=0.0, a=0.1)
    assert read(content, arm="base", over="a") == Effect(-0.1, pytest.approx(-0.12), pytest.approx(-0.09), 2)
    assert read(content, arm="a", over="base") == Effect(0.1, pytest.approx(0.09), pytest.approx(0.12), 2)
    with pytest.raises(ValueError, match="no difference of 'a' and 'b'"):
        read(compared(base=0.0, a=0.1, b=0.2), arm="a", over="b")
    with pytest.raises(ValueError, match="there is no arm 'c'; there are base, a"):
        read(content, arm="c", over="a")


def test_of_several_arms_the_best_on_validation_data_stands() -> None:
    content = compared(base=0.0, a=0.1, b=0.3)
    assert read(content, arm=["a", "b"], over="base").value == pytest.approx(0.3)


def test_what_is_not_resampled_has_students_interval_over_seeds() -> None:
    gaps = [0.5 - 0.1, 0.5 - 0.2]
    half = 12.706 * stdev(gaps) / sqrt(2)
    found = read(compared(base=0.0, a=0.5), arm="a", over="base", of="test.p@10")
    assert (found.value, found.low, found.high) == pytest.approx((fmean(gaps), fmean(gaps) - half, fmean(gaps) + half))


def test_a_target_that_is_not_reached_counts_as_a_round_after_the_last() -> None:
    """Arm a reaches 0.4 in rounds 3 and 4; base never does."""
    assert read(compared(base=0.0, a=0.2), arm="a", over="base", target=0.4).value == fmean([3 - 5, 4 - 5])


def test_rounds_that_agree_over_seeds_still_have_an_error() -> None:
    content = compared(base=0.0, a=0.2)
    for run in content["runs"]:
        run["history"] = [{"round": 2 if run["name"] == "a" else 3, "validation": 0.9}]
    found = read(content, arm="a", over="base", target=0.4)
    half = 12.706 * sqrt(1 / 12 + 1 / 12) / sqrt(2)
    assert (found.value, found.low, found.high) == pytest.approx((-1, -1 - half, -1 + half))


def test_counts_have_no_error() -> None:
    assert read(compared(base=0.0, a=1.0), arm="a", over="base", count="mb_up") == Effect(1.0, 1.0, 1.0, 2)
    assert read(compared(base=0.0, a=1.0), arm="a", over="base", count="mb_up", relative=True).value == 100.0


def test_a_relative_effect_is_in_percent_of_the_other_arm() -> None:
    found = read(compared(base=0.0, a=0.1), arm="a", over="base", relative=True)
    assert (found.value, found.low, found.high) == pytest.approx((20.0, 18.0, 24.0))


def test_cells_of_a_reproduced_table_are_compared_seed_by_seed() -> None:
    rows = [{"name": name, "cells": {"F1": {"runs": runs}}} for name, runs in (("a", [1.0, 2.0]), ("b", [0.5, 1.0]))]
    assert read({"rows": rows}, row="a", column="F1", over_row="b", over_column="F1").value == 0.75
    assert read({"rows": rows}, row="a", column="F1").value == 1.5


def test_the_interval_of_a_difference_of_effects_combines_both() -> None:
    """By Zou and Donner's formula, with arms of 3 and 4 on one side and 6 and 8 on the other."""
    assert Effect(10, 7, 16, 3).less(Effect(2, -6, 6, 5)) == Effect(8, 3.0, 18.0, 3)


def ledger(tmp_path: Path, content: dict[str, Any] | None, parts: list[dict[str, Any]], **claim: Any) -> Ledger:
    if content is not None:
        (tmp_path / "x.json").write_text(json.dumps(content))
    reported = {
        "id": "c",
        "paper": "FedED",
        "where": "4",
        "says": "A leads.",
        "protocol": "P.",
        "verdict": UNKNOWN,
        "line": 7,
    }
    made = Claim(**{**reported, "parts": [Part(run="x", **part) for part in parts], **claim})
    return Ledger([made], {"x": Run("x", 1, "grandrounds compare x.toml", "compare.json", ["c"])}, tmp_path)


ABOVE, BELOW, BOTH = {"a": 0.1, "base": 0.0}, {"a": -0.1, "base": 0.0}, {"a": 0.0, "base": 0.0}


@pytest.mark.parametrize(
    ("gaps", "parts", "verdict"),
    [
        (ABOVE, [{"arm": "a", "over": "base"}], CONFIRMED),
        (BELOW, [{"arm": "a", "over": "base"}], REFUTED),
        (BOTH, [{"arm": "a", "over": "base"}], UNKNOWN),
        (BELOW, [{"arm": "a", "over": "base", "side": "below"}], CONFIRMED),
        (ABOVE, [{"arm": "a", "over": "base", "bar": 0.2}], REFUTED),
        ({"a": 0.1, "b": 0.1, "base": 0.0}, [{"arm": "a", "over": "base"}, {"arm": "b", "over": "base"}], CONFIRMED),
        ({"a": 0.1, "b": 0.0, "base": 0.0}, [{"arm": "a", "over": "base"}, {"arm": "b", "over": "base"}], UNKNOWN),
        ({"a": 0.1, "b": -0.1, "base": 0.0}, [{"arm": "a", "over": "base"}, {"arm": "b", "over": "base"}], REFUTED),
    ],
)
def test_the_verdict_follows_from_the_interval(
    tmp_path: Path, gaps: dict[str, float], parts: list[dict[str, Any]], verdict: str
) -> None:
    made = ledger(tmp_path, compared(**gaps), parts, verdict=verdict, why="It is so.")
    assert made.follows(made.claims[0]) == verdict
    assert list(made.problems()) == []
    assert f"1 claims: {int(verdict == CONFIRMED)} confirmed, {int(verdict == REFUTED)} refuted" in made.to_markdown()


def test_a_verdict_that_does_not_follow_is_told_by_its_line(tmp_path: Path) -> None:
    wrong = ledger(tmp_path, compared(**BOTH), [{"arm": "a", "over": "base"}], verdict=CONFIRMED)
    reported = "c: its verdict is 'confirmed', but by the rule it is 'can't tell'; correct it and its reason"
    assert next(iter(wrong.problems())) == (7, reported)


def test_an_arm_that_was_stopped_too_soon_decides_nothing(tmp_path: Path) -> None:
    content = compared(**ABOVE)
    content["rows"][0]["best_is_last"] = 2
    parts = [{"arm": "a", "over": "base"}]
    soon = ledger(tmp_path, content, parts, why="measured before it had converged")
    assert soon.follows(soon.claims[0]) == UNKNOWN
    assert list(soon.problems()) == []
    scheduled = ledger(tmp_path, content, parts, verdict=CONFIRMED, trained_out="The rate falls to zero.")
    assert scheduled.follows(scheduled.claims[0]) == CONFIRMED


def test_a_claim_without_its_run_cannot_be_told_and_says_why(tmp_path: Path) -> None:
    parts = [{"arm": "a", "over": "base"}]
    assert list(ledger(tmp_path, None, parts, why="not run").problems()) == []
    assert list(ledger(tmp_path, None, parts).problems()) == [(7, "c: it has no reason why nobody can tell; add `why`")]
    ((_, reported),) = ledger(tmp_path, compared(**BOTH), parts, why="not run").problems()
    assert reported == "c: it says 'not run', but all of its runs are there; say what they show"


def test_a_row_shows_the_effect_that_its_json_has(tmp_path: Path) -> None:
    made = ledger(tmp_path, compared(**ABOVE), [{"arm": "a", "over": "base"}], verdict=CONFIRMED).to_markdown()
    assert "| **[c](#c)** A leads. | a − base: +0.100 (+0.090 to +0.120) | 2 | **confirmed** |" in made
    assert "  - [x.json](x.json): `grandrounds compare x.toml`" in made


def test_a_run_that_is_not_in_the_queue_is_told(tmp_path: Path) -> None:
    made = Ledger(ledger(tmp_path, None, [{"arm": "a", "over": "base"}], why="not run").claims, {}, tmp_path)
    assert list(made.problems()) == [(7, f"c: run 'x' is not in {RUNS}; add it there, with its command")]


def queue() -> list[dict[str, Any]]:
    return list(tomllib.loads((ROOT / RUNS).read_text(encoding="utf-8"))["run"])


def test_the_ledger_has_the_claims_of_all_five_papers() -> None:
    claims = Ledger.read(ROOT).claims
    assert len(claims) >= 25
    assert {claim.paper for claim in claims} == {"FedED", "FedLCC", "FedDS", "FedNER", "Federated BERT"}


def test_the_queue_feeds_claims_that_there_are() -> None:
    claims = {claim.id: claim.runs for claim in Ledger.read(ROOT).claims}
    fed = [(run["name"], reported) for run in queue() for reported in run["feeds"] if reported in claims]
    assert [(name, reported) for name, reported in fed if name not in claims[reported]] == []
    assert all(run["feeds"] for run in queue())


@pytest.mark.parametrize("run", queue(), ids=lambda run: run["name"])
def test_a_command_of_the_queue_can_be_started(run: dict[str, Any]) -> None:
    """Its config, overrides, arms, settings and targets are known; data are not needed for that."""
    program, what, *words = shlex.split(run["command"])
    options = {word: words[i + 1] for i, word in enumerate(words) if word.startswith("--") and what != "-m"}
    free = [w for i, w in enumerate(words) if not w.startswith("--") and words[i - 1] not in options]
    changes = [word for word in free if "=" in word]
    if program == "python":
        assert what == "-m" or (ROOT / what).exists()
        return
    if what == "reproduce":
        paper, *targets = (word for word in free if "=" not in word)
        assert set(targets) <= set(PAPERS[paper].targets)
        assert options["--corpus"] in PAPERS[paper].corpora
        ReproduceOptions(Path("out"), overrides=dict(map(parse_override, changes)))
        return
    if what == "demo":
        return
    config = load_config(ROOT / free[0], [] if what == "search" else changes)
    if options.get("--settings", "RUNS").partition("/")[0] != "RUNS":
        config = read_settings(config, ROOT / options["--settings"])
    arms = names_in(options["--algorithms"])
    files = [ROOT / name for name in names_in(options.get("--corpora", ""))]
    corpora = read_corpora(config, files, {}) or {None: config}
    assert cells_of(corpora, arms, [1], Path("out"), names_in(options.get("--partitions", "")))
    check_arms(config, arms)
    assert options.get("--baseline", arms[0]) in arms
    tried = [f"{key}={one}" for key, _, many in (c.partition("=") for c in changes) for one in many.split(",")]
    for arm in arms:
        for change in tried if what == "search" else [""]:
            made = arm_config(config, arm, dict([parse_override(change)]) if change else {})
            assert made.make_algorithm()
