"""A body has a size and a time; neither is taken on trust."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from starlette.types import Message

from tests.web.asking import AUTHORISED, BEARER, client, raw


def test_a_body_that_fits_arrives_whole() -> None:
    assert client().post("/echo", content="x" * 1000, headers=BEARER).json() == {"length": 1000}


def test_a_body_that_is_declared_too_large_is_not_read() -> None:
    received = _ask([(b"content-length", b"50000000")], iter([]))
    assert received == (413, 0)


def test_a_body_that_turns_out_too_large_is_read_no_further() -> None:
    chunks = iter([b"x" * 300] * 100)
    status, read = _ask([(b"transfer-encoding", b"chunked")], chunks)
    assert (status, read) == (413, 4)  # the fourth goes beyond 1000


def test_a_length_that_is_none_is_refused() -> None:
    for length in (b"-1", b"1e3", b"9" * 40, b"0x10"):
        assert _ask([(b"content-length", length)], iter([])) == (413, 0)


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    assert _ask([(b"content-length", b"10")], None) == (408, 0)


def test_the_sentence_says_how_much_may_come() -> None:
    asked = client().post("/echo", content="x" * 1001, headers=BEARER)
    assert asked.json() == {"error": "a request has at most 1,000 bytes here; send less text at a time"}


def _ask(headers: list[tuple[bytes, bytes]], chunks: Iterator[bytes] | None) -> tuple[int, int]:
    """The status, and how many chunks were read; without chunks nothing ever comes."""
    read = 0

    async def receive() -> Message:
        nonlocal read
        if chunks is None:
            await asyncio.sleep(60)
        assert chunks is not None
        read += 1
        return {"type": "http.request", "body": next(chunks), "more_body": True}

    status, _ = raw("POST", "/echo", [*AUTHORISED, *headers], receive)
    return status, read
