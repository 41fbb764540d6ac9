"""A server starts with a sentence, ends when it is asked to, and waits for nobody for ever."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from http.client import HTTPResponse

import pytest

from grandrounds.errors import ConfigError
from grandrounds.web import serving
from grandrounds.web.serving import Server, listen
from tests.web.asking import BEARER, TOKEN, running, small

ASK = f"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 3\r\n\r\nabc"


def test_a_busy_port_is_one_sentence() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"^port {port} is in use; choose another one with --port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port"), [("no-such-host.invalid", 8000), ("192.0.2.1", 8000), ("a" * 300, 1), ("127.0.0.1", 70000)]
)
def test_an_address_that_is_not_ours_is_one_sentence(host: str, port: int) -> None:
    with pytest.raises(ConfigError, match=r"--host|no port 70000"):
        listen(host, port)


def test_a_real_connection_is_answered_and_kept() -> None:
    with running(small()) as port, socket.create_connection(("127.0.0.1", port), 5) as connection:
        for _ in range(3):
            connection.sendall(ASK.encode())
            assert _status(connection) == 200


def test_connections_that_stay_half_open_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PATIENCE", 0.3)
    with running(small()) as port:
        beginnings = ["", "POST /echo HT", ASK[:-4], ASK[:-40]]
        opened = [socket.create_connection(("127.0.0.1", port), 5) for _ in beginnings]
        for connection, beginning in zip(opened, beginnings, strict=True):
            connection.sendall(beginning.encode())
        began = time.monotonic()
        assert [_ended(connection) for connection in opened] == [True] * 4
        assert time.monotonic() - began < 2


def test_when_there_are_too_many_the_one_that_waits_longest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_CONNECTIONS", 20)
    with running(small()) as port:
        opened = [socket.create_connection(("127.0.0.1", port), 5) for _ in range(60)]
        with socket.create_connection(("127.0.0.1", port), 5) as one_more:
            one_more.sendall(ASK.encode())
            assert _status(one_more) == 200
        assert _ended(opened[0])
        for connection in opened:
            connection.close()


def test_an_answer_that_nobody_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PATIENCE", 0.3)
    with running(small()) as port:
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect(("127.0.0.1", port))
        page = f"GET /static/page.css HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {BEARER['Authorization']}\r\n\r\n"
        with pytest.raises(ConnectionError):
            _ask_for_ever(reader, page)
        reader.close()


@pytest.mark.parametrize("begin", [lambda s: None, lambda s: s.sendall(b"GET /he"), lambda s: s.sendall(ASK.encode())])
def test_the_end_waits_for_no_idle_connection(begin: Callable[[socket.socket], None]) -> None:
    with running(small()) as port:
        connection = socket.create_connection(("127.0.0.1", port), 5)
        begin(connection)
        time.sleep(0.1)
        began = time.monotonic()
    assert time.monotonic() - began < 3
    connection.close()


def test_the_end_waits_for_an_answer_that_is_under_way() -> None:
    with running(small()) as port:
        connection = socket.create_connection(("127.0.0.1", port), 5)
        connection.sendall(ASK.replace("/echo", "/slow").encode())
        time.sleep(0.2)
    assert _status(connection) == 200
    connection.close()


def test_the_end_takes_no_longer_than_its_grace() -> None:
    assert Server(small(), grace=70.5).config.timeout_graceful_shutdown == 71


NAME = "Zebulon"
ODD = [
    f"{NAME}\r\n\r\n",
    f"{NAME} / HTTP/1.1\r\n\r\n",
    f"GET /{NAME} HTTP/9.9\r\n\r\n",
    f"GET /{NAME} HTTP/1.1\r\n\r\n",
    f"GET /{NAME} HTTP/1.1\r\nHost: {NAME}\r\n\r\n",
    f"GET {NAME} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    f"GET http://{NAME}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    f"GET /?token={NAME} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: {NAME}\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{NAME}\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n {NAME}: x\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: {NAME * 10_000}\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {NAME}\x00\r\n\r\n",
    f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\nX: {NAME}\r\n\r\n",
    f"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {NAME}\r\n\r\n",
    f"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n{NAME}",
    f"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: {NAME}\r\n\r\n",
    f"POST /echo HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n{NAME}\r\n",
    ASK.replace("/echo", "/broken").replace("abc", NAME[:3]).replace("POST", "GET"),
    ASK + f"GET /{NAME} {NAME}\r\n\r\n",
]


def test_what_is_no_request_is_answered_or_hung_up_on_and_leaves_no_words_in_a_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), running(small()) as port:
        for odd in ODD:
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.sendall(odd.encode("latin-1"))
                connection.shutdown(socket.SHUT_WR)
                assert _ended(connection)
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            connection.sendall(ASK.encode())
            assert _status(connection) == 200
    out, err = capfd.readouterr()
    assert NAME[:3].lower() not in (out + err + caplog.text).lower()


def _status(connection: socket.socket) -> int:
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def _ended(connection: socket.socket) -> bool:
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def _ask_for_ever(connection: socket.socket, words: str) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        connection.sendall((words * 20).encode())
