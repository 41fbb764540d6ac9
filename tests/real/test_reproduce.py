"""Every target of a paper on the nearest corpus at hand, shrunk, with a real encoder where there is one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grandrounds.experiment.loop import run as run_config
from grandrounds.reproduce.corpora import CORPORA
from grandrounds.reproduce.feded import PAPER, numbers
from grandrounds.reproduce.protocol import reproduce
from grandrounds.reproduce.wish import Wish

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("GRANDROUNDS_DATA", ROOT.parent / "shared" / "data"))
ENCODER = Path(os.environ.get("GRANDROUNDS_ENCODER", ROOT.parent / "minilm"))
SHRUNK = {"partition.sites": 20, "federation.fraction": 0.05, "training.epochs": 1, "training.batch_size": 8}

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not DATA.is_dir(), reason="the corpora are not beside the project; set GRANDROUNDS_DATA"),
    pytest.mark.skipif(not ENCODER.is_dir(), reason="no encoder is beside the project; set GRANDROUNDS_ENCODER"),
]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all, so that targets share their arms."""
    return tmp_path_factory.mktemp("feded")


@pytest.mark.parametrize("name", PAPER.targets)
def test_a_target_runs_on_the_nearest_corpus(name: str, out: Path) -> None:
    own = [corpus for corpus in PAPER.targets[name].corpora if CORPORA[corpus].missing(DATA) is None]
    chosen = None if own else "eu-adr"  # the smallest
    if chosen and CORPORA[chosen].missing(DATA):
        pytest.skip(str(CORPORA[chosen].missing(DATA)))
    wish = Wish(out, DATA, chosen, str(ENCODER), rounds=1, target_f1=0.5, cells=1, overrides=SHRUNK)
    table = reproduce(
        PAPER, name, wish, lambda arms, base: [run_config(a.config, base, a.folder, resume=True) for a in arms]
    )
    assert json.loads((out / f"{name}.json").read_text("utf-8")) == json.loads(json.dumps(table.to_dict()))
    assert any(cell.measured for row in table.rows for cell in row.cells)
    assert str(DATA) not in table.to_markdown()
    assert str(ENCODER) not in table.to_markdown()


def test_the_corpora_are_nearly_of_the_size_that_the_paper_says(out: Path) -> None:
    """BioBERT's folds differ by a row or two from the paper's counts."""
    own = [name for name in ("gad", "eu-adr") if CORPORA[name].missing(DATA) is None]
    if not own:
        pytest.skip("neither GAD nor EU-ADR is in the data folder")
    table = reproduce(PAPER, "table1", Wish(out / "sizes", DATA), lambda arms, base: None)
    found = {row.name: [cell.median for cell in row.cells] for row in table.rows}
    for name in own:
        printed = numbers()["table1"][name]
        assert found[CORPORA[name].title] == pytest.approx([printed["train"], printed["test"]], abs=2)
