"""Compare runs that are done, wherever their folders are, as `grandrounds compare` would have:

    python -m experiments.differences --out FILE.json --baseline alone \
      alone=RUNS/fedner-tenth-cnn_crf/local_only-seed* together=RUNS/fedner-tenth-cnn_crf/fedner-seed*

An arm is NAME=FOLDER..., a folder a seed; the shell or the pattern itself gives several. Nothing is run. It is for arms
of several comparisons, or of a reproduced table: differences between them, with 95% intervals from their outcomes.
"""

from __future__ import annotations

import argparse
import glob
import json
from collections.abc import Sequence
from pathlib import Path

from grandrounds.reports.comparison import comparison
from grandrounds.reports.runs import read_run


def arms_of(words: Sequence[str]) -> list[tuple[str, Path]]:
    """Each folder with the name of its arm, by seed; a word without a name goes with the one before it."""
    found: dict[str, list[Path]] = {}
    name = ""
    for word in words:
        own, equals, pattern = word.partition("=")
        name = own if equals else name
        folders = [Path(place) for place in glob.glob(pattern if equals else word)]
        if not name or not folders:
            raise SystemExit(f"'{word}' names no run; write NAME=FOLDER, where FOLDER has a result.json")
        found.setdefault(name, []).extend(folders)
    return [(arm, place) for arm, places in found.items() for place in sorted(places, key=_seed)]


def _seed(place: Path) -> int:
    result = read_run(place).result
    if result is None:
        raise SystemExit(f"{place} has no result yet; finish its run first")
    return result.seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arms", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--baseline", required=True, metavar="NAME")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    wanted = parser.parse_args()
    runs = arms_of(wanted.arms)
    names = list(dict.fromkeys(name for name, _ in runs))
    if wanted.baseline not in names:
        raise SystemExit(f"--baseline '{wanted.baseline}' is none of the arms: {', '.join(names)}")
    _, content = comparison(runs, wanted.baseline, wanted.out.parent)
    content["command"] = f"python -m experiments.{content['command']}"
    wanted.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
