"""`ner` with spans: nested mentions are learnt and found, no mention twice, and what spans can't say is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import grandrounds
from grandrounds.data.documents import Document, Mention, Span
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.ner import NER, NEROptions
from grandrounds.tasks.ner_coding import CLASHING, OVERLAPPING, SAME_WORDS, SpanCoding, TagCoding, too_long
from tests.conftest import TinyConfig, write_corpus
from tests.tasks.documents import nested

TYPES = ["problem", "site", "treatment"]


# Mentions as numbers and back


def answered(coding: SpanCoding, scored: dict[tuple[int, int, str], float], words: int) -> Any:
    outputs = np.zeros((words, 2 * coding.longest), dtype=np.float32)
    for (first, past, type), probability in scored.items():
        outputs[first, past - first - 1] = coding.classes.index(type)
        outputs[first, coding.longest + past - first - 1] = probability
    return outputs


drawn = st.dictionaries(
    st.tuples(st.integers(0, 7), st.integers(1, 3)), st.tuples(st.sampled_from(TYPES), st.integers(34, 99)), max_size=8
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(drawn, st.sampled_from(["types", "nested", "any", "none"]))
def test_decoding_is_the_search_through_all_sets_of_spans(
    spans: dict[tuple[int, int], tuple[str, int]], overlaps: Any
) -> None:
    """Of all sets of spans without a clash, the one whose sorted scores are the highest, compared one by one."""
    ranked = {span: (type, score + i / 10) for i, (span, (type, score)) in enumerate(sorted(spans.items()))}
    scored = {(first, first + size, type): score / 100 for (first, size), (type, score) in ranked.items()}
    coding = SpanCoding(TYPES, 3, overlaps)
    found = coding.mentions(answered(coding, scored, 10))

    def clash(one: Any, two: Any) -> bool:
        shared = set(range(*one[:2])) & set(range(*two[:2]))
        inside = shared in (set(range(*one[:2])), set(range(*two[:2])))
        forbidden = {"none": True, "types": not inside or one[2] == two[2], "nested": not inside, "any": False}
        return bool(shared) and forbidden[overlaps]

    allowed = [
        chosen
        for size in range(len(scored) + 1)
        for chosen in combinations(scored, size)
        if not any(clash(one, two) for one, two in combinations(chosen, 2))
    ]
    best = max(allowed, key=lambda chosen: sorted((scored[span] for span in chosen), reverse=True))
    assert [span for span, _ in found] == sorted(best)
    assert len({span[:2] for span, _ in found}) == len(found)
    assert [score for _, score in found] == pytest.approx([scored[span] for span in sorted(best)])


def test_targets_come_back_as_the_mentions_that_spans_can_say() -> None:
    coding = SpanCoding(TYPES, 3, "any")
    gold = [(0, 3, "problem"), (1, 3, "site"), (2, 4, "treatment"), (0, 3, "site"), (0, 4, "problem"), (4, 6, "site")]
    targets = coding.targets(gold, 5)
    assert targets.shape == (5, 3)
    found = coding.mentions(np.concatenate([targets, targets > 0], axis=1).astype(np.float32))
    assert [span for span, _ in found] == [(0, 3, "problem"), (1, 3, "site"), (2, 4, "treatment")]
    # The last of the gold ones is past the sentence's end: ner_words.py has counted it.
    assert +coding.unsaid(gold, 5) == {too_long(3): 1, SAME_WORDS: 1}
    assert +SpanCoding(TYPES, 4, "nested").unsaid(gold, 5) == {SAME_WORDS: 1, CLASHING: 1}
    alike = [(0, 4, "site"), (1, 3, "site"), (1, 2, "problem")]
    assert +SpanCoding(TYPES, 4, "types").unsaid(alike, 5) == {CLASHING: 1}
    assert not +SpanCoding(TYPES, 4, "nested").unsaid(alike, 5)
    assert +SpanCoding(TYPES, 4, "none").unsaid(gold, 5) == {SAME_WORDS: 1, CLASHING: 3}
    assert +TagCoding(TYPES, "BIO").unsaid(gold, 5) == {OVERLAPPING: 4}


def test_a_mention_longer_than_span_words_is_missed_and_said() -> None:
    task = NER(NEROptions(tagger="spans", span_words=2), TYPES)
    document = Document("d", "severe chest pain eased", mentions=(Mention(0, 17, "problem", "T1"),))
    examples, warnings = task.examples([document])
    assert warnings == {too_long(2): 1}
    assert "2 words (task.span_words)" in too_long(2)
    assert examples[0].gold == ((0, 3, "problem"),)
    assert not task.coding.targets(examples[0].gold, 4).any()


# Training, scoring, extraction


@pytest.fixture(scope="module")
def config(
    tiny_config: TinyConfig, encoder_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, Any]]:
    folder = tmp_path_factory.mktemp("nested")
    write_corpus(folder / "train.jsonl", nested(60))
    write_corpus(folder / "test.jsonl", nested(20, "t"))

    def make(**overrides: Any) -> dict[str, Any]:
        return tiny_config(
            **{
                "task": {"name": "ner", "tagger": "spans", "hidden": 24, "span_words": 4},
                "data.train": str(folder / "train.jsonl"),
                "data.test": str(folder / "test.jsonl"),
                "training.learning_rate": 5e-3,
                "training.batch_size": 4,
                "training.epochs": 2,
                "federation.rounds": 4,
                **overrides,
            }
        )

    return make


def test_nested_mentions_are_learnt_and_found_where_tags_miss_them(
    config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    spans = grandrounds.run(config(), out=tmp_path / "spans")
    assert spans.test.f1 > 0.95
    tags = grandrounds.run(config(**{"task.tagger": "bert"}), out=tmp_path / "bert")
    assert tags.test.recall < 0.8  # of two mentions that overlap, tags say one
    model = grandrounds.load(tmp_path / "spans" / "model")
    score, warnings = model.evaluate(nested(20, "t"))
    assert (score["f1"], warnings) == (spans.test.f1, {})
    assert score["relaxed_f1"] >= score["f1"]
    found = model.extract(Document("x", "The morphine sepsis eased again .\n"))
    assert [(found.surface(m), m.type) for m in found.mentions] == [
        ("morphine", "treatment"),
        ("morphine sepsis", "problem"),
    ]
    assert all(0.3 < float(m.attributes["score"]) <= 1 for m in found.mentions)
    sure = max(float(m.attributes["score"]) for m in found.mentions)
    assert len(model.extract(replace(found, mentions=(), entities=()), sure).mentions) <= 1


def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(
    config: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    for name in ("fedavg", "fedner"):
        small = {"algorithm.name": name, "training.epochs": 1, "federation.rounds": 2}
        grandrounds.run(config(**small), out=tmp_path / f"{name} whole")
        grandrounds.run(config(**{**small, "federation.rounds": 1}), out=tmp_path / name)
        grandrounds.run(config(**small), out=tmp_path / name, resume=True)
        models = sorted((tmp_path / name).glob("model*/**/model.safetensors"))
        assert models
        for model in models:
            whole = tmp_path / f"{name} whole" / model.relative_to(tmp_path / name)
            assert model.read_bytes() == whole.read_bytes()


def test_a_sentence_in_windows_is_read_as_one(encoder_folder: Callable[[str], Path]) -> None:
    encoder = Encoder.find(str(encoder_folder("bert")))
    task = NER(NEROptions(tagger="spans", max_length=32, span_words=3, hidden=8), TYPES)
    long = " ".join(["pain eased", "the fever"] * 60)
    document = Document("d", long, (Span(0, len(long)),), (Mention(0, 4, "problem", "T1"),))
    features = task.features(task.examples([document, *nested(2)])[0], encoder)
    batch = features.batch([0, 1])
    assert batch.targets.shape == (2, 240, 3)
    assert task.loss(task.model(encoder), batch).isfinite()
    assert batch.targets[0, 0].tolist() == [1, 0, 0]
    assert not batch.targets[1, 6:].any()
