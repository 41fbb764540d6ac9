"""`grandrounds serve`: its sentences, its address, and its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from importlib import util
from pathlib import Path

import pytest

from grandrounds.cli import options
from grandrounds.errors import GrandRoundsError
from tests.cli.commands import ENVIRONMENT, run
from tests.pipeline.models import save_tagger


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tagger(tmp_path_factory.mktemp("serve") / "ner")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "find_spec", lambda name: None if name == "uvicorn" else util.find_spec(name))
    with pytest.raises(GrandRoundsError, match=r"install it with: pip install 'grandrounds\[web\]'"):
        options.require_web()


def test_what_is_wrong_is_one_sentence(tagger: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = run("serve", str(tagger), "--port", port)
    assert (refused.code, refused.stdout) == (1, "")
    assert f"port {port} is in use; choose another one with --port" in refused.stderr
    assert (
        "without a token everyone" in run("serve", str(tagger), "--host", "0.0.0.0", "--port", "0", "--no-token").stderr
    )
    assert "is not a saved model" in run("serve", str(tagger.parent), "--port", "0").stderr


def test_it_prints_its_address_answers_and_ends_at_sigterm(tagger: Path) -> None:
    command = [sys.executable, "-m", "grandrounds", "serve", str(tagger), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT}
    ) as server:
        assert server.stdout is not None
        place, _, token = server.stdout.readline().strip().partition("?token=")
        assert place.startswith("http://127.0.0.1:")
        body = json.dumps({"text": "The aspirin eased the pain ."}).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{place}extract", body, headers), timeout=20) as answer:
            found = json.load(answer)["documents"][0]["mentions"]
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=20)
    assert [mention["text"] for mention in found] == ["aspirin", "pain"]
    assert (server.returncode, out) == (0, "")
    assert err.splitlines() == [
        "  open this address in a browser; /docs describes REST; Ctrl-C ends",
        "  stopped; what had begun was answered",
    ]
