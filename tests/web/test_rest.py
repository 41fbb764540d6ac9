"""Programs get what `grandrounds extract` finds; what they may not have is one sentence without a word of a note."""

from __future__ import annotations

import io
import json
import logging
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from grandrounds.data.documents import Document
from grandrounds.data.formats import brat, documents_json
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.web.rest import Limits
from tests.conftest import corpus
from tests.reports.scripts import SCRIPTS
from tests.tasks.extractors import TEXT
from tests.web.serving_models import serving

NAME = "Zebulon Quackenbush"
GOLD = "T1\ttreatment 4 11\taspirin\nT2\tproblem 22 26\tpain\nR1\tTrIP Arg1:T1 Arg2:T2\n"
NOTE = "The aspirin eased the pain ."


def files(**contents: str) -> dict[str, Any]:
    return {"files": [{"name": name.replace("_", "."), "content": content} for name, content in contents.items()]}


def test_a_text_gives_what_the_pipeline_finds(asking: TestClient, pipeline: Pipeline) -> None:
    answer = asking.post("/extract", json={"text": TEXT}).json()
    assert answer == {"documents": [pipeline(TEXT).to_dict()], "warnings": {}}
    assert len(answer["documents"][0]["relations"]) == 2


def test_a_batch_is_answered_in_its_order_and_named_by_number(asking: TestClient, pipeline: Pipeline) -> None:
    texts = [document.text for document in corpus(20)]
    answer = asking.post("/extract", json={"texts": texts}).json()
    assert answer["documents"] == [document.to_dict() for document in pipeline.pipe(texts)]
    assert asking.post("/extract", json={"texts": []}).json() == {"documents": [], "warnings": {}}


def test_what_comes_at_once_is_read_together_and_found_as_alone(pipeline: Pipeline) -> None:
    texts = [document.text for document in corpus(40)]
    alone = [pipeline(text).to_dict() for text in texts]
    with serving(pipeline, queue=64) as client, ThreadPoolExecutor(16) as many:
        answers = list(many.map(lambda text: client.post("/extract", json={"text": text}).json(), texts))
    assert [answer["documents"] for answer in answers] == [[one] for one in alone]


def test_a_threshold_is_of_one_request(asking: TestClient, pipeline: Pipeline) -> None:
    strict = asking.post("/extract", json={"text": TEXT, "threshold": 0.99}).json()["documents"][0]
    assert strict == pipeline.extract(TEXT, 0.99).to_dict()
    assert len(strict["mentions"]) < len(
        asking.post("/extract", json={"text": TEXT}).json()["documents"][0]["mentions"]
    )


def test_the_models_are_described_without_their_place(asking: TestClient) -> None:
    found = asking.get("/models").json()
    assert [(model["task"], model["finds"]) for model in found["models"]] == [
        ("ner", "mentions"),
        ("sentence_re", "relations"),
    ]
    assert found["models"][0]["types"] == ["problem", "test", "treatment"]
    assert "/" not in json.dumps(found)


def test_health_needs_no_token_and_nothing_else_goes_without(asking: TestClient) -> None:
    del asking.headers["Authorization"]
    assert asking.get("/health").json() == {"status": "ok"}
    for path in ("/", "/models", "/docs", "/openapi.json"):
        assert asking.get(path).status_code == 401
    for path in ("/extract", "/read", "/export"):
        assert asking.post(path, json={"text": TEXT}).status_code == 401


def test_the_page_on_rest_names_all_and_loads_nothing_from_elsewhere(asking: TestClient) -> None:
    shown = asking.get("/docs").text
    for path in ("/extract", "/read", "/export", "/models", "/health"):
        assert path in shown
    assert "<script" not in shown
    assert [word for word in shown.split('"') if word.startswith(("http", "//"))] == []
    described = asking.get("/openapi.json").json()
    assert set(described["paths"]) == {"/extract", "/read", "/export", "/models", "/health"}


UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"json": {}}, "give either 'text' or 'texts'"),
    ({"json": {"text": "a", "texts": ["a"]}}, "give either 'text' or 'texts'"),
    ({"json": {"text": [NAME]}}, "'text' must be a text"),
    ({"json": {"texts": NAME}}, "'texts' is not what /docs describes"),
    ({"json": {"texts": [NAME, 3]}}, "'texts.1' must be a text"),
    ({"json": {"texts": ["a"] * 65}}, "'texts' has too many items"),
    ({"json": {"text": "a", NAME: 1}}, "a field is not known here"),
    ({"json": {"text": "a", "threshold": 2}}, "'threshold' is too large"),
    ({"json": {"text": "a", "threshold": NAME}}, "'threshold' is not what /docs describes"),
    ({"json": [NAME]}, "the body must be JSON as /docs describes it, sent as application/json"),
    ({"content": NAME}, "the body must be JSON as /docs describes it, sent as application/json"),
    ({"content": f'{{"text": "{NAME}'}, "the body must be JSON as /docs describes it, sent as application/json"),
    ({"data": {"text": NAME}}, "the body must be JSON as /docs describes it, sent as application/json"),
]


