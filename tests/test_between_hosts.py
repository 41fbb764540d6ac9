"""A coordinator and three sites as processes on loopback, with TLS and keys: what leaves, and what survives a kill."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from grandrounds.deployment.keys import issue_certificate
from grandrounds.deployment.signed import sign_enrolment
from grandrounds.errors import GrandRoundsError
from grandrounds.federation.audit import compare, verify
from tests.cli.commands import run, start
from tests.hosts import CANARIES, REFUSALS, SITES, Hosts, OwnLabels, everything, stranger, until

Found = Callable[..., Hosts]


@pytest.mark.parametrize("algorithm", ["fedavg", "feded"])
def test_the_model_is_that_of_one_process_and_no_word_of_a_site_reaches_the_coordinator(
    found: Found, algorithm: str
) -> None:
    hosts = found(algorithm__name=algorithm)
    policy = hosts.folder / "policy.toml"
    policy.write_text("max_bytes = 500_000_000\n")
    result = hosts.run(charity=("--policy", policy)).json()
    assert result["rounds"] == 2
    assert hosts.models() == hosts.reference_models()
    assert all(json.loads((hosts.root / "run" / "site_logs.json").read_text()).values())
    for site in SITES:
        assert "the federation has finished; its model is in" in hosts.running[site].wait().good().stdout
        own = hosts.enrolment(site) / "private" / "model"
        assert (own / "model.safetensors").read_bytes() == hosts.models()["model"]
        logs = hosts.root / "run" / "audit.jsonl", hosts.enrolment(site) / "private" / "audit.jsonl"
        verify(logs[1])
        assert compare(*logs, site).agreed >= 4
        said = [re.sub(r"[\d.]+ (MB|kB|s)\b", "N", line) for line in hosts.running[site].said().splitlines()]
        sent = {"fedavg": "parameters (N)", "feded": "predictions (N)"}[algorithm]
        assert [line[11:] for line in said if "round" in line] == [
            f"round {number}: sent {sent}, received N, N" for number in (1, 2)
        ]
    verify(hosts.root / "run" / "audit.jsonl", result["audit_head"])
    simulated = {row["name"]: row for row in json.loads((hosts.reference() / "result.json").read_text())["sites"]}
    told = SITES if algorithm == "feded" else ("charity",)  # by its policy; feded needs that kind, so all accepted it
    assert {row["name"]: row["labels"] for row in result["sites"]} == {
        site: simulated[site]["labels"] if site in told else {} for site in SITES
    }
    assert "charity" in (hosts.root / "run" / "report.html").read_text("utf-8")
    for folder in list(hosts.root.rglob("private")):
        shutil.rmtree(folder)  # what is the sites' own
    seen = {**everything(hosts.root), Path("said"): hosts.running["coordinator"].said().encode()}
    assert len(seen) > 20
    for canary in CANARIES:
        assert any(canary.encode() in (hosts.folder / f"{site}.jsonl").read_bytes() for site in SITES)
        assert not [path for path, data in seen.items() if canary.encode() in data]


@pytest.mark.parametrize("encoder", ["words", "bert"])
def test_sites_with_labels_of_their_own_have_the_bits_of_one_process(
    tmp_path: Path, encoder_folder: Callable[[str], Path], encoder: str
) -> None:
    """What a site's own label set shapes is drawn there and stays there; the rest starts from the coordinator's, whose
    word vectors or pretrained weights the site does not have."""
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("pain 1 2 3 4\nthe 4 5 6 7\n")
    words = {"encoder": "words", "vectors": str(vectors), "vocabulary": "public"}
    own = {"encoder": str(encoder_folder("bert"))}
    hosts = OwnLabels(tmp_path, "words", model=words if encoder == "words" else own).found()
    data = ("--data", hosts.folder / "mercy.jsonl", "--test", hosts.test_data("mercy"), "--dry-run", "--json")
    leaving = run("site", "join", hosts.enrolment("mercy"), *data).json() if encoder == "words" else []
    assert {upload["kind"] for upload in leaving} == ({"gradients", "scores", "done"} if leaving else set())
    assert bool(leaving) == (encoder == "words")
    assert not [name for upload in leaving for name in upload["tensors"] if name.startswith(("lstm.", "crf."))]
    try:
        result = hosts.run().json()
        assert hosts.models() == hosts.reference_models()
        assert set(result["test"]["learners"]) == set(SITES)
        assert result["test"] == json.loads((hosts.reference() / "result.json").read_text())["test"]
        about = hosts.enrolment("mercy") / "private" / "models" / "mercy" / "grandrounds.json"
        assert json.loads(about.read_text())["schema"]["types"] == ["test"]
        assert json.loads(about.read_text())["schema"]["options"]["scheme"] == "BIOES"
    finally:
        hosts.close()
    for folder in list(hosts.root.rglob("private")):
        shutil.rmtree(folder)
    seen = everything(hosts.root)
    assert not [path for path, data in seen.items() for canary in CANARIES if canary.encode() in data]


def test_pretraining_by_cycles_has_the_bits_of_one_process(found: Found) -> None:
    """Every cycle's encoder, whose masks and second segments each site draws for itself."""
    hosts = found(
        task={"name": "masked_lm", "length": 32, "next_sentence": True},
        federation__weight_by="notes",
        federation__keep_models=True,
    )
    result = hosts.run().json()
    assert hosts.models() == hosts.reference_models()
    kept, own = hosts.root / "run" / "models", hosts.reference() / "models"
    cycles = [f"round-{number:05d}" for number in range(3)]
    assert sorted(folder.name for folder in kept.iterdir()) == cycles
    weights = [(kept / cycle / "model.safetensors").read_bytes() for cycle in cycles]
    assert weights == [(own / cycle / "model.safetensors").read_bytes() for cycle in cycles]
    assert len(set(weights)) == 3
    assert result["test"] == json.loads((hosts.reference() / "result.json").read_text())["test"]
    assert 0 < result["test"]["next_accuracy"] < 1
    for folder in list(hosts.root.rglob("private")):
        shutil.rmtree(folder)
    seen = everything(hosts.root)
    assert not [path for path, data in seen.items() for canary in CANARIES if canary.encode() in data]


