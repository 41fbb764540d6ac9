"""Synthetic documents: their sites differ in the words that tell a relation, as much as asked, and in nothing else."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations

import pytest

from grandrounds.data.documents import Document
from grandrounds.data.synthetic.documents import COMMON, RELATIONS, UNRELATED, Lexicon, synthesize_documents
from grandrounds.errors import DataError

KINDS = (UNRELATED, *RELATIONS)


def stated(document: Document) -> list[tuple[str, str]]:
    """For each sentence the word between its two names, and what the document says of them."""
    relations = {(r.head, r.tail): r.type for r in document.relations}
    found = []
    for sentence in document.sentences:
        first, second = (m for m in document.mentions if sentence.start <= m.start < sentence.end)
        drug, disease = sorted((first, second), key=lambda m: m.type, reverse=True)
        cue = document.text[first.end : second.start].strip()
        found.append((cue, relations.get((document.surface(drug), document.surface(disease)), UNRELATED)))
    return found


def words_by_site(drift: int) -> dict[str, set[tuple[str, str]]]:
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for document in synthesize_documents(sites=3, documents=60, drift=drift).train:
        found[document.attributes["site"]].update(stated(document))
    return found


def test_without_drift_all_sites_tell_relations_in_the_same_words() -> None:
    lexicon = Lexicon(1)
    common = {(word, kind) for kind in KINDS for word in lexicon.cues(COMMON, kind)}
    assert list(words_by_site(0).values()) == [common] * 3


def test_at_full_drift_no_word_that_tells_a_relation_is_used_at_two_sites() -> None:
    found = words_by_site(100)
    for one, other in combinations(found.values(), 2):
        assert not {word for word, _ in one} & {word for word, _ in other}
    assert found["site-02"] == {(word, kind) for kind in KINDS for word in Lexicon(1).cues(2, kind)}


def test_a_word_tells_one_relation_whoever_uses_it() -> None:
    meanings = defaultdict(set)
    for word, kind in set().union(*words_by_site(50).values()):
        meanings[word].add(kind)
    assert len(meanings) == 2 * len(KINDS) * 4
    assert all(len(kinds) == 1 for kinds in meanings.values())


@pytest.mark.parametrize("drift", [0, 30, 100])
def test_so_many_statements_are_in_words_of_the_sites_own_and_the_documents_know_which(drift: int) -> None:
    documents = synthesize_documents(sites=3, documents=100, drift=drift).train
    common = {word for kind in KINDS for word in Lexicon(1).cues(COMMON, kind)}
    own = total = 0
    for document in documents:
        counted = sum(word not in common for word, _ in stated(document))
        assert counted == int(document.attributes["own"])
        own, total = own + counted, total + len(document.sentences)
    assert own / total == pytest.approx(drift / 100, abs=0.05)


def test_drift_changes_words_and_nothing_else() -> None:
    for same, drifted in zip(*(synthesize_documents(3, 20, drift=drift).train for drift in (0, 100)), strict=True):
        assert same.relations == drifted.relations
        assert [same.surface(m) for m in same.mentions] == [drifted.surface(m) for m in drifted.mentions]


def test_names_do_not_tell_relations_and_every_relation_is_as_common() -> None:
    counts: Counter[str] = Counter()
    of_pair = defaultdict(set)
    for document in synthesize_documents(3, 200).train:
        counts.update(kind for _, kind in stated(document))
        for relation in document.relations:
            of_pair[relation.head, relation.tail].add(relation.type)
    assert all(count / counts.total() == pytest.approx(1 / 3, abs=0.04) for count in counts.values())
    assert sum(len(kinds) > 1 for kinds in of_pair.values()) > 0.9 * len(of_pair)


def test_same_seed_same_documents_and_more_of_them_change_none() -> None:
    few, many = synthesize_documents(2, 5, 50, 3), synthesize_documents(3, 9, 50, 4)
    assert few == synthesize_documents(2, 5, 50, 3)
    assert few.train != synthesize_documents(2, 5, 50, 3, seed=2).train
    grown = {document.id: document for document in many.train + many.test}
    assert all(grown[document.id] == document for document in few.train + few.test)
    assert (len(many.train), len(many.test)) == (27, 12)


@pytest.mark.parametrize("wrong", [{"sites": 0}, {"documents": 0}, {"test": 0}, {"drift": -1}, {"drift": 101}])
def test_what_cannot_be_written_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(DataError, match="at least 1 site, document and test document, and a drift of 0 to 100"):
        synthesize_documents(**wrong)
