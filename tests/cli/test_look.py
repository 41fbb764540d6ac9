"""Commands that look at what is there: `evaluate`, `extract`, `report`, `data` and `audit`."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from grandrounds.data.documents import Document
from grandrounds.data.formats import read
from tests.cli.commands import Outcome, run
from tests.conftest import corpus, sentence, write_corpus
from tests.data.entropy_matrix import by_matrix

Finished = tuple[Path, Outcome]


def test_evaluate_on_the_test_corpus_is_the_runs_own_test_score(finished: Finished, model: Path, corpora: Path) -> None:
    assert run("evaluate", model, corpora / "test.jsonl", "--json").json() == finished[1].json()["test"]


def test_evaluate_shows_classes_beside_the_trivial_baseline(model: Path, corpora: Path) -> None:
    table = run("evaluate", model, corpora / "test.jsonl").good().stdout
    for piece in ("TrIP", "TeRP", "all (micro)", "trivial: all 'TeRP'"):
        assert piece in table
    rows = [line.strip("│").split("│") for line in table.splitlines() if line.startswith("│")]
    support = {row[0].strip(): int(row[-1]) for row in rows if row[-1].strip()}
    assert support.pop("all (micro)") == sum(support.values()) > 0


@pytest.fixture(scope="module")
def found(model: Path, corpora: Path) -> list[dict[str, Any]]:
    lines = run("extract", model, corpora / "test.jsonl").good().stdout.splitlines()
    documents = [json.loads(line) for line in lines]
    assert sum(len(document.get("relations", [])) for document in documents) > 0
    return documents


def test_extract_points_to_the_mentions_of_the_text(found: list[dict[str, Any]]) -> None:
    originals = {document.id: document for document in corpus(24, "t")}
    assert set(originals) == {document["id"] for document in found}
    for document in found:
        original = originals[document["id"]]
        assert document["text"] == original.text
        for relation in document.get("relations", []):
            head, tail = (document["mentions"][m] for m in relation["mentions"])
            assert (head["type"], tail["type"]) in {("treatment", "problem"), ("test", "problem")}
            for end in (head, tail):
                assert document["text"][end["start"] : end["end"]] in original.text
                assert (end["start"], end["end"]) in {(m.start, m.end) for m in original.mentions}


def test_extract_gives_every_relation_a_score(found: list[dict[str, Any]]) -> None:
    scores = [float(r["attributes"]["score"]) for document in found for r in document.get("relations", [])]
    assert all(1 / 3 < score <= 1 for score in scores)  # the best of three classes


def test_extract_does_not_repeat_the_annotators_answers(model: Path, corpora: Path, tmp_path: Path) -> None:
    """The same documents without their relations give the same relations."""
    documents = [json.loads(line) for line in (corpora / "test.jsonl").read_text().splitlines()]
    bare = tmp_path / "bare.jsonl"
    bare.write_text("".join(json.dumps({k: v for k, v in d.items() if k != "relations"}) + "\n" for d in documents))
    one, other = (run("extract", model, path).good().stdout for path in (corpora / "test.jsonl", bare))
    assert one == other


def test_a_threshold_leaves_out_what_scores_lower(found: list[dict[str, Any]], model: Path, corpora: Path) -> None:
    scores = sorted(float(r["attributes"]["score"]) for document in found for r in document.get("relations", []))
    middle = scores[len(scores) // 2]
    lines = run("extract", model, corpora / "test.jsonl", "--threshold", str(middle + 1e-4)).good().stdout.splitlines()
    kept = [float(r["attributes"]["score"]) for line in lines for r in json.loads(line).get("relations", [])]
    assert sorted(kept) == [score for score in scores if score > middle]


@pytest.mark.parametrize("format", ["json", "pubtator", "brat"])
def test_extract_writes_what_its_format_reads_back(
    found: list[dict[str, Any]], model: Path, corpora: Path, tmp_path: Path, format: str
) -> None:
    out = tmp_path / {"json": "found.jsonl", "pubtator": "found.txt", "brat": "found"}[format]
    outcome = run("extract", model, corpora / "test.jsonl", "--to", format, "--out", out).good()
    assert outcome.stdout == f"{out}\n"
    again = {document.id: document for document in read(out, format).documents}
    for document in found:
        surfaces = [document["text"][mention["start"] : mention["end"]] for mention in document["mentions"]]
        expected = sorted((r["type"], *(surfaces[m] for m in r["mentions"])) for r in document.get("relations", []))
        assert sorted(_surfaces(again[document["id"]])) == expected


def _surfaces(document: Document) -> list[tuple[str, str, str]]:
    ends = [
        relation.mentions or tuple(document.entity(id).mentions[0] for id in (relation.head, relation.tail))
        for relation in document.relations
    ]
    return [
        (relation.type, document.surface(document.mentions[head]), document.surface(document.mentions[tail]))
        for relation, (head, tail) in zip(document.relations, ends, strict=True)
    ]


def test_brat_keeps_the_score(model: Path, corpora: Path, tmp_path: Path) -> None:
    run("extract", model, corpora / "test.jsonl", "--to", "brat", "--out", tmp_path / "found").good()
    relations = [r for document in read(tmp_path / "found", "brat").documents for r in document.relations]
    assert relations
    assert all(float(relation.attributes["score"]) > 1 / 3 for relation in relations)


def test_extract_to_html_marks_mentions_and_shows_scores(
    found: list[dict[str, Any]], model: Path, corpora: Path, tmp_path: Path
) -> None:
    run("extract", model, corpora / "test.jsonl", "--to", "html", "--out", tmp_path / "found.html").good()
    page = (tmp_path / "found.html").read_text()
    relation = next(r for document in found for r in document.get("relations", []))
    assert "<mark" in page
    assert relation["type"] in page
    assert f"{float(relation['attributes']['score']):.2f}" in page
    assert "http://" not in page.replace("http://www.w3.org", "")  # it needs nothing but itself


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--to", "htm"), "unknown output format 'htm'; did you mean 'html'?"),
        (("--to", "brat"), "--to brat writes to a file or folder; name it with --out"),
        (("--format", "pubtater"), "unknown format 'pubtater'; did you mean 'pubtator'?"),
    ],
)
def test_extract_refuses_what_it_can_not_do(model: Path, corpora: Path, more: tuple[str, ...], said: str) -> None:
    assert run("extract", model, corpora / "test.jsonl", *more).complaint() == said


def test_report_writes_a_page_with_the_runs_figures(finished: Finished, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "page.html"
    assert run("report", finished[0], "--out", page).good().stdout == f"{page}\n"
    text = page.read_text()
    assert "fedavg on sentence_re" in text
    assert f"{finished[1].json()['test']['f1']:.3f}" in text


def test_report_of_what_is_no_run_says_so(tmp_path: Path) -> None:
    assert "is no run folder" in run("report", tmp_path).complaint()


def test_data_check_counts_what_a_run_would_read(corpora: Path) -> None:
    assert run("data", "check", corpora / "train.jsonl", "--json").json() == {
        "documents": 60,
        "sentences": 60,
        "mentions": 120,
        "entities": 120,
        "relations": 30,
        "warnings": {},
        "problems": [],
        "left_out": {},
        "cures": [],
    }
    person = run("data", "check", corpora / "train.jsonl").good().stdout
    assert person == "good: 60 documents, 60 sentences, 120 mentions, 120 entities, 30 relations\n"


def test_data_commands_take_the_options_of_a_format(tmp_path: Path) -> None:
    file = tmp_path / "chr.pubtator"
    file.write_text("1|t|ab\n1\t0\t1\ta\tChemMet\tX:1|Y:1\n1\t1\t2\tb\tChemMet\tY:2\n1\tReact\tY:2\tX:1|Y:1\n")
    wanted = ("data", "check", file, "--format", "pubtator")
    assert run(*wanted, "--json").json()["relations"] == 1  # by the whole of the joined ids
    assert run(*wanted, "--option", "joined=same", "--json").json()["relations"] == 1
    assert run(*wanted, "--option", "joined").complaint() == "--option takes KEY=VALUE: breaks=line"
    misspelt = run(*wanted, "--option", "joint=same").complaint()
    assert misspelt == "format 'pubtator': unknown option 'joint'; did you mean 'joined'?"


def test_data_stats_counts_by_type_and_by_attribute(corpora: Path) -> None:
    stats = run("data", "stats", corpora / "train.jsonl", "--json").json()
    assert stats["relation type"] == {"TeRP": 15, "TrIP": 15}
    assert stats["mention type"] == {"problem": 60, "test": 30, "treatment": 30}
    assert stats["distinct values of attribute"] == {"hospital": 4, "patient": 17}
    assert "relation type: TrIP" in run("data", "stats", corpora / "train.jsonl").good().stdout


def test_data_convert_keeps_offsets_and_counts_what_a_format_can_not_carry(corpora: Path, tmp_path: Path) -> None:
    out = tmp_path / "train.txt"
    outcome = run("data", "convert", corpora / "train.jsonl", "--to", "pubtator", "--out", out).good()
    assert outcome.stdout == f"60 documents in {out}\n"
    assert "warning: 30 relations between mentions, written between their entities" in outcome.stderr
    originals = {document.id: document for document in corpus(60)}
    for document in read(out, "pubtator").documents:
        original = originals[document.id]
        assert document.text == original.text
        assert [document.surface(m) for m in document.mentions] == [original.surface(m) for m in original.mentions]


def test_data_convert_names_the_formats_that_can_be_written(corpora: Path) -> None:
    said = run("data", "convert", corpora / "train.jsonl", "--to", "biobert-tsv").complaint()
    written = "bioc, bioc-json, brat, conll, json, lines, opennre, pubannotation, pubtator"
    assert said == f"format 'biobert-tsv' can be read, not written; write one of {written}"


def test_data_partition_says_who_holds_what(corpora: Path) -> None:
    wanted = ("--scheme", "by", "--by", "hospital", "--json")
    sites = run("data", "partition", corpora / "train.jsonl", *wanted).json()["sites"]
    assert [site["name"] for site in sites] == ["charity", "general", "mercy", "university"]
    assert sum(site["documents"] for site in sites) == sum(site["examples"] for site in sites) == 60
    assert sites[0]["labels"] == {"None": 8, "TeRP": 4, "TrIP": 4}


def test_data_partition_by_structural_entropy_takes_edges_by_hand(corpora: Path) -> None:
    wanted = ("data", "partition", corpora / "train.jsonl", "--scheme", "structural_entropy", "--unit", "document")
    dealt = run(*wanted, "--entropy", "code", "--edges", "0.5,1000", "--json").json()
    assert [site["name"] for site in dealt["sites"]] == ["site-02"]
    assert dealt["left_out"] == ["site-01", "site-03"]
    assert "left out, since they got nothing: site-01, site-03" in run(*wanted, "--edges", "0.01,1000").good().stdout
    assert "--edges takes numbers" in run(*wanted, "--edges", "few").complaint()


@pytest.fixture(scope="module")
def tangled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Document]]:
    """Documents of one, one, two and seven drugs that ease one problem."""
    documents = [
        sentence(
            f"d{i}",
            [part for _ in range(drugs) for part in (("aspirin", "treatment"), " and ")] + [("pain", "problem")],
            {(0, drugs): "TrIP"},
        )
        for i, drugs in enumerate((1, 1, 2, 7))
    ]
    return write_corpus(tmp_path_factory.mktemp("tangled") / "train.jsonl", documents), documents


@pytest.mark.parametrize("reading", ["paper", "code"])
def test_data_partition_tells_the_entropy_of_each_site(
    tangled: tuple[Path, list[Document]], tmp_path: Path, reading: str
) -> None:
    path, documents = tangled
    pairs = [[(e.id, d.entities[-1].id) for e in d.entities[:-1]] for d in documents]
    h = [by_matrix(document, listed, reading) for document, listed in zip(documents, pairs, strict=True)]
    edge = (min(h) + max(h)) / 2
    groups = [value for value in h if value < edge], [value for value in h if value >= edge]
    wanted = ("data", "partition", path, "--scheme", "structural_entropy", "--unit", "document", "--entropy", reading)
    dealt = run(*wanted, "--edges", f"{edge},{edge + 100}", "--json", "--plot", tmp_path / "h.svg").json()
    assert [site["documents"] for site in dealt["sites"]] == [len(values) for values in groups]
    for site, values in zip(dealt["sites"], groups, strict=True):
        assert site["entropy"] == pytest.approx(
            {"min": min(values), "mean": sum(values) / len(values), "max": max(values)}, abs=1e-12
        )
        assert site.keys() == {"name", "documents", "examples", "labels", "entropy"}
    assert dealt["left_out"] == ["site-03"]
    drawn = (tmp_path / "h.svg").read_text()
    assert "left out, having no document: site-03" in drawn
    assert all(f">{site['entropy']['mean']:.2f}</text>" in drawn for site in dealt["sites"])


def test_data_partition_shows_people_the_entropy_and_the_empty_intervals(
    tangled: tuple[Path, list[Document]], tmp_path: Path
) -> None:
    wanted = ("data", "partition", tangled[0], "--scheme", "structural_entropy", "--entropy", "code", "--sites", "5")
    said = run(*wanted, "--picture", tmp_path / "who.html").good().stdout
    assert "H: mean (range)" in said
    assert "left out, since they got nothing: site-02, site-03, site-04" in said
    page = (tmp_path / "who.html").read_text()
    assert page.count("<svg") == 2
    assert "An empty interval is left out: site-02, site-03 and site-04." in page


def test_data_partition_without_entropy_plots_the_documents_alone(corpora: Path, tmp_path: Path) -> None:
    wanted = ("data", "partition", corpora / "train.jsonl", "--scheme", "by", "--by", "hospital")
    said = run(*wanted, "--plot", tmp_path / "who.svg").good().stdout
    drawn = (tmp_path / "who.svg").read_text()
    assert "entropy" not in drawn
    assert "H: mean" not in said
    assert all(f">{name}</text>" in drawn for name in ("charity", "general", "mercy", "university"))
    said = run(*wanted, "--plot", tmp_path / "who.png").complaint()
    assert said == "--plot writes SVG; name a file that ends in .svg, not 'who.png'"


def test_data_partition_deals_the_same_to_the_same_seed(corpora: Path, tmp_path: Path) -> None:
    picture = tmp_path / "who.html"
    wanted = ("data", "partition", corpora / "train.jsonl", "--scheme", "dirichlet", "--sites", "3", "--alpha", "0.3")
    one = run(*wanted, "--json", "--picture", picture).json()
    other = run(*wanted, "--json").json()
    third = run(*wanted, "--json", "--seed", "2").json()
    assert one == other != third
    assert "<svg" in picture.read_text()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--scheme", "idd", "--sites", "3"), "did you mean 'iid'?"),
        (("--scheme", "iid"), "partition.sites"),
        (("--sites", "3", "--unit", "sentense"), "did you mean 'sentence'?"),
        (("--sites", "3", "--task", "sentence-re"), "did you mean 'sentence_re'?"),
        (("--scheme", "by", "--by", "hospitl"), "did you mean 'hospital'?"),
    ],
)
def test_data_partition_names_the_nearest(corpora: Path, more: tuple[str, ...], said: str) -> None:
    assert said in run("data", "partition", corpora / "train.jsonl", *more).complaint()


def test_data_needs_files(tmp_path: Path) -> None:
    assert run("data", "check").complaint() == "name the files to read, or take --format synthetic"
    assert "no such file or folder; check the path" in run("data", "check", tmp_path / "none.jsonl").complaint()


def test_audit_verify_counts_the_lines_of_a_whole_chain(finished: Finished) -> None:
    log = finished[0] / "audit.jsonl"
    lines = len(log.read_text().splitlines())
    for named in (finished[0], log):
        said = run("audit", "verify", named).good().stdout
        head = sha256(log.read_bytes().splitlines()[-1]).hexdigest()
        assert said == f"{log}: {lines} lines, the chain is whole; its head is {head}\n"
    run("audit", "verify", log, "--head", head).good()


def test_a_head_that_was_noted_down_shows_a_cut(finished: Finished, tmp_path: Path) -> None:
    lines = (finished[0] / "audit.jsonl").read_bytes().splitlines(keepends=True)
    log, head = tmp_path / "audit.jsonl", sha256(lines[-1].rstrip()).hexdigest()
    log.write_bytes(b"".join(lines[:-1]))
    run("audit", "verify", log).good()
    assert "the log was cut" in run("audit", "verify", log, "--head", head).complaint()


@pytest.mark.parametrize("line", [0, 7, -2, -1])
def test_an_edited_line_breaks_the_chain(finished: Finished, tmp_path: Path, line: int) -> None:
    lines = (finished[0] / "audit.jsonl").read_text().splitlines()
    lines[line] = (
        lines[line].replace('"round": 3', '"round": 2') if line < 0 else lines[line].replace('"time": 1', '"time": 2')
    )
    assert "audit.jsonl" in _verified(finished, tmp_path, lines)


def test_a_deleted_a_moved_and_a_cut_line_break_the_chain(finished: Finished, tmp_path: Path) -> None:
    lines = (finished[0] / "audit.jsonl").read_text().splitlines()
    assert ":6: the chain is broken" in _verified(finished, tmp_path, lines[:5] + lines[6:])
    assert ":6: the chain is broken" in _verified(finished, tmp_path, [*lines[:5], lines[6], lines[5], *lines[7:]])
    assert "the log was cut or its last line edited" in _verified(finished, tmp_path, lines[:-1])


def test_the_last_lines_of_a_run_with_a_model_a_site_are_guarded_too(config: Path, tmp_path: Path) -> None:
    """Sites are asked to save their models after the last score."""
    folder = tmp_path / "alone"
    run("run", config, "algorithm.name=local_only", "federation.rounds=1", "--out", folder).good()
    lines = (folder / "audit.jsonl").read_text().splitlines()
    (folder / "audit.jsonl").write_text("".join(f"{line}\n" for line in lines[:-1]))
    assert "the log was cut" in run("audit", "verify", folder).complaint()


def _verified(finished: Finished, folder: Path, lines: list[str]) -> str:
    shutil.copy(finished[0] / "result.json", folder)
    (folder / "audit.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return run("audit", "verify", folder).complaint()
