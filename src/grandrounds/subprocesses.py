"""Child processes that end with their parent from their first moment on.

What a child is to run goes to it by name, so that it watches its parent before it imports torch, which takes seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any


def start(function: Callable[..., object], *arguments: Any, daemon: bool = False) -> BaseProcess:
    """Run a module's function in a new process; arguments are plain values, paths and connections."""
    process = multiprocessing.get_context("spawn").Process(
        target=_live, args=(name_of(function), arguments), daemon=daemon
    )
    process.start()
    return process


def name_of(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{function.__qualname__}"


def find(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _live(name: str, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    find(name)(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        sys.stderr.flush()
        os._exit(1)
