"""`grandrounds view`: its address, its sentences, and its end while somebody watches."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from grandrounds.web.view.server import beside
from tests.cli.commands import ENVIRONMENT, HEAVY, run
from tests.reports.fixture_runs import write_run


def test_it_prints_its_address_and_ends_at_sigterm_while_a_page_is_open(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    command = [sys.executable, "-m", "grandrounds", "view", str(folder), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT}
    ) as server:
        assert server.stdout is not None
        place, _, token = server.stdout.readline().strip().partition("?token=")
        assert place.startswith("http://127.0.0.1:")
        asked = urllib.request.Request(f"{place}events", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(asked, timeout=20) as stream:
            assert stream.readline() == b"event: parts\n"
            assert "finished" in json.loads(stream.readline()[6:])["parts"]["head"]
            server.send_signal(signal.SIGTERM)
            began = time.monotonic()
            out, err = server.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert (server.returncode, out) == (0, "")
    assert err.splitlines() == ["  open this address in a browser; Ctrl-C ends"]


def test_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    assert "is no run's folder, no federation's and no site's enrolment" in run("view", tmp_path).complaint()
    folder = write_run(tmp_path / "run")
    assert "is no run folder" in run("view", folder, "--port", "0", "--alone", tmp_path).complaint()
    assert "without a token everyone" in run("view", folder, "--host", "0.0.0.0", "--no-token").complaint()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} is in use" in run("view", folder, "--port", port).complaint()


def test_a_page_beside_a_coordinator_is_another_process(tmp_path: Path) -> None:
    place, _, token = beside(write_run(tmp_path / "run")).partition("?token=")
    asked = urllib.request.Request(place, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=20) as page:
        assert b"fedavg on sentence_re" in page.read()


def test_looking_imports_nothing_heavy(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    look = f"""
import sys
from pathlib import Path
from grandrounds.web.view.server import watching
watching(Path({str(folder)!r})).look()
print([name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