def rounds(hosts: Hosts) -> int:
    path = hosts.root / "run" / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_killed_coordinator_and_sites_come_back_and_end_with_the_same_bits(found: Found) -> None:
    """Two kills of each within rounds; sites rejoin by themselves, the coordinator with --resume."""
    hosts = found(federation__rounds=12, algorithm__name="feded", algorithm__download="predictions")
    rng = random.Random(1)
    for site in SITES:
        hosts.join(site)
    for kill in range(2):
        coordinator, before = hosts.coordinate(*(["--resume"] if kill else [])), rounds(hosts)
        until(lambda before=before: rounds(hosts) > before, 120)
        time.sleep(rng.random())
        assert not coordinator.ended(0)
        coordinator.kill()
        assert rounds(hosts) > before
    coordinator, before = hosts.coordinate("--resume", "--json"), rounds(hosts)
    for victim in ("general", "mercy"):
        until(lambda before=before: rounds(hosts) > before, 120)
        time.sleep(rng.random() / 2)
        assert not coordinator.ended(0)
        hosts.running[victim].kill()
        before = rounds(hosts)
        hosts.join(victim)
    result = hosts.finish(coordinator).json()
    assert result["rounds"] == 12
    lines = [json.loads(line) for line in (hosts.root / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["round"], line["lost"]) for line in lines] == [(number, {}) for number in range(1, 13)]
    assert hosts.models() == hosts.reference_models()
    verify(hosts.root / "run" / "audit.jsonl", result["audit_head"])
    heads = json.loads((hosts.root / "run" / "site_logs.json").read_text())
    for site in SITES:
        compare(hosts.root / "run" / "audit.jsonl", hosts.enrolment(site) / "private" / "audit.jsonl", site)
        log = hosts.enrolment(site) / "private" / "audit.jsonl"
        verify(log, heads[site]["head"])
        lines_kept = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines_kept[:-2]))
        with pytest.raises(GrandRoundsError, match="cut"):
            verify(log, heads[site]["head"])


