"""The server's side of an exchange, over a transport that answers as the test wants."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from grandrounds import Algorithm, Cohort, Done, Parameters, Scores, Server, Site, on_site
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.audit import Audit, verify
from grandrounds.federation.contract import Registration, algorithm, make_algorithm, site_method
from grandrounds.federation.coordinator import AbandonedError, Federation, Ledger, RoundCohort
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Expected, Packed
from grandrounds.federation.shares import weight
from grandrounds.registry import ALGORITHMS

SIZES = {"c": 3, "a": 1, "b": 2}
SITES = [Registration(name, {"examples": size}, ("None",), {"w": (2,)}) for name, size in SIZES.items()]


@algorithm("for the coordinator")
class ForTheCoordinator(Algorithm):
    rate: float = 0.5

    def round(self, server: Server, cohort: Cohort) -> None: ...

    @on_site
    def send(self, site: Site, parameters: Parameters) -> Parameters: ...

    @on_site
    def count(self, site: Site, number: int) -> Scores: ...

    @on_site
    def rest(self, site: Site) -> Done: ...

    def not_for_sites(self, site: Site) -> Done: ...


ALGORITHMS.pop("for the coordinator")  # other tests run every registered algorithm

Rule = Callable[[Ask], Answer]


def good(ask: Ask) -> Answer:
    value = {"a": 1.0, "b": 2.0, "c": 3.0}[ask.site]
    reply = {
        "send": Parameters({"w": torch.full((2,), value)}),
        "count": Scores({"n": value}),
        "rest": Done(),
    }[ask.method]
    return Answer(ask.site, (reply.pack("fp32"),), ask.commit or ask.start)


class Fake:
    """Answers by a rule for each site, and remembers what was asked."""

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules, self.asked = rules, list[Ask]()

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        for ask in asks:
            self.asked.append(ask)
            yield self.rules.get(ask.site, good)(ask)

    def flush(self) -> None: ...
    def close(self) -> None: ...


class Bench:
    def __init__(self, path: Path, min_replies: int = 1, **rules: Rule) -> None:
        self.made, self.transport, self.ledger = ForTheCoordinator(), Fake(rules), Ledger()
        self.audit, self.path, self.answered = Audit(path / "audit.jsonl"), path / "audit.jsonl", list[str]()
        self.federation = Federation(
            algorithm=self.made,
            transport=self.transport,
            ledger=self.ledger,
            expected=Expected({"w": (2,)}),
            audit=self.audit,
            config="digest",
            weight_by="examples",
            min_replies=min_replies,
            watch=self.answered.append,
        )

    def cohort(self, round: int = 1, read_only: bool = False) -> RoundCohort:
        return self.federation.cohort(SITES, round, read_only)


WEIGHTS = Parameters({"w": torch.zeros(2)})


def packed(tensor: torch.Tensor, kind: str = "parameters") -> Rule:
    return lambda ask: Answer(ask.site, (Packed(kind, {}, {"w": tensor}),), ask.commit)


def refuse(ask: Ask) -> Answer:
    return Answer(ask.site, lost="refused: the site's policy does not let 'parameters' leave")


def test_replies_come_in_site_order_with_weights_from_the_registration(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    cohort = bench.cohort()
    found = [(r.site.site, r.payload.values["w"].tolist(), r.weight) for r in cohort.ask(bench.made.send, WEIGHTS)]
    assert found == [("a", [1, 1], 1.0), ("b", [2, 2], 2.0), ("c", [3, 3], 3.0)]
    assert bench.answered == ["a", "b", "c"]
    assert (cohort.traffic.replies, cohort.traffic.lost) == (3, {})


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (refuse, "refused: the site's policy"),
        (packed(torch.tensor([1.0, float("nan")])), "rejected: 'w' has values that are not finite"),
        (packed(torch.ones(3)), r"rejected: 'w' has shape \(3,\)"),
        (packed(torch.ones(2), "done"), "rejected: a payload of kind 'done' came where 'parameters'"),
        (packed(torch.ones(2), "gift"), "rejected: unknown payload kind 'gift'"),
        (packed(torch.ones(2).double()), "rejected: 'w' has the type"),
        (lambda ask: Answer(ask.site), "lost"),
        (lambda ask: dataclasses.replace(good(ask), version="x" * 10**6), "rejected: it calls its private state by"),
    ],
)
def test_a_bad_reply_is_named_and_never_reaches_the_algorithm(tmp_path: Path, rule: Rule, reason: str) -> None:
    bench = Bench(tmp_path, b=rule)
    cohort = bench.cohort()
    assert [reply.site.site for reply in cohort.ask(bench.made.send, WEIGHTS)] == ["a", "c"]
    assert list(cohort.traffic.lost) == ["b"]
    assert re.search(reason, cohort.traffic.lost["b"])
    assert (cohort.traffic.replies, bench.answered) == (2, ["a", "b", "c"])
    assert bench.ledger.versions == {"a": "00001.1", "c": "00001.1"}


def deep(ask: Ask) -> Answer:
    header: dict[str, Any] = {}
    for _ in range(5_000):
        header = {"a": header}
    return Answer(ask.site, (Packed("parameters", header, {"w": torch.ones(2)}),), ask.commit)


def odd(ask: Ask) -> Answer:
    """What no check of ours has thought of."""
    return Answer(ask.site, (Packed("parameters", {}, {"w": torch.ones(2).bfloat16()}),), ask.commit)


class Strange(Packed):
    """Measured without trouble, and then a surprise."""

    @property
    def header(self) -> Any:  # type: ignore[override]
        return {} if "nbytes" not in self.__dict__ or "digest" not in self.__dict__ else 1 / 0

    @header.setter
    def header(self, value: Any) -> None: ...


def strange(ask: Ask) -> Answer:
    return Answer(ask.site, (Strange("parameters", {}, {"w": torch.ones(2)}),), ask.commit)


ANY = [
    (deep, "rejected: a payload can't be measured (RecursionError)"),
    (odd, "rejected: a payload can't be measured (ValueError)"),
    (strange, "failed: its reply can't be used (ZeroDivisionError)"),
    (packed(torch.ones(2), "x" * 10**6), "rejected: unknown payload kind 'xxx"),
]


@pytest.mark.parametrize(("rule", "reason"), ANY)
def test_whatever_one_reply_leads_to_is_that_sites_rejection(tmp_path: Path, rule: Rule, reason: str) -> None:
    bench = Bench(tmp_path, b=rule)
    cohort = bench.cohort()
    assert [reply.site.site for reply in cohort.ask(bench.made.send, WEIGHTS)] == ["a", "c"]
    assert cohort.traffic.lost["b"].startswith(reason)
    assert len(cohort.traffic.lost["b"]) < 400


def test_where_every_reply_fails_it_is_a_bug_of_ours(tmp_path: Path) -> None:
    bench = Bench(tmp_path, a=strange, b=strange, c=strange)
    with pytest.raises(GrandRoundsError, match="every site failed: its reply can't be used"):
        list(bench.cohort().ask(bench.made.send, WEIGHTS))


def test_what_one_site_says_of_itself_does_not_stop_the_run(tmp_path: Path) -> None:
    """It was asked alone, and says what an honest site says of a bug: the round is abandoned, and others go on."""
    bench = Bench(tmp_path, a=lambda ask: Answer(ask.site, lost="failed: ZeroDivisionError"))
    with pytest.raises(AbandonedError, match=r"abandoned: 0 good replies, 1 are needed \(a failed: Zero"):
        list(bench.cohort().ask_each(bench.made.send, {"a": (WEIGHTS,)}))


def test_rows_of_weights_never_come_from_a_site(tmp_path: Path) -> None:
    """A mean of whole tables could not take them."""
    tensors = {"w": torch.ones(1, 2), "w rows": torch.tensor([0])}
    rows = Packed("parameters", {"since": {"w": "0" * 16}}, tensors)
    bench = Bench(tmp_path, b=lambda ask: Answer(ask.site, (rows,), ask.commit))
    whole = Packed("parameters", {}, {"w": torch.ones(3, 2)})
    bench.transport.rules = {**bench.transport.rules, **dict.fromkeys("ac", lambda ask: Answer(ask.site, (whole,)))}
    bench.federation = dataclasses.replace(bench.federation, expected=Expected({"w": (3, 2)}, tables=frozenset({"w"})))
    cohort = bench.cohort()
    assert [reply.site.site for reply in cohort.ask(bench.made.send, WEIGHTS)] == ["a", "c"]
    assert cohort.traffic.lost == {"b": "rejected: weights come whole from a site; only the server sends rows of them"}


def test_with_fewer_than_min_replies_the_round_is_abandoned_and_says_why(tmp_path: Path) -> None:
    bench = Bench(tmp_path, min_replies=3, b=refuse)
    with pytest.raises(AbandonedError, match=r"round 7 was abandoned: 2 good replies, 3 are needed \(b refused"):
        list(bench.cohort(7).ask(bench.made.send, WEIGHTS))
    (tmp_path / "two").mkdir()
    two = Bench(tmp_path / "two", min_replies=2, b=refuse)
    assert len(list(two.cohort().ask(two.made.send, WEIGHTS))) == 2


def test_min_replies_over_the_number_of_sites_asked_needs_them_all(tmp_path: Path) -> None:
    bench = Bench(tmp_path, min_replies=3)
    assert len(list(bench.cohort().ask_each(bench.made.count, {"a": (1,)}))) == 1


def test_any_other_exception_stops_the_run(tmp_path: Path) -> None:
    def bug(ask: Ask) -> Answer:
        raise ZeroDivisionError

    bench = Bench(tmp_path, b=bug)
    with pytest.raises(ZeroDivisionError):
        list(bench.cohort().ask(bench.made.send, WEIGHTS))


def test_an_ask_whose_replies_nobody_read_is_finished_before_the_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    cohort = bench.cohort()
    cohort.ask(bench.made.rest)
    next(iter(cohort.ask(bench.made.send, WEIGHTS)))
    cohort.ask(bench.made.rest)
    cohort.finish()
    assert [(a.method, a.exchange, a.site) for a in bench.transport.asked] == [
        (method, exchange, site)
        for exchange, method in enumerate(("rest", "send", "rest"), start=1)
        for site in ("a", "b", "c")
    ]
    assert cohort.traffic.replies == 9


def test_versions_move_with_each_exchange_and_start_from_the_last_good_one(tmp_path: Path) -> None:
    def once(ask: Ask) -> Answer:
        return refuse(ask) if ask.exchange == 2 else good(ask)

    bench = Bench(tmp_path, b=once)
    cohort = bench.cohort(4)
    for _ in range(3):
        list(cohort.ask(bench.made.rest))
    assert [(a.start, a.commit) for a in bench.transport.asked if a.site == "a"] == [
        (None, "00004.1"),
        ("00004.1", "00004.2"),
        ("00004.2", "00004.3"),
    ]
    assert [a.start for a in bench.transport.asked if a.site == "b"] == [None, "00004.1", "00004.1"]
    assert bench.ledger.versions == {"a": "00004.3", "b": "00004.3", "c": "00004.3"}


def test_a_read_only_ask_commits_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ledger.versions.update(a="00001.1", b="00001.1")
    list(bench.cohort(2, read_only=True).ask(bench.made.count, 1))
    assert [(a.start, a.commit) for a in bench.transport.asked] == [("00001.1", None), ("00001.1", None), (None, None)]
    assert bench.ledger.versions == {"a": "00001.1", "b": "00001.1"}


def test_a_site_cannot_move_its_version_in_a_read_only_ask(tmp_path: Path) -> None:
    bench = Bench(tmp_path, a=lambda ask: Answer("a", (Scores({}).pack("fp32"),), "00009.9"))
    list(bench.cohort(2, read_only=True).ask(bench.made.count, 1))
    assert bench.ledger.versions == {}


def test_asks_name_the_versions_that_checkpoints_still_need(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.ledger.pinned = [{"a": "00001.1", "b": "00001.1"}, {"a": "00002.1"}, {"a": "00001.1"}]
    list(bench.cohort(3).ask(bench.made.rest))
    assert {a.site: a.needed for a in bench.transport.asked} == {
        "a": ("00001.1", "00002.1"),
        "b": ("00001.1",),
        "c": (),
    }


def test_ask_each_sends_each_its_own_message_and_asks_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    cohort = bench.cohort()
    replies = list(cohort.ask_each(bench.made.count, {"c": (30,), "a": (10,)}))
    assert [(a.site, a.message) for a in bench.transport.asked] == [("a", (10,)), ("c", (30,))]
    assert [reply.site.site for reply in replies] == ["a", "c"]
    with pytest.raises(KeyError, match="stranger"):
        cohort.ask_each(bench.made.count, {"stranger": (1,)})


def test_an_ask_carries_the_algorithm_its_options_and_the_configs_digest(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    list(bench.cohort(5).ask(bench.made.rest))
    ask = bench.transport.asked[0]
    assert (ask.algorithm, ask.options, ask.config, ask.round) == (
        "for the coordinator",
        {"rate": 0.5},
        "digest",
        5,
    )


def test_what_travelled_is_counted_and_logged_good_or_bad(tmp_path: Path) -> None:
    bench = Bench(tmp_path, b=refuse, c=packed(torch.ones(3)))
    cohort = bench.cohort()
    list(cohort.ask(bench.made.send, WEIGHTS))
    down = WEIGHTS.pack("fp32")
    up = [Parameters({"w": torch.ones(size)}).pack("fp32") for size in (2, 3)]
    assert cohort.traffic.bytes_down == 3 * len(down.to_bytes())
    assert cohort.traffic.bytes_up == sum(len(p.to_bytes()) for p in up)
    lines: list[dict[str, Any]] = [json.loads(line) for line in bench.path.read_text().splitlines()]
    assert [(line["site"], line.get("direction", line.get("event"))) for line in lines] == [
        ("a", "down"),
        ("b", "down"),
        ("c", "down"),
        ("a", "up"),
        ("b", "refused: the site's policy does not let 'parameters' leave"),
        ("c", "up"),
        ("c", "rejected: 'w' has shape (3,), declared was (2,)"),
    ]
    assert [line["digest"] for line in lines if line.get("direction") == "up"] == [p.digest for p in up]
    assert lines[0]["bytes"] == down.nbytes
    assert lines[0]["kind"] == "parameters"
    assert verify(bench.path, bench.audit.head) == 7


def test_a_forged_registration_weighs_no_more_than_all_others_together(tmp_path: Path) -> None:
    forged = [dataclasses.replace(s, counts={"examples": 10**12}) if s.site == "b" else s for s in SITES]
    bench = Bench(tmp_path)
    replies = bench.federation.cohort(forged, 1).ask(bench.made.send, WEIGHTS)
    assert [reply.weight for reply in replies] == [1.0, 4.0, 3.0]


def test_weights_are_registered_counts_or_one() -> None:
    assert [weight(site, "examples") for site in SITES] == [3.0, 1.0, 2.0]
    assert [weight(site, "uniform") for site in SITES] == [1.0, 1.0, 1.0]
    with pytest.raises(ConfigError, match="site 'c' registered no such count; known: uniform, examples"):
        weight(SITES[0], "patients")


def test_a_message_can_call_marked_methods_only(tmp_path: Path) -> None:
    made = ForTheCoordinator()
    assert site_method(made, "rest") == made.rest
    for name in ("not_for_sites", "round", "__init__", "nothing"):
        with pytest.raises(ConfigError, match=f"has no site method '{name}'"):
            site_method(made, name)


def test_an_unknown_algorithm_or_option_suggests_the_nearest() -> None:

    with pytest.raises(ConfigError, match="unknown algorithm 'fedavgg'; did you mean 'fedavg'"):
        make_algorithm("fedavgg", {})
    with pytest.raises(ConfigError, match="algorithm 'fedatt': unknown option 'stepp'; did you mean 'step'"):
        make_algorithm("fedatt", {"stepp": 1})
    with pytest.raises(ConfigError, match=r"algorithm\.norm = 'manhattan'"):
        make_algorithm("fedatt", {"norm": "manhattan"})
