"""Files in ELMo's official form, and a forward pass in NumPy that shares nothing with ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

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
