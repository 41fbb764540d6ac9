"""Federations with adapters: only they and heads travel and are kept, and the model that comes out needs no peft."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM

import grandrounds
from grandrounds import Parameters
from grandrounds.config.schema import make_config
from grandrounds.deployment.terms import read_terms, write_terms
from grandrounds.errors import ConfigError
from grandrounds.federation.payloads import Packed
from grandrounds.simulation.prepare import Simulation, prepare
from grandrounds.tasks.batching import predict_probabilities
from grandrounds.tasks.saved import load, save_model
from tests.conftest import TinyConfig, corpus, task_for
from tests.deployment.grids import run_over_grid
from tests.simulation.crashes import cut, metrics, timeless, weights

LORA = {"model.parameter_efficient": "lora", "model.lora_rank": 4, "training.learning_rate": 1e-2}
Prepared = Callable[..., Simulation]


@pytest.fixture
def prepared(tiny_config: TinyConfig, tmp_path: Path) -> Prepared:
    def make(**overrides: Any) -> Simulation:
        return prepare(make_config(tiny_config(**overrides)), Path(), tmp_path)

    return make


WITHIN = ("encoder.", "bert.")
MASKED_LM = {"name": "masked_lm", "length": 32, "next_sentence": True}
NER = {"name": "ner", "tagger": "bert"}


def travels(name: str) -> bool:
    return ".lora_" in name or not name.startswith(WITHIN)


@pytest.mark.parametrize(
    ("algorithm", "task"),
    [
        ("fedavg", {}),
        ("fedatt", {}),
        ("fedlcc", task_for("fedlcc")),
        ("fedavg", {"task": MASKED_LM}),
        ("fedavg", {"task": NER}),
    ],
)
def test_only_adapters_and_heads_travel(algorithm: str, task: dict[str, Any], prepared: Prepared) -> None:
    setting = {"algorithm": {"name": algorithm}, **task}
    simulation, full = prepared(**LORA, **setting), prepared(**setting)
    names = set(simulation.expected.manifest)
    heads = {name for name in full.expected.manifest if not name.startswith(WITHIN)}
    assert len(names - heads) == 2 * 2 * 2  # A and B of query and value in both layers
    assert names == {name for name in names if travels(name)} > heads
    packed = Parameters.of(simulation.model).pack("fp32")
    sent = Packed.from_bytes(packed.to_bytes())
    assert set(sent.tensors) == names
    assert len(packed.to_bytes()) == packed.nbytes < Parameters.of(full.model).pack("fp32").nbytes / 2
    for site_data in simulation.sites.values():
        assert site_data.registration.manifest == simulation.expected.manifest


@pytest.mark.parametrize("algorithm", ["fedavg", "fedatt", "fedlcc", "local_only", "fedner"])
def test_the_encoder_is_moved_by_its_adapters_alone(
    algorithm: str, tiny_config: TinyConfig, prepared: Prepared, tmp_path: Path
) -> None:
    private = {"private": ["head"], "iterations": 2} if algorithm == "fedner" else {}
    setting = {**LORA, **task_for(algorithm), "algorithm": {"name": algorithm, **private}}
    grandrounds.run(tiny_config(**setting), out=tmp_path / "run")
    before = {n.replace(".base_layer.", "."): v for n, v in prepared(**setting).model.state_dict().items()}
    for path in tmp_path.glob("run/model*/**/model.safetensors"):
        after = load_file(path)
        moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
        inside = {name for name in moved if name.startswith("encoder.")}
        assert len(inside) == 4
        assert all(".query.weight" in name or ".value.weight" in name for name in inside)
        assert moved - inside
    if algorithm in ("fedavg", "fedatt", "fedlcc"):
        up = Parameters.of(prepared(**setting).model).pack("fp32").nbytes
        assert [line["bytes_up"] for line in metrics(tmp_path / "run")] == [3 * up] * 2


def test_it_learns_with_a_fraction_of_the_bytes(tiny_config: TinyConfig, tmp_path: Path) -> None:
    long = {"federation.rounds": 6, "training.epochs": 3, "data.validation": 0.0}
    result = grandrounds.run(tiny_config(**{**LORA, **long, "model.lora_rank": 8}), out=tmp_path / "run")
    assert result.test.f1 > 0.6
    grandrounds.run(tiny_config(), out=tmp_path / "full")
    sent = {name: metrics(tmp_path / name)[0]["bytes_up"] for name in ("run", "full")}
    assert sent["run"] < sent["full"] / 2


def test_one_sites_federation_is_centralized_training(tiny_config: TinyConfig, tmp_path: Path) -> None:
    for name in ("fedavg", "centralized"):
        one = {"partition": {"scheme": "iid", "sites": 1}, "algorithm": {"name": name}}
        grandrounds.run(tiny_config(**LORA, **one), out=tmp_path / name)
    assert weights(tmp_path / "fedavg") == weights(tmp_path / "centralized")


@pytest.mark.parametrize("algorithm", ["fedavg", "fedlcc"])
def test_a_run_that_was_cut_ends_with_the_same_bits_and_so_does_one_over_a_grid(
    algorithm: str, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    """What a site of fedlcc keeps, its previous model, holds no frozen weights either."""
    content = tiny_config(**LORA, **task_for(algorithm), algorithm={"name": algorithm})
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    grandrounds.run(content, out=whole)
    cut(content, broken, 1)
    kept = [json.loads(path.read_text()) for path in broken.glob("private/*/*/state.json")]
    saved = json.loads((broken / "checkpoints" / "round-00001" / "state.json").read_text())
    assert bool(kept) == (algorithm == "fedlcc")
    for state in (saved, *kept):
        names = {key for tree in state["trees"].values() for key, _ in tree.get("dict", [])}
        assert names
        assert all(travels(name) for name in names)
    grandrounds.run(content, out=broken, resume=True)
    run_over_grid(content, tmp_path / "grid")
    for other in ("broken", "grid"):
        assert weights(tmp_path / other) == weights(whole)
        assert timeless(metrics(tmp_path / other)) == timeless(metrics(whole))


def test_a_saved_model_answers_the_same_without_peft(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = prepared(**LORA)
    spec, model, test = simulation.spec, simulation.model, simulation.splits["test"]
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    adapted = predict_probabilities(spec.task, model, test.features, test.rows, spec.device)
    save_model(tmp_path / "saved", spec.task, spec.encoder, model)
    monkeypatch.setitem(sys.modules, "peft", None)
    extractor = load(tmp_path / "saved")
    assert extractor.encoder.lora is None
    plain = predict_probabilities(spec.task, extractor.model, test.features, test.rows, spec.device)
    np.testing.assert_allclose(plain, adapted, atol=1e-5)
    assert np.ptp(plain[:, 0]) > 0.01
    assert extractor.extract(corpus(1)[0]).text == corpus(1)[0].text


def test_pretraining_with_adapters_ends_as_one_of_hugging_faces(
    prepared: Prepared, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    setting = {**LORA, "task": MASKED_LM, "federation.rounds": 1}
    spec = prepared(**setting).spec
    model: Any = spec.initial_model()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    save_model(tmp_path / "saved", spec.task, spec.encoder, model)
    theirs, reported = AutoModelForMaskedLM.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not reported["missing_keys"]
    ids = torch.tensor([spec.encoder.tokenizer(corpus(1)[0].text).input_ids])
    with torch.no_grad():
        adapted = model.vocabulary(model.bert(input_ids=ids).last_hidden_state)
        assert torch.allclose(theirs.eval()(input_ids=ids).logits, adapted, atol=1e-4)
        start = spec.initial_model().bert(input_ids=ids).last_hidden_state
        assert (model.bert(input_ids=ids).last_hidden_state - start).abs().max() > 0.01
    grandrounds.run(tiny_config(**setting), out=tmp_path / "run")
    before = {n.replace(".base_layer.", "."): v for n, v in spec.initial_model().state_dict().items()}
    after = load_file(tmp_path / "run" / "model" / "model.safetensors")
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert {name.split(".")[-2] for name in moved if name.startswith("bert.")} == {"query", "value"}
    assert any(name.startswith("cls.") for name in moved)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"task": {"name": "ner"}, "model.encoder": "words"}, "'lora' adapts a transformer, and this task's model has"),
        ({"task": {**MASKED_LM, "freeze_encoder": True}}, r"task\.freeze_encoder trains the head alone"),
    ],
)
def test_adapters_that_would_not_be_there_are_refused(setting: dict[str, Any], said: str, prepared: Prepared) -> None:
    with pytest.raises(ConfigError, match=said):
        prepared(**LORA, **setting)


def test_what_lies_in_lora_json_cannot_change_the_terms(
    prepared: Prepared, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    config = make_config(tiny_config(**LORA))
    terms = write_terms(tmp_path / "terms", config, prepared(**LORA).spec, (0, ""))
    path = tmp_path / "terms" / "model" / "lora.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "alpha": 900.0}))
    again = read_terms(tmp_path / "terms")
    assert again.digest == terms.digest
    assert again.spec(config.training, torch.device("cpu")).encoder.lora == config.model.lora()


def test_the_start_is_the_same_wherever_it_is_built(
    prepared: Prepared, tiny_config: TinyConfig, tmp_path: Path
) -> None:
    """At another process, after other draws, and from the terms of a federation between hosts."""
    setting = {**LORA, "model.warm_up": 1}
    spec = prepared(**setting).spec
    first = spec.initial_model().state_dict()
    torch.rand(7)
    config = make_config(tiny_config(**setting))
    terms = write_terms(tmp_path / "terms", config, spec, (0, ""))
    assert read_terms(tmp_path / "terms").encoder.lora == config.model.lora()
    for again in (spec, terms.spec(config.training, spec.device)):
        state = again.initial_model().state_dict()
        assert state.keys() == first.keys()
        assert all(torch.equal(value, first[name]) for name, value in state.items())


def test_options_without_adapters_are_refused(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match=r"model\.lora_rank is for adapters"):
        make_config(tiny_config(**{"model.lora_rank": 4}))
    arm = make_config(tiny_config(**{"model.lora_rank": 4, "model.parameter_efficient": "off"}))  # of a comparison
    assert arm.model.lora() is None
    with pytest.raises(ConfigError, match=r"model\.parameter_efficient"):
        make_config(tiny_config(**{"model.parameter_efficient": "prefix"}))
