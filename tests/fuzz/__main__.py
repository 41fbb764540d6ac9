"""Fuzz payload decoders, messages and corpus readers, each group for so many minutes of CPU time.

`FUZZ_MINUTES=60 make fuzz`, or `python -m tests.fuzz --minutes 60 [--results JSON] [--out FOLDER] [payloads]
[messages] [readers]`. What it saw is added to JSON. Inputs that reached new code, and those that crash, are kept in
FOLDER, and a later run begins with them; it ends with 1 where any crashes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.seen import Crash, Seen
from tests.fuzz.targets import GROUPS, names
from tests.fuzz.totals import add


def fuzz(group: str, name: str, seconds: float, out: Path) -> Seen:
    """What a process of its own saw; a process that ended by itself is a crash, too."""
    folder = out / group / name.replace(", ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "seen.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.guided", group, name, str(seconds), str(folder)]
    with (folder / "log").open("wb") as log:
        code = subprocess.run(command, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode
    if code == 0 and (folder / "seen.json").exists():
        return Seen.loads((folder / "seen.json").read_text())
    return Seen(group, name, crashes=1, kept=[Crash("process", f"the process ended with {code}; see the log", "log")])


def table(seen: Sequence[Seen]) -> str:
    lines = [f"{'target':28}{'CPU s':>8}{'executions':>12}{'crashes':>9}{'slowest':>11}"]
    for group in GROUPS:
        of_group = [one for one in seen if one.group == group]
        for one in of_group:
            numbers = f"{one.cpu_seconds:8.0f}{one.executions:12,}{one.crashes:9}{one.slowest * 1000:8.1f} ms"
            lines.append(f"  {one.target:26}{numbers}")
        if of_group:
            total = [sum(getattr(one, what) for one in of_group) for what in ("cpu_seconds", "executions", "crashes")]
            slowest = max(one.slowest for one in of_group)
            lines.append(f"{group:28}{total[0]:8.0f}{total[1]:12,}{total[2]:9}{slowest * 1000:8.1f} ms")
    lines += [f"{one.group}/{one.target}: {crash.what} ({crash.file})" for one in seen for crash in one.kept]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(GROUPS)}; all by default")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("FUZZ_MINUTES", 60)))
    parser.add_argument("--out", type=Path, default=Path("fuzz"), help="where inputs are kept")
    parser.add_argument("--results", type=Path, help="a JSON to which what was seen is added")
    given = parser.parse_args()
    if wrong := [name for name in given.groups if name not in GROUPS]:
        parser.error(f"unknown group '{wrong[0]}'; there are {', '.join(GROUPS)}")
    seen = []
    for group in given.groups or GROUPS:
        targets = names(group)
        for name in targets:
            seen.append(fuzz(group, name, given.minutes * 60 / len(targets), given.out))
            print(table(seen[-1:]).splitlines()[1], file=sys.stderr, flush=True)
            if given.results:
                add(given.results, seen[-1:])
    print(table(seen))
    return int(any(one.crashes for one in seen))


if __name__ == "__main__":
    sys.exit(main())
