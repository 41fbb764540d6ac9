"""`grandrounds audit`: the log of what travelled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from grandrounds.cli.console import out
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import verify as verify_chain

app = typer.Typer(help="The log of what travelled.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """The log of what travelled."""


@app.command()
def verify(run: Annotated[Path, typer.Argument(help="A run folder, or an audit.jsonl.")]) -> None:
    """Check that no line of an audit log was edited, deleted, moved or cut off."""
    log = run / "audit.jsonl" if run.is_dir() else run
    head, result = None, log.parent / "result.json"
    if result.exists():
        try:
            head = json.loads(result.read_text(encoding="utf-8"))["audit_head"]
        except (ValueError, KeyError) as error:
            raise GrandRoundsError(f"{result} does not hold the head of the audit log; it was edited") from error
    out.print(f"{log}: {verify_chain(log, head)} lines, the chain is whole", soft_wrap=True)
