"""Nothing gets in without the token, under another name, or from another's page."""

from __future__ import annotations

import pytest
from starlette.types import Message

from grandrounds.errors import ConfigError
from grandrounds.web.access import Access, address, find_token
from tests.web.asking import AUTHORISED, BEARER, SECRET, TOKEN, client, raw, small

WRONG = [
    "x" * len(TOKEN),
    TOKEN[:-1],
    TOKEN + "x",
    TOKEN.upper(),
    TOKEN[::-1],
    f" {TOKEN[:-1]}",
    "null",
    "undefined",
    "0",
    "true",
    "*",
    "%",
    "' OR '1'='1",
    "../token",
    "${token}",
    "{{token}}",
    "<script>alert(1)</script>",
    "%00",
    TOKEN.replace("-", "_"),
    "A" * 8000,
]
MISSING = [
    {},
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"Authorization": TOKEN},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": f"Digest {TOKEN}"},
    {"Authorization": f"Token {TOKEN}"},
    {"X-Token": TOKEN},
    {"Token": TOKEN},
    {"X-Api-Key": TOKEN},
    {"Proxy-Authorization": f"Bearer {TOKEN}"},
    {"X-Forwarded-Authorization": f"Bearer {TOKEN}"},
    {"Cookie": ""},
    {"Cookie": f"token={TOKEN}"},
    {"Cookie": f"grandrounds={TOKEN}"},
    {"Cookie": f"grandrounds-8001={TOKEN}"},
    {"Cookie": "grandrounds-8000="},
    {"Cookie": f"grandrounds-8000 {TOKEN}"},
    {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1"},
]
PATHS = [
    "/static/../echo",
    "/static/..%2fecho",
    "/static/%2e%2e/echo",
    "/static/..%5cecho",
    "//echo",
    "/./echo",
    "/echo/",
    "/echo;x=/static/",
    "/echo%00.css",
    "/echo?/static/page.css",
    "/health/../echo",
    "/health%2f..%2fecho",
    "/ECHO",
    "/static/../../../../etc/passwd",
    "/static/%2e%2e%2f%2e%2e%2fpyproject.toml",
    "/static//etc/passwd",
    "/static/web.css%00",
    "/static/access.py",
    "/static/templates/base.html",
    "/static/.",
]
FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "http://evil.example:8000"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://127.0.0.1:8001"},
    {"Origin": "http://localhost:8000"},
    {"Origin": "http://127.0.0.1:8000.evil.example"},
    {"Origin": "http://127.0.0.1.evil.example:8000"},
    {"Origin": "http://evil.example#127.0.0.1:8000"},
    {"Origin": "http://127.0.0.1:8000@evil.example"},
    {"Origin": "file://"},
    {"Origin": "chrome-extension://abcdefgh"},
    {"Origin": "http://127.0.0.1:8000/path"},
    {"Origin": "http://[::1]:8000"},
    {"Origin": "127.0.0.1:8000"},
    {"Origin": "http://127.0.0.1:99999999"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    {"Sec-Fetch-Site": "whatever", "Origin": "http://127.0.0.1:8000"},
]
HOSTS = [
    "evil.example",
    "evil.example:8000",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "localhost.evil.example:8000",
    "0.0.0.0:8000",
    "127.0.0.2:8000",
    "[::2]:8000",
    "127.0.0.1:0",
    "2130706433",
    "127.1",
    "",
    "0x7f.0.0.1:8000",
    "017700000001",
    "localhost.:8000",
    "127.0.0.1:8000,evil.example",
    "127.0.0.1:8000/evil",
    "evil.example#127.0.0.1:8000",
    "user:127.0.0.1@127.0.0.1",
    "[::ffff:127.0.0.1]:8000",
]


@pytest.mark.parametrize("token", WRONG)
def test_a_wrong_token_is_refused(token: str) -> None:
    asked = client().post("/echo", content="x", headers={"Authorization": f"Bearer {token}".encode("latin-1")})
    assert asked.status_code == 401
    assert asked.json() == {"error": "the token is missing or wrong; the command printed it when it started"}
    assert client().get("/", params={"token": token}).status_code == 401
    assert "set-cookie" not in client().get("/", params={"token": token}).headers


@pytest.mark.parametrize("headers", MISSING)
def test_a_missing_token_is_refused(headers: dict[str, str]) -> None:
    assert client().post("/echo", content="x", headers=headers).status_code == 401


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_around_the_token_or_to_a_file(path: str) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    status, said = raw("POST", path, [], receive)
    assert status in (401, 404, 405)
    assert b"length" not in said
    status, said = raw("GET", path, AUTHORISED, receive)
    assert status in (404, 405)
    assert b"root:" not in said
    assert b"import" not in said


