"""Frozen language models: read once, kept in a bounded space, the same whatever the order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from grandrounds.errors import ConfigError
from grandrounds.models.elmo import Elmo
from grandrounds.models.encoder import Encoder
from grandrounds.tasks import ner_language
from grandrounds.tasks.ner_language import FrozenElmo, FrozenTransformer, Half, LanguageStates, find_language
from tests.models.elmo_files import OPTIONS, write

SENTENCES = [
    ["The", " pain", " eased", "."],
    ["No", " stroke"],
    ["The", " pain", " eased", "."],
    ["The", " aspirin", " eased", " the", " fever", " again", "."],
    ["edema"],
]


class Counting:
    """A language model that says what it read."""

    width, layers = 2, 1

    def __init__(self) -> None:
        self.read: list[int] = []

    def states(self, sentences: Sequence[Sequence[str]]) -> list[Half]:
        self.read += [len(words) for words in sentences]
        return [np.full((len(words), 2), len(words), dtype=np.float16) for words in sentences]

    def save(self, folder: Path) -> None:
        raise NotImplementedError


@pytest.fixture
def bert(encoder_folder: Callable[[str], Path]) -> FrozenTransformer:
    return FrozenTransformer(Encoder.find(str(encoder_folder("bert"))))


def test_a_word_is_the_mean_of_its_pieces_in_the_top_layers(bert: FrozenTransformer) -> None:
    encoder = bert._encoder
    words = ["The", " heparinx", " eased"]
    ids = [piece for word in words for piece in encoder.pieces([word])[0]]
    sizes = [len(encoder.pieces([word])[0]) for word in words]
    with torch.inference_mode():
        given = bert._model(torch.tensor([[2, *ids, 3]]), output_hidden_states=True).hidden_states
    pieces = torch.stack(given[1:]).mean(dim=0)[0, 1:-1]  # of two layers, both
    expected = torch.stack([part.mean(dim=0) for part in pieces.split(sizes)])
    (states,) = bert.states([words])
    assert states.dtype == np.float16
    np.testing.assert_allclose(states, expected.numpy(), atol=2e-3)


def test_a_sentence_longer_than_the_model_reads_has_states_for_every_word(bert: FrozenTransformer) -> None:
    (states,) = bert.states([[" pain", " stroke"] * 100])
    assert states.shape == (200, 32)
    assert np.abs(states).max(axis=1).min() > 0


def test_elmos_layers_are_there_to_be_mixed(tmp_path: Path) -> None:
    files = write(tmp_path)
    language = find_language(str(tmp_path), Path())
    assert isinstance(language, FrozenElmo)
    assert (language.width, language.layers) == (2 * OPTIONS["lstm"]["projection_dim"], 4)
    (states,) = language.states([["The", " pain"]])
    np.testing.assert_allclose(states, Elmo.load(*files).embed([["The", "pain"]])[0].numpy(), rtol=1e-3, atol=1e-6)
    assert isinstance(find_language("options.json", tmp_path), FrozenElmo)


def test_each_distinct_sentence_is_read_once() -> None:
    language = Counting()
    states = LanguageStates(language, SENTENCES, at_once=1)
    assert language.read == []  # until somebody asks
    first = states.batch(np.array([0, 2, 1]))
    assert sorted(language.read) == [2, 4]
    assert first.shape == (3, 4, 2)
    assert first[2, :, 0].tolist() == [2, 2, 0, 0]
    for rows in ([3, 4], [2, 4, 0], [1, 3]):
        states.batch(np.array(rows))
    assert sorted(language.read) == [1, 2, 4, 7]


def test_what_is_beyond_the_bound_is_read_anew_and_is_the_same(
    monkeypatch: pytest.MonkeyPatch, bert: FrozenTransformer
) -> None:
    rows = np.arange(5)
    kept = LanguageStates(bert, SENTENCES, at_once=1)
    monkeypatch.setattr(ner_language, "MOST", 5 * 32 * 2)
    bounded = LanguageStates(bert, SENTENCES, at_once=1)
    expected = kept.batch(rows)
    for _ in range(2):
        assert torch.equal(bounded.batch(rows), expected)
        assert torch.equal(kept.batch(rows), expected)
    assert bounded._bytes <= 5 * 32 * 2 < kept._bytes


@pytest.mark.parametrize("at_once", [1, 2, 32])
def test_the_order_of_batches_changes_no_bit(at_once: int, bert: FrozenTransformer) -> None:
    one, other = (LanguageStates(bert, SENTENCES, at_once) for _ in range(2))
    together = one.batch(np.arange(5))
    for row in (4, 0, 3, 1, 2):
        alone = other.batch(np.array([row]))[0]
        assert torch.equal(alone, together[row, : len(alone)])


def test_one_at_a_time_a_sentences_states_depend_on_it_alone(bert: FrozenTransformer) -> None:
    (alone,) = bert.states([SENTENCES[0]])
    among = LanguageStates(bert, SENTENCES, at_once=1).batch(np.array([3, 0]))
    assert torch.equal(among[1, :4], torch.from_numpy(alone))


def test_a_sentence_is_read_once(bert: FrozenTransformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what makes a second epoch faster."""
    read: list[int] = []
    states_of = FrozenTransformer.states

    def watched(self: FrozenTransformer, sentences: Any) -> Any:
        read.append(len(sentences))
        return states_of(self, sentences)

    monkeypatch.setattr(FrozenTransformer, "states", watched)
    sentences = [[f" {word}{i}" for word in ("pain", "stroke", "fever")] for i in range(60)]
    states = LanguageStates(bert, sentences, at_once=1)
    for _ in range(2):
        for row in range(0, 60, 10):
            states.batch(np.arange(row, row + 10))
    assert sum(read) == 60


@pytest.mark.parametrize("kind", ["bert", "elmo"])
def test_a_saved_language_model_gives_the_same_states(
    kind: str, encoder_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    source = encoder_folder("bert")
    if kind == "elmo":
        source = tmp_path / "elmo"
        source.mkdir()
        write(source)
    made = find_language(str(source), Path())
    for _ in range(2):  # over what is there
        made.save(tmp_path / "model" / "language")
    again = find_language("language", tmp_path / "model")
    for one, other in zip(made.states(SENTENCES), again.states(SENTENCES), strict=True):
        assert one.tobytes() == other.tobytes()


def test_files_that_are_missing_or_many_are_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "b_options.json").write_text("{}")
    with pytest.raises(ConfigError, match="several options files"):
        find_language(str(tmp_path), Path())
    (tmp_path / "weights.hdf5").unlink()
    with pytest.raises(ConfigError, match=r"'weights\.hdf5'; 0 files fit"):
        find_language("options.json", tmp_path)
    with pytest.raises(ConfigError, match="cannot load encoder 'nowhere'"):
        find_language("nowhere", tmp_path)
