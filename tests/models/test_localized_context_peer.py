"""The localized context gives what the paper's equations give when they are written down as loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.corpus import abstracts
from benchmarks.plain_documents import PlainLocalizedContext, plain_documents

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.models.encoder import Encoder
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions

BLOCK = 8


def document(id: str, words: str, related: list[tuple[str, str]]) -> Document:
    """Capitals name entities: A to C chemicals, D to F diseases, one mention each time."""
    mentions = [
        Mention(at, at + 1, "Chemical" if letter < "D" else "Disease", f"T{at}", letter)
        for at, letter in enumerate(words)
        if letter.isupper()
    ]
    named = {str(mention.concept): mention.type for mention in mentions}
    entities = tuple(
        Entity(name, type, tuple(i for i, mention in enumerate(mentions) if mention.concept == name))
        for name, type in named.items()
    )
    relations = tuple(Relation("CID", head, tail) for head, tail in related)
    return Document(id, words, (Span(0, len(words)),), tuple(mentions), entities, relations)


DOCUMENTS = [
    document("1", "A eased the D again , the D was seen before A , not B nor E .", [("A", "D")]),
    document("2", "No E was seen despite C .", []),
    document("3", "The A showed D , the B showed F , A and B eased the D F again ; E was refused .", [("B", "F")]),
]


@pytest.mark.parametrize("length", [64, None])
def test_loss_and_gradients_are_those_of_the_equations_as_loops(
    length: int | None, encoder_folder: Callable[[str], Path]
) -> None:
    encoder = Encoder.find(str(encoder_folder("bert")), DocumentRE.markers)
    task = DocumentRE.of(DocumentREOptions(block=BLOCK), DOCUMENTS)
    examples, _ = task.examples(DOCUMENTS)
    ours = task.model(encoder).eval()
    plain = PlainLocalizedContext(encoder, len(task.relations), BLOCK, length).eval()
    plain.load_state_dict({name: value for name, value in ours.state_dict().items() if name != "threshold"})

    one = task.loss(ours, task.features(examples, encoder).batch(np.arange(3)))
    other = plain(plain_documents(examples, len(task.relations), encoder))
    one.backward()
    other.backward()

    torch.testing.assert_close(one, other, rtol=1e-5, atol=0)
    theirs = dict(plain.named_parameters())
    for name, parameter in ours.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-4, atol=1e-6, msg=name)
    assert sum(parameter.grad is not None for parameter in ours.parameters()) > 30


def test_made_up_abstracts_are_of_the_size_of_cdrs() -> None:
    made = list(abstracts(50, "size"))
    assert 20 < np.mean([len(one.mentions) for one in made]) < 30
    assert 6 < np.mean([len(one.entities) for one in made]) < 10
    assert {mention.type for one in made for mention in one.mentions} == {"Chemical", "Disease"}
    for one in made:
        assert all(one.surface(mention) == mention.concept for mention in one.mentions)
        assert all(one.sentence_of(mention) is not None for mention in one.mentions)
