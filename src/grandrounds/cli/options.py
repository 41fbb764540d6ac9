"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.registry import FORMATS

FORMAT_HELP = f"The format of the files: {', '.join(FORMATS)}."
ConfigPath = Annotated[Path, typer.Argument(help="A TOML file; see experiments/.", metavar="CONFIG")]
DataOption = Annotated[
    Optional[Path],
    typer.Option(
        "--data", help="The folder that the config's data paths are relative to; by default the config's own."
    ),
]
ImportOption = Annotated[
    Optional[list[str]],
    typer.Option(
        "--import",
        help="A module with your own algorithms, tasks or formats; may be repeated. In a config: imports = [...].",
        metavar="MODULE",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
ModelPath = Annotated[Path, typer.Argument(help="The model/ folder of a run.", metavar="MODEL")]
ProcessesOption = Annotated[
    int, typer.Option("--processes", help="How many runs at a time, each in its own process.", min=1)
]
