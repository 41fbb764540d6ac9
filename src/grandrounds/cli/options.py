"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.registry import FORMATS

FORMAT_HELP = f"How the files are written: {', '.join(FORMATS)}."
ConfigPath = Annotated[Path, typer.Argument(help="A TOML file; see experiments/.", metavar="CONFIG")]
DataOption = Annotated[
    Optional[Path], typer.Option("--data", help="Where the config's data paths start; by default its own folder.")
]
ImportOption = Annotated[
    Optional[list[str]],
    typer.Option(
        "--import",
        help="A module with algorithms, tasks or formats of your own; may be repeated. In a config: imports = [...].",
        metavar="MODULE",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]
ModelPath = Annotated[Path, typer.Argument(help="The model/ folder of a run.", metavar="MODEL")]
ProcessesOption = Annotated[
    int, typer.Option("--processes", help="Runs at a time, each in a process of its own.", min=1)
]
