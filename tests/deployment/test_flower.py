"""Over Flower's Grid every algorithm ends with the bits of one process, whatever replies meet on their way."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import ObjectPushError

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.deployment.flower import grid as flower_grid
from grandrounds.deployment.flower.grid import Letter
from grandrounds.deployment.flower.records import from_records, to_records
from grandrounds.deployment.protocol import (
    Answered,
    AskMethod,
    Bye,
    Hello,
    Introduction,
    Request,
    Response,
    decode,
    encode,
)
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import verify
from grandrounds.federation.contract import Registration
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Packed, PayloadError
from grandrounds.federation.private import MissingVersionError, PrivateStore
from grandrounds.registry import ALGORITHMS
from grandrounds.simulation.prepare import prepare
from tests.conftest import TinyConfig, corpus, task_for, write_corpus
from tests.deployment.grids import MemoryGrid, apps, asked_by, handlers, over, reported, run_over_grid
from tests.federation import toy
from tests.hosts import CANARIES, planted
from tests.simulation.crashes import metrics, models, timeless

ALGORITHMS["toy"] = toy.Toy
NAMES = sorted(ALGORITHMS)
del ALGORITHMS["toy"]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    ALGORITHMS["toy"] = toy.Toy
    yield
    del ALGORITHMS["toy"]


def setting(tiny_config: TinyConfig, name: str, **more: Any) -> dict[str, Any]:
    few = {"iterations": 2} if name == "fedner" else {}
    return tiny_config(**{"algorithm": {"name": name, **few}, "federation.rounds": 2, **task_for(name), **more})


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_has_the_bits_of_one_process(tiny_config: TinyConfig, tmp_path: Path, name: str) -> None:
    content = setting(tiny_config, name)
    grandrounds.run(content, out=tmp_path / "process")
    run_over_grid(content, tmp_path / "grid")
    assert models(tmp_path / "grid") == models(tmp_path / "process")
    assert timeless(metrics(tmp_path / "grid")) == timeless(metrics(tmp_path / "process"))


def test_pretraining_has_the_bits_of_one_process(tiny_config: TinyConfig, tmp_path: Path) -> None:
    task = {"name": "masked_lm", "length": 32, "next_sentence": True}
    content = setting(tiny_config, "fedavg", task=task, **{"federation.weight_by": "patients"})
    grandrounds.run(content, out=tmp_path / "process")
    run_over_grid(content, tmp_path / "grid")
    assert models(tmp_path / "grid") == models(tmp_path / "process")
    assert timeless(metrics(tmp_path / "grid")) == timeless(metrics(tmp_path / "process"))


def test_unlabelled_rows_and_labels_alone_have_the_bits_of_one_process(tiny_config: TinyConfig, tmp_path: Path) -> None:
    options = {"name": "feded", "upload": "labels", "average": "probabilities"}
    content = setting(tiny_config, "feded", algorithm=options, **{"data.unlabelled": 0.3})
    grandrounds.run(content, out=tmp_path / "process")
    run_over_grid(content, tmp_path / "grid")
    assert models(tmp_path / "grid") == models(tmp_path / "process")
    assert timeless(metrics(tmp_path / "grid")) == timeless(metrics(tmp_path / "process"))


def test_diagnostics_are_those_of_one_process(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = setting(tiny_config, "fedlcc", **{"algorithm.diagnostics": True})
    grandrounds.run(content, out=tmp_path / "process")
    run_over_grid(content, tmp_path / "grid")
    found = metrics(tmp_path / "grid")[1]["diagnostics"]
    assert found["cosine_global"] > 0
    assert found == metrics(tmp_path / "process")[1]["diagnostics"]
    assert models(tmp_path / "grid") == models(tmp_path / "process")


@pytest.mark.parametrize("name", ["feded", "toy"])
def test_the_logs_of_both_sides_agree(tiny_config: TinyConfig, tmp_path: Path, name: str) -> None:
    run_over_grid(setting(tiny_config, name), tmp_path / "run")

    def payloads(path: Path, site: str) -> list[tuple[Any, ...]]:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        keys = ("round", "exchange", "direction", "kind", "bytes", "digest")
        return [tuple(line[key] for key in keys) for line in lines if "digest" in line and line["site"] == site]

    for folder in sorted((tmp_path / "run" / "sites").iterdir()):
        ours = payloads(tmp_path / "run" / "audit.jsonl", folder.name)
        assert ours
        assert payloads(folder / "audit.jsonl", folder.name) == ours
        verify(folder / "audit.jsonl")


def test_replies_that_come_twice_late_or_for_another_note_are_never_merged(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    """A thousand of them: every reply is followed by all that came before it, and some come twice at once."""
    kept: list[Message] = []
    stale = 0

    def repeated(site: str, reply: Message) -> list[Message]:
        nonlocal stale
        again = [*kept[-60:], reply, reply]
        stale += len(again) - 1
        kept.append(reply)
        return again

    content = setting(tiny_config, "toy", **{"federation.rounds": 6, "partition.sites": 4})
    grandrounds.run(content, out=tmp_path / "process")
    run_over_grid(content, tmp_path / "grid", repeated)
    assert stale > 1000
    assert models(tmp_path / "grid") == models(tmp_path / "process")
    assert timeless(metrics(tmp_path / "grid")) == timeless(metrics(tmp_path / "process"))


def test_a_reply_to_another_request_is_rejected_at_once(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """A reply that carries the note of another ask, though Flower says that it answers this one."""
    last: list[Message] = []

    def replayed(site: str, reply: Message) -> list[Message]:
        if site != "site-02":
            return [reply]
        last.append(reply)
        return [Message(last[-2].content, reply_to=asked_by(reply)) if len(last) > 1 else reply]

    run_over_grid(setting(tiny_config, "fedavg", **{"federation.rounds": 3}), tmp_path / "grid", replayed)
    wanted = {"site-02": "rejected: its reply is to another request"}
    assert [line["lost"] for line in metrics(tmp_path / "grid")] == [{}, wanted, wanted]
    assert sum(line["seconds"] for line in metrics(tmp_path / "grid")) < 5.0  # a deadline each


def edited(data: bytes, **changes: Any) -> bytes:
    return json.dumps({**json.loads(data), **changes}).encode()


def spoiled(content: Any, how: str) -> Any:
    """A reply with something wrong in it."""
    message, payloads = from_records(content)
    if not payloads:
        return content
    packed = Packed.from_bytes(payloads[0])
    first = min(packed.tensors, default="")
    tensors = dict(packed.tensors)
    match how:
        case "not a number":
            tensors[first] = torch.full_like(tensors[first], torch.nan)
        case "another shape":
            tensors[first] = torch.zeros(5, 7, 11)
        case "another name":
            tensors["smuggled"] = tensors.pop(first)
        case "another kind":
            return to_records(message, [Packed("scores", {"values": {"f1": 1.0}}, {}).to_bytes()])
        case "nested deep":
            data = safetensors.torch.save(tensors, {packed.kind: '{"a":' * 972 + "1" + "}" * 972})
            return to_records(message, [data])
        case "text in the header":
            return to_records(message, [Packed(packed.kind, {"notes": "canary " * 150}, tensors).to_bytes()])
        case "torn":
            return to_records(message, [payloads[0][:-9]])
        case "no payload":
            return to_records(message)
        case "no answer":
            return to_records(edited(message, message="well"), payloads)
        case "a forged count":
            return to_records(edited(message, counts={"examples": 10**9}, weight=1e9), payloads)
    return to_records(message, [Packed(packed.kind, packed.header, tensors).to_bytes()])


WRONGS = (
    "nested deep",
    "text in the header",
    "not a number",
    "another shape",
    "another name",
    "another kind",
    "torn",
    "no payload",
    "no answer",
    "a forged count",
)


@pytest.mark.parametrize("how", WRONGS)
def test_a_bad_reply_is_rejected_by_name_and_the_round_completes(
    tiny_config: TinyConfig, tmp_path: Path, how: str
) -> None:
    def spoil(site: str, reply: Message) -> list[Message]:
        if site == "site-01":
            reply = Message(spoiled(reply.content, how), reply_to=asked_by(reply))
        return [reply]

    run_over_grid(setting(tiny_config, "fedavg"), tmp_path / "run", spoil)
    for line in metrics(tmp_path / "run"):
        assert line["replies"] == 2
        assert not line["abandoned"]
        assert set(line["lost"]) == {"site-01"}
        assert line["lost"]["site-01"].startswith("rejected: ")


def test_a_site_that_is_silent_again_and_again_costs_no_more_time(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """It beats, so it is in sight; it never answers, until round 6."""
    asked = dict.fromkeys(("site-01", "site-02", "site-03"), 0)

    def silent(site: str, reply: Message) -> list[Message]:
        asked[site] += 1
        return [reply] * (site != "site-02" or asked[site] > 5)

    content = setting(tiny_config, "fedavg", **{"federation.rounds": 7, "data.validation": 0.0})
    run_over_grid(content, tmp_path / "run", silent, deadline=4.0)
    lines = metrics(tmp_path / "run")
    assert [line["lost"].get("site-02", "") for line in lines] == [
        "late: no answer within 4 s",
        "late: no answer within 4 s",
        "late: no answer within 4 s; from now on it is not waited for longer than the others",
        "late: no answer for the 4th time in a row, so it was not waited for",
        "late: no answer for the 5th time in a row, so it was not waited for",
        "",
        "",
    ]
    assert min(line["seconds"] for line in lines[:3]) > max(line["seconds"] for line in lines[3:])


def test_a_site_that_never_answers_is_late_and_named(tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = setting(tiny_config, "fedavg", **{"federation.rounds": 1})
    run_over_grid(content, tmp_path / "run", lambda site, reply: [reply] * (site != "site-02"), deadline=0.5)
    (line,) = metrics(tmp_path / "run")
    assert line["lost"] == {"site-02": "late: no answer within 0.5 s"}
    assert line["replies"] == 2


def ask(site: str) -> Ask:
    return Ask(site, "fedavg", {}, "train", 1, 1, (), "digest", None, None, ())


def echo(name: str, lives: list[str]) -> ClientApp:
    """A site that says which life it is in."""
    app = ClientApp()

    @app.query()
    def query(message: Message, context: Any) -> Message:
        request = decode(Request, from_records(message.content)[0])
        lives.append(name)
        response = Response(id=request.id, registration="", log="", message=Answered())
        return Message(to_records(encode(response), [Packed("done", {}, {}).to_bytes()]), reply_to=message)

    return app


def test_a_site_that_comes_back_within_an_exchange_is_asked_anew(tmp_path: Path) -> None:
    """It was killed with our ask in its hands; the next life of its process gets it again."""
    asked: list[str] = []
    dead = True

    def killed(site: str, reply: Message) -> list[Message]:
        nonlocal dead
        if site == "b" and dead:
            dead = False
            grid.lives["b"] = 2
            return []
        return [reply]

    grid = MemoryGrid({name: echo(name, asked) for name in "abc"}, killed)
    answers = list(over(grid, tmp_path).exchange([ask(name) for name in "abc"]))
    assert [(answer.site, answer.lost) for answer in answers] == [("a", None), ("b", None), ("c", None)]
    assert asked.count("b") == 2


def test_a_site_that_is_away_is_cut_off_but_a_coordinator_that_sees_nobody_waits(tmp_path: Path) -> None:
    grid = MemoryGrid({name: echo(name, []) for name in "ab"})
    grid.away = {"b"}
    answers = list(over(grid, tmp_path, absence=0.1).exchange([ask("a"), ask("b")]))
    assert answers[0].payloads
    assert (answers[1].lost or "").startswith("cut off: not seen for")
    grid.away = {"a", "b"}
    looks = 0

    def back() -> None:
        nonlocal looks
        looks += 1
        if looks == 30:
            grid.away = set()

    answers = list(over(grid, tmp_path, absence=0.001, idle=back).exchange([ask("a"), ask("b")]))
    assert [answer.lost for answer in answers] == [None, None]


@pytest.mark.parametrize("jump", [0, 3600, -3600])
def test_a_message_that_superlink_does_not_take_whole_ends_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    """It gives up pushes that took too long, by the machine's clock."""
    clock = time.time

    class Refusing(MemoryGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            monkeypatch.setattr(time, "time", lambda: clock() + jump)
            raise ObjectPushError("0" * 64, 1, "session")

    monkeypatch.setattr(flower_grid, "CLOCK", flower_grid._Clock())
    grid = over(Refusing({"a": None}), tmp_path)  # type: ignore[dict-item]
    said = f"this machine's clock jumped by {jump:+d} s" if jump else "Flower's SuperLink no longer answers"
    with pytest.raises(GrandRoundsError, match=f"^{re.escape(said)}.*go on with --resume$"):
        list(grid.converse([Letter("a", Hello(), [])]))


def test_a_large_early_reply_waits_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grandrounds.deployment.flower import grid as module

    monkeypatch.setattr(module, "LARGE", 1)
    grid = MemoryGrid({name: echo(name, []) for name in "abc"})
    seen = []
    for answer in over(grid, tmp_path).exchange([ask(name) for name in "abc"]):
        seen.append((answer.site, bool(answer.payloads), len(list((tmp_path / "spool").iterdir()))))
    assert seen == [("a", True, 2), ("b", True, 1), ("c", True, 0)]


def test_records_carry_messages_and_payloads_of_any_size() -> None:
    big = bytes(range(256)) * 40_000
    assert from_records(to_records(b"{}", [b"", big])) == (b"{}", [b"", big])

    for strange in (
        RecordDict(),
        RecordDict({"message": ConfigRecord({"text": b"{}"})}),
        RecordDict({"message": ConfigRecord({"json": 3})}),
    ):
        with pytest.raises(PayloadError, match="can't be read"):
            from_records(strange)


FORBIDDEN: list[tuple[dict[str, Any], str]] = [
    ({"method": "__init__"}, "failed: ConfigError; the site's own log says more"),
    (
        {"algorithm": "local_only", "method": "train", "options": {}, "commit": "00001.1"},
        "refused: this site takes part in another algorithm, or with other options",
    ),
    (
        {"algorithm": "fedprox", "options": {"mu": 3.0}},
        "refused: this site takes part in another algorithm, or with other options",
    ),
    ({"public": "feedfeedfeedfeed"}, "refused: the public set is version "),
    (
        {"start": "../../secret"},
        "refused: a version of private state is called by its round and exchange, and this is not",
    ),
]


def test_a_desk_refuses_what_is_not_its_business(tiny_config: TinyConfig, tmp_path: Path) -> None:
    config = make_config(tiny_config())
    simulation = prepare(config, Path(), tmp_path)
    handler = handlers(simulation, simulation.runner(config, tmp_path, memory=0), tmp_path / "sites")["site-01"]

    def lost(asked: Ask) -> str:
        said = reported(handler, AskMethod.of(asked, lambda packed: 0))
        assert isinstance(said, Answered)
        return said.lost or ""

    said, payloads = handler(b'{"id": "7", "message": {"what": "eval", "code": "print()"}}', [])
    unknown = decode(Response, said)
    assert (unknown.id, payloads) == ("7", [])
    assert unknown.message == Answered(lost="failed: a message can't be read (message: union tag invalid)")
    assert lost(ask("site-02")) == "refused: this is another site"
    assert lost(ask("site-01")) == "refused: the shared config at this site is another one"
    good = replace(ask("site-01"), config=config.digest())
    for change, sentence in FORBIDDEN:
        assert lost(replace(good, **change)).startswith(sentence)
    assert lost(replace(good, public_set=Packed("done", {}, {}))).startswith("failed: PayloadError")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sites"]
    assert handler.ended is None
    reported(handler, Bye())
    assert handler.ended == ""


def test_a_hello_says_who_we_are(tiny_config: TinyConfig, tmp_path: Path) -> None:
    config = make_config(tiny_config())
    simulation = prepare(config, Path(), tmp_path)
    made = handlers(simulation, simulation.runner(config, tmp_path, memory=0), tmp_path / "sites")["site-01"]
    hello = reported(made, Hello())
    assert isinstance(hello, Introduction)
    us: Registration = simulation.sites["site-01"].registration
    assert hello.counts == us.counts
    assert hello.version == grandrounds.__version__
    assert hello.manifest == us.manifest


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "..", "", "00001", "00001.1/../../x"])
def test_a_version_is_never_a_path(tmp_path: Path, name: str) -> None:
    """The coordinator names versions; a site must not write or read where such a name points."""
    store = PrivateStore(tmp_path / "states", memory=0)
    (tmp_path / "states" / "site").mkdir(parents=True)
    notes = tmp_path / "x"
    notes.mkdir()
    (notes / "note.txt").write_text("of a patient")
    for use in (lambda: store.write("site", name, {}), lambda: store.read("site", name)):
        with pytest.raises(MissingVersionError):
            use()
    store.retain("site", {name})
    assert (notes / "note.txt").read_text() == "of a patient"


