"""Does agreeing on one sentence a fact help where labels are noise, and how good is the choice?

    python experiments/noisy_bags.py --out RUNS                     # 84 runs; started again, it goes on
    python experiments/noisy_bags.py --out RUNS --seeds 1 --fractions 1 --methods lazy_mil one

Made-up bags of about 8 sentences of which a third say their fact, over 20 sites. `lazy_mil`, with NA facts agreed on or
each site's own and with a random sentence in place of the surest, against ONE, AVE, ATT and ATT_RA under uniform
averaging, by the share of sites in a round: AUC and P@N on the test set, and, by round, the share of chosen sentences
that say their fact. Only what generates data knows that: it is read here, not by a site.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.axes import Axes

import grandrounds
from grandrounds import Parameters, Selection, Site, TensorState, algorithm, on_site
from grandrounds.algorithms.fedavg import FedAvg
from grandrounds.algorithms.lazy_mil import BEST, LazyMIL
from grandrounds.data.synthetic.bags import synthesize_bags
from grandrounds.reports.plots import Curve, draw_by_round, draw_pr
from grandrounds.reports.svg import svg
from grandrounds.runs.provenance import provenance
from grandrounds.runs.results import read_rounds
from grandrounds.tasks.abilities import Bagged

BAGS = {"facts": 400, "unrelated": 1600, "test": 200}
LAZY: dict[str, dict[str, str]] = {
    "lazy_mil": {},
    "lazy_mil_own_na": {"na": "own"},
    "lazy_mil_random": {"choose": "random"},
}
METHODS = {**dict.fromkeys(LAZY, "one"), "one": "one", "ave": "ave", "att": "att", "att_ra": "att_ra"}
CHOICES: dict[tuple[int, str], dict[str, tuple[int, int]]] = {}
"""(round, site) -> by who chose: how many sentences of related pairs were chosen, and how many of them say so."""
TRUTH: list[tuple[bool, bool]] = []
"""Of each training sentence: whether its pair is related, and whether it says so."""


def note(site: Site, chosen_by: str, rows: Sequence[int]) -> None:
    reported = [TRUTH[row] for row in site._split("train").rows[np.asarray(rows, dtype=np.int64)]]
    related = [true for is_related, true in reported if is_related]
    CHOICES.setdefault((site.round, site.who), {})[chosen_by] = len(related), sum(related)


@algorithm("lazy_mil_watched")
class Watched(LazyMIL):
    """Lazy MIL, whose choice is looked at: of all sites together, and what each would have chosen alone."""

    @on_site
    def train(self, site: Site, selection: Selection) -> Parameters:
        best = TensorState()
        site.recall(BEST, best)
        note(site, "together", best["rows"][selection.chosen.bool()].tolist())
        note(site, "alone", best["rows"].tolist())
        return super().train(site, selection)


@algorithm("fedavg_watched")
class WatchedAverage(FedAvg):
    """Uniform averaging under ONE: what its own model would choose at each site."""

    @on_site
    def train(self, site: Site, parameters: Parameters) -> Parameters:
        site.load(parameters)
        task = site.spec.task
        assert isinstance(task, Bagged)  # the config of every arm is of distant_re
        sure = site.infer("train", task.confidence).values[:, 0].numpy()
        note(site, "alone", [rows[sure[rows].argmax()] for _, rows in site.facts("train")])
        return super().train(site, parameters)


def run(method: str, fraction: float, seed: int, rounds: int, out: Path) -> dict[str, Any]:
    """One arm; what it found is kept beside the run and not made twice."""
    done = out / f"{method}-{fraction}-{seed}.json"
    if done.exists():
        return dict(json.loads(done.read_text()))
    CHOICES.clear()
    TRUTH[:] = [(bool(d.relations), d.attributes["true"] == "yes") for d in synthesize_bags(seed=seed, **BAGS).train]
    name = "lazy_mil_watched" if method in LAZY else "fedavg_watched" if method == "one" else "fedavg"
    config = {
        "seed": seed,
        "task": {"name": "distant_re", "bag": METHODS[method], "precision_at": [50, 100, 200]},
        "data": {
            "format": "synthetic-bags",
            "options": {**BAGS, "seed": seed},
            "public": 0.1,
            "validation": 0.1,
        },
        "partition": {"scheme": "iid", "sites": 20},
        "model": {"encoder": "words"},
        "training": {"epochs": 3, "batch_size": 32, "learning_rate": 0.01, "optimizer": "adamw", "decay": 0.01},
        "federation": {
            "rounds": rounds,
            "fraction": fraction,
            "weight_by": "uniform",
            "evaluate_on": ["validation"],
            "early_stopping": 10,
            "checkpoint_every": rounds,
        },
        "algorithm": {"name": name, **LAZY.get(method, {})},
    }
    result = grandrounds.run(config, out=out / f"{method}-{fraction}-{seed}")
    rounds_run, _ = read_rounds(out / f"{method}-{fraction}-{seed}")
    by_round: dict[int, dict[str, list[int]]] = {}
    for (round, _), choices in sorted(CHOICES.items()):
        for who, (chosen, true) in choices.items():
            total = by_round.setdefault(round, {}).setdefault(who, [0, 0])
            total[0], total[1] = total[0] + chosen, total[1] + true
    found = {
        "method": method,
        "fraction": fraction,
        "seed": seed,
        "best_round": result.best_round,
        "test": result.test.model_dump(exclude_unset=True, exclude={"curve", "per_class"}) if result.test else {},
        "curve": result.test.curve if result.test else {},
        "validation_auc": [line.validation.auc for line in rounds_run if line.validation],
        "bytes_up_per_site_round": result.bytes_up_per_site_round,
        "choice": {
            who: [by_round[r][who][1] / max(by_round[r][who][0], 1) for r in sorted(by_round)]
            for who in next(iter(by_round.values()), {})
        },
        "seconds": result.seconds,
    }
    done.write_text(json.dumps(found) + "\n")
    return found


def named(one: dict[str, Any]) -> dict[str, Any]:
    """An arm's name, and the share of right choices over the last five rounds."""
    last = {who: fmean(values[-5:]) for who, values in one["choice"].items()}
    return {"name": f"{one['method']}-c{one['fraction']:g}", "right_choices": last}


