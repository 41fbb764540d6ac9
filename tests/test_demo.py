"""The story that a newcomer sees: together is better than alone, nearly as good as everything in one place."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from grandrounds.data.synthetic import synthesize
from grandrounds.tasks import SentenceRE
from grandrounds.tasks.sentence_re import PairExample


def demo(out: Path, seeds: int) -> dict[str, float]:
    """Mean test F1 by algorithm."""
    command = [sys.executable, "-m", "grandrounds", "demo", "--out", str(out), "--seeds", str(seeds), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (out / "report.html").stat().st_size > 10_000
    return {row["name"]: row["f1_mean"] for row in json.loads(done.stdout)}


def counting_words() -> float:
    """TF-IDF of the blinded sentence, the pair marked, with logistic regression: what needs no encoder."""
    notes = synthesize(hospitals=6, notes=60, seed=1)
    task = SentenceRE.of(SentenceRE.Options(), notes.train)
    (train, _), (test, _) = task.examples(notes.train), task.examples(notes.test)
    vectors = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\S+", sublinear_tf=True)
    model = LogisticRegression(C=30, max_iter=300)
    model.fit(vectors.fit_transform(map(marked, train)), [example.label for example in train])
    predicted = model.predict(vectors.transform(map(marked, test)))
    return float(f1_score([e.label for e in test], predicted, labels=task.labels[1:], average="micro"))


def marked(example: PairExample) -> str:
    text = example.text
    for span, role in sorted([(example.head, 0), (example.tail, 1)], reverse=True):
        text = f"{text[: span.start]} E{role + 1}{example.types[role]} {text[span.end :]}"
    return text.lower()


def tells_the_story(f1: dict[str, float]) -> None:
    assert f1["fedavg"] >= f1["local_only"] + 0.05
    assert f1["fedavg"] >= f1["centralized"] - 0.03
    assert counting_words() <= f1["centralized"] - 0.10


def test_the_demo_tells_its_story(tmp_path: Path) -> None:
    tells_the_story(demo(tmp_path / "demo", seeds=1))


@pytest.mark.real
def test_the_demo_tells_its_story_over_three_seeds(tmp_path: Path) -> None:
    tells_the_story(demo(tmp_path / "demo", seeds=3))
