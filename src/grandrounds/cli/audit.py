"""`grandrounds audit`: the log of what travelled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import out

app = typer.Typer(help="Check the log of everything that was sent.", no_args_is_help=True)


@app.callback()
def root() -> None:
    """Check the log of everything that was sent."""


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="A run folder, or an audit.jsonl.")],
    head: Annotated[
        Optional[str], typer.Option(help="A head that you noted earlier: shows that nothing up to it was cut off.")
    ] = None,
) -> None:
    """Check that no line of an audit log was edited, deleted, moved or cut off."""
    from grandrounds.federation.audit import head_of
    from grandrounds.federation.audit import verify as verify_chain
    from grandrounds.runs.results import RESULT, read_result

    log = run / "audit.jsonl" if run.is_dir() else run
    if head is None and (log.parent / RESULT).exists():
        head = read_result(log.parent).audit_head
    lines = verify_chain(log, head)
    out.print(f"{log}: {lines} lines, the chain is whole; its head is {head_of(log)}", soft_wrap=True)


@app.command()
def compare(
    coordinator: Annotated[Path, typer.Argument(help="The coordinator's run folder, or its audit.jsonl.")],
    site: Annotated[Path, typer.Argument(help="The site's audit.jsonl, or the folder that holds it.")],
    name: Annotated[str, typer.Option("--site", help="The site's name.")],
) -> None:
    """Check that coordinator and site logged the same payloads, byte for byte, by their digests."""
    from grandrounds.federation.audit import compare as compare_logs

    ours, theirs = (path / "audit.jsonl" if path.is_dir() else path for path in (coordinator, site))
    found = compare_logs(ours, theirs, name)
    out.print(
        f"{found.agreed} payloads agree; {found.undelivered} never reached the site, {found.unreceived} never reached "
        "the coordinator",
        soft_wrap=True,
    )
