"""presence.json: which sites a coordinator has in sight, for whoever looks at its folder."""

from __future__ import annotations

import json
import time
from pathlib import Path

from grandrounds.deployment.flower.grid import Roster
from grandrounds.errors import foreign
from grandrounds.federation.files import disk_error
from grandrounds.runs.results import Presence, SiteState

EVERY = 2.0
"""Seconds."""


class PresenceFile:
    """Written anew again and again. It is not synced to the disk: after a power cut it would be wrong anyway."""

    def __init__(self, path: Path) -> None:
        self._path, self._part = path, path.with_name(f".{path.name}.part")
        self._written = float("-inf")

    def write(self, roster: Roster) -> None:
        if time.monotonic() - self._written < EVERY:
            return
        self._written = time.monotonic()
        sites = {
            name: SiteState(
                online=here.online,
                seen=here.seen,
                asked=here.asked,
                answered=here.answered,
                doing=here.doing,
                refused=foreign(here.refused),
            )
            for name, here in roster.sites.items()
        }
        try:
            self._part.write_text(json.dumps(Presence(time=time.time(), sites=sites).to_dict()), encoding="utf-8")
            self._part.replace(self._path)
        except OSError as error:
            raise disk_error(error, self._path) from error
