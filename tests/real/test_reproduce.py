"""Every target of a paper on the nearest corpus at hand, shrunk, with a real encoder where there is one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grandrounds.papers import fedbert, fedds, fedlcc, fedner
from grandrounds.papers.corpora import BAGS, CORPORA, DOCUMENTS
from grandrounds.papers.fedbert_stages import STAGES
from grandrounds.papers.feded import PAPER, numbers
from grandrounds.papers.options import ReproduceOptions
from grandrounds.papers.paper import PaperTable
from grandrounds.papers.platforms import AT_HAND, PLATFORMS
from grandrounds.papers.protocol import Study, reproduce
from grandrounds.simulation.prepare import prepare
from grandrounds.simulation.run import run_config
from grandrounds.simulation.sweep import Arm
from tests.real.corpora import DATA, ROOT

ENCODER = Path(os.environ.get("GRANDROUNDS_ENCODER", ROOT.parent / "minilm"))
SHRUNK = {"partition.sites": 20, "federation.fraction": 0.05, "training.epochs": 1, "training.batch_size": 8}
OF_DOCUMENTS = {
    "data.public": 0.1,
    "data.validation": 0.1,
    "data.train_share": 0.05,
    "partition.sites": 3,
    "model.warm_up": 1,
    "federation.evaluate_on": ["validation"],
}
OF_BAGS = {"data.train_share": 0.5, "training.epochs": 1, "partition.sites": 3}
OF_PLATFORMS = {
    **{f"sites.{corpus.name}.test": 0.03 for corpus in PLATFORMS[AT_HAND].corpora},
    "data.validation": 0.02,
    "data.train_share": 0.03,
    "task.language_batch": 16,
    "algorithm.iterations": 4,
}
OF_STAGES = {
    "pretraining.data.validation": 0.01,
    "pretraining.data.test": 0.01,
    "pretraining.data.train_share": 0.02,
    "pretraining.task.length": 64,
    "pretraining.model.layers": 2,
    "pretraining.model.width": 64,
    "pretraining.model.heads": 2,
    "pretraining.federation.rounds": 1,
    "data.train_share": 0.05,
    "data.validation": 0.04,
}

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not DATA.is_dir(), reason="the corpora are not beside the project; set GRANDROUNDS_DATA"),
]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, so that targets share their arms."""
    return tmp_path_factory.mktemp("reproduced")


def here(arms: Sequence[Arm], base: Path) -> None:
    for arm in arms:
        run_config(arm.config, base, arm.folder, resume=True)


def check(table: PaperTable, out: Path) -> None:
    """Something was measured, and what was written is what is told, without a machine's paths."""
    assert json.loads((out / f"{table.target}.json").read_text("utf-8")) == json.loads(json.dumps(table.to_dict()))
    assert any(cell.middle is not None for row in table.rows for cell in row.cells)
    assert str(DATA) not in table.to_markdown()
    assert str(ENCODER) not in table.to_markdown()


@pytest.mark.skipif(not ENCODER.is_dir(), reason="no encoder is beside the project; set GRANDROUNDS_ENCODER")
@pytest.mark.parametrize("name", PAPER.targets)
def test_a_target_runs_on_the_nearest_corpus(name: str, out: Path) -> None:
    own = [corpus for corpus in PAPER.targets[name].corpora if CORPORA[corpus].missing(DATA) is None]
    chosen = None if own else "eu-adr"  # the smallest
    if chosen and CORPORA[chosen].missing(DATA):
        pytest.skip(str(CORPORA[chosen].missing(DATA)))
    options = ReproduceOptions(
        out / "feded", DATA, chosen, str(ENCODER), rounds=1, target_f1=0.5, cells=1, overrides=SHRUNK
    )
    check(reproduce(PAPER, name, options, here), out / "feded")


def test_the_corpora_are_nearly_of_the_size_that_the_paper_says(out: Path) -> None:
    """BioBERT's folds differ by a row or two from the paper's counts."""
    own = [name for name in ("gad", "eu-adr") if CORPORA[name].missing(DATA) is None]
    if not own:
        pytest.skip("neither GAD nor EU-ADR is in the data folder")
    table = reproduce(PAPER, "table1", ReproduceOptions(out / "sizes", DATA), lambda arms, base: None)
    found = {row.name: [cell.middle for cell in row.cells] for row in table.rows}
    for name in own:
        printed = numbers()["table1"][name]
        assert found[CORPORA[name].title] == pytest.approx([printed["train"], printed["test"]], abs=2)


@pytest.mark.parametrize("name", fedlcc.PAPER.targets)
def test_a_target_of_documents_runs_on_the_nearest_corpus(name: str, out: Path) -> None:
    wanted = fedlcc.PAPER.targets[name].corpora
    own = [corpus for corpus in wanted if DOCUMENTS[corpus].missing(DATA) is None]
    chosen = None if own else DOCUMENTS[wanted[0]].nearest
    if chosen and DOCUMENTS[chosen].missing(DATA):
        pytest.skip(str(DOCUMENTS[chosen].missing(DATA)))
    options = ReproduceOptions(
        out / "fedlcc", DATA, chosen, "tiny", rounds=1, target_f1=0.2, cells=1, overrides=OF_DOCUMENTS
    )
    check(reproduce(fedlcc.PAPER, name, options, here), out / "fedlcc")


