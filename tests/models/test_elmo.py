"""ELMo from files in its official form, against a forward pass in NumPy that shares nothing with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from grandrounds.errors import ConfigError
from grandrounds.models.elmo import Elmo, States

OPTIONS: dict[str, Any] = {
    "lstm": {
        "cell_clip": 0.6,
        "proj_clip": 0.4,
        "use_skip_connections": True,
        "n_layers": 3,
        "projection_dim": 5,
        "dim": 7,
    },
    "char_cnn": {
        "embedding": {"dim": 3},
        "filters": [[1, 4], [2, 3], [4, 6]],
        "n_highway": 2,
        "n_characters": 262,
        "max_characters_per_token": 12,
        "activation": "relu",
    },
}
SENTENCES = [
    ["Aspirin", "causes", "me", "a", "severe", "headache"],
    ["Ödem", "—", "naïve", "thrombocytopenia-associated"],
    ["No", "."],
    ["pain"],
]


def write(folder: Path, options: Mapping[str, Any] = OPTIONS, seed: int = 0) -> tuple[Path, Path]:
    rng = np.random.default_rng(seed)
    lstm, characters = options["lstm"], options["char_cnn"]
    width = sum(number for _, number in characters["filters"])
    letters, projected, hidden = characters["embedding"]["dim"], lstm["projection_dim"], lstm["dim"]
    shapes: dict[str, tuple[int, ...]] = {
        "char_embed": (261, letters),
        "CNN_proj/W_proj": (width, projected),
        "CNN_proj/b_proj": (projected,),
    }
    for i, (window, number) in enumerate(characters["filters"]):
        shapes |= {f"CNN/W_cnn_{i}": (1, window, letters, number), f"CNN/b_cnn_{i}": (number,)}
    for i in range(characters["n_highway"]):
        for part in ("carry", "transform"):
            shapes |= {f"CNN_high_{i}/W_{part}": (width, width), f"CNN_high_{i}/b_{part}": (width,)}
    for way in range(2):
        for i in range(lstm["n_layers"]):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            shapes |= {f"{cell}/W_0": (2 * projected, 4 * hidden), f"{cell}/B": (4 * hidden,)}
            shapes |= {f"{cell}/W_P_0": (hidden, projected)}
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, shape in shapes.items():
            file[name] = rng.normal(scale=0.7, size=shape).astype(np.float32)
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    return folder / "options.json", folder / "weights.hdf5"


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


class ByHand:
    """Peters et al. (2018) word by word, in float64, from the same two files."""

    def __init__(self, options: Path, weights: Path) -> None:
        self.options = json.loads(options.read_text())
        self.weights: dict[str, np.ndarray] = {}
        with h5py.File(weights, "r") as file:
            file.visititems(self._take)
        self.ends: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}

    def _take(self, name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            self.weights[name] = item[()].astype(np.float64)

    def word(self, symbols: Sequence[int]) -> np.ndarray:
        options, w = self.options["char_cnn"], self.weights
        most = options["max_characters_per_token"]
        ids = [258, *symbols[: most - 2], 259]
        letters = w["char_embed"][ids + [260] * (most - len(ids))]
        pooled = []
        for i, (window, _) in enumerate(options["filters"]):
            at = [
                np.einsum("wc,wcf->f", letters[p : p + window], w[f"CNN/W_cnn_{i}"][0])
                for p in range(most - window + 1)
            ]
            best = np.max(at, axis=0) + w[f"CNN/b_cnn_{i}"]
            pooled.append(np.maximum(best, 0) if options["activation"] == "relu" else np.tanh(best))
        x = np.concatenate(pooled)
        for i in range(options["n_highway"]):
            gate = sigmoid(x @ w[f"CNN_high_{i}/W_carry"] + w[f"CNN_high_{i}/b_carry"])
            new = np.maximum(x @ w[f"CNN_high_{i}/W_transform"] + w[f"CNN_high_{i}/b_transform"], 0)
            x = gate * new + (1 - gate) * x
        return x @ w["CNN_proj/W_proj"] + w["CNN_proj/b_proj"]

    def sentence(self, words: Sequence[str], place: int = 0, stateful: bool = False) -> np.ndarray:
        """[words, layers, 2 * projection]"""
        symbols = [[256], *(list(word.encode()) for word in words), [257]]
        tokens = np.stack([self.word(ids) for ids in symbols])
        ways = [self._way(tokens, 0, place, stateful), self._way(tokens[::-1], 1, place, stateful)]
        layers = [np.concatenate([tokens, tokens], axis=1)]
        layers += [np.concatenate([forth, back[::-1]], axis=1) for forth, back in zip(*ways, strict=True)]
        return np.stack(layers, axis=1)[1:-1]

    def _way(self, x: np.ndarray, way: int, place: int, stateful: bool) -> list[np.ndarray]:
        options, layers = self.options["lstm"], []
        for i in range(options["n_layers"]):
            cell = f"RNN_{way}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            key = (way, i, place)
            zero = np.zeros(options["projection_dim"]), np.zeros(options["dim"])
            h, c = self.ends.get(key, zero) if stateful else zero
            outs = []
            for token in x:
                gates = np.concatenate([token, h]) @ self.weights[f"{cell}/W_0"] + self.weights[f"{cell}/B"]
                enter, new, forget, leave = np.split(gates, 4)
                c = sigmoid(forget + 1) * c + sigmoid(enter) * np.tanh(new)
                c = np.clip(c, -options["cell_clip"], options["cell_clip"])
                h = (sigmoid(leave) * np.tanh(c)) @ self.weights[f"{cell}/W_P_0"]
                h = np.clip(h, -options["proj_clip"], options["proj_clip"])
                outs.append(h)
            self.ends[key] = h, c
            x = np.stack(outs) + (x if i and options["use_skip_connections"] else 0)
            layers.append(x)
        return layers


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
