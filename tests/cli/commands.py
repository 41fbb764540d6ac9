"""Commands as a shell runs them: real processes with exit codes and signals.

Importing torch takes 5 seconds, so one process imports everything once and forks a child for each command. The worker
processes of such a command are forked, too.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import multiprocessing
import os
import pkgutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from multiprocessing import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import grandrounds
from grandrounds import subprocesses

PRELOADED = (
    "click",
    "numpy.random",
    "torch._dynamo",
    "torch.distributed.tensor",
    "transformers.models.bert.modeling_bert",
    "transformers.models.auto.modeling_auto",
)
HEAVY = ("torch", "transformers", "matplotlib", "flwr")
"""What only commands that need it import."""
NUMBERS = count()
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "COLUMNS": "120"}


@dataclass(frozen=True)
class Outcome:
    """How a command ended. A process ended by a signal has its number, negative, as code."""

    code: int
    stdout: str
    stderr: str

    def good(self) -> Outcome:
        assert self.code == 0, self.stderr
        return self

    def json(self) -> Any:
        """Standard output holds nothing but the result."""
        return json.loads(self.good().stdout)

    def complaint(self, code: int = 1) -> str:
        """The one sentence of a command that failed as it should; notes and progress are indented. With --json it is
        on standard output alone."""
        assert "Traceback" not in self.stderr, self.stderr
        assert self.code == code, self.stderr
        said = [line for line in self.stderr.splitlines() if line.strip() and not line.startswith("  ")]
        if self.stdout.startswith('{"error": '):
            assert said == []
            return str(json.loads(self.stdout)["error"])
        assert len(said) == 1, self.stderr
        assert said[0].startswith("grandrounds: "), self.stderr
        return said[0].removeprefix("grandrounds: ")


class Running:
    """A command that goes on."""

    def __init__(self, pid: int, stdout: Path, stderr: Path) -> None:
        self.pid, self._stdout, self._stderr = pid, stdout, stderr
        self._code: int | None = None

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As a power cut would: it and whatever of its processes share its session."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.ended(10)

    def said(self) -> str:
        """What it has said so far."""
        return self._stderr.read_text("utf-8") if self._stderr.exists() else ""

    def ended(self, timeout: float) -> bool:
        if self._code is None:
            self._code = _ask({"wait": self.pid, "timeout": timeout})
        return self._code is not None

    def wait(self, timeout: float = 300) -> Outcome:
        if not self.ended(timeout):
            self._give_up(f"not ended after {timeout} s")
        assert self._code is not None
        return Outcome(self._code, self._stdout.read_text("utf-8"), self._stderr.read_text("utf-8"))

    def family(self) -> dict[int, str]:
        """The command lines of its living processes, itself and all that it started, whoever their parent is now."""
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                state, _, _, session = stat.read_text().rpartition(") ")[2].split()[:4]
                if int(session) == self.pid and state != "Z":
                    command = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(stat.parent.name)] = command.decode()
        return found

    def until(self, path: Path, timeout: float = 300) -> None:
        """Wait for a file that the command writes."""
        limit = time.monotonic() + timeout
        while not path.exists():
            assert not self.ended(0), self.wait().stderr
            if time.monotonic() > limit:
                self._give_up(f"no {path.name} after {timeout} s")
            time.sleep(0.005)

    def _give_up(self, why: str) -> NoReturn:
        """Fail, but leave no process behind."""
        os.killpg(self.pid, signal.SIGKILL)
        self.ended(10)
        raise AssertionError(f"{why}: {self._stderr.read_text('utf-8')}")


def start(*arguments: str | Path, cwd: Path | None = None, prelude: str = "", fresh_workers: bool = False) -> Running:
    """Start `grandrounds ARGUMENTS`; `prelude` is Python that its process runs first.

    With `fresh_workers` its worker processes are new interpreters, as they are for users.
    """
    scratch = _scratch()
    number = next(NUMBERS)
    stdout, stderr = scratch / f"{number}.out", scratch / f"{number}.err"
    request = {
        "argv": ["grandrounds", *map(str, arguments)],
        "cwd": str(cwd or scratch),
        "prelude": prelude,
        "fresh": fresh_workers,
    }
    return Running(_ask({**request, "stdout": str(stdout), "stderr": str(stderr)}), stdout, stderr)


def run(*arguments: str | Path, cwd: Path | None = None, prelude: str = "") -> Outcome:
    return start(*arguments, cwd=cwd, prelude=prelude).wait()


def share_imports() -> Any:
    """How worker processes start from now on: forked from one process that has imported torch for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["grandrounds.simulation.sweep", *PRELOADED])
    return SimpleNamespace(get_context=lambda method: context, parent_process=multiprocessing.parent_process)


@cache
def _scratch() -> Path:
    import shutil
    import tempfile

    folder = tempfile.mkdtemp(prefix="grandrounds-commands-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT},
    )
    atexit.register(server.communicate)  # ends its standard input, and so the server
    return server


def _ask(request: Mapping[str, Any]) -> Any:
    server = _server()
    assert server.stdin
    assert server.stdout
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


def _serve() -> str:
    """Answer requests until standard input ends; gives, in a child, the prelude to run before the command."""
    ours = [module.name for module in pkgutil.walk_packages(grandrounds.__path__, "grandrounds.")]
    for name in (*ours, *PRELOADED):
        if not name.endswith(("__main__", "spacy_component")):  # no command needs spaCy
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a child that never looks at these objects need not copy their pages
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answers.write(json.dumps(_wait(request["wait"], request["timeout"])) + "\n")
        elif pid := os.fork():
            answers.write(json.dumps(pid) + "\n")
        else:
            answers.detach()
            _become(request)
            return str(request["prelude"])
        answers.flush()
    os._exit(0)


def _wait(pid: int, timeout: float) -> int | None:
    limit = time.monotonic() + timeout
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= limit:
            return None
        time.sleep(0.005)


def _become(request: Mapping[str, Any]) -> None:
    os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # end with the server, should the tests be cut short
        signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit a deaf ear
    for number, (path, mode) in enumerate([(os.devnull, "r"), (request["stdout"], "w"), (request["stderr"], "w")]):
        with open(path, mode) as file:
            os.dup2(file.fileno(), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    if not request["fresh"]:
        subprocesses.multiprocessing = share_imports()  # type: ignore[attr-defined]
        util.spawnv_passfds = partial(_fork_server, util.spawnv_passfds)  # type: ignore[attr-defined]


def _fork_server(spawn: Callable[..., int], path: bytes, words: Sequence[Any], passed: Sequence[int]) -> int:
    """The process that workers are forked from is itself forked from this one, so it need not import anything."""
    if "forkserver" not in str(words[-1]):
        return spawn(path, words, passed)
    if pid := os.fork():
        return pid
    for descriptor in map(int, os.listdir("/dev/fd")):
        if descriptor > 2 and descriptor not in passed:
            with suppress(OSError):
                os.close(descriptor)
    try:
        exec(words[-1], {})
    finally:
        os._exit(0)  # it is a copy of the command, which goes on elsewhere


def _run_command(prelude: str) -> NoReturn:
    """As the interpreter would, but for the second that it takes to clear a thousand modules away."""
    from grandrounds.cli import main

    code: Any = 0
    try:
        exec(prelude, {})
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):
            stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    _run_command(_serve())