def test_strangers_do_not_get_in_and_the_others_go_on_without(found: Found) -> None:
    hosts = found()
    strangers = {how: stranger(hosts, hosts.folder / how, how) for how in REFUSALS}
    for site in ("charity", "general"):
        hosts.join(site)
    coordinator = hosts.coordinate("--at-least", "2", "--json")
    for how, process in strangers.items():
        until(lambda how=how, process=process: REFUSALS[how] in process.said(), 120)
    result = coordinator.wait(240).json()
    assert [row["name"] for row in result["sites"]] == ["charity", "general"]
    assert result["left_out"] == ["mercy"]
    for process in strangers.values():
        assert "joined" not in process.said()
        process.kill()


def test_an_expired_certificate_is_refused_by_both_sides(found: Found) -> None:
    hosts = found()
    issue_certificate(hosts.root, ["127.0.0.1"], days=-1)
    said = run("coordinator", hosts.root).complaint()
    assert said == f"the server's certificate has expired; renew it with: grandrounds federation renew {hosts.root}"
    blind = (
        "from grandrounds.deployment import consortium\n"
        "consortium.Consortium.check_certificate = lambda self: None\n"
        "from grandrounds.deployment.flower import superlink\n"
        "superlink.SuperLink.open_run = lambda self: __import__('time').sleep(60)\n"
    )
    hosts.running["coordinator"] = start("coordinator", hosts.root, prelude=blind)
    site = hosts.join("mercy")
    until(lambda: "its certificate has expired (certificate has expired)" in site.said(), 120)
    hosts.running["coordinator"].kill()
    run("federation", "renew", hosts.root).good()


def test_sites_that_do_not_fit_are_told_why_and_so_is_the_coordinator(found: Found) -> None:
    hosts = found()
    toml = hosts.enrolment("mercy") / "terms" / "federation.toml"
    toml.write_text(toml.read_text().replace("learning_rate = 0.002", "learning_rate = 0.02"))
    said = run("site", "join", hosts.enrolment("mercy"), "--data", hosts.folder / "mercy.jsonl").complaint()
    assert said.startswith("the terms of the enrolment in")
    sign_enrolment(hosts.enrolment("mercy"), "mercy", hosts.root / "ca.key")
    (hosts.enrolment("mercy") / "private" / "seen.json").unlink()
    for site in SITES:
        hosts.join(site)
    ours = hosts.coordinate().wait(240).complaint()
    theirs = hosts.running["mercy"].wait(60).complaint()
    assert ours.startswith("site 'mercy' was enrolled on other terms (")
    assert theirs == f"the coordinator refused this site: {ours}"


def test_a_dry_run_shows_what_would_leave_and_joins_nothing(found: Found, tmp_path: Path) -> None:
    hosts = found(algorithm__name="feded", algorithm__vote="counts", federation__compression="int8")
    policy = tmp_path / "policy.toml"
    policy.write_text('allow = ["predictions", "done"]\n')
    where = ("site", "join", hosts.enrolment("mercy"), "--data", hosts.folder / "mercy.jsonl", "--policy", policy)
    uploads = run(*where, "--dry-run", "--json").json()
    assert [(upload["kind"], upload["refused"] == "") for upload in uploads] == [
        ("label_counts", False),
        ("predictions", True),
    ]
    assert uploads[0]["tensors"] == {"n": [3]}
    table = run(*where, "--dry-run").good().stdout
    assert "train_and_predict" in table
    assert "may leave" in table
    assert not (hosts.enrolment("mercy") / "private" / "audit.jsonl").exists()


