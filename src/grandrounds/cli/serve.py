"""`grandrounds serve`: models behind a page and a REST interface."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from grandrounds.cli.console import err, out, waiting
from grandrounds.cli.options import (
    DeviceOption,
    HostOption,
    ImportOption,
    NamesOption,
    PortOption,
    TokenOption,
    require_web,
)


def serve(
    models: Annotated[
        list[Path],
        typer.Argument(help="Model folders, taggers and relation models; or a saved pipeline.", metavar="MODEL..."),
    ],
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    name: NamesOption = None,
    token: TokenOption = True,
    threshold: Annotated[Optional[float], typer.Option(help="Leave out what scores lower.", min=0, max=1)] = None,
    window: Annotated[
        Optional[int],
        typer.Option(help="Sentences of a window in which a document_re model relates entities, by default 40.", min=1),
    ] = None,
    dictionary: Annotated[
        Optional[Path], typer.Option(help="Link mentions by this file, which `grandrounds link build` wrote.")
    ] = None,
    assertions: Annotated[bool, typer.Option(help="Mark mentions that are negated, possible and so on.")] = True,
    characters: Annotated[int, typer.Option(help="Characters of text in one request, at most.", min=1)] = 200_000,
    seconds: Annotated[float, typer.Option(help="Seconds that a request may wait for its answer.", min=1)] = 60,
    queue: Annotated[int, typer.Option(help="Requests that may wait; one more is told to come again.", min=1)] = 64,
    device: DeviceOption = "cpu",
    imports: ImportOption = None,
) -> None:
    """Serve models on this machine: a page for people, and REST for programs.

    Open the address that it prints: the page takes a pasted note or dropped files, and shows mentions, assertions,
    links and relations with their evidence. Programs send `Authorization: Bearer TOKEN`; /docs describes what they may
    ask. Texts are kept nowhere and never logged. Ctrl-C ends it, once what has begun is answered.

    Example: `grandrounds serve ner/model re/model`
    """
    require_web()
    from grandrounds.pipeline.processes import Models
    from grandrounds.web import limits, serving
    from grandrounds.web.access import Access, address, find_token
    from grandrounds.web.reading import Reader
    from grandrounds.web.rest import Limits, application

    secret = find_token() if token else None
    with serving.listen(host, port) as listening:
        bound: int = listening.getsockname()[1]
        access = Access.of(host, bound, secret, name or (), open_paths=["/health"])
        settings = {"threshold": threshold, "window": window, "dictionary": dictionary}
        settings["assertions"] = None if assertions else False
        with waiting("loading the models"):
            pipeline = Models(models, settings, device, imports or ()).load()
        app = application(Reader(pipeline, queue), Limits(characters, seconds))
        body = limits.Limits(body_bytes=6 * characters + 100_000)  # a character is at most six bytes of JSON
        out.print(address(host, bound, secret, name or ()), soft_wrap=True)
        err.print("  open this address in a browser; /docs describes REST; Ctrl-C ends", soft_wrap=True)
        serving.run(serving.guarded(app, access, body), listening, grace=seconds + serving.PATIENCE)
    err.print("  stopped; what had begun was answered")
