"""What all runs of `make fuzz` saw, added up in one JSON: a later run goes on where this one ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grandrounds.runs.provenance import provenance
from tests.fuzz.seen import Seen
from tests.fuzz.targets import GROUPS, names


def add(path: Path, seen: Sequence[Seen]) -> None:
    """To what the file holds; a crash is open as long as its input, which is kept, still crashes in the last run."""
    held = json.loads(path.read_text()) if path.exists() else {"commits": [], "targets": []}
    targets = {(one["group"], one["target"]): one for one in held["targets"]}
    for one in seen:
        before = targets.get((one.group, one.target), asdict(Seen(one.group, one.target)) | {"found": [], "open": []})
        targets[one.group, one.target] = added(before, one)
    order = [(group, name) for group in GROUPS for name in names(group)]
    kept = [targets[key] for key in order if key in targets]
    made_by = provenance()
    commits = list(dict.fromkeys([*held["commits"], made_by["commit"]]))
    found = {**made_by, "commits": commits, "groups": groups(kept), "targets": kept}
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found, indent=1) + "\n")
    part.replace(path)


def added(before: dict[str, Any], one: Seen) -> dict[str, Any]:
    slowest = max((before["slowest"], before["slowest_bytes"]), (one.slowest, one.slowest_bytes))
    places = [crash.place for crash in one.kept]
    return {
        "group": one.group,
        "target": one.target,
        "cpu_seconds": round(before["cpu_seconds"] + one.cpu_seconds, 1),
        "executions": before["executions"] + one.executions,
        "slowest": round(slowest[0], 4),
        "slowest_bytes": slowest[1],
        "found": list(dict.fromkeys([*before["found"], *places])),
        "open": places,
    }


def groups(targets: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    made = []
    for group in GROUPS:
        if of_group := [one for one in targets if one["group"] == group]:
            made.append(
                {
                    "group": group,
                    "targets": len(of_group),
                    "cpu_seconds": round(sum(one["cpu_seconds"] for one in of_group)),
                    "executions": sum(one["executions"] for one in of_group),
                    "crashes_found": sum(len(one["found"]) for one in of_group),
                    "crashes_open": sum(len(one["open"]) for one in of_group),
                    "slowest": max(one["slowest"] for one in of_group),
                }
            )
    return made
