"""What a site remembers of secure sums: its side of the attempt under way, and what it said for each exchange.

On a site's disk, so that a process that was killed and started again keeps to what it said. A new attempt makes it
forget the secrets of the one before: nobody can open those any more, whoever asks.
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
"""The coordinator names attempts, so a site checks what such a name looks like."""


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
    stayed: list[str] = field(default_factory=list)
    """Whose sum we agreed to open."""
    opened: bool = False


@dataclass
class Said:
    """What a site said for a round and exchange, in whichever attempt. It says nothing else for them later: two sums of
    the same uploads that differ by a few sites would show those sites' uploads."""

    roster: list[str] = field(default_factory=list)
    """With whom it masked its numbers."""
    stayed: list[str] = field(default_factory=list)
    """Whose sum it agreed to open."""


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

    def said(self, site: str, round: int, exchange: int) -> Said: ...

    def note(self, site: str, round: int, exchange: int, said: Said) -> None: ...


class InMemory:
    """For sites that are simulated in one process; nobody repeats an ask there, so replies are not kept."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempt] = {}
        self._said: dict[str, tuple[int, dict[int, Said]]] = {}
        """By site, of its latest round."""

    def read(self, site: str) -> Attempt | None:
        return self._attempts.get(site)

    def write(self, site: str, attempt: Attempt) -> None:
        self._attempts[site] = attempt

    def reply(self, site: str) -> tuple[Packed, ...]:
        return ()

    def keep_reply(self, site: str, parts: Sequence[Packed]) -> None: ...

    def said(self, site: str, round: int, exchange: int) -> Said:
        latest, exchanges = self._said.get(site, (round, {}))
        return exchanges.get(exchange, Said()) if latest == round else Said()

    def note(self, site: str, round: int, exchange: int, said: Said) -> None:
        latest, exchanges = self._said.get(site, (round, {}))
        self._said[site] = (round, {**(exchanges if latest == round else {}), exchange: said})


class OnDisk:
    """A folder that only the site's user can read."""

    def __init__(self, folder: Path, replies: bool = True) -> None:
        """`replies`: keep what was masked until shares are opened, to send the same again where it got lost."""
        self._folder, self._replies = folder, replies

    def read(self, site: str) -> Attempt | None:
        content = _read(self._site(site) / "attempt.json")
        return Attempt(**content) if content else None

    def write(self, site: str, attempt: Attempt) -> None:
        folder, before = self._site(site), self.read(site)
        if before is not None and (before.name != attempt.name or attempt.opened):
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

    def said(self, site: str, round: int, exchange: int) -> Said:
        return Said(**_read(self._sums(site, round)).get(str(exchange), {}))

    def note(self, site: str, round: int, exchange: int, said: Said) -> None:
        path = self._sums(site, round)
        _write(path, {**_read(path), str(exchange): asdict(said)})

    def _sums(self, site: str, round: int) -> Path:
        return self._site(site) / f"sums-{round:05d}.json"

    def _site(self, site: str) -> Path:
        folder = self._folder / quote(site, safe="")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


def _read(path: Path) -> dict[str, Any]:
    """Empty where there is no such file."""
    if not path.exists():
        return {}
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GrandRoundsError(f"'{path}' was edited or torn; enrol this site anew for a new run") from error
    return found


def _write(path: Path, content: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(content).encode())
    path.chmod(0o600)
