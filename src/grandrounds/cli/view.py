"""`grandrounds view`: a run as a page that follows it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import err, out
from grandrounds.cli.options import HostOption, NamesOption, PortOption, TokenOption, require_web


def view(
    folder: Annotated[
        Path,
        typer.Argument(
            help="A run's folder, live or ended; a federation's folder; or a site's enrolment.", metavar="RUN"
        ),
    ],
    alone: Annotated[
        Optional[Path],
        typer.Option(
            help="A finished run of local_only on the same sites: what each reaches alone stands beside its score.",
            metavar="RUN",
        ),
    ] = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8001,
    name: NamesOption = None,
    token: TokenOption = True,
) -> None:
    """Follow a run on a page: sites, the round under way, scores, what travels, what went wrong, the log.

    Open the address that it prints. It only reads the folder, so it may be started and stopped at any time, on a run
    of `grandrounds run` or `grandrounds coordinator`. In a hospital, name the enrolment: the page shows what left and
    when, beside what the policy allows. Ctrl-C ends it; the run goes on.

    Example: `grandrounds view runs/first`
    """
    require_web()
    from grandrounds.web import serving
    from grandrounds.web.access import Access, address, find_token
    from grandrounds.web.view.server import serve, watching

    secret = find_token() if token else None
    with serving.listen(host, port) as listening:
        bound: int = listening.getsockname()[1]
        access = Access.of(host, bound, secret, name or ())
        watch = watching(folder, alone)
        out.print(address(host, bound, secret, name or ()), soft_wrap=True)
        err.print("  open this address in a browser; Ctrl-C ends", soft_wrap=True)
        serve(watch, listening, access)