@pytest.mark.parametrize("freeze", [[], ["embeddings"]], ids=["all", "frozen"])
def test_a_dry_run_shows_whether_word_pieces_would_leave(found: Found, freeze: list[str]) -> None:
    """Changed rows of the embeddings tell which word pieces a site has."""
    enrolment = found(model__freeze=freeze).enrolment("mercy")
    data = ("--data", enrolment.parents[2] / "mercy.jsonl", "--dry-run", "--json")
    uploads = run("site", "join", enrolment, *data).json()
    weights = [name for upload in uploads if upload["kind"] == "parameters" for name in upload["tensors"]]
    assert any("attention" in name for name in weights)
    assert any("word_embeddings" in name for name in weights) == (not freeze)
    shown = run("site", "join", enrolment, *data[:-1], "--accept").good().stdout
    assert ("has a row for each word piece" in shown) == (not freeze)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("coordinator", "{root}"), "the public key of mercy is missing"),
        (("coordinator", "nowhere"), "'nowhere' holds no federation"),
        (("site", "join", "nowhere", "--data", "x"), "'nowhere' is not an enrolment"),
        (("site", "init", "{root}/enrolment/general"), "exists already"),
        (("site", "join", "{root}/enrolment/general", "--data", "nothing.jsonl"), "nothing.jsonl"),
        (("federation", "create", "{root}", "--sites", "a"), "already holds a federation"),
        (("federation", "create", "{new}", "--sites", "a,a", "--config", "{config}"), "site 'a' is named twice"),
        (("federation", "create", "{new}", "--sites", "a/b", "--config", "{config}"), "'a/b' can't be a site's name"),
        (
            ("federation", "create", "{new}", "--sites", "a", "--config", "{config}", "data.public=0.5"),
            "data.public is a share of the training data, which the coordinator does not have; give a file",
        ),
        (
            ("federation", "create", "{new}", "--sites", "a", "--config", "{config}", "algorithm.name=centralized"),
            "'centralized' needs all data in one place: it can only be simulated",
        ),
    ],
)
def test_mistakes_get_one_sentence(mistaken: Hosts, arguments: tuple[str, ...], sentence: str) -> None:
    names = {"root": mistaken.root, "new": mistaken.folder / "new", "config": mistaken.config}
    assert sentence in run(*(argument.format(**names) for argument in arguments)).complaint()


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Callable[[str], Path]) -> Hosts:
    hosts = Hosts(tmp_path_factory.mktemp("mistaken"), encoder_folder("bert")).found()
    (hosts.root / "keys" / "mercy.pub").unlink()
    return hosts


def test_a_template_is_written_where_there_is_no_config(tmp_path: Path) -> None:
    said = run("federation", "create", tmp_path / "new", "--sites", "a,b").good().stdout
    assert "wrote a template" in said
    assert 'name = "fedavg"' in (tmp_path / "new" / "config.toml").read_text()


@pytest.mark.parametrize("command", [("coordinator", "x"), ("site", "init", "x"), ("federation", "keys", "x")])
def test_without_flower_the_extra_is_named(command: tuple[str, ...]) -> None:
    without = "from grandrounds.cli import federation\nfederation.find_spec = lambda name: None"
    said = run(*command, prelude=without).complaint()
    assert said == "this command needs Flower; install it with: pip install 'grandrounds[flower]'"


def test_one_process_serves_a_site_at_a_time(mistaken: Hosts) -> None:
    first = mistaken.join("general")
    until(lambda: "can't be reached" in first.said(), 60)
    data = ("--data", mistaken.folder / "general.jsonl")
    said = run("site", "join", mistaken.enrolment("general"), *data).complaint()
    assert said.startswith("another process serves this site")
    first.kill()


def test_a_taken_port_and_a_dead_superlink_are_explained(found: Found) -> None:
    hosts = found()
    with socket.socket() as other:
        other.bind(("127.0.0.1", hosts.port))
        other.listen()
        said = hosts.coordinate().wait(120).complaint()
    assert said.startswith("Flower's SuperLink ended by itself; ")
    coordinator = hosts.coordinate()
    log = hosts.root / "superlink.log"
    until(lambda: "Started task" in log.read_text(), 60)
    for pid, command in {**coordinator.family(), **children(coordinator.pid)}.items():
        if "guard.py" in command:
            os.kill(pid, signal.SIGKILL)
    said = coordinator.wait(60).complaint()
    assert said.startswith(("Flower's SuperLink ended by itself; ", "Flower's SuperLink no longer answers"))


def children(parent: int) -> dict[int, str]:
    """SuperLink has a session of its own."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(") ")[2].split()[1]) == parent:
                found[int(stat.parent.name)] = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found
