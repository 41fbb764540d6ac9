"""Features of distant supervision: in parts as at once, and words where they stand."""

from __future__ import annotations

import numpy as np
import pytest

from grandrounds.models.encoder import Encoder
from grandrounds.tasks import distant_re
from grandrounds.tasks.distant_re import DistantRE, DistantREOptions
from tests.algorithms.noisy_bags import noisy


@pytest.fixture(scope="module")
def words() -> Encoder:
    return Encoder.find("words", public=["blocks resembles . drug1 gene1"] * 2)


@pytest.mark.parametrize("head", ["pcnn", "entity_pair"])
def test_sentences_read_in_parts_are_those_read_at_once(
    words: Encoder, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = noisy(4, 3, 1)
    task = DistantRE.of(DistantREOptions(head=head), documents)
    examples, _ = task.examples(documents)
    whole = vars(task.features(examples, words))
    monkeypatch.setattr(distant_re, "AT_ONCE", 5)
    parts = vars(task.features(examples, words))
    assert whole.keys() == parts.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(parts[name], value)
        assert getattr(parts[name], "dtype", None) == getattr(value, "dtype", None)


def test_spans_are_the_words_of_head_and_tail_in_either_order(words: Encoder) -> None:
    documents = noisy(2, 1, 1)
    task = DistantRE.of(DistantREOptions(), documents)
    example = task.examples(documents)[0][1]
    assert example.text.split()[:3] == ["drug1", "blocks", "gene1"]
    turned = type(example)(**{**vars(example), "head": example.tail, "tail": example.head})
    made = task.features([example, turned], words)
    assert made.spans.tolist() == [[0, 1, 2, 3], [2, 3, 0, 1]]
    known = words.tokenizer.get_vocab()
    assert made.ids[:4].tolist() == [known[word] for word in ("drug1", "blocks", "gene1", ".")]
