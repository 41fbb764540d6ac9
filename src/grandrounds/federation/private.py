"""A site's private state, in versions that the server names.

An ask says from which version to start, how the next one is called and which are still needed. So a resumed run, a
lost reply, an abandoned round and early stopping all find the state they need, and a repeated ask does no harm.
"""

from __future__ import annotations

import re
import shutil
from collections import OrderedDict
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import quote

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.state import Flat
from grandrounds.federation.state_folder import DamagedError, read_folder, write_folder

VERSION = re.compile(r"\d{5,}\.\d+")
"""Round and exchange. The server names versions, so a site must not take a name for a path."""


class MissingVersionError(GrandRoundsError):
    """The server named a version that this site does not hold."""


class PrivateStore:
    """Versions of named states per site: in memory while they fit and are young, on disk otherwise."""

    def __init__(self, folder: Path, memory: int = 1 << 30) -> None:
        self._folder, self._budget = folder, memory
        self._held: OrderedDict[tuple[str, str], Mapping[str, Flat]] = OrderedDict()
        self._unsaved: set[tuple[str, str]] = set()

    def read(self, site: str, version: str | None) -> Mapping[str, Flat]:
        """The named states of a version; nothing before the first."""
        if version is None:
            return {}
        if (site, version) in self._held:
            self._held.move_to_end((site, version))
            return self._held[site, version]
        try:
            return read_folder(self._path(site, version))[0]
        except DamagedError as error:
            raise MissingVersionError(f"version {version} of the private state is not here ({error})") from error

    def write(self, site: str, version: str, states: Mapping[str, Flat]) -> None:
        self._path(site, version)  # a name that is none is refused before anything is kept
        self._held[site, version] = states
        self._unsaved.add((site, version))
        held = sum(flat.nbytes for version_states in self._held.values() for flat in version_states.values())
        while held > self._budget and self._held:
            key = next(iter(self._held))
            self._save(key)
            held -= sum(flat.nbytes for flat in self._held.pop(key).values())

    def flush(self) -> None:
        """Put on disk what is only in memory: before a checkpoint names it."""
        for key in sorted(self._unsaved):
            self._save(key)

    def retain(self, site: str, versions: Collection[str]) -> None:
        """Forget every version of this site that nobody needs."""
        for key in [key for key in self._held if key[0] == site and key[1] not in versions]:
            del self._held[key]
            self._unsaved.discard(key)
        for path in (self._folder / quote(site, safe="")).glob("[0-9]*"):
            if path.name not in versions:
                shutil.rmtree(path, ignore_errors=True)

    def _save(self, key: tuple[str, str]) -> None:
        if key in self._unsaved:
            write_folder(self._path(*key), self._held[key], {})
            self._unsaved.discard(key)

    def _path(self, site: str, version: str) -> Path:
        if not VERSION.fullmatch(version):
            raise MissingVersionError("a version of private state is called by its round and exchange, and this is not")
        return self._folder / quote(site, safe="") / version