@pytest.mark.parametrize("name", fedds.PAPER.targets)
def test_a_target_of_bags_runs_on_the_nearest_corpus(name: str, out: Path) -> None:
    (wanted,) = fedds.PAPER.targets[name].corpora
    chosen = BAGS[wanted].nearest  # the paper's own are too large to be shrunk
    if missing := BAGS[chosen].missing(DATA):
        pytest.skip(missing)
    options = ReproduceOptions(out / "fedds", DATA, chosen, rounds=1, cells=1, overrides=OF_BAGS)
    check(reproduce(fedds.PAPER, name, options, here), out / "fedds")


@pytest.fixture
def platforms() -> None:
    if missing := PLATFORMS[AT_HAND].missing(DATA):
        pytest.skip(missing)


@pytest.mark.usefixtures("platforms")
@pytest.mark.parametrize("name", fedner.PAPER.targets)
def test_a_target_of_platforms_runs_on_the_nearest_corpora(name: str, out: Path) -> None:
    language, cells = str(ENCODER) if ENCODER.is_dir() else None, 1 if name == "figure4" else 2
    options = ReproduceOptions(out / "fedner", DATA, AT_HAND, language, rounds=1, cells=cells, overrides=OF_PLATFORMS)
    check(reproduce(fedner.PAPER, name, options, here), out / "fedner")


@pytest.mark.usefixtures("platforms")
def test_the_ade_corpus_has_nearly_the_entities_that_the_paper_says(tmp_path: Path) -> None:
    table = reproduce(fedner.PAPER, "table1", ReproduceOptions(tmp_path, DATA, AT_HAND), here)
    sentences, types, _, entities = next(row.cells for row in table.rows if row.name == "ADE corpus")
    assert types.middle == types.paper == 3
    assert entities.middle == pytest.approx(entities.paper, abs=5)
    # 214 sentences are in both of its files; counted twice, they make the paper's 4,484.
    assert sentences.middle == pytest.approx((sentences.paper or 0) - 214, abs=1)


@pytest.mark.parametrize("name", fedbert.PAPER.targets)
def test_a_target_of_two_stages_runs_on_the_nearest_corpora(name: str, out: Path) -> None:
    if missing := STAGES["cdr"].missing(DATA):
        pytest.skip(missing)
    options = ReproduceOptions(out / "fedbert", DATA, "cdr", rounds=1, cells=2, overrides=OF_STAGES)
    check(reproduce(fedbert.PAPER, name, options, here), out / "fedbert")


def test_a_fifth_of_gids_s_pairs_is_tested_on(tmp_path: Path) -> None:
    if missing := BAGS["gids"].missing(DATA):
        pytest.skip(missing)
    options = ReproduceOptions(tmp_path, DATA, "gids")
    ready = prepare(Study(fedds.PAPER, "table2", options, here).config("gids"), DATA, tmp_path)
    found: dict[str, set[int]] = {}
    for part, split in [*ready.splits.items(), *((name, r.splits["train"]) for name, r in ready.sites.items())]:
        features: Any = split.features
        found[part] = set(features.pairs[split.rows].tolist())
    assert len(found["test"]) == 216  # of 1,082
    assert not found["test"] & set.union(*(pairs for part, pairs in found.items() if part != "test"))


@pytest.fixture
def cdr() -> None:
    if missing := DOCUMENTS["cdr"].missing(DATA):
        pytest.skip(missing)


@pytest.mark.usefixtures("cdr")
def test_cdr_has_the_documents_and_pairs_that_the_paper_says(out: Path) -> None:
    table = reproduce(fedlcc.PAPER, "table1", ReproduceOptions(out / "pairs", DATA, "cdr"), here)
    cells = [cell for row in table.rows if row.section == "CDR" for cell in row.cells]
    assert [cell.middle for cell in cells] == [cell.paper for cell in cells]
    assert [cell.middle for cell in cells[3:6]] == [1038, 1012, 1066]


@pytest.mark.usefixtures("cdr")
@pytest.mark.parametrize(
    ("overrides", "documents"),
    [
        ({}, [1, 6, 14, 21, 78, 129, 124, 76, 38, 13]),
        (
            {"partition.entropy": "code", "partition.edges": [6, 8, 10, 12, 14, 16, 18, 20, 22]},
            [5, 39, 84, 96, 120, 76, 51, 17, 5, 7],
        ),
    ],
)
def test_cdr_s_documents_by_structural_entropy(overrides: dict[str, object], documents: list[int], out: Path) -> None:
    table = reproduce(fedlcc.PAPER, "figure2", ReproduceOptions(out / "sites", DATA, "cdr", overrides=overrides), here)
    assert [row.cells[0].middle for row in table.rows] == documents
    assert table.figure is not None
    assert "CDR" in table.figure
