"""Sites that attack, in a simulation: each attack is a step between what a site computed and what it sends, but for
wrong labels, which are there before a site computes anything.

`[sites.NAME] attack = "scale"` in a config. What a site can forge about itself is its registration: `forged`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from grandrounds.data.documents import Document
from grandrounds.federation.contract import Registration
from grandrounds.federation.outgoing import Attack, Leaving, Step
from grandrounds.federation.payloads import Adapters, Gradients, Parameters, PredictedLabels, Predictions, Tensors
from grandrounds.federation.seeds import generator
from grandrounds.tasks.task import ExtractionTask, Task

FACTOR = 100.0


def mislead(leaving: Leaving) -> Leaving:
    """Predictions say another class than they mean."""
    if isinstance(leaving, Predictions):
        return replace(leaving, values=leaving.values.roll(1, dims=1))
    if isinstance(leaving, PredictedLabels):
        return replace(leaving, values=(leaving.values + 1) % leaving.classes)
    return leaving


def unbounded(leaving: Leaving) -> Leaving:
    """Predictions are as sure of their class as a number can say."""
    if not isinstance(leaving, Predictions):
        return leaving
    sure = torch.nn.functional.one_hot(leaving.values.argmax(dim=1), leaving.values.shape[1]).float()
    return replace(leaving, values=sure if leaving.form == "probabilities" else (sure - 1) * 1e6)


def scale(leaving: Leaving) -> Leaving:
    """Weights or gradients a hundred times as large."""
    return _changed(leaving, lambda name, value: value * FACTOR)


def flip(leaving: Leaving) -> Leaving:
    """Weights or gradients with the other sign."""
    return _changed(leaving, lambda name, value: -value)


def substitute(leaving: Leaving) -> Leaving:
    """Weights or gradients of noise alone, as spread out as the true ones."""
    return _changed(leaving, _noise)


def noise(leaving: Leaving) -> Leaving:
    """Weights or gradients with as much noise added as they are spread out."""
    return _changed(leaving, lambda name, value: value + _noise(name, value))


def reverse(leaving: Leaving, received: Sequence[object] = ()) -> Leaving:
    """Weights that undo what the site learnt, as far from those it received as its true ones; or gradients with the
    other sign."""
    if not isinstance(leaving, Parameters):
        return flip(leaving)
    start = next((sent.values for sent in received if isinstance(sent, Parameters)), leaving.values)
    return _changed(leaving, lambda name, value: 2 * start.get(name, value) - value)


ATTACKS: Mapping[str, Step] = {
    "mislead": mislead,
    "unbounded": unbounded,
    "scale": scale,
    "flip": flip,
    "substitute": substitute,
    "noise": noise,
}
MISLABEL = "mislabel"


def attack_of(name: str) -> Attack | None:
    """What such a site does to what it sends, given what it received."""
    if name == "reverse":
        return lambda received: lambda leaving: reverse(leaving, received)
    return None if name not in ATTACKS else lambda received: ATTACKS[name]


def mislabelled(task: Task, documents: Sequence[Document]) -> list[Document]:
    """The documents with each type of what the task finds replaced by the next one in order."""
    mentions = isinstance(task, ExtractionTask) and task.finds == "mentions"
    found = sorted(
        {one.type for document in documents for one in (document.mentions if mentions else document.relations)}
    )
    following = dict(zip(found, [*found[1:], *found[:1]], strict=True))
    if mentions:
        return [
            replace(document, mentions=tuple(replace(m, type=following[m.type]) for m in document.mentions))
            for document in documents
        ]
    return [
        replace(document, relations=tuple(replace(r, type=following[r.type]) for r in document.relations))
        for document in documents
    ]


def forged(site: Registration, factor: int) -> Registration:
    """A site that says it has more of everything."""
    return replace(site, counts={what: count * factor for what, count in site.counts.items()})


def _noise(name: str, value: Tensor) -> Tensor:
    spread = value.std() if value.numel() > 1 else value.abs()
    return torch.randn(value.shape, generator=generator(0, "attack", name)) * spread


def _changed(leaving: Leaving, change: Callable[[str, Tensor], Tensor]) -> Leaving:
    if not isinstance(leaving, Parameters | Gradients | Tensors | Adapters):
        return leaving
    values = {
        name: change(name, value) if value.is_floating_point() else value for name, value in leaving.values.items()
    }
    if isinstance(leaving, Tensors | Adapters):
        return replace(leaving, values=values)
    rows = {name: replace(some, values=change(name, some.values)) for name, some in leaving.rows.items()}
    return replace(leaving, values=values, rows=rows)
