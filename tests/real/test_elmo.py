"""The tiny official ELMo beside the project: its published activations, read statefully in batches of three."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from grandrounds.models.elmo import Elmo, States
from tests.models.elmo_files import ByHand
from tests.real.corpora import DATA

ELMO = DATA / "elmo-tiny"
FILES = ELMO / "options.json", ELMO / "lm_weights.hdf5"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not ELMO.is_dir(), reason="elmo-tiny is not beside the project; set GRANDROUNDS_DATA"),
]


def batches() -> list[list[list[str]]]:
    """Ten batches of three sentences; the k-th sentences of all are the k-th list of the file."""
    lists = json.loads((ELMO / "sentences.json").read_text(encoding="utf-8"))
    return [[text.split() for text in batch] for batch in zip(*lists, strict=True)]


def test_the_top_layer_is_the_published_one_in_all_thirty_sentences() -> None:
    elmo, states = Elmo.load(*FILES), States()
    for number, batch in enumerate(batches()):
        for k, found in enumerate(elmo.embed(batch, states)):
            with h5py.File(ELMO / f"lm_embeddings_{k}.hdf5", "r") as file:
                forwards, backwards = file[str(number)][()]
            np.testing.assert_allclose(found[:, 2].numpy(), np.concatenate([forwards, backwards], axis=1), atol=1e-5)


def test_layer_0_is_the_published_vector_of_each_word_twice() -> None:
    words = (ELMO / "vocab_test.txt").read_text(encoding="utf-8").split()
    with h5py.File(ELMO / "elmo_token_embeddings.hdf5", "r") as file:
        expected = file["embedding"][()]
    found = np.stack([vectors[0, 0].numpy() for vectors in Elmo.load(*FILES).embed([[word] for word in words])])
    plain = [i for i, word in enumerate(words) if word not in ("<S>", "</S>")]  # there the marks of a sentence
    assert len(plain) == 456
    np.testing.assert_allclose(found[plain], np.concatenate([expected, expected], axis=1)[plain], atol=1e-5)


@pytest.mark.parametrize("stateful", [True, False])
def test_all_three_layers_are_those_of_a_pass_by_hand(stateful: bool) -> None:
    """The files hold no layer 1."""
    elmo, by_hand, states = Elmo.load(*FILES), ByHand(*FILES), States() if stateful else None
    for batch in batches()[:4]:
        for place, found in enumerate(elmo.embed(batch, states)):
            np.testing.assert_allclose(found.numpy(), by_hand.sentence(batch[place], place, stateful), atol=1e-5)
