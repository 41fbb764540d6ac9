"""What travels is measured exactly, decoded safely and checked before use."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import torch as safetensors
from torch import Tensor

from grandrounds.errors import ConfigError
from grandrounds.federation import secure_payloads
from grandrounds.federation.payloads import (
    KINDS,
    Adapters,
    Done,
    Expected,
    Form,
    Gradients,
    Packed,
    Parameters,
    Payload,
    PayloadError,
    PredictedLabels,
    Predictions,
    PublicSet,
    Tensors,
    largest_upload,
    unpack,
)
from tests.federation.samples import COUNT, EXPECTED, PAYLOADS, PROBABILITIES, WEIGHTS, some


def test_every_kind_is_tried_here() -> None:
    assert PAYLOADS.keys() == KINDS.keys()


@pytest.mark.parametrize("compression", ["fp32", "fp16"])
@pytest.mark.parametrize("kind", PAYLOADS)
def test_bytes_are_counted_as_they_are_written_and_come_back(kind: str, compression: Any) -> None:
    packed = PAYLOADS[kind].pack(compression)
    data = packed.to_bytes()
    assert packed.nbytes == len(data)
    again = Packed.from_bytes(data)
    assert (again.kind, dict(again.header), again.nbytes) == (kind, dict(packed.header), len(data))
    assert again.digest == packed.digest
    assert again.to_bytes() == data == packed.to_bytes()
    assert same(unpack(again, EXPECTED), unpack(packed, EXPECTED))


def words(payload: Payload) -> Any:
    return payload.words.tolist() if isinstance(payload, secure_payloads.Masked) else None


def same(one: Payload, other: Payload) -> bool:
    def plain(payload: Payload) -> Any:
        values = getattr(payload, "values", None)
        tensors = isinstance(payload, Adapters | Parameters | Gradients | Tensors)
        shown = {n: v.tolist() for n, v in values.items()} if tensors else getattr(values, "tolist", lambda: values)()
        if type(payload).__module__ == secure_payloads.__name__ and not isinstance(payload, secure_payloads.Masked):
            shown = vars(payload)
        return type(payload), shown, getattr(payload, "form", None), getattr(payload, "of", None), words(payload)

    return bool(plain(one) == plain(other))


DTYPES = [torch.float64, torch.int64, torch.float32, torch.int32, torch.float16, torch.int8, torch.uint8]
tensors_of_all_types = st.dictionaries(
    st.text(min_size=1, max_size=6).filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 12), max_size=2)),
    max_size=7,
)


@settings(max_examples=300, deadline=None)
@given(tensors_of_all_types)
def test_bytes_are_counted_exactly_for_any_names_shapes_and_types(layout: dict[str, Any]) -> None:
    packed = Packed("parameters", {}, {name: torch.ones(shape, dtype=dtype) for name, (dtype, shape) in layout.items()})
    assert packed.nbytes == len(packed.to_bytes())
    assert Packed.from_bytes(packed.to_bytes()).digest == packed.digest


def test_bytes_are_counted_in_the_order_of_the_wire() -> None:
    """int64 stands before float64 there, and offsets have as many digits as their place demands."""
    for size in range(1, 40):
        tensors = {"a": torch.ones(1, dtype=torch.float64), "b": torch.ones(size * 12, dtype=torch.int64)}
        tensors |= {f"c{i}": torch.ones(1, dtype=torch.float64) for i in range(4)}
        packed = Packed("parameters", {}, tensors)
        assert packed.nbytes == len(packed.to_bytes())


def test_tensors_that_are_views_and_transposed_travel_by_value() -> None:
    base = some(4, 6)
    packed = Parameters({"t": base.T, "row": base[1]}).pack("fp32")
    again = Packed.from_bytes(packed.to_bytes())
    assert packed.nbytes == len(packed.to_bytes())
    assert torch.equal(again.tensors["t"], base.T)
    assert torch.equal(again.tensors["row"], base[1])
    assert again.digest == packed.digest


def test_fp16_halves_the_bytes_of_weights_and_keeps_integers() -> None:
    weights = Parameters({"w": some(100, 100), "count": torch.tensor(2**40 + 1)})
    full, half = weights.pack("fp32"), weights.pack("fp16")
    assert full.nbytes - half.nbytes == pytest.approx(20_000, abs=16)
    expected = Expected({"w": (100, 100), "count": ()}, integers=COUNT)
    grown = unpack(half, expected)
    assert isinstance(grown, Parameters)
    assert grown.values["w"].dtype == torch.float32
    assert torch.equal(grown.values["w"], weights.values["w"].half().float())
    assert grown.values["count"].item() == 2**40 + 1


def test_one_bit_more_or_less_is_another_digest() -> None:
    digests = {Parameters(WEIGHTS).pack("fp32").digest}
    for element in range(12):
        for bit in (0, 13, 31):
            weight = WEIGHTS["head.weight"].clone()
            weight.view(torch.int32).view(-1)[element] ^= 1 << bit if bit < 31 else -(1 << 31)
            digests.add(Parameters({**WEIGHTS, "head.weight": weight}).pack("fp32").digest)
    digests.add(Parameters({**WEIGHTS, "head.weight": WEIGHTS["head.weight"].reshape(4, 3)}).pack("fp32").digest)
    digests.add(Parameters({("x" + n): v for n, v in WEIGHTS.items()}).pack("fp32").digest)
    digests.add(Packed("other", {}, WEIGHTS).digest)
    assert len(digests) == 1 + 36 + 3


# Every check


def refused(packed: Packed, because: str, expected: Expected = EXPECTED, kind: type[Payload] | None = None) -> None:
    with pytest.raises(PayloadError, match=because):
        unpack(packed, expected, kind)


def weights(**changes: Tensor) -> Packed:
    named = {**WEIGHTS, **{name.replace("__", "."): value for name, value in changes.items()}}
    return Packed("parameters", {}, named)


def test_a_missing_tensor_is_named() -> None:
    refused(Packed("parameters", {}, {"head.bias": some(3), "count": torch.tensor(1)}), "lacks 'head.weight'")


def test_a_surplus_tensor_is_named() -> None:
    refused(weights(patients=some(2)), "has the undeclared 'patients'")


def test_another_shape_is_named() -> None:
    refused(weights(head__bias=some(4)), r"'head.bias' has shape \(4,\), declared was \(3,\)")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_values_that_are_not_finite_are_refused(bad: float, dtype: torch.dtype) -> None:
    refused(weights(head__bias=torch.tensor([0, bad, 1], dtype=dtype)), "'head.bias' has values that are not finite")


def test_weights_that_overflow_fp16_are_refused_on_arrival() -> None:
    refused(Parameters({**WEIGHTS, "head.bias": torch.full((3,), 1e5)}).pack("fp16"), "not finite")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int32, torch.bool, torch.float64])
def test_a_type_that_weights_do_not_have_is_refused(dtype: torch.dtype) -> None:
    wrong = weights(head__bias=torch.ones(3).to(dtype))
    data = safetensors.save(dict(wrong.tensors), {"parameters": "{}"})

    def arrive() -> None:
        unpack(Packed.from_bytes(data), EXPECTED)

    with pytest.raises(PayloadError, match="type"):
        arrive()


def test_whole_numbers_where_weights_were_declared_are_refused_and_the_other_way_round() -> None:
    refused(weights(head__bias=torch.ones(3, dtype=torch.int64)), "'head.bias' has the type torch.int64")
    refused(weights(count=torch.tensor(1.5)), "'count' has the type torch.float32")


def test_a_payload_over_the_budget_is_refused_before_and_after_decoding() -> None:
    packed = weights()
    refused(packed, "over the budget", replace(EXPECTED, max_bytes=packed.nbytes - 1))
    unpack(packed, replace(EXPECTED, max_bytes=packed.nbytes))
    with pytest.raises(PayloadError, match="over the budget"):
        Packed.from_bytes(packed.to_bytes(), max_bytes=packed.nbytes - 1)


def test_a_kind_that_was_not_declared_or_is_unknown_is_refused() -> None:
    refused(Done().pack("fp32"), "kind 'done' came where 'parameters' was declared", kind=Parameters)
    refused(Packed("parametres", {}, {}), "unknown payload kind 'parametres'; did you mean 'parameters'")


def predictions(values: Tensor = PROBABILITIES, form: Form = "probabilities", public: str = "d1") -> Packed:
    return Predictions(values, form, public).pack("fp32")


def test_predictions_about_another_public_set_are_refused() -> None:
    refused(predictions(public="d2"), "about version d2 of the public set, the server's is d1")


@pytest.mark.parametrize(
    "row", [[0.5, 0.6], [-0.1, 1.1], [0.0, 0.0], [0.5, 0.49]], ids=["over", "negative", "zero", "under"]
)
def test_probabilities_off_the_simplex_are_refused(row: list[float]) -> None:
    refused(predictions(torch.tensor([row, [1.0, 0.0], [0.5, 0.5]])), "not on the simplex")


def test_log_probabilities_are_held_to_the_simplex_too() -> None:
    logs = torch.tensor([[0.3, 0.7], [0.9, 0.1], [0.5, 0.5]]).log()
    found = unpack(predictions(logs, "log_probabilities"), EXPECTED)
    assert isinstance(found, Predictions)
    assert torch.equal(found.values, logs)
    refused(predictions(logs + 0.1, "log_probabilities"), "not on the simplex")


def test_another_form_or_number_of_rows_and_classes_is_refused() -> None:
    refused(Packed("predictions", {"public": "d1"}, {"logits": PROBABILITIES}), "neither is there")
    refused(predictions(PROBABILITIES[:2]), r"shape \(2, 2\)")
    refused(predictions(torch.ones(3, 1)), r"shape \(3, 1\)")


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
@pytest.mark.parametrize("name", ["p", "log p"])
def test_predictions_of_another_type_are_refused(name: str, dtype: torch.dtype) -> None:
    one_hot = torch.tensor([[1, 0], [0, 1], [1, 0]]).to(dtype)
    refused(Packed("predictions", {"public": "d1"}, {name: one_hot}), "type")


# Labels alone


def labels(values: Any, public: str = "d1", name: str = "y") -> Packed:
    return Packed("predicted_labels", {"public": public}, {name: torch.as_tensor(values)})


def test_a_predicted_label_is_a_byte_and_a_vote_for_its_class() -> None:
    packed = PredictedLabels(torch.tensor([2, 0, 255]), 256, "d").pack("fp32")
    assert packed.tensors["y"].tolist() == [[2], [0], [255]]
    found = unpack(packed, Expected(classes=256, public=(3, "d")))
    assert isinstance(found, PredictedLabels)
    assert found.values.tolist() == [2, 0, 255]
    votes = PredictedLabels(torch.tensor([2, 0]), 3, "d").votes()
    assert votes.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def test_from_257_classes_on_a_predicted_label_is_two_bytes() -> None:
    packed = PredictedLabels(torch.tensor([256, 3]), 257, "d").pack("fp32")
    assert packed.tensors["y"].tolist() == [[0, 1], [3, 0]]
    found = unpack(packed, Expected(classes=257, public=(2, "d")))
    assert isinstance(found, PredictedLabels)
    assert found.values.tolist() == [256, 3]


def test_predicted_labels_that_are_mostly_one_class_take_less_than_a_byte_each() -> None:
    sent = PredictedLabels((torch.arange(1000) % 50 == 0).long() * 3, 9, "d")
    packed = sent.pack("fp32")
    assert packed.nbytes == len(packed.to_bytes()) < 250
    found = unpack(Packed.from_bytes(packed.to_bytes()), Expected(classes=9, public=(1000, "d")))
    assert isinstance(found, PredictedLabels)
    assert torch.equal(found.values, sent.values)


def test_predicted_labels_that_do_not_fit_are_refused() -> None:
    good = [[1], [0], [1]]
    unpack(labels(torch.tensor(good).byte()), EXPECTED)
    refused(labels(torch.tensor(good).byte(), public="d2"), "about version d2 of the public set, the server's is d1")
    refused(labels(torch.tensor([[1], [2], [0]]).byte()), "not one of the 2 classes")
    refused(labels(torch.tensor(good[:2]).byte()), r"shape \(2, 1\)")
    refused(labels(torch.tensor(good)), "are bytes")
    refused(labels(torch.tensor(good).byte(), name="p"), "named 'y'")
    for sent in (b"", b"garbage", zlib.compress(bytes(5)), zlib.compress(bytes(10**6))[:-4]):
        refused(labels(torch.tensor(list(sent), dtype=torch.uint8)), "inflate")


# Eight bits


def test_eight_bits_carry_all_classes_but_the_first() -> None:
    values = torch.tensor([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    packed = Predictions(values, "probabilities", "d").pack("int8")
    assert packed.tensors["p"].dtype == torch.uint8
    assert packed.tensors["p"].tolist() == [[51, 26], [255, 0], [0, 0]]  # 0.2 * 255 = 51, 0.1 * 255 = 25.5, to even
    found = unpack(packed, Expected(classes=3, public=(3, "d")))
    assert isinstance(found, Predictions)
    expected = [[178 / 255, 51 / 255, 26 / 255], [0, 1, 0], [1, 0, 0]]
    torch.testing.assert_close(found.values, torch.tensor(expected))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 97), st.integers(0, 1000))
def test_eight_bits_err_by_half_a_step_a_class_at_most(classes: int, seed: int) -> None:
    values = (4 * torch.randn(50, classes, generator=torch.Generator().manual_seed(seed))).softmax(dim=1)
    packed = Predictions(values, "probabilities", "d").pack("int8")
    found = unpack(packed, Expected(classes=classes, public=(50, "d")))
    assert isinstance(found, Predictions)
    torch.testing.assert_close(found.values.sum(dim=1), torch.ones(50))
    assert (found.values[:, 1:] - values[:, 1:]).abs().max() <= 0.5 / 255 * (1 + classes / 2) + 1e-6
    assert (found.values[:, 0] - values[:, 0]).abs().max() <= 0.5 / 255 * classes + 1e-6


def test_predictions_that_are_nearly_certain_are_deflated_and_come_back_the_same() -> None:
    values = torch.eye(9)[torch.arange(400) % 9] * 0.984 + 0.001
    values[:, 0] += 1 - values.sum(dim=1)
    packed = Predictions(values, "probabilities", "d").pack("int8")
    assert packed.tensors["p"].ndim == 1
    assert packed.nbytes == len(packed.to_bytes()) < 400 * 8 / 4
    found = unpack(Packed.from_bytes(packed.to_bytes()), Expected(classes=9, public=(400, "d")))
    assert isinstance(found, Predictions)
    assert (found.values - values).abs().max() < 0.01
    assert torch.equal(found.values.argmax(dim=1), values.argmax(dim=1))


@pytest.mark.parametrize("sent", [b"", b"garbage", zlib.compress(bytes(5)), zlib.compress(bytes(10**6))[:-4]])
def test_deflated_predictions_of_another_size_are_refused(sent: bytes) -> None:
    values = torch.tensor(list(sent), dtype=torch.uint8)
    expected = Expected(classes=2, public=(6, "d"))
    refused(Packed("predictions", {"public": "d"}, {"p": values}), "inflate", expected)


def test_eight_bits_that_say_more_than_one_in_sum_are_refused() -> None:
    expected = Expected(classes=3, public=(1, "d"))
    unpack(Packed("predictions", {"public": "d"}, {"p": torch.tensor([[128, 128]], dtype=torch.uint8)}), expected)
    for row in ([255, 2], [255, 255], [200, 100]):
        sent = Packed("predictions", {"public": "d"}, {"p": torch.tensor([row], dtype=torch.uint8)})
        refused(sent, "not on the simplex", expected)


def test_an_algorithms_own_tensors_have_no_eight_bits() -> None:
    with pytest.raises(ConfigError, match="not for tensors of an algorithm's own"):
        Tensors({"control": some(3)}).pack("int8")


def test_log_probabilities_at_eight_bits_are_log_ratios_to_the_first_class_in_eighths() -> None:
    logits = torch.tensor([[0.0, 1.0, -2.5], [3.0, -4.0, 1.0], [0.0, -40.0, 40.0]])
    packed = Predictions(logits.log_softmax(dim=1), "log_probabilities", "d").pack("int8")
    assert packed.tensors["log p"].tolist() == [[136, 108], [72, 112], [0, 255]]  # 8 (ratio + 16), clipped
    found = unpack(packed, Expected(classes=3, public=(3, "d")))
    assert isinstance(found, Predictions)
    torch.testing.assert_close(found.values[:2], logits[:2].log_softmax(dim=1))
    torch.testing.assert_close(found.values[2], torch.tensor([0.0, -16.0, 15.875]).log_softmax(dim=0))


def test_eight_bits_keep_what_small_probabilities_say() -> None:
    """Which a softened teacher is made of, and bytes of probabilities would lose."""
    logits = 3 * torch.randn(100, 9, generator=torch.Generator().manual_seed(3))
    sent = Predictions(logits.log_softmax(dim=1), "log_probabilities", "d")
    found = unpack(sent.pack("int8"), Expected(classes=9, public=(100, "d")))
    assert isinstance(found, Predictions)
    softened, expected = ((values / 4).softmax(dim=1) for values in (found.values, sent.values))
    assert (softened - expected).abs().max() < 0.01


@pytest.mark.parametrize(("rows", "most"), [(959, 1200), (64, 200)], ids=["GAD", "EU-ADR"])
@pytest.mark.parametrize("form", ["probabilities", "log_probabilities"])
def test_an_upload_at_eight_bits_is_as_small_as_promised(form: Form, rows: int, most: int) -> None:
    digest = PublicSet([{"text": "x"}]).digest
    half = torch.full((rows, 2), 0.5)
    packed = Predictions(half if form == "probabilities" else half.log(), form, digest).pack("int8")
    assert len(packed.to_bytes()) == packed.nbytes <= most


# Counts, and the public set


def test_label_counts_must_be_whole_numbers_and_some() -> None:
    for wrong in ([-1, 3], [0, 0]):
        refused(Packed("label_counts", {}, {"n": torch.tensor(wrong)}), "label counts must be")
    refused(Packed("label_counts", {}, {"n": torch.tensor([1, 2, 3])}), "shape")
    refused(Packed("label_counts", {}, {"n": torch.tensor([0.5, 0.5])}), "type")


def test_bag_scores_are_bytes_of_facts_in_order_each_once() -> None:
    facts, values = torch.arange(48, dtype=torch.uint8).reshape(3, 16), torch.arange(6).reshape(3, 2).byte()
    for wrong in (facts.flip(0), facts[[0, 0, 1]]):
        refused(Packed("bag_scores", {}, {"facts": wrong, "values": values}), "in order, each once")
    refused(Packed("bag_scores", {}, {"facts": facts[:, :8], "values": values}), "shape")
    refused(Packed("bag_scores", {}, {"facts": facts, "values": values[:2]}), "shape")
    refused(Packed("bag_scores", {}, {"facts": facts, "values": values[:, 0]}), "shape")
    refused(Packed("bag_scores", {}, {"facts": facts, "values": values.float()}), "type")
    refused(Packed("bag_scores", {}, {"facts": facts}), "values")
    refused(Packed("bag_scores", {}, {}), "facts")
    none = Packed("bag_scores", {}, {"facts": facts[:0], "values": values[:0]})
    assert len(unpack(none, EXPECTED).values) == 0  # type: ignore[attr-defined]


def test_a_selection_says_yes_or_no() -> None:
    for wrong in (torch.tensor([0, 2]).byte(), torch.tensor([0, 1]), torch.tensor([[0, 1]]).byte()):
        refused(Packed("selection", {}, {"chosen": wrong}), "selection")
    refused(Packed("selection", {}, {"chosen": torch.ones(1).byte(), "text": torch.ones(1).byte()}), "selection")


def test_a_public_set_comes_back_as_it_went_and_its_digest_is_of_what_it_says() -> None:
    sent = PAYLOADS["public_set"]
    assert isinstance(sent, PublicSet)
    found = unpack(Packed.from_bytes(sent.pack("fp32").to_bytes()), EXPECTED)
    assert isinstance(found, PublicSet)
    assert (found.examples, found.digest) == (sent.examples, sent.digest)
    assert len(sent.digest) == 16
    assert PublicSet(list(reversed(sent.examples))).digest != sent.digest


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"[[]]", b"\xff", b"[" * 50_000])
def test_a_public_set_that_is_no_list_of_examples_is_refused(body: bytes) -> None:
    tensor = torch.tensor(list(body), dtype=torch.uint8)
    refused(Packed("public_set", {}, {"examples": tensor}), "public set")
    refused(Packed("public_set", {}, {}), "public set")


def test_fp16_probabilities_of_many_classes_stay_on_the_simplex() -> None:
    values = torch.randn(200, 97, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    sent_forms: list[tuple[Form, Tensor]] = [("probabilities", values), ("log_probabilities", values.log())]
    for form, sent in sent_forms:
        unpack(Predictions(sent, form, "d").pack("fp16"), Expected(classes=97, public=(200, "d")))


@pytest.mark.parametrize(
    "values", [None, [1, 2], {"tp": "3"}, {"tp": None}, {"tp": float("nan")}, {"tp": float("inf")}, {"tp": 10**400}]
)
def test_scores_that_are_not_named_finite_numbers_are_refused(values: Any) -> None:
    refused(Packed("scores", {"values": values}, {}), "scores must be")


def test_scores_and_done_carry_no_tensor() -> None:
    refused(Packed("scores", {"values": {}}, {"x": some(1)}), "scores must be")
    refused(Packed("done", {}, {"x": some(1)}), "carries nothing")
    refused(Packed("done", {"note": "a patient's name"}, {}), "undeclared 'note'")


# Bytes that are not ours


def test_a_payload_cut_at_any_length_is_refused() -> None:
    data = PAYLOADS["predictions"].pack("fp32").to_bytes()
    for length in range(len(data)):
        with pytest.raises(PayloadError):
            Packed.from_bytes(data[:length])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_a_payload_error_and_nothing_else(data: bytes) -> None:
    with pytest.raises(PayloadError):
        Packed.from_bytes(data)


def framed(header: bytes, body: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + body


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


def arrive(data: bytes) -> None:
    """All that a server does with bytes from outside: it may refuse them, and nothing else may happen."""
    try:
        packed = Packed.from_bytes(data)
        assert packed.nbytes > 0
        assert len(packed.digest) == 64
        unpack(packed, EXPECTED)
    except PayloadError:
        return


@settings(max_examples=300, deadline=None)
@given(json_values, st.binary(max_size=20))
@example([[None, None], [False, None]], b"")
def test_a_well_framed_header_of_any_json_is_refused_or_read(header: Any, body: bytes) -> None:
    arrive(framed(json.dumps(header).encode(), body))
    arrive(framed(json.dumps({"__metadata__": header}).encode(), body))
    arrive(framed(json.dumps({"__metadata__": {"parameters": json.dumps(header)}}).encode(), body))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(KINDS)), json_values, json_values)
def test_our_own_kinds_with_any_header_are_refused_or_read(kind: str, values: Any, public: Any) -> None:
    header: Mapping[str, Any] = {"values": values, "public": public}
    arrive(framed(json.dumps({"__metadata__": {kind: json.dumps(header)}}).encode()))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(PAYLOADS)), st.data())
def test_a_payload_with_a_byte_changed_is_refused_or_read(kind: str, data: st.DataObject) -> None:
    sent = bytearray(PAYLOADS[kind].pack("fp32").to_bytes())
    place = data.draw(st.integers(0, len(sent) - 1))
    sent[place] = data.draw(st.integers(0, 255))
    arrive(bytes(sent))


def test_a_header_nested_too_deeply_is_refused() -> None:
    for deep in (b"[" * 100_000, b'{"__metadata__":' * 50_000):
        with pytest.raises(PayloadError):
            Packed.from_bytes(framed(deep))
    inner = json.dumps({"__metadata__": {"scores": "[" * 100_000}}).encode()
    with pytest.raises(PayloadError):
        Packed.from_bytes(framed(inner))


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ({}, "a payload lacks 'control'"),
        ({"control": torch.zeros(2), "more": torch.zeros(1)}, "has the undeclared 'more'"),
        ({"control": torch.zeros(3)}, "has shape"),
        ({"control": torch.tensor([1.0, float("nan")])}, "not finite|finite"),
    ],
)
def test_an_algorithm_s_own_tensors_are_as_it_declares(sent: dict[str, torch.Tensor], problem: str) -> None:
    with pytest.raises(PayloadError, match=problem):
        unpack(Tensors(sent).pack("fp32"), EXPECTED)


def nested(depth: int) -> bytes:
    """A payload whose header is a dict in a dict in a dict."""
    text = '{"a":' * depth + "1" + "}" * depth
    return safetensors.save({}, {"done": text})


@pytest.mark.parametrize("depth", [3, 972, 5_000, 200_000])
def test_a_nested_header_is_refused_on_arrival(depth: int) -> None:
    with pytest.raises(PayloadError):
        Packed.from_bytes(nested(depth))
    assert Packed.from_bytes(nested(2)).nbytes > 0  # as deep as scores are


def test_a_large_header_a_large_layout_and_a_long_name_are_refused_on_arrival() -> None:
    large = safetensors.save({}, {"scores": json.dumps({"values": {"f1": 1.0}, "x": "y" * (1 << 20)})})
    with pytest.raises(PayloadError, match=r"header of 10486.. letters is over the limit"):
        Packed.from_bytes(large)
    with pytest.raises(PayloadError, match=r"layout of .* bytes is over the limit"):
        Packed.from_bytes(safetensors.save({}, {"scores": "{}", "x": "y" * (1 << 23)}))
    for tensors, kind in (({"w" * 201: torch.ones(1)}, "done"), ({}, "d" * 201)):
        with pytest.raises(PayloadError, match="a name of 201 letters"):
            Packed.from_bytes(safetensors.save(tensors, {kind: "{}"}))


@pytest.mark.parametrize("kind", PAYLOADS)
def test_a_header_holds_nothing_that_its_kind_does_not_need(kind: str) -> None:
    packed = PAYLOADS[kind].pack("fp32")
    smuggled = Packed(kind, {**packed.header, "text": "a patient's name " * 60}, packed.tensors)
    refused(smuggled, f"the header of '{kind}' has the undeclared 'text'")
    assert packed.header.keys() <= KINDS[kind].fields


def test_a_score_has_no_sentence_for_its_name() -> None:
    refused(Packed("scores", {"values": {"a patient's name " * 60: 1.0}}, {}), "a score's name")


def test_rows_come_with_a_digest_and_no_other_text() -> None:
    tables = Expected({"w": (3, 2)}, tables=frozenset({"w"}))
    rows = {"w": torch.ones(1, 2), "w rows": torch.tensor([1])}
    assert unpack(Packed("parameters", {"since": {"w": "0" * 16}}, rows), tables)
    for wrong in ("x" * 1000, 7):
        with pytest.raises(PayloadError, match="a digest of the table"):
            unpack(Packed("parameters", {"since": {"w": wrong}}, rows), tables)


def test_an_upload_may_be_as_large_as_what_is_declared_and_no_larger() -> None:
    expected = Expected({"w": (1000, 100)}, classes=9, public=(500, "d"), tables=frozenset({"w"}), labels=9)
    most = largest_upload(expected, examples=40)
    assert most == 8 * 100_000 + 8 * 1000 + 4 * 500 * 9 + 40 * 18 + 8 * 9 + (1 << 23)
    assert Parameters({"w": some(1000, 100)}).pack("fp32").nbytes < most
    data = Packed("parameters", {}, {"w": torch.ones(most // 4)}).to_bytes()
    with pytest.raises(PayloadError, match=f"is over the budget of {most}"):
        Packed.from_bytes(data, most)
