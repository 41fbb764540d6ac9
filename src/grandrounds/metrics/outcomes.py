"""What a score is made of, unit by unit, so that two models can be compared on the same units. No text and no ids.

kind    a unit        columns
f1      a document    tp, fp, fn
auc     a pair        gold and scores, [pairs, relations]; missed, where there are facts of other relations
loss    a document    nats (summed) and masked (pieces)

Units come in the order of the test set. `digest` is of what is to be found in each of them: two models whose digests
agree were tested on the same units.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors import numpy as safetensors

from grandrounds.errors import GrandRoundsError

Kind = Literal["f1", "auc", "loss"]
OUTCOMES = "outcomes"
"""The folder in a run's folder: a file for its model, or one for each site that has its own."""
HEADER = "outcomes"


@dataclass(frozen=True)
class Outcomes:
    kind: Kind
    columns: Mapping[str, NDArray[Any]]
    digest: str

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @classmethod
    def of_counts(cls, counts: Iterable[Mapping[str, float]]) -> Self:
        """From each unit's counts of right, wrong and missed answers by class, or of a language model."""
        listed = list(counts)
        if "nats" in listed[0]:
            masked = np.array([unit["masked"] for unit in listed], dtype=np.int64)
            nats = np.array([unit["nats"] for unit in listed])
            return cls("loss", {"nats": nats, "masked": masked}, digest_of(masked.tolist()))
        sums = {
            part: np.array(
                [sum(n for key, n in unit.items() if key.startswith(f"{part}/")) for unit in listed], dtype=np.int64
            )
            for part in ("tp", "fp", "fn")
        }
        return cls("f1", sums, digest_of([_to_be_found(unit) for unit in listed]))


class Record(NamedTuple):
    """Of one model on one split."""

    learner: str
    split: str
    outcomes: Outcomes


def digest_of(gold: Any) -> str:
    return sha256(json.dumps(gold).encode()).hexdigest()


def to_bytes(records: Iterable[Record]) -> bytes:
    tensors, header = dict[str, NDArray[Any]](), []
    for place, (learner, split, outcomes) in enumerate(records):
        header.append({"learner": learner, "split": split, "kind": outcomes.kind, "digest": outcomes.digest})
        tensors.update({f"{place}/{name}": np.ascontiguousarray(value) for name, value in outcomes.columns.items()})
    return safetensors.save(tensors, {HEADER: json.dumps(header)})


def read_outcomes(path: Path) -> list[Record]:
    try:
        with safe_open(path, "numpy") as file:
            header = json.loads(file.metadata()[HEADER])
            columns: list[dict[str, NDArray[Any]]] = [{} for _ in header]
            for name in file.keys():  # noqa: SIM118  (it is no mapping)
                place, _, column = name.partition("/")
                columns[int(place)][column] = file.get_tensor(name)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise GrandRoundsError(f"'{path}' holds no outcomes of a run; run it again") from error
    return [
        Record(about["learner"], about["split"], Outcomes(about["kind"], held, about["digest"]))
        for about, held in zip(header, columns, strict=True)
    ]


def outcomes_of_run(folder: Path) -> list[Record]:
    """Of a run's model, or of each site's; none where none were saved."""
    return [record for path in sorted((folder / OUTCOMES).glob("*.safetensors")) for record in read_outcomes(path)]


def _to_be_found(counts: Mapping[str, float]) -> list[Any]:
    """Of one unit: how many examples, and by class how many answers are right."""
    support = {key[3:]: n + counts[f"fn/{key[3:]}"] for key, n in counts.items() if key.startswith("tp/")}
    return [counts["n"], sorted((label, n) for label, n in support.items() if n)]
