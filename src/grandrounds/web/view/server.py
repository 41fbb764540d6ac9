"""A server for one page, in this process or in one of its own beside a coordinator."""

from __future__ import annotations

import os
import socket
from multiprocessing.connection import Connection
from pathlib import Path

from grandrounds import subprocesses
from grandrounds.errors import GrandRoundsError
from grandrounds.web import serving
from grandrounds.web.access import Access, address, find_token
from grandrounds.web.limits import Limits
from grandrounds.web.view.application import Watch, application, viewer
from grandrounds.web.view.following import find_place

HOST = "127.0.0.1"
PATIENCE = 60.0
"""Seconds in which a process of its own must have begun."""


def watching(folder: Path, alone: Path | None = None) -> Watch:
    """GrandRoundsError where there is nothing to look at."""
    return Watch(viewer(find_place(folder), alone))


def serve(watch: Watch, listening: socket.socket, access: Access) -> None:
    """Until Ctrl-C or SIGTERM."""
    serving.run(serving.guarded(application(watch), access, Limits(body_bytes=1000)), listening, watch.end)


def beside(folder: Path) -> str:
    """Serve the page from another process, which ends with this one; gives its address. A page that breaks, or a slow
    reader of it, then costs the coordinator nothing."""
    import multiprocessing

    token = find_token()
    ours, theirs = multiprocessing.Pipe()
    subprocesses.start(_child, folder, token, theirs, daemon=True)
    theirs.close()
    try:
        if not ours.poll(PATIENCE):
            raise EOFError
        port: int = ours.recv()
    except EOFError as error:
        raise GrandRoundsError("the page could not be served; leave out --view, and try: grandrounds view") from error
    return address(HOST, port, token)


def _child(folder: Path, token: str, told: Connection) -> None:
    os.nice(5)
    with serving.listen(HOST, 0) as listening:
        port = listening.getsockname()[1]
        told.send(port)
        told.close()
        serve(watching(folder), listening, Access.of(HOST, port, token))