@pytest.mark.parametrize("headers", FOREIGN)
def test_a_page_of_others_cannot_ask_even_with_the_token(headers: dict[str, str]) -> None:
    assert client().post("/echo", content="x", headers={**BEARER, **headers}).status_code == 403


@pytest.mark.parametrize("host", HOSTS)
def test_another_name_for_our_address_is_refused(host: str) -> None:
    asked = client().post("/echo", content="x", headers={**BEARER, "Host": host})
    assert asked.status_code == 421


def test_who_brings_the_token_gets_in() -> None:
    ours = {"Origin": "http://127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}
    assert client().post("/echo", content="abc", headers={**BEARER, **ours}).json() == {"length": 3}
    cookie = {"Cookie": f"other=1; grandrounds-8000={TOKEN}"}
    assert client().post("/echo", content="abc", headers=cookie).json() == {"length": 3}
    assert client(host="localhost:8000").post("/echo", content="", headers=BEARER).status_code == 200


def test_the_printed_address_gives_the_browser_a_cookie_and_leaves_no_token_in_its_history() -> None:
    browser = client()
    came = browser.get("/", params={"token": TOKEN})
    assert (came.status_code, came.headers["location"]) == (303, "/")
    assert came.headers["set-cookie"] == f"grandrounds-8000={TOKEN}; HttpOnly; Path=/; SameSite=strict"
    assert browser.get("/").status_code == 200
    assert client().get("//evil.example/", params={"token": TOKEN}).headers["location"] == "/"


def test_a_link_from_elsewhere_opens_the_door_and_nothing_more() -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client().get("/", headers=followed).status_code == 401


def test_without_a_token_only_this_machine_may_ask() -> None:
    assert client(small(token=None)).post("/echo", content="x").json() == {"length": 1}
    with pytest.raises(ConfigError, match=r"without a token everyone who reaches '0\.0\.0\.0' could read"):
        Access.of("0.0.0.0", 8000, None)


def test_a_token_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 16 printable ASCII characters"):
        Access.of("127.0.0.1", 8000, "secret")


def test_a_token_is_made_or_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRANDROUNDS_TOKEN", raising=False)
    assert len(find_token()) == 32
    assert find_token() != find_token()
    monkeypatch.setenv("GRANDROUNDS_TOKEN", TOKEN)
    assert find_token() == TOKEN


def test_the_address_to_open_has_the_token() -> None:
    assert address("127.0.0.1", 8000, "a+b/c") == "http://127.0.0.1:8000/?token=a%2Bb%2Fc"
    assert address("::1", 8000, None) == "http://[::1]:8000/"
    assert address("0.0.0.0", 80, None, ["notes.example"]) == "http://notes.example:80/"


def test_a_server_on_a_network_is_asked_under_the_names_it_was_given() -> None:
    known = Access.of("0.0.0.0", 8000, TOKEN, names=["Notes.Hospital.example"])
    assert known.names == {"0.0.0.0", "notes.hospital.example"}


def test_every_answer_tells_the_browser_to_run_and_fetch_nothing_of_others() -> None:
    for asked in (client().get("/", headers=BEARER), client().get("/"), client().get("/nothing", headers=BEARER)):
        rules = asked.headers["content-security-policy"].split("; ")
        assert "default-src 'none'" in rules
        assert "script-src 'self'" in rules
        assert "frame-ancestors 'none'" in rules
        assert "unsafe" not in asked.headers["content-security-policy"]
        assert asked.headers["x-content-type-options"] == "nosniff"
        assert asked.headers["referrer-policy"] == "no-referrer"
        assert asked.headers["cache-control"] == "no-store"


def test_a_refusal_is_a_page_for_people_and_asks_for_the_token() -> None:
    asked = client().get("/", headers={"Accept": "text/html"})
    assert asked.status_code == 401
    assert "The token is missing or wrong" in asked.text
    assert 'name="token" type="password"' in asked.text


def test_words_in_a_page_are_text() -> None:
    shown = client().get("/", params={"say": "<script>alert(1)</script>"}, headers=BEARER).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown.lower()
    assert "<script>" not in shown.lower()


def test_what_breaks_is_a_sentence_without_its_words(capfd: pytest.CaptureFixture[str]) -> None:
    asked = client().get("/broken", headers=BEARER)
    assert asked.status_code == 500
    assert asked.json() == {"error": "something broke in this server; its log says where"}
    out, err = capfd.readouterr()
    assert err.startswith("grandrounds: RuntimeError at asking.py:")
    assert SECRET not in out + err
