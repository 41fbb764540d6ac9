"""The attention heads of saved models over the same texts, one model in memory at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from grandrounds.data.formats import each
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.files import write_whole
from grandrounds.metrics.attention import Heads, HeadSums
from grandrounds.models.attention import transformer_in
from grandrounds.models.encoder import Encoder
from grandrounds.reports.attention import markdown, pictures, whole
from grandrounds.reports.wording import listed
from grandrounds.setup.encoders import LEARNT
from grandrounds.tasks.saved import load

EMPTY = "documents without text"


def heads_of(documents: Iterator[Tensor], step: Callable[[], None], warnings: Counter[str]) -> Heads:
    sums = HeadSums()
    for seen in documents:
        sums.add(seen)
        if seen.numel():
            step()
        else:
            warnings[EMPTY] += 1
    return sums.result()


def readers_of(models: Sequence[Path]) -> dict[str, Encoder]:
    """Shapes and tokenizers, by name; weights come when it is a model's turn."""
    if len(models) < 2:
        raise ConfigError("attention is compared between models; name two or more")
    readers = dict(zip(_names(models), map(_encoder, models), strict=True))
    shapes = {name: _shape(encoder.config, name) for name, encoder in readers.items()}
    if len(set(shapes.values())) > 1:
        reported = [f"{name} has {layers} layers of {heads}" for name, (layers, heads) in shapes.items()]
        raise ConfigError(f"heads are compared one by one, so models need as many: {listed(reported)}")
    return readers


def _names(models: Sequence[Path]) -> list[str]:
    """As much of the end of each path as tells them apart."""
    paths = [path.absolute().parts for path in models]  # a link has a name of its own
    if len(set(paths)) < len(paths):
        raise ConfigError("a model is named twice; name different ones")
    lengths = range(1, max(map(len, paths)) + 1)
    tails = (["/".join(path[-length:]) for path in paths] for length in lengths)
    return next(names for names in tails if len(set(names)) == len(names))


def _encoder(path: Path) -> Encoder:
    if not _of_a_run(path):
        if str(path) in LEARNT and not path.is_dir():
            raise ConfigError(f"'{path}' is learnt in a run, and no model before; name the model/ folder of the run")
        return Encoder.find(str(path.resolve() if str(path) in LEARNT else path))
    try:
        return Encoder.saved(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = str(error).partition("\n")[0]
        raise GrandRoundsError(f"the model in '{path}' is damaged; train or copy it again ({why})") from error


def network_of(path: Path, encoder: Encoder) -> PreTrainedModel:
    return transformer_in(load(path).model if _of_a_run(path) else encoder.build())


def _of_a_run(path: Path) -> bool:
    return (path / "grandrounds.json").exists()


def _shape(config: Any, name: str) -> tuple[int, int]:
    try:
        return int(config.num_hidden_layers), int(config.num_attention_heads)
    except AttributeError:
        raise ConfigError(f"'{name}' has no attention heads; take a transformer, such as BERT") from None


def texts_of(format: str, paths: Sequence[Path], warnings: Counter[str]) -> Iterator[str]:
    for document in each(format, paths, warnings):
        if document.text.strip():
            yield document.text
        else:
            warnings[EMPTY] += 1


def write_heads(folder: Path, found: Mapping[str, Heads]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "attention.json", (json.dumps(whole(found), allow_nan=False) + "\n").encode())
    write_whole(folder / "attention.md", markdown(found).encode())
    for name, drawn in pictures(found).items():
        write_whole(folder / name, drawn.encode())
