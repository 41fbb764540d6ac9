"""The folder that a coordinator sends to a hospital, as it lies on the hospital's machine.

site.toml       the hospital's name and the coordinator's address; the rest is the hospital's own
ca.crt          whom to trust, unless the federation is insecure
terms/          what all sites agree on (terms.py)
private/        made here: the key, the site's state, its models
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grandrounds.config.validation import explained
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.registry import load_modules

if TYPE_CHECKING:
    from grandrounds.deployment.terms import Terms


NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Of a site: it names files, so it can't be a path."""


class SiteFile(BaseModel):
    """site.toml: the first three lines come from the coordinator, the rest is the site's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=NAME)
    coordinator: str
    """host:port"""
    insecure: bool = False
    encoder: str | None = None
    """A folder or hub name: for algorithms that share no weights."""
    lora_rank: int | None = Field(None, ge=1)
    """The rank of this site's adapters, for `flora`."""
    policy: str | None = None
    privacy_ledger: str | None = None
    """Where this site notes what it spent on privacy; by default private/privacy.jsonl. Federations that use the same
    patients' data must name the same file."""
    device: str = "auto"
    imports: list[str] = Field(default_factory=list)
    """Modules with an algorithm, task or format that is not built in: a site runs no code that it has not named."""
    training: dict[str, Any] = Field(default_factory=dict)
    """What of [training] is different here."""
    task: dict[str, Any] = Field(default_factory=dict)
    """What of [task] is different here: what is annotated (`joint`) or, where labels may differ, labels, a tag
    scheme."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The reader's own options."""
    lenient: bool = False
    """Leave out what breaks the format, and count it, instead of refusing the corpus."""
    map_labels: dict[str, str] | None = None
    """Other names for types of mentions and relations, or "" to drop them; instead of the federation's own."""


@dataclass(frozen=True)
class Enrolment:
    folder: Path
    site: SiteFile

    @cached_property
    def terms(self) -> Terms:
        """Read when they are needed: a key pair is made without them."""
        from grandrounds.deployment.terms import read_terms

        load_modules(self.site.imports)
        return read_terms(self.folder / "terms")

    @property
    def ca(self) -> Path | None:
        return None if self.site.insecure else self.folder / "ca.crt"

    @property
    def key(self) -> Path:
        return self.folder / "private" / "site.key"

    @property
    def accepted(self) -> Path:
        """The policy that was accepted where nobody wrote one."""
        return self.folder / "private" / "policy.toml"

    @property
    def public_key(self) -> Path:
        return self.folder / f"{self.site.name}.pub"

    @property
    def state(self) -> Path:
        return self.folder / "private"


def read_enrolment(folder: Path) -> Enrolment:
    path = folder / "site.toml"
    try:
        site = SiteFile(**tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise GrandRoundsError(f"'{folder}' is not an enrolment: it has no site.toml; ask the coordinator") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"'{path}' can't be read: {error}") from error
    except ValidationError as error:
        raise explained(error, SiteFile, f"{path}: ") from error
    return Enrolment(folder, site)