def draw(found: Sequence[dict[str, Any]], out: Path) -> None:
    """Precision by recall for each C, and how many choices are right by round, as SVG; seeds share a colour."""
    fractions = sorted({one["fraction"] for one in found})

    def curves(fraction: float, axes: Axes) -> None:
        chosen = [one for one in found if one["fraction"] == fraction]
        points = [
            (one["method"], zip(one["curve"]["recall"], one["curve"]["precision"], strict=True)) for one in chosen
        ]
        draw_pr([Curve(name, list(pairs)) for name, pairs in points], {}, axes)
        axes.set_title(f"C = {fraction:g}", loc="left", pad=38, fontsize=10.5)

    def choices(axes: Axes) -> None:
        whose = [
            (f"{who}, C = {one['fraction']:g}", values)
            for one in found
            for who, values in one["choice"].items()
            if one["method"] == "lazy_mil" and (who == "together" or one["fraction"] == max(fractions))
        ]
        draw_by_round([Curve(name, list(enumerate(values, 1))) for name, values in whose], {}, axes, "right choices")

    (out / "curves.svg").write_text(
        svg("Precision by recall", 3.6 * len(fractions), *(partial(curves, c) for c in fractions))
    )
    (out / "choices.svg").write_text(svg("Sentences chosen that say their fact, by round", 3.4, choices))


def reported(values: Sequence[float]) -> str:
    return f"{fmean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--fractions", type=float, nargs="+", default=[1.0, 0.5, 0.2, 0.1])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    wanted = parser.parse_args()
    wanted.out.mkdir(parents=True, exist_ok=True)
    found = []
    for seed in wanted.seeds:
        for fraction in wanted.fractions:
            for method in wanted.methods:
                found.append(run(method, fraction, seed, wanted.rounds, wanted.out))
                print(f"{method}, C = {fraction}, seed {seed}: AUC {found[-1]['test']['auc']:.3f}", flush=True)
    told_of = {**provenance(), "rows": [], "runs": [{**one, **named(one)} for one in found]}
    (wanted.out / "noisy_bags.json").write_text(json.dumps(told_of) + "\n")
    draw(found, wanted.out)
    print("\n| method | C | AUC | P@50 | P@100 | P@200 | chosen rightly, first and last five rounds |")
    print("|---|---|---|---|---|---|---|")
    for method in wanted.methods:
        for fraction in sorted(wanted.fractions):
            arms = [one for one in found if (one["method"], one["fraction"]) == (method, fraction)]
            tests = [reported([one["test"][key] for one in arms]) for key in ("auc", "p@50", "p@100", "p@200")]
            whose = {who: [fmean(one["choice"][who][:5]) for one in arms] for who in arms[0]["choice"]}
            last = {who: [fmean(one["choice"][who][-5:]) for one in arms] for who in arms[0]["choice"]}
            choice = "; ".join(f"{who} {fmean(whose[who]):.2f} to {fmean(last[who]):.2f}" for who in whose)
            print(f"| {method} | {fraction} | {' | '.join(tests)} | {choice} |")


if __name__ == "__main__":
    main()
