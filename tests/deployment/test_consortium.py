"""Before round 1 a coordinator and its sites compare what they hold; a site's own side is read from its enrolment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch

import grandrounds
from grandrounds.cli import console, federation
from grandrounds.cli import site as site_command
from grandrounds.config.schema import make_config
from grandrounds.deployment.consortium import Consortium, server_setup
from grandrounds.deployment.dry_run import dry_run, tables_of_words
from grandrounds.deployment.enrolment import read_enrolment
from grandrounds.deployment.final_model import FinalModelFolder
from grandrounds.deployment.flower.grid import Letter
from grandrounds.deployment.handler import MessageHandler
from grandrounds.deployment.handshake import Handshake
from grandrounds.deployment.protocol import Hello, Refused, Request, decode
from grandrounds.deployment.site import open_handler, read_holding, with_policy
from grandrounds.deployment.terms import read_terms
from grandrounds.errors import ConfigError, DataError, GrandRoundsError
from grandrounds.federation.audit import compare
from grandrounds.federation.payloads import Packed, Parameters, PayloadError
from grandrounds.federation.policy import Policy
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.loop import RoundLoop, Silent
from tests.conftest import corpus, sentence, write_corpus
from tests.deployment.grids import MemoryGrid, apps, over
from tests.hosts import SITES, Hosts


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Callable[[str], Path]) -> Hosts:
    return Hosts(tmp_path_factory.mktemp("consortium"), encoder_folder("bert")).found_here()


class Liar:
    """A handler that says something else when it is greeted."""

    def __init__(self, honest: MessageHandler, **lies: Any) -> None:
        self.honest, self.lies, self.reported = honest, lies, ""

    def __call__(self, data: bytes, payloads: Any) -> Any:
        request = decode(Request, data).message
        if isinstance(request, Refused):
            self.reported = request.why
        said, sent = self.honest(data, payloads)
        if isinstance(request, Hello):
            response = json.loads(said)
            said = json.dumps({**response, "message": {**response["message"], **self.lies}}).encode()
        return said, sent


class Heard:
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def handshake(hosts: Hosts, made: Any, saved: Path, watcher: Any = None, last: Path | None = None) -> Handshake:
    consortium = Consortium(hosts.root)
    terms = read_terms(hosts.root / "terms")
    setup = server_setup(consortium.config, hosts.folder, terms)
    keys: Any = dict.fromkeys(made)
    return Handshake(over(MemoryGrid(apps(made)), saved.parent), setup, terms, keys, saved, watcher or Heard(), last)


def test_sites_that_fit_are_registered_and_known_again(hosts: Hosts, tmp_path: Path) -> None:
    made = {site: hosts.handler(site) for site in SITES}
    first = handshake(hosts, made, tmp_path / "saved.json").open(3, lambda: None, 1.0)
    assert [(site.site, site.counts["examples"]) for site in first] == [(site, 24) for site in SITES]
    assert first[0].labels == ["None", "TeRP", "TrIP"]
    assert handshake(hosts, made, tmp_path / "saved.json").open(3, lambda: None, 1.0) == first


LIES: list[tuple[dict[str, Any], str]] = [
    ({"version": "9.9"}, f"site 'mercy' runs grandrounds 9.9, the coordinator {grandrounds.__version__}"),
    ({"tokenizer": "feed"}, "site 'mercy' has the tokenizer feed, the coordinator "),
    ({"terms": "0123456789abcdef0"}, r"enrolled on other terms \(0123456789abcdef\) than the coordinator's \("),
    ({"labels": ["None", "X"]}, "site 'mercy' has the labels None, X; the server has None, TeRP, TrIP"),
    ({"manifest": {"head.bias": [4]}}, "site 'mercy' shares .* with shape"),
    ({"site": "general"}, "site 'mercy' calls itself 'general'"),
    ({"counts": {"examples": -3, "notes": 1}}, "site 'mercy' registered counts that can't be"),
    ({"counts": {"notes": 1}}, "site 'mercy' registered counts that can't be"),
    ({"counts": "many"}, "site 'mercy' did not say who it is"),
    ({"counts": {"examples": float("inf"), "notes": 1}}, "site 'mercy' did not say who it is"),
    ({"counts": {"examples": 10**400, "notes": 1}}, "site 'mercy' registered counts that can't be"),
    ({"label_counts": {"None": 3, "<script>": 1}}, "site 'mercy' registered counts of labels that can't be"),
    ({"label_counts": {"None": -1}}, "site 'mercy' registered counts of labels that can't be"),
]


@pytest.mark.parametrize(("lies", "sentence"), LIES)
def test_a_site_that_does_not_fit_is_refused_and_told(
    hosts: Hosts, tmp_path: Path, lies: dict[str, Any], sentence: str
) -> None:
    made: Any = {site: hosts.handler(site) for site in SITES}
    made["mercy"] = liar = Liar(made["mercy"], **lies)
    with pytest.raises(ConfigError, match=sentence) as refusal:
        handshake(hosts, made, tmp_path / "saved.json").open(3, lambda: None, 1.0)
    assert liar.reported == str(refusal.value)
    assert liar.honest.ended == str(refusal.value)
    assert not (tmp_path / "saved.json").exists()


def test_a_site_whose_data_changed_since_round_1_is_refused_and_the_others_go_on(hosts: Hosts, tmp_path: Path) -> None:
    made = {site: hosts.handler(site) for site in SITES}
    first = handshake(hosts, made, tmp_path / "saved.json").open(3, lambda: None, 1.0)
    made["mercy"] = hosts.handler("mercy", write_corpus(tmp_path / "fewer.jsonl", corpus(12)))
    heard = Heard()
    assert handshake(hosts, made, tmp_path / "saved.json", heard).open(3, lambda: None, 1.0) == first
    sentence = "site 'mercy' has other data than when the run began; start a new run"
    assert heard.sentences[-1] == made["mercy"].ended == sentence


def test_a_site_that_registers_many_times_what_it_had_is_refused(hosts: Hosts, tmp_path: Path) -> None:
    made: Any = {site: hosts.handler(site) for site in SITES}
    last = tmp_path / "last.json"
    handshake(hosts, made, tmp_path / "one.json", last=last).open(3, lambda: None, 1.0)
    assert json.loads(last.read_text())["mercy"]["examples"] == 24
    made["mercy"] = Liar(made["mercy"], counts={"examples": 24, "notes": 10**9, "patients": 12})
    with pytest.raises(ConfigError, match=r"site 'mercy' registers 1,000,000,000 notes, and 24 the last time"):
        handshake(hosts, made, tmp_path / "two.json", last=last).open(3, lambda: None, 1.0)
    made["mercy"] = Liar(made["mercy"].honest, counts={"examples": 240, "notes": 24, "patients": 12})
    met = handshake(hosts, made, tmp_path / "three.json", last=last).open(3, lambda: None, 1.0)
    assert [site.counts["examples"] for site in met] == [24, 24, 240]


def test_a_withdrawn_key_is_said_and_a_torn_registration_explained(hosts: Hosts, tmp_path: Path) -> None:
    made, saved, heard = {site: hosts.handler(site) for site in SITES}, tmp_path / "saved.json", Heard()
    handshake(hosts, made, saved).open(3, lambda: None, 1.0)
    two = handshake(hosts, made, saved, heard)
    two._keys = {site: key for site, key in two._keys.items() if site != "mercy"}
    assert [site.site for site in two.open(2, lambda: None, 1.0)] == ["charity", "general"]
    assert heard.sentences[0] == "mercy registered, but the key is gone: the run goes on without"
    saved.write_text("[{")
    with pytest.raises(GrandRoundsError, match=r"saved\.json' was edited or torn"):
        handshake(hosts, made, saved).open(3, lambda: None, 1.0)


def test_where_enough_fit_the_others_go_on_without_the_misfit(hosts: Hosts, tmp_path: Path) -> None:
    made: Any = {site: hosts.handler(site) for site in SITES}
    made["mercy"] = Liar(made["mercy"], version="9.9")
    met = handshake(hosts, made, tmp_path / "saved.json").open(2, lambda: None, 1.0)
    assert [site.site for site in met] == ["charity", "general"]


def test_a_site_with_another_public_set_is_named(hosts: Hosts, tmp_path: Path) -> None:
    made: Any = {site: hosts.handler(site) for site in SITES}
    made["mercy"] = Liar(made["mercy"], public=["beefbeefbeefbeef"])
    heard = Heard()
    handshake(hosts, made, tmp_path / "saved.json", heard).open(3, lambda: None, 1.0)
    assert any("site 'mercy' holds version beefbeefbeefbeef of the public set" in said for said in heard.sentences)


def test_terms_hold_no_path_and_no_data(hosts: Hosts) -> None:
    for path in (hosts.root / "enrolment").rglob("*"):
        if path.is_file() and path.suffix != ".safetensors" and "private" not in path.parts:
            text = path.read_text()
            assert str(hosts.folder) not in text
            assert "aspirin" not in text or path.name in ("tokenizer.json", "vocab.txt")  # the encoder's vocabulary
    assert not list((hosts.root / "enrolment").rglob("ca.key"))


def test_the_digest_of_the_terms_is_of_all_that_counts(hosts: Hosts) -> None:
    terms = read_terms(hosts.root / "terms")
    assert read_terms(hosts.enrolment("mercy") / "terms").digest == terms.digest
    config = terms.config
    longer = config.model_copy(update={"federation": config.federation.model_copy(update={"rounds": 99})})
    assert replace(terms, config=longer).digest == terms.digest
    other = config.model_copy(update={"seed": 2})
    assert replace(terms, config=other).digest != terms.digest
    assert replace(terms, public=(1, "x")).digest != terms.digest


def test_labels_that_the_federation_does_not_know_are_refused_at_home(hosts: Hosts, tmp_path: Path) -> None:
    strange = sentence("d", ["The ", ("aspirin", "treatment"), " hid ", ("pain", "problem"), " ."], {(0, 1): "Hides"})
    write_corpus(tmp_path / "strange.jsonl", [*corpus(8), strange])
    with pytest.raises(DataError, match=r"relation type 'Hides' is not in the label set \(TeRP, TrIP\)"):
        hosts.handler("mercy", tmp_path / "strange.jsonl")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"name": "a"}, "coordinator: field required"),
        ({"name": "a", "coordinator": "h:1", "encodr": "x"}, "did you mean"),
        ({"name": "a", "coordinator": "h:1", "insecure": "perhaps"}, "insecure"),
    ],
)
def test_a_wrong_site_file_is_explained(hosts: Hosts, tmp_path: Path, content: dict[str, Any], problem: str) -> None:
    (tmp_path / "site.toml").write_text(tomli_w.dumps(content))
    with pytest.raises(ConfigError, match=problem):
        read_enrolment(tmp_path)


def test_torn_terms_are_explained(hosts: Hosts, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text((hosts.enrolment("mercy") / "site.toml").read_text())
    with pytest.raises(GrandRoundsError, match="does not hold the terms of a federation"):
        _ = read_enrolment(tmp_path).terms


def test_a_rehearsal_lists_what_would_leave(hosts: Hosts) -> None:
    enrolment = read_enrolment(hosts.enrolment("mercy"))
    holding = read_holding(enrolment, [hosts.folder / "mercy.jsonl"], "json")
    (upload,) = dry_run(enrolment, holding)
    assert (upload.when, upload.kind, upload.refused) == ("a round", "parameters", "")
    assert upload.tensors == dict(holding.site_data.registration.manifest)
    assert upload.bytes > 4 * sum(prod(shape) for shape in upload.tensors.values())
    assert tables_of_words(enrolment, [upload]) == ["encoder.embeddings.word_embeddings.weight"]
    assert tables_of_words(enrolment, [replace(upload, tensors={"head.weight": (3, 64)})]) == []


def test_a_rehearsal_lists_weights_in_bytes(tmp_path: Path, encoder_folder: Callable[[str], Path]) -> None:
    hosts = Hosts(tmp_path, encoder_folder("bert"), federation__compression="int8").found_here()
    enrolment = read_enrolment(hosts.enrolment("mercy"))
    (upload,) = dry_run(enrolment, read_holding(enrolment, [tmp_path / "mercy.jsonl"], "json"))
    assert (upload.kind, upload.refused) == ("parameters", "")
    table, *others = tables_of_words(enrolment, [upload])
    assert not others
    pieces = enrolment.terms.encoder.tokenizer.vocab_size
    assert 0 < upload.tensors[table][0] == upload.tensors[f"{table} rows"][0] < pieces


def test_create_and_init_show_the_same_fingerprints(tmp_path: Path, encoder_folder: Callable[[str], Path]) -> None:
    made, root = Hosts(tmp_path, encoder_folder("bert")), tmp_path / "federation"
    with console.out.capture() as captured:
        federation.create(root, "mercy", made.config, None, None, ["127.0.0.1"], 8000, "127.0.0.1", False)
    created = re.findall(r"the (\w+) has the fingerprint (SHA256:\S+)", captured.get())
    with console.out.capture() as captured:
        site_command.init(root / "enrolment" / "mercy")
    shown = re.findall(r"the (\w+) has the fingerprint (SHA256:[^\s:]+): compare it", captured.get())
    assert created == shown
    assert [what for what, _ in shown] == ["authority", "terms"]


def test_a_site_that_comes_after_the_run_began_is_told(hosts: Hosts, tmp_path: Path) -> None:
    made = {site: hosts.handler(site) for site in SITES}
    grid = MemoryGrid(apps(made))
    grid.away = {"mercy"}
    transport = over(grid, tmp_path)
    transport.registered = {site: made[site].digest for site in ("charity", "general")}
    list(transport.converse([Letter("charity", Hello())]))
    assert made["mercy"].ended is None
    grid.away = set()
    for _ in range(2):
        list(transport.converse([Letter("charity", Hello())]))
    assert made["mercy"].ended == "this run began without site 'mercy'; join the next one"
    log = (hosts.enrolment("mercy") / "private" / "audit.jsonl").read_text()
    assert log.splitlines()[-1].count('"refused"') == 1


# The federation's model at a site


def hand_out(hosts: Hosts, made: dict[str, MessageHandler], folder: Path, heard: Heard | None = None) -> None:
    """A run over the in-memory Grid, to its end."""
    meet = handshake(hosts, made, folder / "saved.json", heard)
    sites = meet.open(3, lambda: None, 1.0)
    config, terms = Consortium(hosts.root).config, meet._terms
    run = RunFolder(folder / "run", config, resume=False)
    run.claim(config)
    loop = RoundLoop(config, run, meet._setup, sites, meet._transport, Silent(), terms.digest, meet.hand_out)
    loop.go()
    run.close()


def test_after_the_last_round_every_site_has_the_selected_model(hosts: Hosts, tmp_path: Path) -> None:
    made = {site: hosts.handler(site) for site in SITES}
    hand_out(hosts, made, tmp_path)
    ours = tmp_path / "run" / "model"
    for site, handler in made.items():
        theirs = handler.received
        assert theirs == hosts.enrolment(site) / "private" / "model"
        for name in ("model.safetensors", "grandrounds.json", "tokenizer.json"):
            assert (theirs / name).read_bytes() == (ours / name).read_bytes()
        documents = corpus(6)
        assert [grandrounds.load(theirs)(d) for d in documents] == [grandrounds.load(ours)(d) for d in documents]
        logs = tmp_path / "run" / "audit.jsonl", hosts.enrolment(site) / "private" / "audit.jsonl"
        compare(*logs, site)
        last = [json.loads(line) for log in logs for line in log.read_text().splitlines() if '"exchange": 0' in line]
        came = [line for line in last if line["site"] == site and "digest" in line]
        assert [line["direction"] for line in came] == ["down", "down"]
        assert len({line["digest"] for line in came}) == 1


def test_what_flora_merged_is_part_of_the_model_that_sites_get_and_site_toml_may_say_a_rank(
    tmp_path: Path, encoder_folder: Callable[[str], Path]
) -> None:
    flora = {"algorithm__name": "flora", "model__parameter_efficient": "lora", "training__learning_rate": 1e-2}
    hosts = Hosts(tmp_path, encoder_folder("bert"), **flora).found_here()
    with (hosts.enrolment("mercy") / "site.toml").open("a") as file:
        file.write("lora_rank = 3\n")
    made = {site: hosts.handler(site) for site in SITES}
    hand_out(hosts, made, tmp_path)
    ours = (tmp_path / "run" / "model" / "model.safetensors").read_bytes()
    for handler in made.values():
        assert (handler.received / "model.safetensors").read_bytes() == ours
    lines = [json.loads(line) for line in (tmp_path / "run" / "audit.jsonl").read_text().splitlines()]
    sizes = {line["site"]: line["bytes"] for line in lines if line.get("kind") == "adapters"}
    assert sizes["mercy"] < sizes["charity"] == sizes["general"]


def test_a_site_whose_policy_says_so_takes_no_model(hosts: Hosts, tmp_path: Path) -> None:
    made = {site: hosts.handler(site) for site in SITES}
    enrolment = read_enrolment(hosts.enrolment("mercy"))
    held = read_holding(enrolment, [hosts.folder / "mercy.jsonl"], "json")
    made["mercy"] = open_handler(enrolment, with_policy(held, Policy(receive_model=False)), print)
    heard = Heard()
    hand_out(hosts, made, tmp_path, heard)
    assert made["mercy"].received is None
    assert made["general"].received is not None
    said = "site 'mercy' did not take the model (refused: no model may come: the terms, or this site's policy, say so)"
    assert said in heard.sentences


def test_a_model_that_is_not_the_named_one_or_does_not_fit_is_not_kept(hosts: Hosts) -> None:
    enrolment = read_enrolment(hosts.enrolment("mercy"))
    terms, folder = enrolment.terms, enrolment.state / "other"
    good = Parameters.of(terms.spec(terms.config.training, torch.device("cpu")).initial_model()).pack("fp32")
    where = FinalModelFolder(terms, folder)
    logged: list[str] = []

    def log(packed: Packed) -> None:
        logged.append(packed.digest)

    where.take(good.to_bytes(), good.digest, log)
    before = (folder / "model.safetensors").read_bytes()
    name = next(iter(good.tensors))
    wrong = [
        {**good.tensors, name: good.tensors[name].flatten()},
        {**good.tensors, name: good.tensors[name] + float("nan")},
        {key: value for key, value in good.tensors.items() if key != name},
        {**good.tensors, "another": torch.zeros(1)},
    ]
    for tensors in wrong:
        bad = replace(good, tensors=tensors)
        with pytest.raises(PayloadError):
            where.take(bad.to_bytes(), bad.digest, log)
    with pytest.raises(PayloadError, match="is not the one that the coordinator names"):
        where.take(good.to_bytes(), "0" * 64, log)
    assert (folder / "model.safetensors").read_bytes() == before
    assert len(logged) == 1 + len(wrong)  # what came is logged, used or not; what nobody named is refused before


def test_terms_may_keep_the_model_at_the_coordinator() -> None:
    shared = {"task": {"name": "sentence_re"}, "data": {"format": "json", "train": "x", "test": "y"}}
    assert make_config(shared).shares_model
    assert not make_config({**shared, "federation": {"share_model": False}}).shares_model
    assert not make_config({**shared, "algorithm": {"name": "local_only"}}).shares_model
    # What is not decisive does not make another run of it.
    assert make_config({**shared, "federation": {"share_model": False}}).digest() == make_config(shared).digest()