@pytest.mark.parametrize(("asked", "sentence"), UNUSABLE, ids=lambda value: str(value)[:30])
def test_what_cannot_be_used_is_a_sentence_that_quotes_nothing(
    asking: TestClient, asked: dict[str, Any], sentence: str
) -> None:
    answer = asking.post("/extract", **asked)
    assert (answer.status_code, answer.json()) == (422, {"error": sentence})


@pytest.mark.parametrize("body", ["[" * 20_000, '{"text": NaN}', '{"threshold": 1e999}', "\xff"])
def test_odd_json_is_refused(asking: TestClient, body: str) -> None:
    odd = body.encode("latin-1")
    answer = asking.post("/extract", content=odd, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert set(answer.json()) == {"error"}


def test_half_a_character_is_read_as_a_mark_for_it(asking: TestClient) -> None:
    headers = {"Content-Type": "application/json"}
    answer = asking.post("/extract", content=b'{"text": "a \\ud800 b"}', headers=headers).json()
    assert answer["documents"][0]["text"] == "a \ufffd b"
    dropped = b'{"files": [{"name": "a.txt", "content": "a \\udfff b"}]}'
    (read,) = asking.post("/read", content=dropped, headers=headers).json()["documents"]
    assert read["found"]["text"] == "a \ufffd b"
    line = json.dumps({"id": "a", "text": "a \ud800 b"})
    assert asking.post("/read", json=files(a_json=line)).status_code == 422
    shown = {"document": line, "mentions": [], "relations": []}
    assert asking.post("/export", json={"format": "json", "documents": [shown]}).status_code == 422


def test_too_much_text_is_refused_by_characters_and_by_bytes(asking: TestClient) -> None:
    answer = asking.post("/extract", json={"texts": ["a" * 2501] * 2})
    assert (answer.status_code, answer.json()["error"]) == (
        413,
        "a request has at most 5,000 characters of text here; send less at a time",
    )
    assert asking.post("/extract", content="a" * 40_001).status_code == 413


class Slow:
    """A tagger that waits until it is let go, fails on one word and counts another."""

    def __init__(self, tagger: Any) -> None:
        self.tagger, self.calls, self.problem = tagger, 0, None
        self.wait: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tagger, name)

    def extract_all(self, documents: Any, threshold: float, device: Any) -> Any:
        self.calls += 1
        self.wait()
        if any("POISON" in document.text for document in documents):
            raise RuntimeError(NAME)
        found, left_out = self.tagger.extract_all(documents, threshold, device)
        odd = sum(document.text.count("ODD") for document in documents)
        return found, {**left_out, **({"odd words": odd} if odd else {})}


@pytest.fixture
def slow(pipeline: Pipeline) -> Slow:
    return Slow(pipeline.taggers[0])


def test_beyond_the_queue_one_is_told_when_to_come_again(pipeline: Pipeline, slow: Slow) -> None:
    go = threading.Event()
    slow.wait = lambda: go.wait(20)
    with serving(replace(pipeline, taggers=[slow]), queue=2) as client, ThreadPoolExecutor(12) as many:
        asked = [many.submit(client.post, "/extract", json={"text": NOTE})]
        _until(lambda: slow.calls == 1)
        asked += [many.submit(client.post, "/extract", json={"text": NOTE}) for _ in range(11)]
        _until(lambda: sum(one.done() for one in asked) == 9)
        go.set()
        answers = [one.result() for one in asked]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert sorted({answer.status_code for answer in answers}) == [200, 503]
    assert len(refused) == 9
    assert all(answer.headers["retry-after"] == "1" for answer in refused)
    assert refused[0].json() == {"error": "the queue is full; come again in 1 s"}


def test_who_waits_too_long_is_told_so_and_not_read(pipeline: Pipeline, slow: Slow) -> None:
    go = threading.Event()
    slow.wait = lambda: go.wait(20)
    with serving(replace(pipeline, taggers=[slow]), Limits(5000, 0.3)) as client, ThreadPoolExecutor(2) as many:
        answers = list(many.map(lambda _: client.post("/extract", json={"text": NOTE}), range(2)))
        go.set()
    assert [answer.status_code for answer in answers] == [504, 504]
    assert "were not read within 0.3 s" in answers[0].json()["error"]
    assert slow.calls == 1  # the second was given up before its turn


