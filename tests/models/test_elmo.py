"""ELMo from files in its official form, against a forward pass in NumPy that shares nothing with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grandrounds.errors import ConfigError
from grandrounds.models.elmo import Elmo, States
from tests.models.elmo_files import OPTIONS, ByHand, write

SENTENCES = [
    ["Aspirin", "causes", "me", "a", "severe", "headache"],
    ["Ödem", "—", "naïve", "thrombocytopenia-associated"],
    ["No", "."],
    ["pain"],
]


def variant(**changes: Any) -> dict[str, Any]:
    return {part: {k: changes.get(k, v) for k, v in values.items()} for part, values in OPTIONS.items()}


@pytest.mark.parametrize(
    "options", [OPTIONS, variant(use_skip_connections=False), variant(activation="tanh", n_layers=2, n_highway=1)]
)
def test_every_layer_is_that_of_a_pass_by_hand(options: dict[str, Any], tmp_path: Path) -> None:
    files = write(tmp_path, options)
    elmo, by_hand = Elmo.load(*files).double(), ByHand(*files)
    assert (elmo.layers, elmo.width) == (options["lstm"]["n_layers"] + 1, 10)
    for words, found in zip(SENTENCES, elmo.embed(SENTENCES), strict=True):
        assert found.shape == (len(words), elmo.layers, elmo.width)
        np.testing.assert_allclose(found.numpy(), by_hand.sentence(words), atol=1e-9)


def test_clipping_is_at_work_here(tmp_path: Path) -> None:
    """Else the test above would not see it."""
    files = write(tmp_path)
    clipped = Elmo.load(*files).embed(SENTENCES)[0]
    write(tmp_path, variant(cell_clip=99, proj_clip=0.4))
    assert (Elmo.load(*files).embed(SENTENCES)[0] - clipped).abs().max() > 0.01
    write(tmp_path, variant(cell_clip=0.6, proj_clip=99))
    assert (Elmo.load(*files).embed(SENTENCES)[0] - clipped).abs().max() > 0.01


def test_a_sentence_has_the_same_vectors_alone_again_and_beside_others(tmp_path: Path) -> None:
    elmo = Elmo.load(*write(tmp_path))
    together, again = elmo.embed(SENTENCES), elmo.embed(SENTENCES[::-1])[::-1]
    for words, one, other in zip(SENTENCES, together, again, strict=True):
        # Vectors here reach 20, and what stands beside a sentence changes the order of sums.
        np.testing.assert_allclose(one.numpy(), elmo.embed([words])[0].numpy(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-5, atol=1e-5)


def test_past_a_sentences_end_are_zeros(tmp_path: Path) -> None:
    elmo = Elmo.load(*write(tmp_path))
    given = elmo(*elmo.characters(SENTENCES))
    assert given.shape == (4, 6, 4, 10)
    assert given[3, 1:].abs().sum() == 0
    assert given[3, 0].abs().min() > 0


def test_handed_on_states_begin_where_the_place_in_the_batch_ended(tmp_path: Path) -> None:
    files = write(tmp_path)
    elmo, by_hand, states = Elmo.load(*files).double(), ByHand(*files), States()
    for batch in (SENTENCES[:2], SENTENCES[1:2], SENTENCES[::-1], SENTENCES[:3]):  # places left out keep their states
        for place, found in enumerate(elmo.embed(batch, states)):
            np.testing.assert_allclose(found.numpy(), by_hand.sentence(batch[place], place, stateful=True), atol=1e-9)
    first = Elmo.load(*files).double().embed(SENTENCES[:1])[0]
    assert (elmo.embed(SENTENCES[:1], states)[0] - first).abs().max() > 1e-3


def test_words_are_utf_8_bytes_cut_to_what_fits(tmp_path: Path) -> None:
    elmo = Elmo.load(*write(tmp_path))
    ids, lengths = elmo.characters([["é", "thrombocytopenia"], ["a"]])
    assert lengths.tolist() == [2, 1]
    assert ids[0, 0].tolist() == [259, 257, 260] + [261] * 9
    assert ids[0, 1].tolist() == [259, 0xC3 + 1, 0xA9 + 1, 260] + [261] * 8
    assert ids[0, 2].tolist() == [259, *(b + 1 for b in b"thrombocyt"), 260]
    assert ids[0, 3].tolist() == [259, 258, 260] + [261] * 9
    assert ids[1, 3].tolist() == [0] * 12


def test_nothing_is_trained(tmp_path: Path) -> None:
    elmo = Elmo.load(*write(tmp_path))
    assert not any(parameter.requires_grad for parameter in elmo.parameters())
    assert not elmo.embed(SENTENCES)[0].requires_grad


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    options, weights = write(tmp_path)
    with pytest.raises(ConfigError, match=r"no options file of ELMo"):
        Elmo.load(tmp_path / "none.json", weights)
    with pytest.raises(ConfigError, match=r"none\.hdf5' can't be read as ELMo's weights"):
        Elmo.load(options, tmp_path / "none.hdf5")
    options.write_text(json.dumps(variant(n_layers=4)))
    with pytest.raises(ConfigError, match=r"weights\.hdf5' can't be read as ELMo's weights of 'options\.json'.*Cell3"):
        Elmo.load(options, weights)
    options.write_text(json.dumps(variant(projection_dim=6)))
    with pytest.raises(ConfigError, match=r"a tensor of \[5, 13\] where the options ask for \[6, 13\]"):
        Elmo.load(options, weights)
    options.write_text(json.dumps(variant(activation="gelu")))
    with pytest.raises(ConfigError, match=r"no options file of ELMo \('gelu'\)"):
        Elmo.load(options, weights)
