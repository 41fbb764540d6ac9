"""The evidence of a relation is the sentences that carry the most of its pair's localized context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from grandrounds.data.documents import Document
from grandrounds.models.encoder import Encoder
from grandrounds.models.localized_context import PairReading, localized_attention
from grandrounds.reports.extraction import extraction_page
from grandrounds.tasks.document_features import MARKER, DocumentRows
from grandrounds.tasks.document_re import NO_MENTION, NO_PAIR, evidence
from grandrounds.tasks.saved import Extractor
from tests.tasks.documents import eased
from tests.tasks.extractors import CURES, everything

PIECES = 8  # of a sentence: * aspirin * eased * pain * .


@pytest.fixture(scope="session")
def marking(encoder_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.find(str(encoder_folder("bert")), (MARKER,))


class Told(nn.Module):
    """Reads every document as it was told to."""

    def __init__(self, logits: list[float], attention: NDArray[np.float64]) -> None:
        super().__init__()
        self.logits, self.attention = torch.tensor(logits)[:, None], torch.from_numpy(attention).float()
        self.register_buffer("threshold", torch.zeros(1))

    def forward(self, batch: DocumentRows) -> PairReading:
        nothing = torch.zeros(len(self.logits), 1)
        # A head for each pair, in which its subject looks as told and its object everywhere.
        looks = torch.zeros(1, batch.entities.shape[1], *self.attention.shape)
        for head, (_, s, o) in enumerate(batch.pairs.tolist()):
            looks[0, s, head], looks[0, o, head] = self.attention[head], 1
        return PairReading(self.logits, nothing, nothing, looks)


def over_pieces(
    *carried: tuple[float, ...], cls: float = 0.0, sep: float = 0.0, padding: int = 0
) -> NDArray[np.float64]:
    """[P, N]: what each sentence carries, unevenly over its pieces."""
    weights = np.arange(1, PIECES + 1) / np.arange(1, PIECES + 1).sum()
    rows = [np.concatenate([[cls], *(share * weights for share in row), [sep], np.zeros(padding)]) for row in carried]
    return np.stack(rows)


def found(document: Document, model: nn.Module, encoder: Encoder, threshold: float = 0.0) -> dict[str, dict[str, str]]:
    relations = Extractor(CURES, encoder, model).extract(document, threshold).relations
    return {f"{relation.head} {relation.tail}": dict(relation.attributes) for relation in relations}


def test_sentences_of_a_fifth_are_evidence_or_the_one_with_the_most() -> None:
    assert evidence(np.array([0.1, 0.5, 0.4], dtype=np.float32)) == (1, 2)
    assert evidence(np.array([0.02, 0.01, 0.0], dtype=np.float32)) == (0, 1)  # [CLS] had the rest
    assert evidence(np.array([0.16, 0.17, 0.18, 0.17, 0.16, 0.16], dtype=np.float32)) == (2,)
    assert evidence(np.zeros(3, dtype=np.float32)) == ()
    assert evidence(np.zeros(0, dtype=np.float32)) == ()


def test_special_pieces_and_padding_do_not_count(marking: Encoder) -> None:
    document = eased(("aspirin", "pain"), ("heparin", "stroke"), ("insulin", "pain"))
    attention = over_pieces(*[(0.06, 0.01, 0.03)] * 6, cls=0.5, sep=0.3, padding=5)
    attention[:, -5:] = 0.1
    attributes = found(document, Told([1.0] * 6, attention), marking)
    by_hand = attention[:, 1 : 1 + 3 * PIECES].reshape(6, 3, PIECES).sum(axis=2)
    assert by_hand[0] / by_hand[0].sum() == pytest.approx([0.6, 0.1, 0.3])
    assert len(attributes) == 6
    assert all(why["evidence"] == "0 2" for why in attributes.values())


def test_each_pair_has_evidence_of_its_own_and_one_without_context_has_none(marking: Encoder) -> None:
    document = eased(("aspirin", "pain"), ("heparin", "stroke"), ("aspirin", "pain"))
    attention = over_pieces((0.6, 0.1, 0.3), (0.9, 0.1, 0.0), (0.0, 0.0, 0.0), (0.1, 0.7, 0.2))
    assert found(document, Told([2.0, -1.0, 3.0, 1.0], attention), marking) == {
        "aspirin pain": {"score": "0.8808", "evidence": "0 2"},
        "heparin pain": {"score": "0.9526"},
        "heparin stroke": {"score": "0.7311", "evidence": "1 2"},
    }


def test_a_half_decides_and_a_threshold_above_it_leaves_out_more(marking: Encoder) -> None:
    document = eased(("aspirin", "pain"), ("aspirin", "stroke"), ("aspirin", "fever"))
    model = Told([0.0, 0.1, 2.0], over_pieces(*[(1.0, 0.0, 0.0)] * 3))
    assert set(found(document, model, marking)) == {"aspirin stroke", "aspirin fever"}
    assert set(found(document, model, marking, 0.2)) == {"aspirin stroke", "aspirin fever"}
    assert set(found(document, model, marking, 0.8)) == {"aspirin fever"}


def test_pieces_before_the_first_sentence_and_a_document_without_any_are_no_evidence(marking: Encoder) -> None:
    document = eased(("aspirin", "pain"), ("aspirin", "pain"))
    model = Told([1.0], over_pieces((0.9, 0.1)))
    assert found(document, model, marking)["aspirin pain"]["evidence"] == "0"
    late = replace(document, sentences=document.sentences[1:])
    assert found(late, model, marking)["aspirin pain"]["evidence"] == "0"  # the only one, as the document numbers it
    assert "evidence" not in found(replace(document, sentences=()), model, marking)["aspirin pain"]


MANY = (("aspirin", "pain"), ("heparin", "stroke"), ("insulin", "fever"), ("morphine", "sepsis")) * 3


@pytest.mark.parametrize("window", [512, 40])
def test_evidence_is_what_a_network_attends_to_in_one_window_or_several(marking: Encoder, window: int) -> None:
    document, extractor = eased(*MANY[: 12 if window == 40 else 6]), everything(marking, window)
    (example,), _ = extractor.task.examples([document])
    batch = extractor.task.features([example], marking).batch([0])
    assert (len(batch.input_ids) > 1) == (window == 40)
    with torch.inference_mode():
        attention = localized_attention(extractor.model(batch).looks, batch.pairs).numpy().astype(np.float64)
    assert attention.shape[1] == PIECES * len(document.sentences) + 2
    carried = attention[:, 1:-1].reshape(len(attention), -1, PIECES).sum(axis=2)
    share = carried / carried.sum(axis=1, keepdims=True)
    wanted = [np.flatnonzero(row >= 0.2).tolist() or [int(row.argmax())] for row in share]
    relations = extractor.extract(document).relations
    assert [relation.attributes["evidence"] for relation in relations] == [" ".join(map(str, row)) for row in wanted]


def test_shares_are_the_same_alone_and_beside_a_longer_document(marking: Encoder) -> None:
    extractor = everything(marking)
    examples, _ = extractor.task.examples([eased(*MANY[:2]), eased(*MANY[:5])])
    features = extractor.task.features(examples, marking)
    assert features.sentences == 5

    def shares(row: int, rows: list[int]) -> Tensor:
        batch = features.batch(rows)
        own = batch.pairs[batch.pairs[:, 0] == rows.index(row)]
        with torch.inference_mode():
            return features.by_sentence(row, localized_attention(extractor.model(batch).looks, own))

    alone, beside = shares(0, [0]), shares(0, [1, 0])
    assert alone.shape == (4, 5)
    assert alone[:, 2:].count_nonzero() == 0
    assert torch.allclose(alone, beside, atol=1e-6)
    assert shares(1, [1, 0]).count_nonzero() > alone.count_nonzero()


def test_answers_are_those_that_are_scored(marking: Encoder) -> None:
    document, extractor = eased(*MANY[:4]), everything(marking)
    probabilities = extractor.probabilities(extractor.task.examples([document])[0])
    scores = [relation.attributes["score"] for relation in extractor.extract(document).relations]
    assert scores == [f"{row[0]:.4f}" for row in probabilities]


def test_a_relation_across_sentences_shows_both_in_the_page(marking: Encoder) -> None:
    document = eased(("aspirin", "fever"), ("heparin", "stroke"), ("insulin", "pain"))
    pairs = CURES.examples([document])[0][0].pairs
    logits = [1.0 if pair == ("aspirin", "pain") else -1.0 for pair in pairs]
    model = Told(logits, over_pieces(*[(0.5, 0.0, 0.5)] * len(pairs)))
    page = extraction_page([Extractor(CURES, marking, model).extract(document)], "Found")
    assert "aspirin → pain" in page
    assert 'data-head="d0m0" data-tail="d0m5" data-evidence="d0s0 d0s2"' in page
    assert page.count('<q class="why">') == 2
    assert '<q class="why">aspirin eased fever .</q><q class="why">insulin eased pain .</q>' in page
    assert '<span class="d0s1">' not in page


def test_where_nothing_is_found_or_marked_the_document_comes_back_and_the_page_says_so(marking: Encoder) -> None:
    document = eased(("aspirin", "pain"))
    extractor = Extractor(CURES, marking, Told([-1.0], over_pieces((1.0,))))
    bare = replace(document, mentions=(), entities=())
    alone = replace(document, mentions=document.mentions[:1], entities=document.entities[:1])
    assert extractor.extract(document) == document
    assert extractor.extract(bare) == bare
    assert extractor.extract_all([document, bare, alone])[1] == {NO_MENTION: 1, NO_PAIR: 1}
    assert "No relations were found." in extraction_page([document], "Found")
    assert "It has no mentions, so there was nothing to relate." in extraction_page([bare], "Found")
