"""Runs for TensorBoard: an event file each, from the rounds of metrics.jsonl."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.reports.runs import Run, read_run
from grandrounds.runs.results import METRICS, Round

OURS = ".grandrounds"
"""The suffix of our event files: a folder that is written again keeps those of others."""


def write_events(runs: Sequence[Path], out: Path) -> None:
    """A folder for each run, by its name; what an earlier call wrote there is replaced."""
    read = {run.name: run for run in map(read_run, runs)}
    if len(read) < len(runs):
        raise ConfigError("two of these runs have the same name; write them to different folders")
    for name, run in read.items():
        if not run.rounds:
            raise ConfigError(f"run '{name}' has no finished round yet")
        for earlier in (out / name).glob(f"*{OURS}"):
            earlier.unlink()
        _write(run, out / name)


def scalars(line: Round) -> Iterator[tuple[str, float]]:
    """What a round has as single numbers, by TensorBoard's names: a chart each, grouped by what stands before "/"."""
    for split, score in (("validation", line.validation), ("test", line.test)):
        for name, value in score.to_dict().items() if score else ():
            if isinstance(value, float):
                yield f"{split}/{name}", value
    for name in ("seconds", "replies", "bytes_up", "bytes_down", "steps", "examples"):
        yield f"round/{name}", float(getattr(line, name))
    for name, value in line.diagnostics.items():
        yield f"diagnostics/{name}", value
    if line.epsilon:
        yield "privacy/largest_epsilon", max(line.epsilon.values())


def _write(run: Run, folder: Path) -> None:
    try:  # not torch.utils.tensorboard, which needs torch and takes seconds to import
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as error:
        raise GrandRoundsError("install TensorBoard with: pip install 'grandrounds[tensorboard]'") from error
    writer = EventFileWriter(str(folder), filename_suffix=OURS)
    clock = (run.folder / METRICS).stat().st_mtime - sum(line.seconds for line in run.rounds)
    for line in run.rounds:
        clock += line.seconds
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(line)]
        writer.add_event(Event(wall_time=clock, step=line.round, summary=Summary(value=values)))
    writer.close()
