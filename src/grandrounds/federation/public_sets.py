"""Where a site keeps the server's public set: by digest, on its disk, tokenised once for each encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from grandrounds.federation.files import write_whole
from grandrounds.federation.learner import LearnerSpec, Split
from grandrounds.federation.payloads import Expected, Packed, PayloadError, PublicSet
from grandrounds.federation.policy import RefusalError


class MissingPublicError(RefusalError):
    """The site has no such public set."""


class PublicSetCache:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._splits: dict[tuple[str, str], Split] = {}

    def put(self, packed: Packed, digest: str) -> None:
        """Keep what the server sent, if it is what it says."""
        sent = PublicSet.unpack(packed, Expected())
        if sent.digest != digest:
            raise RefusalError(f"the public set that came is version {sent.digest}, announced was {digest}")
        if not self._holds(digest):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._path(digest), packed.to_bytes())

    def split(self, digest: str, spec: LearnerSpec) -> Split:
        """The public set as this spec's model reads it."""
        key = digest, spec.encoder.name
        if key not in self._splits:
            examples = [spec.task.from_question(question) for question in self._read(digest).examples]
            features = spec.task.features(examples, spec.encoder)
            self._splits[key] = Split(features, spec.task.rows(features, np.arange(len(examples))), digest)
        return self._splits[key]

    def _read(self, digest: str) -> PublicSet:
        if not self._holds(digest):
            held = ", ".join(sorted(path.stem for path in self._folder.glob("*.safetensors") if self._holds(path.stem)))
            raise MissingPublicError(
                f"the server's public set is version {digest}, this site holds {held or 'none'}; it will be sent again"
            )
        return PublicSet.unpack(Packed.from_bytes(self._path(digest).read_bytes()), Expected())

    def _holds(self, digest: str) -> bool:
        """Whether it is there, and whole."""
        try:
            held = PublicSet.unpack(Packed.from_bytes(self._path(digest).read_bytes()), Expected())
        except (OSError, PayloadError):
            return False
        return held.digest == digest

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.safetensors"
