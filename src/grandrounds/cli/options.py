"""Options and arguments that several commands have."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from grandrounds.config.overrides import parse_override
from grandrounds.errors import ConfigError, GrandRoundsError
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
BatchOption = Annotated[int, typer.Option("--batch", help="Documents that are read together.", min=1)]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu, cuda, mps or auto. Only cpu has been tested.")]
HostOption = Annotated[
    str,
    typer.Option(
        "--host", help="The address to listen on. With another than this machine's own, name the server with --name."
    ),
]
PortOption = Annotated[int, typer.Option("--port", help="The port to listen on; 0 is any free one.", min=0, max=65535)]
NamesOption = Annotated[
    Optional[list[str]],
    typer.Option(
        "--name",
        help="A host name or address under which the server may be asked, besides --host; may be repeated.",
        metavar="HOST",
    ),
]
TokenOption = Annotated[
    bool,
    typer.Option(
        help="Ask for a token: that of the variable GRANDROUNDS_TOKEN, or a new one. Without a token, only this "
        "machine may ask."
    ),
]
ReadingProcesses = Annotated[
    int,
    typer.Option(
        "--processes",
        help="Processes that read at once, each with the models in its memory and one thread. The output is that of "
        "one process.",
        min=1,
    ),
]
ProcessesOption = Annotated[
    int, typer.Option("--processes", help="How many runs at a time, each in its own process.", min=1)
]
ReaderOptions = Annotated[
    Optional[list[str]],
    typer.Option("--option", help="An option of the format, as in data.options; may be repeated.", metavar="KEY=VALUE"),
]


def reader_options(given: list[str] | None) -> dict[str, Any]:
    """`--option KEY=VALUE`, read as TOML would."""
    for text in given or []:
        if not text.partition("=")[1]:
            raise ConfigError("--option takes KEY=VALUE: breaks=line")
    return dict(parse_override(text) for text in given or [])


def require_web() -> None:
    """Pages are an extra: who trains needs none of them."""
    if any(find_spec(name) is None for name in ("starlette", "uvicorn", "fastapi", "jinja2")):
        raise GrandRoundsError("this command needs a web server; install it with: pip install 'grandrounds[web]'")
