"""What a site remembers of attempts to sum: the secrets of the one under way, and whose sums it has helped to open.

On a site's disk, so that a process that was killed and started again keeps to what it said. A new attempt makes it
forget the secrets of the one before: those can't be opened any more, whoever asks.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.files import write_whole
from grandrounds.federation.payloads import Packed

ATTEMPT = re.compile(r"[0-9a-f]{16}")
"""The coordinator names attempts, so a site must not take a name for a path."""


@dataclass
class Attempt:
    """A site's side of one attempt; bytes are in hex."""

    name: str
    place: str
    secret: str
    """Of its own mask; like the two private keys gone once shares were opened."""
    masking: str
    sharing: str
    roster: dict[str, Any] = field(default_factory=dict)
    """All sites' keys, as they came."""
    boxes: dict[str, Any] = field(default_factory=dict)
    """What was sealed to the others, as it left."""
    shares: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By site, our shares of the secret of its own mask and of its masking key."""
    asked: str = ""
    """Digest of the ask whose answer was masked: masks hide one answer, not two."""
    version: str | None = None
    """Of the private state, after the method ran."""
    opened: list[str] | None = None
    """Who stayed, by the coordinator's word, when shares were opened."""


class AttemptStore(Protocol):
    def read(self, site: str) -> Attempt | None:
        """The attempt under way."""
        ...

    def write(self, site: str, attempt: Attempt) -> None:
        """Before anything of it leaves; another attempt than before replaces that."""
        ...

    def reply(self, site: str) -> tuple[Packed, ...]:
        """What was masked in this attempt; empty: nothing that is kept."""
        ...

    def keep_reply(self, site: str, parts: Sequence[Packed]) -> None: ...

    def opened(self, site: str, round: int) -> Mapping[str, Sequence[str]]:
        """By exchange of a round, of whose sum shares were opened."""
        ...

    def note_opened(self, site: str, round: int, exchange: int, stayed: Sequence[str]) -> None: ...


class InMemory:
    """For sites that are simulated in one process; nobody repeats an ask there, so replies are not kept."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempt] = {}
        self._opened: dict[tuple[str, int], dict[str, Sequence[str]]] = {}

    def read(self, site: str) -> Attempt | None:
        return self._attempts.get(site)

    def write(self, site: str, attempt: Attempt) -> None:
        self._attempts[site] = attempt

    def reply(self, site: str) -> tuple[Packed, ...]:
        return ()

    def keep_reply(self, site: str, parts: Sequence[Packed]) -> None: ...

    def opened(self, site: str, round: int) -> Mapping[str, Sequence[str]]:
        return self._opened.get((site, round), {})

    def note_opened(self, site: str, round: int, exchange: int, stayed: Sequence[str]) -> None:
        self._opened.setdefault((site, round), {})[str(exchange)] = stayed


class OnDisk:
    """A folder that only the site's user can read."""

    def __init__(self, folder: Path, replies: bool = True) -> None:
        """`replies`: keep what was masked until shares are opened, to send the same again where it got lost."""
        self._folder, self._replies = folder, replies

    def read(self, site: str) -> Attempt | None:
        path = self._site(site) / "attempt.json"
        if not path.exists():
            return None
        return Attempt(**_read(path))

    def write(self, site: str, attempt: Attempt) -> None:
        if not ATTEMPT.fullmatch(attempt.name):
            raise ValueError("an attempt is called by 16 letters of hex")
        folder = self._site(site)
        before = self.read(site)
        if before is not None and (before.name != attempt.name or attempt.opened is not None):
            shutil.rmtree(folder / "reply", ignore_errors=True)
        _write(folder / "attempt.json", asdict(attempt))

    def reply(self, site: str) -> tuple[Packed, ...]:
        paths = sorted((self._site(site) / "reply").glob("*.safetensors"))
        return tuple(Packed.from_bytes(path.read_bytes()) for path in paths)

    def keep_reply(self, site: str, parts: Sequence[Packed]) -> None:
        if not self._replies:
            return
        folder, part = self._site(site) / "reply", self._site(site) / ".reply.part"
        for one in (folder, part):
            shutil.rmtree(one, ignore_errors=True)
        part.mkdir()
        for place, packed in enumerate(parts):
            write_whole(part / f"{place:03d}.safetensors", packed.to_bytes())
        part.rename(folder)

    def opened(self, site: str, round: int) -> Mapping[str, Sequence[str]]:
        path = self._site(site) / f"opened-{round:05d}.json"
        return _read(path) if path.exists() else {}

    def note_opened(self, site: str, round: int, exchange: int, stayed: Sequence[str]) -> None:
        known = {**self.opened(site, round), str(exchange): list(stayed)}
        _write(self._site(site) / f"opened-{round:05d}.json", known)

    def _site(self, site: str) -> Path:
        folder = self._folder / quote(site, safe="")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GrandRoundsError(f"'{path}' was edited or torn; enrol this site anew for a new run") from error
    return found


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(content).encode())
    path.chmod(0o600)
