"""Figures of a long test, kept where GRANDROUNDS_FIGURES names a JSON file; else they are only printed."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from grandrounds.runs.provenance import commit, versions

PLACE = Path(os.environ["GRANDROUNDS_FIGURES"]) if "GRANDROUNDS_FIGURES" in os.environ else None


def noted(name: str) -> dict[str, Any]:
    """What earlier runs noted under this name, to which a test may add."""
    return dict(_held().get(name, {}))


def note(name: str, **numbers: Any) -> None:
    print(name, numbers)
    if PLACE is not None:
        made_by = {"commit": commit(), "command": "make real", "versions": versions()}
        figures = {**_held(), name: {**numbers, "commit": commit()}}
        written = json.dumps({**made_by, "figures": figures}, indent=1) + "\n"
        PLACE.write_text(re.sub(r"/[^\s'\"]*/hosts\d+/", "", written))  # the folder of a test is of this machine alone


def _held() -> dict[str, Any]:
    return dict(json.loads(PLACE.read_text())["figures"]) if PLACE is not None and PLACE.exists() else {}
