"""Heads of an audit log that were noted beside it when it was last written: they show whether it was cut since."""

from __future__ import annotations

from pathlib import Path

from grandrounds.errors import GrandRoundsError
from grandrounds.runs.results import RESULT, read_result


def noted_heads(log: Path) -> dict[str, str]:
    """By where they are noted: by a run in its result, by a site under its signature. GrandRoundsError where they can't
    be trusted."""
    folder = log.parent
    if (folder / RESULT).exists():
        return {RESULT: read_result(folder).audit_head}
    if not (folder / "audit.head").exists() or not (folder.parent / "site.toml").exists():
        return {}
    from grandrounds.deployment.enrolment import read_enrolment
    from grandrounds.deployment.heads import read_heads
    from grandrounds.deployment.keys import read_public

    ours = read_enrolment(folder.parent)
    key, found = read_public(ours.public_key), {}
    for name, noted in read_heads(folder / "audit.head").items():
        if not noted.signed_by(key):
            raise GrandRoundsError(f"the head in audit.head is not signed with the key of '{name}'")
        found["audit.head, signed with this site's key"] = noted.head
    return found
