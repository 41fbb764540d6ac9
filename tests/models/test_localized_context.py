"""Every equation of the localized-context model against NumPy, on documents whose numbers are small."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import AutoModel

from grandrounds.data.documents import Document
from grandrounds.errors import ConfigError
from grandrounds.models import localized_context as module
from grandrounds.models.encoder import Encoder, showing_attention, states_and_attention
from grandrounds.models.localized_context import (
    GroupedBilinear,
    LocalizedContext,
    localized_attention,
    localized_context,
    log_sum_exp,
    mean_of,
)
from grandrounds.tasks.document_features import DocumentRows
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions
from tests.conftest import FAMILIES
from tests.tasks.documents import document

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def bert(encoder_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.find(str(encoder_folder("bert")), DocumentRE.markers)


def made(
    encoder: Encoder, documents: list[Document], **options: object
) -> tuple[DocumentRE, LocalizedContext, DocumentRows]:
    task = DocumentRE.of(DocumentREOptions(block=16, **options), documents)
    examples, _ = task.examples(documents)
    torch.manual_seed(5)
    model = task.model(encoder).eval()
    assert isinstance(model, LocalizedContext)
    return task, model, task.features(examples, encoder).batch(range(len(examples)))


def by_hand(encoder: Encoder, model: LocalizedContext, source: Document) -> tuple[Array, Array, Array]:
    """Logits, contexts and attentions of one document's pairs, in NumPy from H and the last layer's whole attention."""
    text, in_order = source.text, sorted(range(len(source.mentions)), key=lambda m: source.mentions[m].start)
    for m in reversed(in_order):
        start, end = source.mentions[m].start, source.mentions[m].end
        text = f"{text[:start]} * {text[start:end]} * {text[end:]}"
    words = ["[CLS]", *text.split(), "[SEP]"]
    opening = dict(zip(in_order, [i for i, word in enumerate(words) if word == "*"][::2], strict=True))
    ids = torch.tensor([encoder.tokenizer.convert_tokens_to_ids(words)])
    eager = AutoModel.from_config(copy.deepcopy(encoder.config), attn_implementation="eager")
    eager.resize_token_embeddings(len(encoder.tokenizer), mean_resizing=False)
    eager.load_state_dict(model.encoder.state_dict())
    with torch.no_grad():
        out = eager.eval()(input_ids=ids, attention_mask=torch.ones_like(ids), output_attentions=True)
    states = out.last_hidden_state[0].double().numpy()
    looks = out.attentions[-1][0].double().numpy()  # heads, from, to
    weights = {name: value.double().numpy() for name, value in model.state_dict().items()}
    logits, contexts, attentions = [], [], []
    drugs = [entity for entity in source.entities if entity.type == "drug"]
    problems = [entity for entity in source.entities if entity.type == "problem"]
    for s in drugs:
        for o in problems:
            h_s, h_o = (np.log(np.sum(np.exp([states[opening[m]] for m in e.mentions]), axis=0)) for e in (s, o))
            a_s, a_o = (np.mean([looks[:, opening[m]] for m in e.mentions], axis=0) for e in (s, o))
            q = np.sum(a_s * a_o, axis=0)
            a = q / q.sum()
            c = states.T @ a
            z_s = np.tanh(weights["subject.weight"] @ np.concatenate([h_s, c]))
            z_o = np.tanh(weights["object.weight"] @ np.concatenate([h_o, c]))
            w = weights["bilinear.relation.weight"].reshape(-1, 2, 16, 16)  # relations, groups, block, block
            groups = [
                [z_s[16 * i : 16 * i + 16] @ w[r, i] @ z_o[16 * i : 16 * i + 16] for i in range(2)]
                for r in range(len(w))
            ]
            logits.append(np.sum(groups, axis=1) + weights["bilinear.relation.bias"])
            contexts.append(c)
            attentions.append(a)
    return np.array(logits), np.array(contexts), np.array(attentions)


def test_the_whole_model_is_eqs_1_to_10(bert: Encoder) -> None:
    task, model, batch = made(bert, [document()])
    assert task.relations == ("causes", "eases")
    reading = model(batch)
    logits, contexts, attentions = by_hand(bert, model, document())
    assert logits.shape == (4, 2)
    found = localized_attention(reading.looks, batch.pairs)
    np.testing.assert_allclose(found.detach().numpy(), attentions, atol=1e-6)
    np.testing.assert_allclose(reading.context.detach().numpy(), contexts, atol=1e-5)
    np.testing.assert_allclose(reading.logits.detach().numpy(), logits, atol=1e-5)
    assert np.abs(logits[0] - logits[1]).max() > 1e-4, "a test that cannot fail"


def test_a_document_reads_the_same_beside_a_longer_one(bert: Encoder) -> None:
    short = document("s", "aspirin eased pain .")
    _, model, batch = made(bert, [short, document()])
    alone = made(bert, [short])[2]
    both, one = model(batch), model(alone)
    assert both.logits.shape[0] == 5
    # One relation is known where only the shorter is: the network's part before the classes is compared.
    np.testing.assert_allclose(both.pair[:1].detach().numpy(), one.pair.detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(both.context[:1].detach().numpy(), one.context.detach().numpy(), atol=1e-6)


def test_log_sum_exp_pools_the_mentions_of_each_entity() -> None:
    values = torch.tensor([[1.0, -2.0], [3.0, 0.5], [0.0, 100.0]], requires_grad=True)
    found = log_sum_exp(values, torch.tensor([[[0, 1], [2, -1]], [[1, -1], [-1, -1]]]))
    expected = [[[np.log(np.e + np.e**3), np.log(np.exp(-2) + np.exp(0.5))], [0, 100]], [[3, 0.5], [0, 0]]]
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-6)
    found.sum().backward()
    assert torch.isfinite(values.grad).all()
    np.testing.assert_allclose(values.grad[2].numpy(), [1, 1])


def test_means_are_of_the_members_alone() -> None:
    values = torch.tensor([[2.0], [4.0], [9.0]])
    np.testing.assert_allclose(mean_of(values, torch.tensor([[0, 1], [2, -1], [-1, -1]])).numpy(), [[3], [9], [0]])


FIRST = torch.tensor([[0, 0, 1]])  # the first document's first entity with its second


def attention(*rows: list[float]) -> torch.Tensor:
    """[1 document, entities, 1 head, pieces]"""
    return torch.tensor(rows)[None, :, None, :]


def test_context_is_zero_where_either_entity_does_not_look() -> None:
    a = localized_attention(attention([0.5, 0.5, 0.0, 0.0], [0.0, 0.2, 0.8, 0.0]), FIRST)[0]
    np.testing.assert_allclose(a.numpy(), [0, 1, 0, 0])
    a = localized_attention(attention([0.2, 0.3, 0.5], [0.5, 0.1, 0.4]), FIRST)[0]
    np.testing.assert_allclose(a.numpy(), np.array([0.1, 0.03, 0.2]) / 0.33, rtol=1e-6)


def test_a_pair_without_common_attention_has_no_context_and_a_finite_gradient() -> None:
    looks = attention([0.4, 0.6, 0.0, 0.0], [0.0, 0.0, 0.3, 0.7]).requires_grad_()
    states = torch.randn(1, 4, 3)
    found = localized_context(states, looks)
    assert localized_attention(looks, FIRST).count_nonzero() == 0
    assert found[0, 0, 1].tolist() == [0, 0, 0]
    assert found[0, 0, 0].abs().min() > 0
    found.sum().backward()
    assert torch.isfinite(looks.grad).all()


def test_heads_are_multiplied_before_they_are_summed() -> None:
    looks = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.3, 0.7], [0.6, 0.4]]])[None]  # [1, entities, heads, pieces]
    q = np.array([0.9 * 0.3 + 0.2 * 0.6, 0.1 * 0.7 + 0.8 * 0.4])
    np.testing.assert_allclose(localized_attention(looks, FIRST)[0].numpy(), q / q.sum(), rtol=1e-6)


def test_the_grouped_bilinear_form_is_a_sum_over_groups() -> None:
    torch.manual_seed(2)
    bilinear = GroupedBilinear(6, 2, block=3)
    z_s, z_o = torch.randn(4, 6), torch.randn(4, 6)
    w = bilinear.relation.weight.detach().numpy().reshape(2, 2, 3, 3)
    s, o = z_s.numpy().reshape(4, 2, 3), z_o.numpy().reshape(4, 2, 3)
    expected = np.einsum("pki,rkij,pkj->pr", s, w, o) + bilinear.relation.bias.detach().numpy()
    np.testing.assert_allclose(bilinear(z_s, z_o).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match=r"task\.block = 4 does not divide the encoder's width of 6"):
        GroupedBilinear(6, 2, block=4)


def test_many_pairs_are_computed_in_parts_with_the_same_numbers_and_gradients(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, model, batch = made(bert, [document(), document("s", "aspirin eased pain .")])
    found = []
    for pairs, largest in ((2048, 1 << 24), (2, 100)):
        monkeypatch.setattr(module, "PAIRS_AT_ONCE", pairs)
        monkeypatch.setattr(module, "LARGEST", largest)
        model.zero_grad()
        task.loss(model, batch).backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        with torch.no_grad():
            found.append((model(batch).logits.numpy(), gradient.numpy()))
    for whole, parts in zip(*found, strict=True):
        np.testing.assert_allclose(whole, parts, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_rows_are_those_of_the_whole_matrix(family: str, encoder_folder: Callable[[str], Path]) -> None:
    folder = encoder_folder(family)
    net = showing_attention(AutoModel.from_pretrained(folder), family).eval()
    eager = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with torch.no_grad():
        states, found = states_and_attention(net, ids, mask, torch.tensor([[3, 1], [1, -1]]))
        whole = eager(input_ids=ids, attention_mask=mask, output_attentions=True)
    np.testing.assert_allclose(states[0].numpy(), whole.last_hidden_state[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(found[0].numpy(), whole.attentions[-1][0, :, [3, 1]].numpy(), atol=1e-6)
    np.testing.assert_allclose(found[1, :, 0].numpy(), whole.attentions[-1][1, :, 1].numpy(), atol=1e-6)
    assert found[1, :, 0, 3:].abs().max() == 0


def test_an_encoder_that_shows_no_attention_is_refused() -> None:
    class Closed:
        def _can_set_attn_implementation(self) -> bool:
            return False

    with pytest.raises(ConfigError, match="'odd' does not show its attention"):
        showing_attention(Closed(), "odd")
