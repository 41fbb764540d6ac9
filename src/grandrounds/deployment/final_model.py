"""The federation's model at a hospital: the selected weights come after the last round, where the terms share them.

They are the payload that sites get in every round, checked like it: names, shapes and finite values against the terms'
own model, and the digest that the coordinator names and logs. Task, tokenizer and shape are those of the terms, so
nothing of what comes is run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from grandrounds.deployment.terms import Terms
from grandrounds.federation.contract import changing
from grandrounds.federation.payloads import MOST_LAYOUT, Expected, Packed, Parameters, PayloadError, unpack
from grandrounds.federation.state import copy_into
from grandrounds.tasks.saved import save_model

MODEL = "model"


@dataclass(frozen=True)
class FinalModelFolder:
    """Where a site keeps the model: a folder for `grandrounds extract`."""

    terms: Terms
    folder: Path

    def take(self, data: bytes, digest: str, log: Callable[[Packed], None]) -> None:
        """Keep what came, if it is what the coordinator names and fits; PayloadError otherwise. `log` hears of it
        before it is used. The folder is then whole, or as before."""
        spec = self.terms.spec(self.terms.config.training, torch.device("cpu"))
        model = spec.initial_model()
        state = changing(model, self.terms.config.make_algorithm())
        most = MOST_LAYOUT + sum(value.nbytes for value in state.values())
        counters = frozenset(name for name, value in state.items() if not value.is_floating_point())
        expected = Expected({name: tuple(value.shape) for name, value in state.items()}, integers=counters)
        packed = Packed.from_bytes(data, most)
        if packed.digest != digest:
            raise PayloadError("the model that came is not the one that the coordinator names")
        log(packed)
        weights = unpack(packed, expected, Parameters)
        assert isinstance(weights, Parameters)
        copy_into(model, weights.values)
        part = self.folder.with_name(f".{self.folder.name}.part")
        for left in (part, self.folder):
            shutil.rmtree(left, ignore_errors=True)
        save_model(part, spec.task, spec.encoder, model, self._card(digest), spec.trained)
        part.rename(self.folder)

    def _card(self, digest: str) -> str:
        algorithm = self.terms.config.algorithm["name"]
        return (
            f"# A `{self.terms.task.name}` model\n\nThe model that the coordinator selected after the last round of "
            f"`{algorithm}`, on the terms {self.terms.digest[:16]}.\nThe digest of its weights as they came, which "
            f"both audit logs have, is\n{digest}.\n"
        )
