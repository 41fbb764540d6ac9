"""Half of the sites on a pretrained encoder, half on `tiny`: is the student better than either group's ensemble?

    python experiments/two_encoders.py --data DIR --encoder FOLDER --out RUN       (DIR holds gad/1/{train,test}.tsv)

FedED with download = "predictions"; after each round every site's own model answers the test set too, which only a
simulation can do, and each group's log-probabilities are averaged as the server averages them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import grandrounds
from grandrounds import Cohort, Scores, Server, Site, algorithm, on_site
from grandrounds.algorithms.feded import FedED
from grandrounds.runs.results import read_rounds
from grandrounds.tasks.task import Counts


@algorithm("feded_groups")
class Groups(FedED):
    """FedED that scores its groups beside its student."""

    def evaluate(self, server: Server, everyone: Cohort, split: str) -> Mapping[str, Counts]:
        votes: dict[str, list[np.ndarray]] = {}
        for reply in everyone.ask(self.answer, split):
            group = "tiny sites" if int(reply.site.site[-2:]) % 2 == 0 else "pretrained sites"
            votes.setdefault(group, []).append(np.array(list(reply.payload.values.values())).reshape(-1, 2))
        chosen = server._splits[split]
        means = {group: np.mean(z, axis=0).astype(np.float32) for group, z in votes.items()}
        means["all sites"] = np.mean([z for group in votes.values() for z in group], axis=0).astype(np.float32)
        task = server.spec.task
        scored = {who: task.counts(z, chosen.features, chosen.rows) for who, z in means.items()}
        for who, counts in scored.items():
            print(f"round {server.round}: the ensemble of {who}: F1 {task.score(counts)['f1']:.4f}", flush=True)
        return {"server": server.counts(split)}

    @on_site
    def answer(self, site: Site, split: str) -> Scores:
        """log p of every row and class of the test set."""
        site.recall("model", site.model)
        z = site.predict(split, "log_probabilities").values
        return Scores({f"{i}.{c}": float(value) for i, row in enumerate(z) for c, value in enumerate(row)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sites", type=int, default=6)
    wanted = parser.parse_args()
    config = {
        "data": {"format": "biobert-tsv", "train": "gad/1/train.tsv", "test": "gad/1/test.tsv", "public": 0.1},
        "partition": {"scheme": "iid", "sites": wanted.sites},
        "sites": {"site-*[02468]": {"encoder": "tiny", "training": {"learning_rate": 5e-4}}},
        "model": {"encoder": wanted.encoder},
        "training": {"epochs": 1, "batch_size": 8, "learning_rate": 5e-5},
        "federation": {"rounds": wanted.rounds, "evaluate_on": ["test"]},
        "algorithm": {"name": "feded_groups", "download": "predictions"},
    }
    result = grandrounds.run(config, out=wanted.out, data=wanted.data, resume=True)
    for round in read_rounds(wanted.out)[0]:
        sites = len(round.sites)
        print(
            f"round {round.round}: the student: F1 {round.test.f1:.4f}, a site sends "
            f"{round.bytes_up // sites} B and gets {round.bytes_down // sites} B"
        )
    print(f"all-positive: {result.test.baseline_f1:.4f}")


if __name__ == "__main__":
    main()
