"""Public rows without a label: where they come from, that nobody reads what was stripped, and who trains on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import grandrounds
from grandrounds.config.schema import load_config, make_config
from grandrounds.data.documents import Document
from grandrounds.data.synthetic import synthesize
from grandrounds.deployment.consortium import server_setup
from grandrounds.deployment.dry_run import dry_run
from grandrounds.deployment.enrolment import read_enrolment
from grandrounds.deployment.handshake import Handshake
from grandrounds.deployment.site import read_holding
from grandrounds.deployment.terms import read_terms
from grandrounds.errors import ConfigError, DataError
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.loop import RoundLoop, Silent
from grandrounds.simulation.prepare import Simulation, prepare
from grandrounds.tasks.task import NO_CLASS
from tests.conftest import TinyConfig, corpus, write_corpus
from tests.deployment.grids import MemoryGrid, apps, over
from tests.hosts import SITES, Hosts
from tests.simulation.crashes import metrics, timeless, weights

FEDED = {"algorithm": {"name": "feded"}}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of another corpus."""
    return write_corpus(tmp_path_factory.mktemp("text") / "text.jsonl", corpus(20, "u", patient="nobody"))


def prepared(content: dict[str, Any], folder: Path) -> Simulation:
    return prepare(make_config(content), Path(), folder)


# Where they come from


def test_a_file_adds_its_questions_to_the_public_set_and_none_of_its_labels(
    tiny_config: TinyConfig, text: Path, tmp_path: Path
) -> None:
    without = prepared(tiny_config(**FEDED), tmp_path / "without")
    made = prepared(tiny_config(**FEDED, **{"data.unlabelled": str(text)}), tmp_path / "with")
    assert without.public is not None
    assert made.public is not None
    labelled = len(without.public.examples)
    assert list(made.public.examples[:labelled]) == list(without.public.examples)
    assert [q["text"] for q in made.public.examples[labelled:]] == [document.text for document in corpus(20, "u")]
    assert made.public.digest != without.public.digest
    assert made.expected.public == (labelled + 20, made.public.digest)
    split = made.splits["public"]
    assert split.labelled is not None
    assert split.labelled.tolist() == list(range(labelled))
    labels: Any = split.features.batch(split.rows)
    assert (labels.labels[labelled:] == NO_CLASS).all()
    assert (labels.labels[:labelled] >= 0).all()


