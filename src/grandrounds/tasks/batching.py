"""Batches of about equal length: padding is work that teaches nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from grandrounds.tasks.abilities import Redrawn

if TYPE_CHECKING:
    from grandrounds.tasks.task import ExtractionTask, Features, Task

GROUPED_BATCHES = 16  # shuffled rows are sorted by length within this many batches
JITTER = 0.25  # how far a row may stray from its place by length, so that small sites see new batches each epoch


def training_batches(lengths: NDArray[np.int64], size: int, generator: torch.Generator) -> Iterator[NDArray[np.int64]]:
    """Every row once, in batches of about equal length that differ from epoch to epoch, in random order."""
    order = torch.randperm(len(lengths), generator=generator).numpy()
    jitter = 1 + JITTER * torch.rand(len(lengths), generator=generator).numpy()
    batches = []
    for start in range(0, len(order), size * GROUPED_BATCHES):
        group = order[start : start + size * GROUPED_BATCHES]
        group = group[np.argsort(lengths[group] * jitter[group], kind="stable")]
        batches += [group[i : i + size] for i in range(0, len(group), size)]
    for b in torch.randperm(len(batches), generator=generator).tolist():
        yield batches[b]


def evaluation_batches(lengths: NDArray[np.int64], pieces: int = 4096, rows: int = 64) -> Iterator[NDArray[np.int64]]:
    """Every row once, sorted by length, in batches of limited padded pieces and rows."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        take = max(1, min(rows, pieces // int(lengths[order[start]])))
        yield order[start : start + take]
        start += take


@dataclass(frozen=True)
class PerRow:
    """A model's results for some rows: each row's answers in turn, one for a sentence, one per pair for a document."""

    values: Tensor
    starts: NDArray[np.int64]

    def at(self, rows: Tensor) -> Tensor:
        """The answers of these rows, in the order of a batch."""
        return self.values[torch.from_numpy(places_of(self.starts, rows.cpu().numpy()))]


def infer(
    give: Callable[[nn.Module, Any], Tensor],
    model: nn.Module,
    features: Features,
    rows: NDArray[np.int64],
    device: torch.device,
    counts: NDArray[np.int64] | None = None,
) -> PerRow:
    """Apply `give` to the rows with the model, without dropout, in batches of about equal length; `counts` says how
    many results each row has, by default one for each of its answers."""
    starts = starts_of(features.answers[rows] if counts is None else counts)
    values = torch.zeros(0)
    model.eval()
    with torch.inference_mode(), autocast(device):
        for chosen in evaluation_batches(features.lengths[rows]):
            given = give(model, features.batch(rows[chosen]).to(device)).float().cpu()
            if not len(values):
                values = given.new_zeros(int(starts[-1]), *given.shape[1:])
            values[torch.from_numpy(places_of(starts, chosen))] = given
    return PerRow(values, starts)


def predict_outputs(
    task: Task, model: nn.Module, features: Features, rows: NDArray[np.int64], device: torch.device
) -> NDArray[np.float32]:
    """[answers, width]: the task's outputs, without dropout."""
    seen = task.redraw(features, rows, 0) if isinstance(task, Redrawn) else features
    outputs: NDArray[np.float32] = infer(task.outputs, model, seen, rows, device).values.numpy()
    return outputs


def predict_probabilities(
    task: ExtractionTask, model: nn.Module, features: Features, rows: NDArray[np.int64], device: torch.device
) -> NDArray[np.float32]:
    """[answers, width], without dropout."""
    outputs = predict_outputs(task, model, features, rows, device)
    probabilities: NDArray[np.float32] = task.probabilities(torch.from_numpy(outputs)).numpy()
    return probabilities


def starts_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the results of each row begin, and where those of the last end."""
    return np.concatenate([[0], counts.cumsum()]).astype(np.int64)


def places_of(starts: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of these rows' answers: those of the first, then those of the second ..."""
    counts = starts[rows + 1] - starts[rows]
    before = np.concatenate([[0], counts.cumsum()[:-1]])
    return np.repeat(starts[rows] - before, counts) + np.arange(counts.sum())


def autocast(device: torch.device) -> torch.autocast:
    """bfloat16 where the device computes it: on a CPU it is emulated and slower."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