def test_a_text_that_breaks_the_model_breaks_no_other(
    pipeline: Pipeline, slow: Slow, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    texts = [NOTE, f"{NAME} POISON", NOTE]
    with caplog.at_level(logging.DEBUG), serving(replace(pipeline, taggers=[slow])) as client:
        with ThreadPoolExecutor(3) as many:
            answers = list(many.map(lambda text: client.post("/extract", json={"text": text}), texts))
        assert client.post("/extract", json={"text": NOTE}).status_code == 200
    assert [answer.status_code for answer in answers] == [200, 500, 200]
    assert answers[1].json() == {"error": "a text could not be read; the server's log says where"}
    out, err = capfd.readouterr()
    assert "grandrounds: RuntimeError at test_rest.py:" in err
    assert NAME not in out + err + caplog.text


def test_nothing_of_a_note_is_logged(
    asking: TestClient, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    bodies: list[dict[str, Any]] = [
        {"json": {"text": f"{NAME} had pain ."}},
        {"content": f'{{"text": "{NAME} \\ud800"}}', "headers": {"Content-Type": "application/json"}},
        {"json": {"texts": [f"{NAME} had pain ."] * 3, "threshold": 0.1}},
        {"json": {"texts": [NAME, 3]}},
        {"json": {"text": 3, NAME: 1}},
        {"json": {"text": f"{NAME} had pain ." * 1000}},
        {"json": files(**{f"{NAME}_txt": NOTE, "a_ann": NAME})},
        {"json": files(a_txt=NAME, a_ann=f"T1\t{NAME} 0 7\tZebulon\n")},
        {"json": files(a_json=NAME)},
        {"json": files(a_xml=f"<collection>{NAME}")},
        {"json": files(a_pdf=NAME)},
        {"json": {"format": NAME, "documents": []}},
        {"json": {"format": "brat", "documents": [{"document": NAME, "mentions": [NAME], "relations": []}]}},
        {"content": NAME},
        {"content": f'{{"text": "{NAME}'},
        {"data": {"text": NAME}},
    ]
    with caplog.at_level(logging.DEBUG):
        for body in bodies:
            for path in ("/extract", "/read", "/export"):
                asking.post(path, **body)
        asking.get(f"/{NAME}")
        asking.get("/", params={"token": NAME, "text": NAME})
        asking.post("/extract", json={"text": NAME}, headers={"Authorization": f"Bearer {NAME}", "Origin": NAME})
        asking.request(NAME.split()[0].upper(), "/extract", headers={"Host": NAME.replace(" ", ".")})
    out, err = capfd.readouterr()
    logged = out + err + "".join(r.getMessage() for r in caplog.records if not r.name.startswith("http"))
    assert NAME.split()[0].lower() not in logged.lower()


def test_what_was_passed_over_is_told_to_whom_it_belongs(pipeline: Pipeline, slow: Slow) -> None:
    with serving(replace(pipeline, taggers=[slow])) as client, ThreadPoolExecutor(8) as many:
        texts = [NOTE, f"{NOTE} ODD", f"{NOTE} ODD ODD"] * 3
        answers = list(many.map(lambda text: client.post("/extract", json={"text": text}).json(), texts))
    assert [answer["warnings"].get("odd words", 0) for answer in answers] == [0, 1, 2] * 3


def test_files_with_gold_are_compared_with_it(asking: TestClient, pipeline: Pipeline) -> None:
    gold = GOLD.replace("problem 22 26\tpain", "problem 18 26\tthe pain") + "T3\ttest 0 3\tThe\n"
    answer = asking.post("/read", json=files(a_txt=NOTE, a_ann=gold)).json()
    (document,) = answer["documents"]
    assert document["agreement"] == {
        "mentions": ["right", "partly"],
        "missed_mentions": [2],
        "relations": ["wrong"],
        "missed_relations": [0],
    }
    assert [mention["id"] for mention in document["gold"]["mentions"]] == ["T1", "T2", "T3"]
    assert document["found"] == {**pipeline(NOTE).to_dict(), "id": "a"}
    assert answer["colours"] == {"problem": "t1", "test": "t2", "treatment": "t0"}


def test_a_plain_note_has_no_gold(asking: TestClient) -> None:
    (document,) = asking.post("/read", json=files(note_txt=NOTE)).json()["documents"]
    assert (document["gold"], document["agreement"]) == (None, None)
    assert document["found"]["id"] == "note.txt"


def test_an_export_is_what_the_writers_write(asking: TestClient, pipeline: Pipeline) -> None:
    (read,) = asking.post("/read", json=files(note_txt=TEXT)).json()["documents"]
    found = replace(pipeline(TEXT), id="note.txt")
    shown = {"document": read["json"], "mentions": [m.id for m in found.mentions], "relations": [0, 1]}

    def exported(format: str) -> Any:
        return asking.post("/export", json={"format": format, "documents": [shown]})

    packed = zipfile.ZipFile(io.BytesIO(exported("brat").content))
    assert packed.namelist() == ["note.txt", "note.ann"]
    assert packed.read("note.txt").decode() == TEXT
    assert packed.read("note.ann").decode() == brat.render(found, Counter())
    assert exported("json").text == documents_json.render([found])
    assert json.loads(exported("bioc").text)["documents"][0]["passages"][0]["text"]
    assert exported("json").headers["content-disposition"] == 'attachment; filename="found.jsonl"'


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_in_notes_names_and_labels_stay_text(asking: TestClient, script: str) -> None:
    note = f"The aspirin eased the pain {script}"
    answer = asking.post("/extract", json={"text": note})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["documents"][0]["text"] == note
    label = "".join(script.split()) or "x"
    gold = f"T1\t{label} 4 11\taspirin\n"
    dropped = asking.post("/read", json={"files": [{"name": f"{script}.txt", "content": note}]})
    assert dropped.status_code == 200
    assert not set("<>&\"'/\\") & set(dropped.json()["documents"][0]["found"]["id"])
    read = asking.post("/read", json=files(a_txt=note, a_ann=gold))
    assert read.status_code in (200, 422)
    assert read.headers["content-type"] == "application/json"
    page = asking.post("/read", json=files(a_pdf=script), headers={"Accept": "text/html"})
    assert "<script>alert" not in page.text


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd.txt",
        "..\\..\\a.txt",
        "/etc/a.txt",
        "a\0b.txt",
        "a\nb.txt",
        "..txt",
        ".txt",
        "COM1.txt",
        "\u202egpj.txt",
        "\x1b[31m.txt",
    ],
)
def test_a_file_name_leads_nowhere(asking: TestClient, name: str) -> None:
    (read,) = asking.post("/read", json={"files": [{"name": name, "content": NOTE}]}).json()["documents"]
    shown = {"document": read["json"], "mentions": [], "relations": []}
    packed = asking.post("/export", json={"format": "brat", "documents": [shown, shown]}).content
    names = zipfile.ZipFile(io.BytesIO(packed)).namelist()
    assert len(set(names)) == 4
    assert not [name for name in names if "/" in name or "\\" in name or name.startswith(".")]


