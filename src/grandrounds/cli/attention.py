"""`grandrounds attention`: what changed in the attention of models, over the same texts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from torch import Tensor
from transformers import PreTrainedModel

from grandrounds.cli.console import counting, out, show_json, show_notes
from grandrounds.cli.evaluate import FORMAT_HELP
from grandrounds.cli.run import JsonOption
from grandrounds.data.formats import each
from grandrounds.errors import ConfigError, DataError, GrandRoundsError
from grandrounds.experiment.ground import LEARNT
from grandrounds.federation.files import write_whole
from grandrounds.metrics.attention import Heads, HeadSums
from grandrounds.models.attention import attentions, transformer_in
from grandrounds.models.encoder import Encoder
from grandrounds.reports.attention import markdown, pictures, rich_tables, summary, whole
from grandrounds.reports.wording import listed
from grandrounds.tasks.saved import load

EMPTY = "documents without text"


def attention(
    models: Annotated[
        list[Path],
        typer.Argument(help="Two or more: Hugging Face folders, or the model/ folders of runs.", metavar="MODEL..."),
    ],
    text: Annotated[list[Path], typer.Option("--text", help="Files or folders that the models read; may be repeated.")],
    format: Annotated[
        Optional[str], typer.Option("--format", help=f"{FORMAT_HELP} By default text for .txt files, else json.")
    ] = None,
    most: Annotated[Optional[int], typer.Option(help="Read only the first so many documents.", min=1)] = None,
    length: Annotated[
        int, typer.Option(help="Word pieces of a document that are read, at most what every model can.", min=3)
    ] = 128,
    out_folder: Annotated[
        Optional[Path], typer.Option("--out", help="A folder for attention.json, the tables and the pictures.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the attention heads of models: how widely each looks, how differently every two look, and how far apart
    that puts the models.

    Example: `grandrounds attention bert-base clinical-bert federated-bert --text notes/ --out attention`
    """
    readers = _readers(models)
    longest = min(length, *(encoder.window for encoder in readers.values()))
    chosen = format or ("text" if all(path.suffix in (".txt", "") for path in text) else "json")
    notes: Counter[str] = Counter()
    found: dict[str, Heads] = {}
    for (name, encoder), path in zip(readers.items(), models, strict=True):
        notes.clear()
        texts = islice(_texts(chosen, text, notes), most)
        total = next((heads.documents for heads in found.values()), None)
        with counting(name, total) as step:
            found[name] = _heads(attentions(_network(path, encoder), encoder, texts, longest), step, notes)
        if not found[name].documents:
            show_notes(notes)
            problem = f"there is no document with text to read in the format '{chosen}'; name another with --format"
            raise DataError(problem, path=text[0])
    show_notes(notes)
    if out_folder is not None:
        _write(out_folder, found)
    if as_json:
        show_json(summary(found))
        return
    for table in rich_tables(found):
        out.print(table)
    if out_folder is not None:
        out.print(f"attention.json, attention.md and the pictures are in {out_folder}", soft_wrap=True)


def _heads(documents: Iterator[Tensor], step: Callable[[], None], notes: Counter[str]) -> Heads:
    sums = HeadSums()
    for seen in documents:
        sums.add(seen)
        if seen.numel():
            step()
        else:
            notes[EMPTY] += 1
    return sums.result()


def _readers(models: Sequence[Path]) -> dict[str, Encoder]:
    """Shapes and tokenizers, by name; weights come when it is a model's turn."""
    if len(models) < 2:
        raise ConfigError("attention is compared between models; name two or more")
    readers = dict(zip(_names(models), map(_encoder, models), strict=True))
    shapes = {name: _shape(encoder.config, name) for name, encoder in readers.items()}
    if len(set(shapes.values())) > 1:
        told = [f"{name} has {layers} layers of {heads}" for name, (layers, heads) in shapes.items()]
        raise ConfigError(f"heads are compared one by one, so models need as many: {listed(told)}")
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


def _network(path: Path, encoder: Encoder) -> PreTrainedModel:
    return transformer_in(load(path).model if _of_a_run(path) else encoder.build())


def _of_a_run(path: Path) -> bool:
    return (path / "grandrounds.json").exists()


def _shape(config: Any, name: str) -> tuple[int, int]:
    try:
        return int(config.num_hidden_layers), int(config.num_attention_heads)
    except AttributeError:
        raise ConfigError(f"'{name}' has no attention heads; take a transformer, such as BERT") from None


def _texts(format: str, paths: Sequence[Path], notes: Counter[str]) -> Iterator[str]:
    for document in each(format, paths, notes):
        if document.text.strip():
            yield document.text
        else:
            notes[EMPTY] += 1


def _write(folder: Path, found: Mapping[str, Heads]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "attention.json", (json.dumps(whole(found), allow_nan=False) + "\n").encode())
    write_whole(folder / "attention.md", markdown(found).encode())
    for name, drawn in pictures(found).items():
        write_whole(folder / name, drawn.encode())
