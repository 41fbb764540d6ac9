"""What a coordinator that looks at what it is sent finds out about a site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from grandrounds.config.schema import make_config
from grandrounds.errors import ConfigError
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Expected, Gradients, Parameters, Payload
from grandrounds.federation.privacy.ledger import spent_lines
from grandrounds.federation.rows import Rows
from grandrounds.runs.loop import Silent
from grandrounds.simulation.curious import Curious, Leak, attack

WORDS, WIDTH = 50, 4
CONFIG: dict[str, Any] = {
    "seed": 1,
    "task": {"name": "sentence_re"},
    "data": {"format": "synthetic", "public": 0.1, "options": {"hospitals": 2, "notes": 6, "test": 20}},
    "partition": {"scheme": "by", "by": "hospital"},
    "model": {"encoder": "tiny"},
    "training": {"epochs": 1, "batch_size": 8, "learning_rate": 1e-3},
    "federation": {"rounds": 1},
    "algorithm": {"name": "fedavg"},
}


class Replies:
    """A transport whose sites answer with these."""

    def __init__(self, replies: Mapping[str, Payload]) -> None:
        self._replies = replies

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        for ask in asks:
            yield Answer(ask.site, (self._replies[ask.site].pack("fp32"),))

    def flush(self) -> None: ...
    def close(self) -> None: ...


def looking(reply: Payload, other: Payload, sent: Parameters) -> Curious:
    torch.manual_seed(0)
    start = nn.ModuleDict({"words": nn.Embedding(WORDS, WIDTH), "places": nn.Embedding(3, WIDTH)})
    curious = Curious(Replies({"a": reply, "b": other}), "a", start)
    shapes = {"words.weight": (WORDS, WIDTH), "places.weight": (3, WIDTH)}
    tables = frozenset(shapes)
    curious.expected = Expected(shapes, trained=tables, tables=tables)
    packed = (sent.pack("fp32"),)
    asks = [Ask(site, "fedavg", {}, "train", 1, 1, packed, "", None, None, ()) for site in ("a", "b")]
    assert len(list(curious.exchange(asks))) == 2
    return curious


def weights(change: Mapping[int, float], decay: float = 1.0) -> Parameters:
    torch.manual_seed(1)
    table = torch.randn(WORDS, WIDTH)
    for row, by in change.items():
        table[row] += by * torch.tensor([1.0, -2.0, 0.5, 1.0])
    return Parameters({"words.weight": table * decay, "places.weight": torch.ones(3, WIDTH) * decay})


def test_words_are_seen_through_weight_decay_and_only_those_of_the_site() -> None:
    curious = looking(weights({7: 1e-3, 31: 1e-3}, decay=0.97), weights({9: 1.0}), weights({}))
    assert set(np.argsort(-curious._change.numpy())[:2]) == {7, 31}
    assert dict(curious.uploads) == {"parameters": 1}


def test_words_are_seen_in_rows_of_gradients() -> None:
    rows = Rows(torch.tensor([4, 5]), torch.ones(2, WIDTH))
    places = Rows(torch.tensor([0]), torch.ones(1, WIDTH))
    sent = Gradients({}, {"words.weight": rows, "places.weight": places})
    curious = looking(sent, sent, weights({}))
    assert curious._change.nonzero()[:, 0].tolist() == [4, 5]
    assert curious.last is None  # it sent no weights


def run(tmp_path: Path, **changes: Any) -> Leak:
    made = make_config(CONFIG, {key.replace("__", "."): value for key, value in changes.items()})
    return attack(made, Path(), tmp_path / "run", Silent(), canaries=8, repeated=2)


@pytest.mark.parametrize("compression", ["fp32", "int8"])
def test_weights_show_every_word_of_a_site(compression: str, tmp_path: Path) -> None:
    leak = run(tmp_path, federation__compression=compression)
    assert leak.words is not None
    assert leak.words.right > 0.98
    assert leak.words.chance < 0.5
    assert (leak.canaries.planted, leak.repeated, leak.objective) == (8, 2, "F1")


def test_frozen_embeddings_show_none(tmp_path: Path) -> None:
    leak = run(tmp_path, model__freeze=["embeddings"])
    assert leak.words is None
    assert dict(leak.uploads) == {"parameters": 1}


def test_of_masked_weights_the_mean_is_looked_at(tmp_path: Path) -> None:
    """Masks hide whose words they are, and of two hospitals with the same words not even that."""
    pytest.importorskip("cryptography", reason="needs grandrounds[secure]")
    leak = run(tmp_path, federation__secure=True)
    assert "parameters" not in leak.uploads
    assert leak.uploads["masked"] == 1
    assert leak.words is not None
    assert leak.words.right > leak.words.chance + 0.3


def test_predictions_show_no_word(tmp_path: Path) -> None:
    leak = run(tmp_path, algorithm__name="feded")
    assert (leak.words, dict(leak.uploads)) == (None, {"predictions": 1})


def test_what_is_planted_often_is_found(tmp_path: Path) -> None:
    made = make_config(CONFIG, {"training.epochs": 6})
    leak = attack(made, Path(), tmp_path / "run", Silent(), canaries=12, repeated=16)
    assert leak.canaries.bits > leak.canaries.chance + 0.4
    assert leak.membership.auc > 0.55


def test_noise_by_patient_hides_words_and_each_canary_is_a_patient(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="needs grandrounds[privacy]")
    leak = run(tmp_path, privacy__unit="patient", privacy__epsilon=2.0)
    assert leak.words is not None
    assert leak.words.right < leak.words.chance + 0.1
    lines = spent_lines(tmp_path / "run" / "privacy" / f"{leak.site}.jsonl")
    patients = 1 + leak.canaries.planted  # the site has notes of one
    assert [line["rate"] for line in lines] == [pytest.approx(8 / patients)]


def test_pooled_text_needs_no_attack(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="all text is in one place"):
        run(tmp_path, algorithm__name="centralized")


def test_an_unknown_site_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--site: unknown site 'northgat'; known: "):
        attack(make_config(CONFIG), Path(), tmp_path / "run", Silent(), "northgat")