def test_a_file_may_have_a_format_of_its_own_and_relations_that_nobody_knows(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    pairs = [("aspirin", "pain"), ("heparin", "stroke")]
    lines = [f"{i}|t|The {drug} eased the {problem} ." for i, (drug, problem) in enumerate(pairs)]
    mentions = [
        f"{i}\t{start}\t{start + len(word)}\t{word}\t{type}\t{word}"
        for i, pair in enumerate(pairs)
        for word, type, start in zip(pair, ("treatment", "problem"), (4, 4 + len(pair[0]) + 11), strict=True)
    ]
    blocks = [
        "\n".join([lines[i], *mentions[2 * i : 2 * i + 2], f"{i}\tHides\t{pairs[i][0]}\t{pairs[i][1]}"])
        for i in range(2)
    ]
    (tmp_path / "text.txt").write_text("\n\n".join(blocks) + "\n")
    data = {"data.unlabelled": str(tmp_path / "text.txt"), "data.unlabelled_format": "pubtator"}
    made = prepared(tiny_config(**FEDED, **data), tmp_path)
    assert made.public is not None
    assert [q["text"] for q in made.public.examples[-2:]] == [f"The {d} eased the {p} ." for d, p in pairs]
    assert list(made.spec.task.labels) == ["None", "TeRP", "TrIP"]


def test_a_share_is_taken_from_the_sites_and_from_nothing_else(tiny_config: TinyConfig, tmp_path: Path) -> None:
    shares = {"data.test": 0.2, "data.public": 0.2, "data.validation": 0.1, **FEDED}
    without, made = (
        prepared(tiny_config(**shares, **{"data.unlabelled": share}), tmp_path / str(share)) for share in (0.0, 0.3)
    )
    for part in ("test", "validation"):
        assert made.splits[part].rows.tolist() == without.splits[part].rows.tolist()
    split = made.splits["public"]
    assert split.labelled is not None
    assert split.rows[split.labelled].tolist() == without.splits["public"].rows.tolist()
    added = set(split.rows.tolist()) - set(without.splits["public"].rows.tolist())
    held, before = (
        {row for site_data in one.sites.values() for row in site_data.splits["train"].rows.tolist()}
        for one in (made, without)
    )
    assert added | held == before
    assert not added & held
    assert len(added) == pytest.approx(0.3 * 60, abs=3)


def test_synthetic_text_comes_from_hospitals_that_do_not_train(tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "device": "cpu",
        "data": {
            "format": "synthetic",
            "public": 0.3,
            "options": {"hospitals": 2, "notes": 6, "seed": 3},
            "unlabelled_options": {"first": 3, "hospitals": 1, "notes": 4},
        },
        "partition": {"scheme": "by", "by": "hospital"},
        "algorithm": {"name": "feded"},
    }
    made = prepared(content, tmp_path)
    assert made.public is not None
    assert made.splits["public"].labelled is not None
    asked = {q["text"] for q in made.public.examples[len(made.splits["public"].labelled) :]}
    notes = synthesize(hospitals=1, notes=4, first=3, seed=3).train  # the same facts: the same seed
    assert asked
    assert asked <= {note.text[a:b] for note in notes for a, b in note.sentences}
    content["data"]["unlabelled_options"]["first"] = 2
    with pytest.raises(DataError, match=r"4 of 4 documents of data.unlabelled are in another corpus of this run too"):
        prepared(content, tmp_path / "again")


def test_text_without_a_question_is_refused(tiny_config: TinyConfig, tmp_path: Path) -> None:
    bare = [replace(d, mentions=(), entities=(), relations=()) for d in corpus(4, "u")]
    path = write_corpus(tmp_path / "bare.jsonl", bare)
    with pytest.raises(DataError, match=r"data.unlabelled holds no example of sentence_re"):
        prepared(tiny_config(**FEDED, **{"data.unlabelled": str(path)}), tmp_path)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"data.unlabelled": "u.jsonl", "data.public": 0.0}, r"adds to the server's labelled set: set data.public"),
        ({"data.unlabelled": 0.8}, "data.unlabelled = 0.8: shares of train .* together below 1"),
        ({"data.unlabelled": 0.2, "data.unlabelled_format": "json"}, "data.unlabelled is a share: leave it out"),
        ({"data.unlabelled_options": {"notes": 3}}, "about a corpus: name it in data.unlabelled"),
        ({"data.unlabelled": "u", "data.unlabelled_format": "jsn"}, "data.unlabelled_format: .*did you mean 'json'"),
        ({"data.unlabelled": "u", "data.unlabelled_format": "synthetic"}, "names a file, and 'synthetic' has none"),
        ({"data.unlabelled": 0.2, "task": {"name": "ner"}}, "data.unlabelled needs a task whose answers"),
    ],
)
def test_what_can_not_be_is_refused(settings: dict[str, Any], sentence: str, tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_config(tiny_config(**settings))


def test_an_option_that_synthetic_text_has_not_is_named_with_its_key(tmp_path: Path) -> None:
    data = {"format": "synthetic", "public": 0.3, "unlabelled_options": {"frist": 7}}
    with pytest.raises(ConfigError, match=r"data.unlabelled_options: .*did you mean 'first'"):
        prepared({"device": "cpu", "data": data, **FEDED}, tmp_path)


# That nobody reads their labels


def relabelled(document: Document) -> Document:
    """Another type for each relation, and where there was none, none still."""
    other = {"TrIP": "TeRP", "TeRP": "TrIP"}
    return replace(document, relations=tuple(replace(r, type=other[r.type]) for r in document.relations))


def test_other_labels_in_the_file_change_not_one_bit(tiny_config: TinyConfig, text: Path, tmp_path: Path) -> None:
    documents = corpus(20, "u", patient="nobody")
    unknown = [replace(d, relations=tuple(replace(r, type="Hides") for r in d.relations)) for d in documents]
    bare = [replace(d, relations=()) for d in documents]
    for name, some in (("as-it-was", documents), ("other", [*map(relabelled, documents)]), ("x", unknown), ("-", bare)):
        path = write_corpus(tmp_path / f"{name}.jsonl", some)
        grandrounds.run(tiny_config(**FEDED, **{"data.unlabelled": str(path)}), out=tmp_path / name)
    for other in ("other", "x", "-"):
        assert weights(tmp_path / other) == weights(tmp_path / "as-it-was")
        assert timeless(metrics(tmp_path / other)) == timeless(metrics(tmp_path / "as-it-was"))


def test_other_labels_in_the_share_change_not_one_bit(tiny_config: TinyConfig, tmp_path: Path) -> None:
    """Of each patient the first relation stays: shares of train are drawn in the labels' proportions."""
    documents = corpus(60)
    first = write_corpus(tmp_path / "first.jsonl", documents)
    content = tiny_config(**FEDED, **{"data.train": str(first), "data.unlabelled": 0.3})
    grandrounds.run(content, out=tmp_path / "first")
    split = prepared(content, tmp_path / "again").splits["public"]
    assert split.documents is not None
    assert split.labelled is not None
    hidden = set(np.delete(split.documents, split.labelled).tolist())
    seen, changed, second = set[str](), 0, list[Document]()
    for i, document in enumerate(documents):
        known = document.attributes["patient"] in seen
        if document.relations:
            seen.add(document.attributes["patient"])
        if i in hidden and document.relations and known:
            document, changed = relabelled(document), changed + 1
        second.append(document)
    assert changed > 2
    path = write_corpus(tmp_path / "second.jsonl", second)
    grandrounds.run({**content, "data": {**content["data"], "train": str(path)}}, out=tmp_path / "second")
    assert weights(tmp_path / "second") == weights(tmp_path / "first")
    assert timeless(metrics(tmp_path / "second")) == timeless(metrics(tmp_path / "first"))


# Who trains on them


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm.name": "fedavg", "server.epochs": 1, "model.warm_up": 1},
        {"algorithm.name": "fedatt", "server.epochs": 1},
        {"algorithm.name": "validation_only"},
    ],
    ids=lambda settings: str(settings["algorithm.name"]),
)
def test_algorithms_that_need_labels_train_as_if_there_were_no_other_rows(
    settings: dict[str, Any], tiny_config: TinyConfig, text: Path, tmp_path: Path
) -> None:
    for name, more in (("without", {}), ("with", {"data.unlabelled": str(text)})):
        grandrounds.run(tiny_config(**settings, **more), out=tmp_path / name)
    assert weights(tmp_path / "with") == weights(tmp_path / "without")
    assert timeless(metrics(tmp_path / "with")) == timeless(metrics(tmp_path / "without"))


