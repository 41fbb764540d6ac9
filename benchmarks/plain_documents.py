"""Document-level relation extraction as one writes it down from the paper (FedLCC, 2024, section 3.2), the rival of
models/localized_context.py: every layer's whole attention, every document filled up to the encoder's window, and a
loop over documents, entities, mentions and pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.models.encoder import Encoder
from grandrounds.tasks.document_features import mark_document
from grandrounds.tasks.document_re import DocumentExample


@dataclass(frozen=True)
class PlainDocument:
    ids: list[int]
    """With [CLS] and [SEP]."""
    entities: list[list[int]]
    """Where the opening marker of each mention of each entity stands."""
    pairs: list[tuple[int, int]]
    """Subject and object, as places in `entities`."""
    labels: Tensor
    """[pairs, relations]"""


def plain_documents(examples: Sequence[DocumentExample], relations: int, encoder: Encoder) -> list[PlainDocument]:
    marked = mark_document([example.source for example in examples], encoder)
    cls, sep = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    documents = []
    for example, pieces in zip(examples, marked, strict=True):
        place = {entity.id: i for i, entity in enumerate(example.source.entities)}
        entities = [
            [int(pieces.mentions[m, 0]) + 1 for m in dict.fromkeys(entity.mentions)]
            for entity in example.source.entities
        ]
        pairs = [(place[head], place[tail]) for head, tail in example.pairs]
        labels = torch.zeros(len(pairs), relations)
        for i, held in enumerate(example.gold):
            for relation in held:
                labels[i, relation] = 1
        documents.append(PlainDocument([cls, *pieces.ids.tolist(), sep], entities, pairs, labels))
    return documents


class PlainLocalizedContext(nn.Module):
    """Parameters are named as in LocalizedContext, so that both can have the same."""

    def __init__(self, encoder: Encoder, relations: int, block: int = 64, length: int | None = None) -> None:
        """`length`: what documents are filled up to; None: the longest of the batch."""
        super().__init__()
        self.pad, self.block, self.length = encoder.tokenizer.pad_token_id, block, length
        built = encoder.build()
        built.set_attn_implementation("eager")  # type: ignore[operator]
        self.encoder = built
        self.subject = nn.Linear(2 * encoder.width, encoder.width, bias=False)
        self.object = nn.Linear(2 * encoder.width, encoder.width, bias=False)
        self.bilinear = nn.ModuleDict({"relation": nn.Linear(encoder.width * block, relations)})

    def forward(self, documents: Sequence[PlainDocument]) -> Tensor:
        """The loss, Eq. 11."""
        length = self.length or max(len(document.ids) for document in documents)
        ids = torch.full((len(documents), length), self.pad)
        mask = torch.zeros(len(documents), length, dtype=torch.long)
        for i, document in enumerate(documents):
            ids[i, : len(document.ids)] = torch.tensor(document.ids)
            mask[i, : len(document.ids)] = 1
        read = self.encoder(input_ids=ids, attention_mask=mask, output_attentions=True)  # Eq. 1
        logits = []
        for i, document in enumerate(documents):
            logits += self._pairs(document, read.last_hidden_state[i], read.attentions[-1][i])
        labels = torch.cat([document.labels for document in documents])
        loss = F.binary_cross_entropy_with_logits(torch.stack(logits), labels, reduction="none")
        return loss.sum(dim=1).mean()

    def _pairs(self, document: PlainDocument, states: Tensor, attention: Tensor) -> list[Tensor]:
        """Logits of each pair of a document, from H, [length, width], and A, [heads, length, length]."""
        embeddings, attentions = [], []
        for mentions in document.entities:
            held = torch.stack([states[at] for at in mentions])
            embeddings.append(torch.logsumexp(held, dim=0))  # Eq. 2
            attentions.append(torch.stack([attention[:, at] for at in mentions]).mean(dim=0))
        logits = []
        for s, o in document.pairs:
            q = (attentions[s] * attentions[o]).sum(dim=0)  # Eq. 3
            a = q / q.sum()  # Eq. 4
            c = states.T @ a  # Eq. 5
            z_s = torch.tanh(self.subject(torch.cat([embeddings[s], c])))  # Eq. 6
            z_o = torch.tanh(self.object(torch.cat([embeddings[o], c])))  # Eq. 7
            groups = zip(z_s.split(self.block), z_o.split(self.block), strict=True)  # Eqs. 8 and 9
            products = [torch.outer(one, other).flatten() for one, other in groups]
            logits.append(self.bilinear["relation"](torch.cat(products)))  # Eq. 10
        return logits
