"""`grandrounds privacy`: what leaves a site could tell about its notes, and at what price that is bounded."""

from __future__ import annotations

import typer

from grandrounds.cli import attack

app = typer.Typer(help="What a coordinator could find out about a site.", no_args_is_help=True)
app.command("attack")(attack.attack)


@app.callback()
def root() -> None:
    """What a coordinator could find out about a site."""
