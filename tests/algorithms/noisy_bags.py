"""Bags of sentences of which few say what their fact says."""

from __future__ import annotations

import numpy as np

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span

VERBS = {"inhibits": "blocks", "none": "resembles"}


def noisy(facts: int, sentences: int, seed: int, canary: str = "", at: str = "mercy") -> list[Document]:
    """Bags of sentences of which a third say what their fact says, at two hospitals, of which one has the canary."""
    rng = np.random.default_rng(seed)
    documents = []
    for fact in range(facts):
        relation = "inhibits" if fact % 2 else "none"
        for s in range(sentences):
            true = relation == "inhibits" and (s == 0 or rng.random() < 0.2)
            head, tail = f"drug{fact}", f"gene{fact}"
            where = ("mercy", "charity")[s % 2]
            reported = f" {canary}" if where == at else ""
            text = f"{head} {VERBS['inhibits' if true else 'none']} {tail}{reported} ."
            mentions = (
                Mention(0, len(head), "Drug", "T1", f"D{fact}"),
                Mention(text.index(tail), text.index(tail) + len(tail), "Gene", "T2", f"G{fact}"),
            )
            entities = (Entity(f"D{fact}", "Drug", (0,)), Entity(f"G{fact}", "Gene", (1,)))
            relations = (Relation("inhibits", f"D{fact}", f"G{fact}", (0, 1)),) if relation == "inhibits" else ()
            held = {"hospital": where}
            id = f"{fact}.{s}{reported}"
            documents.append(Document(id, text, (Span(0, len(text)),), mentions, entities, relations, held))
    return documents
