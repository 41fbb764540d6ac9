"""`grandrounds audit`: the log of what travelled."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import out, show_json
from grandrounds.cli.federation import require_flower
from grandrounds.cli.options import JsonOption
from grandrounds.errors import ConfigError, GrandRoundsError

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
    heads: Annotated[
        Optional[Path], typer.Option(help="Signed heads: the site's private/audit.head, or run/site_logs.json.")
    ] = None,
    site: Annotated[Optional[str], typer.Option(help="With --heads: whose log it is.")] = None,
    key: Annotated[Optional[Path], typer.Option(help="With --heads: the site's .pub file.")] = None,
) -> None:
    """Check that no line of an audit log was edited, deleted, moved or cut off.

    Example: `grandrounds audit verify runs/first`
    """
    from grandrounds.federation.audit import head_of
    from grandrounds.federation.audit import verify as verify_chain
    from grandrounds.runs.results import RESULT, read_result

    log = run / "audit.jsonl" if run.is_dir() else run
    if head is None and (log.parent / RESULT).exists():
        head = read_result(log.parent).audit_head
    if heads is not None:
        _check_signed(log, heads, site, key)
    lines = verify_chain(log, head)
    out.print(f"{log}: {lines} lines, the chain is whole; its head is {head_of(log)}", soft_wrap=True)


def _check_signed(log: Path, heads: Path, site: str | None, key: Path | None) -> None:
    require_flower()
    from grandrounds.deployment.heads import check_log, read_heads
    from grandrounds.deployment.keys import read_public

    if site is None or key is None:
        raise ConfigError("--heads holds what sites signed: say whose log it is with --site, and give its --key")
    noted = read_heads(heads)
    if site not in noted:
        raise ConfigError(f"'{heads}' has no head that '{site}' signed")
    check_log(log, noted[site], read_public(key))


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="A run folder, or an audit.jsonl.")],
    site: Annotated[Optional[str], typer.Option(help="Of the coordinator's log, one site alone.")] = None,
    html: Annotated[
        Optional[Path],
        typer.Option(help="Write one page to print and file: every payload, the policy, verified or not."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Sum up what left and what came, by round and kind.

    Example: `grandrounds audit show enrolment/private/audit.jsonl`
    """
    from rich.table import Table

    from grandrounds.federation.audit import summary
    from grandrounds.reports.wording import byte_size

    log = run / "audit.jsonl" if run.is_dir() else run
    if html is not None:
        _write_page(log, site, html)
        return
    rows, times = summary(log, site)
    if as_json:
        show_json([row._asdict() for row in rows])
        return
    first, last = (datetime.fromtimestamp(time) for time in (times or [0.0]) * (3 - len(times)))
    until = f"{last:%H:%M}" if last.date() == first.date() else f"{last:%d %B %Y, %H:%M}"
    table = Table(title=f"{log}\n{first:%d %B %Y, %H:%M} to {until}")
    for name in ("round", "direction", "kind", "payloads", "size"):
        table.add_column(name, justify="left" if name in ("direction", "kind") else "right")
    for row in rows:
        table.add_row(str(row.round), row.direction, row.kind, f"{row.payloads:,}", byte_size(row.bytes))
    for direction in ("down", "up"):
        of = [row for row in rows if row.direction == direction]
        table.add_section()
        table.add_row("all", direction, "", f"{sum(r.payloads for r in of):,}", byte_size(sum(r.bytes for r in of)))
    out.print(table)


def _write_page(log: Path, site: str | None, out_path: Path) -> None:
    """Of a log that does not verify, too: the page says so, and so does the command."""
    from grandrounds.reports.audit_page import write_audit_page
    from grandrounds.reports.noted import noted_heads

    if (log.parent.parent / "site.toml").exists():
        require_flower()  # a signature is to be checked
    heads: dict[str, str] | GrandRoundsError
    try:
        heads = noted_heads(log)
    except GrandRoundsError as problem:
        heads = problem
    checked = write_audit_page(log, out_path, heads, site)
    out.print(f"written to '{out_path}'", soft_wrap=True)
    if not checked.good:
        raise GrandRoundsError(f"{log}: {checked.sentence}; the page says so")


@app.command()
def compare(
    coordinator: Annotated[Path, typer.Argument(help="The coordinator's run folder, or its audit.jsonl.")],
    site: Annotated[Path, typer.Argument(help="The site's audit.jsonl, or the folder that holds it.")],
    name: Annotated[str, typer.Option("--site", help="The site's name.")],
) -> None:
    """Check that coordinator and site logged the same payloads, byte for byte, by their digests.

    Example: `grandrounds audit compare consortium/run enrolment/private --site charity`
    """
    from grandrounds.federation.audit import compare as compare_logs

    ours, theirs = (path / "audit.jsonl" if path.is_dir() else path for path in (coordinator, site))
    found = compare_logs(ours, theirs, name)
    out.print(
        f"{found.agreed} payloads agree; {found.undelivered} never reached the site, {found.unreceived} never reached "
        "the coordinator",
        soft_wrap=True,
    )
