"""A message is decoded as what it is, or refused in a sentence that holds nothing of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grandrounds.deployment import protocol
from grandrounds.deployment.protocol import (
    Answered,
    Asked,
    AskMethod,
    Bye,
    Done,
    Request,
    Response,
    Said,
    decode,
    encode,
    id_of,
)
from grandrounds.federation.exchange import Work
from grandrounds.federation.payloads import Packed, PayloadError
from tests.deployment.samples import ASK, ASKED, PACKED, REQUESTS, RESPONSES


@pytest.mark.parametrize("message", REQUESTS)
def test_a_request_comes_back_as_it_was(message: Asked) -> None:
    request = Request(id="1", message=message)
    assert decode(Request, encode(request)) == request


@pytest.mark.parametrize("message", RESPONSES)
def test_a_response_comes_back_as_it_was(message: Said) -> None:
    response = Response(id="1", registration="r", log="l", message=message)
    assert decode(Response, encode(response)) == response


def test_an_ask_comes_back_with_its_payloads_and_the_types_of_its_scalars() -> None:
    asked = decode(Request, encode(Request(id="1", message=ASKED))).message
    assert isinstance(asked, AskMethod)
    ask = asked.ask([PACKED.to_bytes()])
    assert ask == ASK
    assert [type(part) for part in ask.message] == [Packed, int, float, bool, str]
    with pytest.raises(PayloadError, match="an ask names payload 0, and 0 came with it"):
        asked.ask([])


def test_an_answer_is_a_payload_or_a_reason() -> None:
    answer = Answered(work=(3, 24)).answer("a", [PACKED.to_bytes()])
    assert (answer.site, answer.payloads, answer.work) == ("a", (PACKED,), Work(3, 24))
    with pytest.raises(PayloadError, match="a payload, or a reason"):
        Answered().answer("a", [])
    with pytest.raises(PayloadError, match="the work of an answer"):
        Answered(work=(-1, 0)).answer("a", [PACKED.to_bytes()])


GOOD: dict[str, Any] = json.loads(encode(Request(id="1", message=ASKED)))
MALFORMED: list[tuple[bytes, str]] = [
    (b"", "JSON: json invalid"),
    (b"[]", "JSON: model type"),
    (b"[" * 100_000, "JSON: json invalid"),
    (b'{"id": "1"}', "message: missing"),
    (b'{"id": 1, "message": {"what": "bye"}}', "id: string type"),
    (b'{"id": "1", "message": {}}', "message: union tag not found"),
    (b'{"id": "1", "message": {"what": "eval"}}', "message: union tag invalid"),
    (b'{"id": "1", "message": {"what": "bye", "code": "canary"}}', "message.bye.code: extra forbidden"),
    (json.dumps({**GOOD, "message": {**GOOD["message"], "round": "canary"}}).encode(), "message.ask.round: int type"),
]


@pytest.mark.parametrize(("data", "problem"), MALFORMED)
def test_what_is_malformed_is_refused_with_its_place_and_none_of_its_values(data: bytes, problem: str) -> None:
    with pytest.raises(PayloadError) as refusal:
        decode(Request, data)
    assert str(refusal.value) == f"a message can't be read ({problem})"


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_BYTES", 10)
    with pytest.raises(PayloadError, match="a message of 41 bytes is over the limit of 10"):
        decode(Request, encode(Request(id="1", message=Bye())).ljust(41))


def test_a_refusal_finds_the_id_where_there_is_one() -> None:
    assert id_of(b'{"id": "7", "message": 3}') == "7"
    assert [id_of(data) for data in (b"", b"[]", b"{}", b"[" * 100_000)] == [""] * 4


@pytest.mark.parametrize("name", ["\ud800", "a\nb", "x" * 101, 7, None])
def test_an_id_that_is_none_of_ours_is_not_said_back(name: Any) -> None:
    """Found by fuzzing: half a surrogate pair as id made a response that nobody can read."""
    data = json.dumps({"id": name, "message": 3}).encode()
    assert id_of(data) == ""
    decode(Response, encode(Response(id=id_of(data), registration="r", log="l", message=Done())))
