"""python -m benchmarks: goal beside measured in a table, and in docs/results/bench.json."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table

from benchmarks import (
    distant,
    documents,
    extraction,
    extraction_memory,
    federation_tax,
    live_view,
    many_sites,
    masked_language,
    memory,
    ner,
    workers,
)
from benchmarks.corpus import random_encoder
from benchmarks.measuring import Row, Settings, load
from grandrounds.runs.provenance import provenance

BENCHMARKS = {
    "federation_tax": federation_tax.measure,
    "memory": memory.measure,
    "many_sites": many_sites.measure,
    "workers": workers.measure,
    "documents": documents.measure,
    "distant": distant.measure,
    "ner": ner.measure,
    "extraction": extraction.measure,
    "extraction_memory": extraction_memory.measure,
    "masked_language": masked_language.measure,
    "live_view": live_view.measure,
}
RESULTS = Path(__file__).parent.parent / "docs" / "results" / "bench.json"


def main(
    only: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(BENCHMARKS)}; may be repeated.")] = None,
    encoder: Annotated[
        Path | None, typer.Option(envvar="GRANDROUNDS_ENCODER", help="An encoder of real size, such as MiniLM.")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Small and rough, to see that it runs; nothing is written.")] = False,
) -> None:
    """Measure what is fast, side by side with what a user would run instead."""
    for name in only or ():
        if name not in BENCHMARKS:
            raise typer.BadParameter(f"'{name}' is none of {', '.join(BENCHMARKS)}", param_hint="--only")
    if encoder is not None and not (encoder / "config.json").exists():
        raise typer.BadParameter("no config.json there; give the folder of an encoder", param_hint="--encoder")
    torch.set_num_threads(1)
    name = encoder.name if encoder else "random BERT"
    rows, results = dict[str, list[Row]](), dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="grandrounds-bench-") as scratch:
        weights = str(encoder.resolve() if encoder else random_encoder(Path(scratch, "encoder")))
        for chosen in only or BENCHMARKS:
            before, began = load(), time.perf_counter()
            with _progress(chosen) as say:
                rows[chosen] = list(BENCHMARKS[chosen](Settings(Path(scratch), weights, name, quick, say)))
            results[chosen] = {
                **provenance(),
                "command": f"python -m benchmarks --only {chosen}" + (f" --encoder {name}" if encoder else ""),
                "encoder": _described(name, encoder),
                "seconds": round(time.perf_counter() - began),
                "load": {"before": before, "after": load(), "cores": os.cpu_count()},
                "rows": [{**asdict(row), "met": row.met} for row in rows[chosen]],
            }
    _show(rows, f"{_described(name, encoder)}; load {load()} on {os.cpu_count()} cores")
    if not quick:
        _write(results)


def _described(name: str, encoder: Path | None) -> str:
    return name if encoder else f"{name}: MiniLM's shape (6 layers, 384 wide, 30,522 word pieces), weights at random"


@contextmanager
def _progress(benchmark: str) -> Iterator[Callable[[str], None]]:
    """What is going on, as a line that changes; without a terminal, as lines."""
    console = Console(stderr=True, highlight=False)
    with console.status(benchmark) as status:
        if console.is_terminal:
            yield lambda sentence: status.update(f"{benchmark}: {sentence}")
        else:
            yield lambda sentence: console.print(f"{benchmark}: {sentence}", soft_wrap=True)


def _show(rows: Mapping[str, list[Row]], caption: str) -> None:
    table = Table(caption=caption)
    for title in ("benchmark", "case"):
        table.add_column(title, no_wrap=True)
    for title in ("goal", "measured", "range"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for benchmark, members in rows.items():
        for row in members:
            colour = {True: "green", False: "red", None: "default"}[row.met]
            table.add_row(
                benchmark,
                row.case,
                "" if row.goal is None else f"{row.goal:g}",
                f"[{colour}]{row.measured:.3f}[/]{' s' if row.unit == 's' else ''}",
                "" if row.low is None else f"{row.low:.2f}-{row.high:.2f}",
                row.note,
            )
    Console(width=None if sys.stdout.isatty() else 150).print(table)


def _write(results: Mapping[str, Any]) -> None:
    """What was not measured today stays as it was, each with its own command and load."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    held = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    merged = {**held, **results}
    RESULTS.write_text(json.dumps({name: merged[name] for name in BENCHMARKS if name in merged}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
