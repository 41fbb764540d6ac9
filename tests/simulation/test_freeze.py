"""FedAvg's weights show which word pieces a site's text has; frozen embeddings neither change nor travel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.payloads import Parameters
from grandrounds.simulation import run as running
from grandrounds.simulation.prepare import prepare
from tests.conftest import TinyConfig

FROZEN = {"model.freeze": ["embeddings"]}
TABLE = "encoder.embeddings.word_embeddings.weight"


def changed_rows(content: Any, folder: Path) -> set[int]:
    """The attack: which rows of the table are no longer as before round 1."""
    grandrounds.run(content, out=folder)
    before = prepare(make_config(content), Path(), folder / "again").spec.initial_model().state_dict()[TABLE]
    after = load_file(folder / "model" / "model.safetensors")[TABLE]
    return set((before != after).any(dim=1).nonzero()[:, 0].tolist())


def test_rows_that_changed_are_those_of_the_sites_words_unless_they_are_frozen(
    tiny_config: TinyConfig, tmp_path: Path
) -> None:
    one = {"federation.rounds": 1, "training.weight_decay": 0.0}
    assert changed_rows(tiny_config(**one), tmp_path / "open")
    assert changed_rows(tiny_config(**one, **FROZEN), tmp_path / "frozen") == set()


def test_frozen_parts_do_not_travel(tiny_config: TinyConfig, tmp_path: Path) -> None:
    setup = prepare(make_config(tiny_config(**FROZEN)), Path(), tmp_path)
    sent = Parameters.of(setup.spec.initial_model()).values
    assert sent.keys() == setup.expected.manifest.keys()
    assert sent
    assert not [name for name in sent if "embeddings" in name.split(".")]


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [(["embedings"], "did you mean 'embeddings'"), (["encoder", "head"], "names all of the model")],
)
def test_what_is_not_there_and_all_of_it_can_not_be_frozen(
    tiny_config: TinyConfig, tmp_path: Path, parts: list[str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        grandrounds.run(tiny_config(**{"model.freeze": parts}), out=tmp_path / "run")


@pytest.mark.parametrize("part", ["public", "validation"])
def test_a_path_is_refused_where_notes_are_made_here(tiny_config: TinyConfig, part: str) -> None:
    """It was ignored, and the training notes became the public set."""
    for format in ("synthetic", "synthetic-bags", "synthetic-documents"):
        with pytest.raises(ConfigError, match=f"data.{part} names a file, and '{format}' has none"):
            make_config(tiny_config(**{"data.format": format, "data.train": None, f"data.{part}": "some.jsonl"}))


def test_a_device_that_is_not_there_is_said_before_data_are_read(
    tiny_config: TinyConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(running, "prepare", lambda *given: pytest.fail("data were read first"))
    with pytest.raises(ConfigError, match="device = 'cuda', which this machine or this torch does not have"):
        grandrounds.run(tiny_config(device="cuda"), out=tmp_path / "run")
