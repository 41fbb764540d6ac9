"""An enrolment is the coordinator's, whole, and the one that the site first saw; a model's folder is data."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import grandrounds
from grandrounds.cli import site as command
from grandrounds.config.schema import Rounds
from grandrounds.deployment.acceptance import needed_kinds, write_accepted
from grandrounds.deployment.enrolment import Enrolment, SiteFile, read_enrolment
from grandrounds.deployment.keys import certificate_fingerprint, make_authority
from grandrounds.deployment.signed import check_enrolment, fingerprints, sign_enrolment
from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.federation.contract import make_algorithm
from grandrounds.federation.payloads import Done, LabelCounts
from grandrounds.federation.policy import Policy, RefusalError
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.saved import save_model
from grandrounds.tasks.sentence_re import SentenceRE


@pytest.fixture
def enrolment(tmp_path: Path) -> Path:
    """As the coordinator sends it."""
    root, folder = tmp_path / "root", tmp_path / "enrolment"
    root.mkdir()
    (folder / "terms" / "model").mkdir(parents=True)
    (folder / "terms" / "federation.toml").write_text("seed = 1\n")
    (folder / "terms" / "model" / "model.safetensors").write_bytes(b"weights")
    make_authority(root, "test")
    shutil.copy(root / "ca.crt", folder)
    sign_enrolment(folder, "mercy", root / "ca.key")
    return folder


def check(folder: Path, site: str = "mercy") -> dict[str, str]:
    return check_enrolment(folder, site, folder / "private", insecure=False)


def test_an_honest_enrolment_shows_the_coordinators_fingerprints(enrolment: Path) -> None:
    shown = check(enrolment)
    assert shown == fingerprints(enrolment) == check(enrolment)
    assert shown["authority"] == certificate_fingerprint(enrolment.parent / "root" / "ca.crt")
    assert json.loads((enrolment / "private" / "seen.json").read_text()) == shown


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("terms/federation.toml", "the terms of the enrolment"),
        ("terms/model/model.safetensors", "the terms of the enrolment"),
        ("terms/model/modeling.py", "the terms of the enrolment"),
        ("enrolment.json", "is not signed by this federation's authority"),
    ],
)
def test_an_edited_enrolment_is_noticed(enrolment: Path, file: str, problem: str) -> None:
    with (enrolment / file).open("a") as edited:
        edited.write(" ")
    with pytest.raises(GrandRoundsError, match=problem):
        check(enrolment)
    with pytest.raises(GrandRoundsError, match=r"the site of the enrolment|not signed|the terms"):
        check(enrolment, "general")


def test_an_enrolment_swapped_for_another_federations_is_noticed_by_who_used_the_first(enrolment: Path) -> None:
    check(enrolment)
    make_authority(enrolment, "evil")
    sign_enrolment(enrolment, "mercy", enrolment / "ca.key")
    with pytest.raises(GrandRoundsError, match="the authority of this enrolment changed since it was first used"):
        check(enrolment)


def private(folder: Path, name: str, content: str) -> None:
    (folder / "private").mkdir()
    (folder / "private" / name).write_text(content)


SENT: dict[str, Callable[[Path], object]] = {
    "accepted": lambda folder: private(folder, "policy.toml", "receive_model = true\n"),
    "peers": lambda folder: private(folder, "peers.json", '{"general": "SHA256:evil"}'),
    "key": lambda folder: private(folder, "site.key", "known"),
    "policy": lambda folder: (folder / "site.toml").open("a").write('policy = "terms/policy.toml"\n'),
    "imports": lambda folder: (folder / "site.toml").open("a").write('imports = ["evil"]\n'),
    "encoder": lambda folder: (folder / "site.toml").open("a").write('encoder = "evil/model"\n'),
    "link": lambda folder: (folder / "mercy.pub").symlink_to(folder.parent / "profile"),
    "dangling": lambda folder: (folder / "private").symlink_to(folder.parent / "elsewhere"),
}


@pytest.mark.parametrize("sent", SENT)
def test_what_is_the_sites_own_does_not_come_from_the_coordinator(enrolment: Path, sent: str) -> None:
    """It would have accepted a policy, named code to run, or the other sites' keys, in the site's place."""
    (enrolment / "site.toml").write_text('name = "mercy"\ncoordinator = "x:1"\ninsecure = false\n')
    SENT[sent](enrolment)
    wanted = "exists already" if sent in ("accepted", "peers", "key") else "is a link|for this site to say"
    with pytest.raises(GrandRoundsError, match=wanted):
        command.init(enrolment)
    assert not (enrolment / "private" / "seen.json").exists()
    assert not (enrolment.parent / "profile").exists()
    assert not (enrolment.parent / "elsewhere").exists()


def test_an_honest_enrolment_is_initialised_once(enrolment: Path) -> None:
    (enrolment / "site.toml").write_text('name = "mercy"\ncoordinator = "x:1"\ninsecure = false\n')
    command.init(enrolment)
    assert (enrolment / "private" / "site.key").exists()
    with pytest.raises(GrandRoundsError, match="exists already; its public half"):
        command.init(enrolment)


@pytest.mark.parametrize("name", ["../../.ssh/authorized_keys", "/etc/x", "a/b", "..", "", "x" * 65, "a\n"])
def test_a_sites_name_is_no_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "site.toml").write_text(tomli_w.dumps({"name": name, "coordinator": "localhost:8000"}))
    with pytest.raises(ConfigError, match="name"):
        read_enrolment(tmp_path)


@pytest.mark.parametrize(
    ("algorithm", "kinds"),
    [
        ("fedavg", ["parameters"]),
        ("fedner", ["done", "gradients", "scores"]),
        ("lazy_mil", ["bag_scores", "parameters"]),
    ],
)
def test_what_is_accepted_is_what_the_algorithm_needs(tmp_path: Path, algorithm: str, kinds: list[str]) -> None:
    made = make_algorithm(algorithm, {})
    assert sorted(needed_kinds(made)) == kinds
    assert all(needed_kinds(made).values())
    write_accepted(tmp_path / "private" / "policy.toml", made, "feed")
    policy = Policy.load(tmp_path / "private" / "policy.toml")
    assert (sorted(policy.allow or ()), policy.least_batch) == (kinds, 4 if algorithm == "fedner" else 1)
    import torch

    with pytest.raises(RefusalError):
        policy.check(LabelCounts(torch.ones(2)).pack("fp32"))
    if "done" in kinds:
        policy.check(Done().pack("fp32"))


def test_nothing_leaves_without_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours: Any = Enrolment(tmp_path, SiteFile(name="mercy", coordinator="x:1"))
    algorithm = make_algorithm("fedavg", {})

    class Config:
        make_algorithm = staticmethod(lambda: algorithm)
        federation = Rounds()

    class Terms:
        config, digest = Config, "feed" * 16

    ours.__dict__["terms"] = Terms
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(GrandRoundsError, match="nothing was accepted, so nothing leaves"):
        command._accepted(ours, accept=False, dry_run=False)
    assert not ours.accepted.exists()
    assert command._accepted(ours, accept=False, dry_run=True) is None
    assert command._accepted(ours, accept=True, dry_run=False) == ours.accepted
    assert command._accepted(ours, accept=False, dry_run=False) == ours.accepted  # asked once


@pytest.fixture
def model(task: SentenceRE, encoder: Encoder, tmp_path: Path) -> Path:
    save_model(tmp_path / "model", task, encoder, task.model(encoder))
    return tmp_path / "model"


def test_a_model_that_names_code_is_refused_and_nothing_is_run(model: Path, tmp_path: Path) -> None:
    """transformers would ask on the terminal whether to run it."""
    config = json.loads((model / "encoder.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil"}}
    (model / "encoder.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"names code to run \(auto_map\)"):
        grandrounds.load(model)
    with pytest.raises(ConfigError, match=r"names code to run \(auto_map\)"):
        Encoder.find(str(model))
    (model / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for read in (grandrounds.load, lambda path: Encoder.find(str(path)), Encoder.saved):
        with pytest.raises(ConfigError):
            read(model)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["evil.py", "pytorch_model.bin", "language/weights.pt"])
def test_a_saved_model_holds_neither_code_nor_pickles(model: Path, name: str) -> None:
    assert grandrounds.load(model)
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_bytes(b"x")
    with pytest.raises(ConfigError, match="is not data"):
        grandrounds.load(model)


def test_a_word_piece_may_have_any_name(model: Path) -> None:
    path = model / "tokenizer.json"
    assert "auto_map" not in json.loads(path.read_text())
    path.write_text(path.read_text().replace('"was"', '"auto_map"'))
    assert grandrounds.load(model)
