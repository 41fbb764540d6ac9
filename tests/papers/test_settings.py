"""Protocol lines are found by comparing the configs that ran with what a paper declares: nothing is told by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grandrounds.federation.training import Training
from grandrounds.papers import PAPERS
from grandrounds.papers.options import ReproduceOptions
from grandrounds.papers.paper import Setting
from grandrounds.papers.protocol import Study
from grandrounds.papers.settings import NOT_SAID, TRAINING, At, Ran, Said, agrees, settings

SYNTHETIC = {name: "synthetic-bags" if name == "fedds" else "synthetic" for name in PAPERS}
OTHER: dict[str, Any] = {
    "epochs": 7,
    "batch_size": 13,
    "learning_rate": 0.0123,
    "head_learning_rate": 0.0321,
    "decay": 0.37,
    "schedule": "cosine",
    "warmup": 0.21,
    "weight_decay": 0.043,
    "optimizer": "sgd",
    "optimizer_state": "keep",
    "clip_norm": 3.5,
}
"""Values that no paper's protocol has, but for kept moments and SGD."""


def never(*_: object) -> None:
    raise AssertionError("nothing is to be run")


def study(name: str, overrides: dict[str, Any] | None = None, **own: Any) -> Study:
    """Of a paper's first target with results, on what is made here."""
    paper = PAPERS[name]
    target = next(t for t in paper.targets if t not in ("table1", "table2") or name == "fedbert" or t == "table2")
    return Study(
        paper, target, ReproduceOptions(Path("out"), corpus=SYNTHETIC[name], overrides=overrides or {}, **own), never
    )


def lines(name: str, overrides: dict[str, Any] | None = None, own: dict[str, Any] | None = None) -> dict[str, Setting]:
    """As they are told of an arm."""
    asked, paper = study(name, overrides), PAPERS[name]
    theirs, ours = next(iter(asked.places.items()))
    ran = Ran("arm", ours, asked.config(ours, own or {}), set(own or {}), paper.stated(theirs))
    return {line.name: line for line in settings(paper.reported, [ran])}


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize("field", Training.model_fields)
def test_every_option_of_training_is_told_of_every_paper(name: str, field: str) -> None:
    key = f"training.{field}"
    if name == "fedner" and field == "batch_size":
        key = "algorithm.batch"  # a platform alone has its share of it
    before, after = lines(name), lines(name, {key: OTHER[field]})
    changed = [line for label, line in after.items() if before.get(label) != line]
    reported = {"clip_norm": "3.5", "warmup": "21% of the run"}.get(field, str(OTHER[field]))
    same = study(name).config(SYNTHETIC[name]).model_dump()["training"][field] == OTHER[field]
    assert same or [line.here for line in changed if reported in line.here]


@pytest.mark.parametrize("name", PAPERS)
def test_what_the_paper_says_otherwise_differs_and_what_it_does_not_say_is_told_as_such(name: str) -> None:
    label = "fine-tuning: learning rate" if name == "fedbert" else "learning rate"
    clipped = "fine-tuning: gradients clipped to a norm of" if name == "fedbert" else "gradients clipped to a norm of"
    found = lines(name, {"training.learning_rate": 0.0123})
    assert found[label].here == "0.0123"
    assert found[label].differs
    assert (found[clipped].paper, found[clipped].here, found[clipped].differs) == (NOT_SAID, "1.0", False)


def test_the_reading_of_feded_s_equations_is_told() -> None:
    found = lines("feded", own={"algorithm.name": "feded"})
    assert found["Eq. 5 averages"] == Setting("Eq. 5 averages", "probabilities; in its text logits", "logits", True)
    assert found["Eq. 4's temperature, tau"].here == "4.0"
    assert found["Eq. 6 softens the student"].differs
    assert not found["Eq. 6 weighs"].differs
    literal = lines("feded", {"algorithm.average": "probabilities"}, {"algorithm.name": "feded"})
    assert not literal["Eq. 5 averages"].differs
    assert "Eq. 5 averages" not in lines("feded", own={"algorithm.name": "fedatt"})


def test_a_setting_that_no_paper_speaks_of_is_told_by_its_key_once_it_is_changed() -> None:
    assert "task.max_length" not in lines("feded")
    reported = lines("feded", {"task.max_length": 48, "model.attention_dropout": 0.0, "server.batch_size": 9})
    assert reported["task.max_length"] == Setting("task.max_length", NOT_SAID, "48")
    assert reported["model.attention_dropout"].here == "0.0"
    assert reported["server.batch_size"].here == "9"
    voted = lines("feded", {}, {"algorithm.name": "feded"})
    assert "algorithm.vote" not in voted


def test_what_an_arm_is_there_to_change_is_not_held_against_the_protocol() -> None:
    asked = study("feded")
    stated = {"batch size, B": 4}
    config = {size: asked.config("synthetic", {"training.batch_size": size}) for size in (2, 4, 8)}
    reported = {"batch size, B": At("training.batch_size")}
    own = [Ran(f"b{b}", "synthetic", config[b], {"training.batch_size"}, stated) for b in (2, 8)]
    plain = Ran("plain", "synthetic", config[4], set(), stated)
    assert settings(reported, own)[0] == Setting("batch size, B", "4", "2; 8 (b8)")
    assert settings(reported, [*own, plain])[0] == Setting("batch size, B", "4", "4")
    assert settings(reported, [plain, Ran("other", "synthetic", config[8], set(), stated)])[0] == Setting(
        "batch size, B", "4", "4; 8 (other)", True
    )


def test_values_agree_as_numbers_or_as_they_are_written() -> None:
    assert agrees(1, 1.0)
    assert agrees(2.5e-05, 0.000025)
    assert agrees(Said("0.1 or 0.2", (0.1, 0.2)), 0.2)
    assert not agrees(Said("0.1 or 0.2", (0.1, 0.2)), 0.3)
    assert not agrees("until it converges", 6)
    assert not agrees("sgd", "adamw")


def test_the_stand_in_and_the_number_of_runs_differ_from_the_paper(tmp_path: Path) -> None:
    paper = PAPERS["feded"]
    for seeds, differs in ((9, False), (3, True)):
        asked = Study(paper, "table3", ReproduceOptions(tmp_path, corpus="synthetic", seeds=seeds), never)
        list(asked._made("synthetic", {"fedavg": {"algorithm.name": "fedavg"}}, [1]))
        found = {line.name: line for line in asked._protocol()}
        assert found["corpus"] == Setting("corpus", "GAD", "the synthetic corpus", True)
        assert found["runs"].differs is differs


def test_every_paper_tells_what_all_training_has() -> None:
    for name, paper in PAPERS.items():
        labels = set(paper.reported) | {label.partition(": ")[2] for label in paper.reported}
        assert set(TRAINING) <= labels, name
