"""A payload of every kind, and what a server knows of it before it arrives."""

from __future__ import annotations

import torch
from torch import Tensor

from grandrounds.federation.payloads import (
    Adapters,
    BagScores,
    Done,
    Expected,
    Gradients,
    LabelCounts,
    Parameters,
    Payload,
    PredictedLabels,
    Predictions,
    PublicSet,
    Scores,
    Selection,
    Tensors,
    VocabularyCounts,
)
from grandrounds.federation.secure_payloads import (
    Agreement,
    KeyShares,
    Masked,
    MaskKeys,
    OpenedShares,
    SiteKeys,
    Stayed,
)
from grandrounds.models.lora import LORA_A, LORA_B


def some(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


PROBABILITIES = torch.tensor([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
WEIGHTS = {"head.weight": some(3, 4), "head.bias": some(3), "count": torch.tensor(7)}
PAYLOADS: dict[str, Payload] = {
    "parameters": Parameters(WEIGHTS),
    "gradients": Gradients({name: value for name, value in WEIGHTS.items() if name != "count"}),
    "tensors": Tensors({"control": torch.tensor([0.5, -1.0])}),
    "adapters": Adapters({"query" + LORA_A: some(2, 4), "query" + LORA_B: some(3, 2)}),
    "predictions": Predictions(PROBABILITIES, "probabilities", "d1"),
    "predicted_labels": PredictedLabels(torch.tensor([1, 0, 1]), 2, "d1"),
    "scores": Scores({'tp/Tr"IP': 3.0, "fn/Fieber über 39°": 0.125, "n": 10.0}),
    "done": Done(),
    "label_counts": LabelCounts(torch.tensor([5, 0])),
    "bag_scores": BagScores(torch.arange(48, dtype=torch.uint8).reshape(3, 16), torch.arange(6).reshape(3, 2).byte()),
    "selection": Selection(torch.tensor([0, 1, 1]).byte()),
    "vocabulary_counts": VocabularyCounts(5, {"##itis": 12, "fieber": 40, "über": 7}),
    "mask_keys": MaskKeys({"charity": SiteKeys(b"m" * 32, b"s" * 32, b"c" * 32, 120, "ssh-rsa AAAA", b"signed")}),
    "key_shares": KeyShares({"general": b"b" * 92, "mercy": b"c" * 92}),
    "masked": Masked(torch.tensor([-(2**31), 0, 2**31 - 1], dtype=torch.int32), "predictions", "probabilities"),
    "stayed": Stayed(frozenset({"charity", "Fieber über 39°"})),
    "agreement": Agreement({"charity": b"signed", "general": b""}),
    "opened_shares": OpenedShares({"charity": 7, "general": 2**255}, {"mercy": 0}),
    "public_set": PublicSet([{"text": 'Fieber über 39° " \n', "head": [0, 6], "blinded": False}, {"text": ""}]),
}
COUNT, TRAINED = frozenset({"count"}), frozenset({"head.weight", "head.bias"})
EXPECTED = Expected(
    {"head.weight": (3, 4), "head.bias": (3,), "count": ()},
    2,
    (3, "d1"),
    integers=COUNT,
    trained=TRAINED,
    tensors={"control": (2,)},
    adapted={"query": (3, 4)},
    labels=2,
)
