"""An enrolment is the coordinator's word: signed by the federation's authority, and the same whenever it is used.

enrolment.json      whose it is, and the fingerprints of the authority and of the terms
enrolment.sig       its signature
private/seen.json   the fingerprints as they were when this site first used them

Whoever swaps all of it can sign, too: so people compare fingerprints, which `federation create` and `site init` show.
What is the site's own must not come with it: `site init` looks before anything of it is used.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Set
from hashlib import file_digest, sha256
from pathlib import Path

from grandrounds.deployment.keys import certificate_fingerprint, certificate_key, read_private, sign, signed_by
from grandrounds.errors import ConfigError, GrandRoundsError

FROM_COORDINATOR = frozenset({"name", "coordinator", "insecure"})
"""What it writes into site.toml."""
STATEMENT, SIGNATURE, SEEN = "enrolment.json", "enrolment.sig", "seen.json"


def fingerprints(folder: Path) -> dict[str, str]:
    """Of an enrolment, or of the coordinator's own folder: what two engineers read to each other."""
    ca = folder / "ca.crt"
    known = {"authority": certificate_fingerprint(ca)} if ca.exists() else {}
    return {**known, "terms": terms_fingerprint(folder / "terms")}


def terms_fingerprint(folder: Path) -> str:
    """Of every file in it, by name and content."""
    hasher = sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            hasher.update(f"{path.relative_to(folder).as_posix()} {file_digest(file, 'sha256').hexdigest()}\n".encode())
    return "SHA256:" + base64.b64encode(hasher.digest()).decode().rstrip("=")


def sign_enrolment(folder: Path, site: str, authority: Path) -> None:
    statement = json.dumps({"site": site, **fingerprints(folder)}, indent=1).encode()
    (folder / STATEMENT).write_bytes(statement)
    (folder / SIGNATURE).write_bytes(base64.b64encode(sign(statement, read_private(authority))) + b"\n")


def check_enrolment(folder: Path, site: str, state: Path, insecure: bool) -> dict[str, str]:
    """Its fingerprints; GrandRoundsError where it is not what was signed, or not what this site first used."""
    found = fingerprints(folder)
    if not insecure:
        _check_signature(folder, {"site": site, **found})
    seen = state / SEEN
    if not seen.exists():
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    elif (before := json.loads(seen.read_text(encoding="utf-8"))) != found:
        changed = next(name for name in sorted({**before, **found}) if before.get(name) != found.get(name))
        raise GrandRoundsError(
            f"the {changed} of this enrolment changed since it was first used: was {before.get(changed)}, is "
            f"{found.get(changed)}. Ask the coordinator; if it reads you the new one, delete '{seen}'"
        )
    return found


def check_received(folder: Path, state: Path, said: Set[str]) -> None:
    """GrandRoundsError where a coordinator sent what is the site's own: a policy that is accepted already, keys of
    other sites, modules to import; or a link, through which we would write elsewhere. `said` are the keys of its
    site.toml."""
    if links := sorted(str(path) for path in folder.rglob("*") if path.is_symlink()):
        raise GrandRoundsError(f"'{links[0]}' is a link, and an enrolment holds files alone; ask the coordinator")
    if state.exists():
        raise GrandRoundsError(
            f"'{state}' is this site's own and exists already: it came with the enrolment, or is left of an earlier "
            "one. Look at it, delete it, and run the same command again"
        )
    if own := sorted(said - FROM_COORDINATOR):
        raise GrandRoundsError(
            f"'{folder / 'site.toml'}' says {', '.join(own)}, which is for this site to say and not for the "
            "coordinator: take it out, run the same command again, and add afterwards what you want there"
        )


def _check_signature(folder: Path, wanted: dict[str, str]) -> None:
    try:
        statement = (folder / STATEMENT).read_bytes()
        signature = base64.b64decode((folder / SIGNATURE).read_bytes())
        said = json.loads(statement)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"'{folder}' has no signed {STATEMENT}; ask the coordinator for the enrolment again"
        ) from error
    if not signed_by(signature, statement, certificate_key(folder / "ca.crt")):
        raise GrandRoundsError(
            f"'{folder / STATEMENT}' is not signed by this federation's authority; ask the coordinator"
        )
    for name, value in wanted.items():
        if said.get(name) != value:
            raise GrandRoundsError(
                f"the {name} of the enrolment in '{folder}' is not what its coordinator signed; ask for it again"
            )