UNREADABLE = [
    (files(a_ann=GOLD), "drop the .txt of the same name too"),
    (files(a_txt=NOTE, a_ann="T1\ttreatment 4 999\taspirin\n"), "a.ann:1:"),
    (files(a_json="{}"), "a.json"),
    (files(a_json=""), "a.json:1: not JSON"),
    (files(a_xml="<collection>"), "a.xml"),
    (files(a_pdf="%PDF"), "is none of .txt, .ann, .json, .jsonl, .xml and PubTator's files"),
    ({"files": []}, "'files' has too few items"),
    ({"files": [{"name": "a.txt", "content": "x"}] * 2}, "the same name"),
]


@pytest.mark.parametrize(("body", "piece"), UNREADABLE, ids=[piece for _, piece in UNREADABLE])
def test_a_file_that_cannot_be_read_is_a_sentence(asking: TestClient, body: dict[str, Any], piece: str) -> None:
    answer = asking.post("/read", json=body)
    assert answer.status_code == 422
    assert piece in answer.json()["error"]


def test_every_format_of_the_field_may_be_dropped(asking: TestClient, pipeline: Pipeline) -> None:
    gold = Document("7", "The aspirin\neased the pain .")
    found = replace(pipeline(gold.text), id="7")
    shown = {"document": documents_json.render([found]), "mentions": ["T1", "T2"], "relations": [0]}
    for format, name in (("bioc", "a.json"), ("json", "a.jsonl")):
        written = asking.post("/export", json={"format": format, "documents": [shown]}).text
        (read,) = asking.post("/read", json={"files": [{"name": name, "content": written}]}).json()["documents"]
        assert read["agreement"]["mentions"] == ["right", "right"]
        assert read["agreement"]["missed_relations"] == []
    pubtator = "7|t|The aspirin\n7|a|eased the pain .\n7\t4\t11\taspirin\ttreatment\tD1\n\n"
    (read,) = asking.post("/read", json={"files": [{"name": "a.txt", "content": pubtator}]}).json()["documents"]
    assert read["agreement"]["mentions"][0] == "right"


def test_a_server_of_relations_alone_says_what_is_missing(pipeline: Pipeline) -> None:
    with serving(replace(pipeline, taggers=[])) as client:
        refused = client.post("/extract", json={"text": NOTE})
        assert refused.status_code == 422
        assert "relates mentions, and a text has none" in refused.json()["error"]
        (read,) = client.post("/read", json=files(a_txt=NOTE, a_ann=GOLD)).json()["documents"]
    assert read["agreement"]["relations"] == ["right"]


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