def test_a_bug_at_every_site_stops_the_run(tiny_config: TinyConfig, tmp_path: Path) -> None:
    broken = {"algorithm.name": "fedavg"}

    def fail(site: str, reply: Message) -> list[Message]:
        response = decode(Response, from_records(reply.content)[0])
        lost = Answered(lost="failed: ValueError; the site's own log says more")
        return [Message(to_records(encode(response.model_copy(update={"message": lost}))), reply_to=asked_by(reply))]

    with pytest.raises(GrandRoundsError, match=r"round 1, 'train': every site failed: ValueError; .* mend that"):
        run_over_grid(tiny_config(**broken), tmp_path / "run", fail)


def test_no_word_of_a_site_crosses_the_wire(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """A hundred canaries in the sites' text, in everything that a Grid carries: payloads, notes, errors."""
    crossed = bytearray()

    class Tapped(MemoryGrid):
        def carried(self, message: Message) -> Message:
            for part in get_all_nested_objects(message).values():
                crossed.extend(part.deflate())
            return super().carried(message)

    train = planted(corpus(60), CANARIES)
    write_corpus(tmp_path / "train.jsonl", train)
    content = setting(tiny_config, "feded", **{"data.train": str(tmp_path / "train.jsonl"), "data.public": 0.0})
    write_corpus(tmp_path / "public.jsonl", corpus(16, "p"))
    content["data"]["public"] = str(tmp_path / "public.jsonl")
    content["data"]["validation"] = 0.0
    run_over_grid(content, tmp_path / "run", kind=Tapped)
    config = make_config(content)
    simulation = prepare(config, Path(), tmp_path / "again")
    host = simulation.runner(config, tmp_path / "again", memory=0)

    def trip(asked: Ask) -> Answer:
        raise ValueError(f"could not tokenise {train[0].text}")

    host.answer, host.check = trip, lambda asked: None  # type: ignore[method-assign]
    made = handlers(simulation, host, tmp_path / "sites")
    grid = Tapped(apps(made))
    (answer,) = over(grid, tmp_path).exchange([replace(ask("site-01"), method="train_and_predict")])
    assert answer.lost == "failed: ValueError; the site's own log says more"
    assert len(crossed) > 100_000
    text = (tmp_path / "train.jsonl").read_bytes()
    for canary in CANARIES:
        assert canary.encode() in text
        assert canary.encode() not in crossed
