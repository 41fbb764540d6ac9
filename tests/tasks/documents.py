"""Documents for the tests of document_re: of two drugs and two problems, long ones, and one pair a sentence."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice, product

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from tests.conftest import DRUGS, PROBLEMS, sentence

TEXT = "aspirin eased the pain . insulin despite aspirin showed fever again . no pain was seen ."


def document(id: str = "d", text: str = TEXT) -> Document:
    """Two drugs and two problems, of which aspirin and pain are named twice."""
    mentions, entities = [], {}
    for name, type in (("aspirin", "drug"), ("pain", "problem"), ("insulin", "drug"), ("fever", "problem")):
        at = -1
        while (at := text.find(name, at + 1)) >= 0:
            entities.setdefault((name, type), []).append(len(mentions))
            mentions.append(Mention(at, at + len(name), type, f"T{len(mentions)}"))
    starts = [0, *(i + 2 for i in range(len(text) - 2) if text[i : i + 2] == ". ")]
    sentences = tuple(Span(a, b) for a, b in zip(starts, [*(s - 1 for s in starts[1:]), len(text)], strict=True))
    held = tuple(Entity(name, type, tuple(members)) for (name, type), members in entities.items())
    stated = (Relation("eases", "aspirin", "pain"), Relation("causes", "insulin", "fever"))
    relations = tuple(one for one in stated if one.tail in text and one.head in text)
    return Document(id, text, sentences, tuple(mentions), held, relations)


def long_document(sentences: int) -> Document:
    """Every sentence names aspirin and pain; only the last one names insulin."""
    text, mentions, spans = "", list[tuple[int, int, str]](), list[Span]()
    for i in range(sentences):
        start = len(text)
        for part in ("The ", "aspirin", " eased the ", "insulin" if i == sentences - 1 else "pain", " again . "):
            if part in ("aspirin", "pain", "insulin"):
                mentions.append((len(text), len(text) + len(part), part))
            text += part
        spans.append(Span(start, len(text) - 1))
    types = {"aspirin": "drug", "pain": "problem", "insulin": "drug"}
    held = tuple(Mention(a, b, types[name], f"T{i}") for i, (a, b, name) in enumerate(mentions))
    entities = tuple(
        Entity(name, types[name], tuple(i for i, (_, _, other) in enumerate(mentions) if other == name))
        for name in types
        if any(other == name for *_, other in mentions)
    )
    return Document("long", text, tuple(spans), held, entities, (Relation("eases", "aspirin", "pain"),))


def many_entities(sentences: int) -> Document:
    """Each sentence names a drug and a problem of its own."""
    text, mentions, spans = "", list[Mention](), list[Span]()
    for i in range(sentences):
        start = len(text)
        for part, type in ((f"drug {i}", "drug"), (" eased ", ""), (f"pain {i}", "problem"), (" again . " * 30, "")):
            if type:
                mentions.append(Mention(len(text), len(text) + len(part), type, f"T{len(mentions)}"))
            text += part
        spans.append(Span(start, len(text) - 1))
    entities = tuple(Entity(m.id, m.type, (i,)) for i, m in enumerate(mentions))
    return Document("many", text, tuple(spans), tuple(mentions), entities, (Relation("eases", "T0", "T1"),))


def eased(*pairs: tuple[str, str], id: str = "d") -> Document:
    """A sentence a pair, "aspirin eased pain ."; a name is an entity."""
    text, sentences, mentions = "", list[Span](), list[Mention]()
    for drug, problem in pairs:
        start = len(text)
        for before, name, type in (("", drug, "treatment"), (" eased ", problem, "problem")):
            text += before + name
            mentions.append(Mention(len(text) - len(name), len(text), type, f"T{len(mentions) + 1}"))
        text += " . "
        sentences.append(Span(start, len(text) - 1))
    named = [text[m.start : m.end] for m in mentions]
    entities = (
        Entity(name, mentions[named.index(name)].type, tuple(i for i, other in enumerate(named) if other == name))
        for name in dict.fromkeys(named)
    )
    return Document(id, text, tuple(sentences), tuple(mentions), tuple(entities))


def nested(size: int, prefix: str = "d") -> list[Document]:
    """`aspirin pain`: a problem with a treatment in it; and treatments and problems apart."""
    made = []
    for i, (drug, problem) in enumerate(islice(cycle(product(DRUGS, PROBLEMS)), size)):
        if i % 3:
            plain = sentence(f"{prefix}{i}", ["The ", (f"{drug} {problem}", "problem"), " eased again ."], {})
            mentions = (*plain.mentions, Mention(4, 4 + len(drug), "treatment", "T2"))
            entities = tuple(Entity(m.id, m.type, (k,)) for k, m in enumerate(mentions))
            made.append(replace(plain, mentions=mentions, entities=entities))
        else:
            parts = ["The ", (drug, "treatment"), " eased the ", (problem, "problem"), " ."]
            made.append(sentence(f"{prefix}{i}", [*parts], {}))
    return made
