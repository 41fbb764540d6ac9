"""What may leave a site: its own word, in its own TOML file.

allow = ["parameters", "scores", "done"]    # kinds of payload; without this line, every kind
max_bytes = 500_000_000                     # a payload
vocabulary = 5                              # words and parts of words that so many documents have; without it, none
least_batch = 8                             # sentences that gradients are of (FedNER): of one alone they show its words
receive_model = false                       # don't keep the federation's model, which comes after the last round
epsilon = 8.0                               # what may be spent on privacy in all, over runs and federations
delta = 1e-5                                # by which delta that is counted; without it, by the federation's
least_sites = 3                             # whose sum may be opened (federation.secure); never less than two

Under federation.secure what is averaged leaves as "masked": a policy that allows that kind and not "parameters" lets
weights leave masked only.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from grandrounds.errors import ConfigError, GrandRoundsError, unknown
from grandrounds.federation import secure_payloads  # noqa: F401  # its kinds are KINDS too
from grandrounds.federation.payloads import KINDS, Packed, VocabularyCounts


class RefusalError(GrandRoundsError):
    """A site's policy, or its state, does not let it answer."""


class Policy(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    allow: frozenset[str] | None = None
    max_bytes: int = Field(1 << 34, gt=0)
    vocabulary: int | None = Field(None, ge=1)
    least_batch: int = Field(1, ge=1)
    receive_model: bool = True
    epsilon: float | None = Field(None, gt=0)
    delta: float | None = Field(None, gt=0, lt=0.1)
    least_sites: int = Field(2, ge=2)

    @classmethod
    def load(cls, path: Path) -> Self:
        try:
            policy = cls(**tomllib.loads(path.read_text(encoding="utf-8")))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"policy '{path}' can't be read: {error}") from error
        except ValidationError as error:
            problem = error.errors()[0]
            name = str(problem["loc"][0])
            if problem["type"] == "extra_forbidden":
                raise ConfigError(f"policy '{path}': {unknown('key', name, cls.model_fields)}") from error
            raise ConfigError(f"policy '{path}': {name}: {problem['msg'].lower()}") from error
        for kind in sorted(policy.allow or ()):
            if kind not in KINDS:
                raise ConfigError(f"policy '{path}': {unknown('payload kind', kind, KINDS)}")
        return policy

    def note(self) -> dict[str, Any]:
        """For a log: JSON, the same for the same policy."""
        return {**self.model_dump(mode="json"), "allow": None if self.allow is None else sorted(self.allow)}

    def allows(self, kind: str) -> bool:
        return self.allow is None or kind in self.allow

    def check(self, packed: Packed) -> None:
        """RefusalError where this payload may not leave."""
        if not self.allows(packed.kind):
            raise RefusalError(f"the site's policy does not let '{packed.kind}' leave")
        if packed.kind == VocabularyCounts.kind:
            self._check_vocabulary(packed)
        if packed.nbytes > self.max_bytes:
            raise RefusalError(f"the site's policy lets {self.max_bytes} bytes leave at once, not {packed.nbytes}")

    def _check_vocabulary(self, packed: Packed) -> None:
        """The kind that holds pieces of text leaves only where the policy says from how many documents on."""
        if self.vocabulary is None:
            raise RefusalError(
                "the site's policy does not let words leave; it may say from how many documents on: vocabulary = 5"
            )
        least = packed.header.get("least")
        if not isinstance(least, int) or least < self.vocabulary:
            raise RefusalError(
                f"the site's policy lets words leave that {self.vocabulary} documents have, not those of {least}"
            )
