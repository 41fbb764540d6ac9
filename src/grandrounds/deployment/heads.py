"""Heads of audit logs, signed by their sites: who holds one can show later that the log was cut, edited or rewritten.

A hash chain alone can be written anew by whoever can write the file. So a site signs its head in every response and
keeps it beside the log; the coordinator keeps the last one of each site, and gives it back when a run is resumed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from grandrounds.deployment.keys import PrivateKey, PublicKey, sign, signed_by
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import verify
from grandrounds.federation.files import write_whole

PURPOSE = b"grandrounds: the head of an audit log: "


class SignedHead(NamedTuple):
    head: str
    signature: str

    @classmethod
    def of(cls, head: str, key: PrivateKey) -> SignedHead:
        return cls(head, base64.b64encode(sign(PURPOSE + head.encode(), key)).decode())

    def signed_by(self, key: PublicKey) -> bool:
        try:
            return signed_by(base64.b64decode(self.signature), PURPOSE + self.head.encode(), key)
        except ValueError:  # not base64
            return False


def read_heads(path: Path) -> dict[str, SignedHead]:
    """By site; none where there is no such file yet."""
    if not path.exists():
        return {}
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        return {site: SignedHead(str(one["head"]), str(one["signature"])) for site, one in held.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise GrandRoundsError(f"'{path}' does not hold heads of logs: it was edited or torn") from error


def write_heads(path: Path, heads: Mapping[str, SignedHead]) -> None:
    write_whole(path, json.dumps({site: heads[site]._asdict() for site in sorted(heads)}, indent=1).encode())


def check_log(log: Path, noted: SignedHead, key: PublicKey) -> int:
    """How many lines it has; GrandRoundsError where it is not the log whose head was signed."""
    if not noted.signed_by(key):
        raise GrandRoundsError(f"the head that was noted down for '{log}' is not signed with this site's key")
    return verify(log, noted.head)