def test_the_student_of_feded_learns_from_all_of_them(tiny_config: TinyConfig, text: Path, tmp_path: Path) -> None:
    for name, more in (("without", {}), ("with", {"data.unlabelled": str(text)})):
        grandrounds.run(tiny_config(**FEDED, **{"federation.rounds": 1}, **more), out=tmp_path / name)
    without, made = (metrics(tmp_path / name)[0]["server_examples"] for name in ("without", "with"))
    assert made == without + 20
    assert weights(tmp_path / "with") != weights(tmp_path / "without")


# Between hosts


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, encoder_folder: Callable[[str], Path], text: Path) -> Hosts:
    algorithm = {"name": "feded", "upload": "labels", "average": "probabilities"}
    folder = tmp_path_factory.mktemp("hosts")
    return Hosts(folder, encoder_folder("bert"), algorithm=algorithm, data__unlabelled=str(text)).found_here()


def test_between_hosts_the_bits_are_those_of_one_process(hosts: Hosts, tmp_path: Path) -> None:
    config, terms = load_config(hosts.config), read_terms(hosts.root / "terms")
    setup = server_setup(config, hosts.folder, terms)
    assert setup.public is not None
    assert terms.public == (24 + 20, setup.public.digest)
    handlers = {site: hosts.handler(site) for site in SITES}
    transport = over(MemoryGrid(apps(handlers)), tmp_path)
    keys: Any = dict.fromkeys(SITES)
    watcher: Any = Silent()
    sites = Handshake(transport, setup, terms, keys, tmp_path / "saved.json", watcher).open(3, lambda: None, 5.0)
    folder = RunFolder(tmp_path / "hosts", config, resume=False)
    folder.claim(config)
    RoundLoop(config, folder, setup, sites, transport, watcher, terms.digest).go()
    folder.close()
    grandrounds.run(hosts.config, out=tmp_path / "process")
    assert weights(tmp_path / "hosts") == weights(tmp_path / "process")
    assert [m["test"] for m in metrics(tmp_path / "hosts")] == [m["test"] for m in metrics(tmp_path / "process")]


def test_a_rehearsal_shows_a_label_for_every_public_row(hosts: Hosts) -> None:
    enrolment = read_enrolment(hosts.enrolment("mercy"))
    (upload,) = dry_run(enrolment, read_holding(enrolment, [hosts.folder / "mercy.jsonl"], "json"))
    assert upload.kind == "predicted_labels"
    assert upload.bytes < 44 + 200


def test_a_share_is_nothing_that_a_coordinator_has(hosts: Hosts) -> None:
    config = load_config(hosts.config, ["data.unlabelled=0.2"])
    with pytest.raises(ConfigError, match=r"data.unlabelled is a share of the training data, which the coordinator"):
        server_setup(config, hosts.folder, read_terms(hosts.root / "terms"))
