"""Run the queue of experiments/evidence.toml, one command after the other, each on one thread:

    python -m experiments.evidence --data DIR --encoder MINILM --runs RUNS               # all, in order
    python -m experiments.evidence --data DIR --encoder MINILM --runs RUNS demo gids-c1  # these, in this order

What has ended is not run again, and what was interrupted goes on. The JSON of a command that ended is
RUNS/results/NAME.json; copied to docs/results, it is what `make tables` reads. A command that fails is named, and the
next one starts. The choices of searches in docs/results hold where RUNS is new.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import tomli_w

QUEUE = Path(__file__).parent / "evidence.toml"
PUBLISHED = QUEUE.parents[1] / "docs" / "results"


def words(command: str, places: dict[str, str]) -> list[str]:
    """The command as a list, with the places filled in and stars expanded as a shell would."""
    filled = []
    for word in shlex.split(command):
        for name, path in places.items():
            word = word.replace(name, path)
        label, equals, pattern = word.partition("=")
        found = [f"{label}{equals}{path}" for path in sorted(glob.glob(pattern))] if "*" in pattern else []
        filled += found or [word]
    return [sys.executable, *filled[1:]] if filled[0] == "python" else filled


def restore_choice(name: str, results: Path) -> None:
    """Write down again what a search chose whose JSON is in docs/results, and count the search as ended."""
    published, chosen = PUBLISHED / f"{name}.json", results.parent / name / "chosen.toml"
    if not published.exists() or chosen.exists():
        return
    arms = json.loads(published.read_text()).get("arms")
    chosen.parent.mkdir(parents=True, exist_ok=True)
    chosen.write_text(tomli_w.dumps({"compare": {arm: found["best"] for arm, found in arms.items()}}))
    shutil.copy(published, results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the corpora")
    parser.add_argument("--encoder", type=Path, required=True, help="a folder with all-MiniLM-L6-v2")
    parser.add_argument("--runs", type=Path, required=True, help="where runs go")
    parser.add_argument("names", nargs="*", metavar="NAME", help="runs of evidence.toml; all of them by default")
    options = parser.parse_args()
    queue = {run["name"]: run for run in tomllib.loads(QUEUE.read_text())["run"]}
    if strange := [name for name in options.names if name not in queue]:
        parser.error(f"evidence.toml has no run '{strange[0]}'")
    places = {"RUNS": str(options.runs), "MINILM": str(options.encoder), "DIR": str(options.data)}
    results, logs = options.runs / "results", options.runs / "logs"
    for folder in (results, logs):
        folder.mkdir(parents=True, exist_ok=True)
    for name, run in queue.items():
        if run["writes"] == "search.json":
            restore_choice(name, results)
    failed = []
    for name in options.names or queue:
        run, result = queue[name], results / f"{name}.json"
        if result.exists():
            continue
        command = words(run["command"], places)
        print(shlex.join(command), flush=True)
        with (logs / f"{name}.log").open("a") as log:
            ended = subprocess.run(command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})
        written = [
            path for path in (options.runs / name / run["writes"], options.runs / run["writes"]) if path.exists()
        ]
        if ended.returncode == 0 and written:
            shutil.copy(written[0], result)
        else:
            failed.append(name)
            print(f"{name} failed, see {logs / name}.log", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
