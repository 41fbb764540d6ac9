"""Candidate pairs of the synthetic notes, and how far counting their words gets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from itertools import permutations
from typing import NamedTuple

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from threadpoolctl import threadpool_limits

from grandrounds.data.documents import Document, Span
from grandrounds.data.synthetic import RELATIONS, Synthetic, synthesize

NONE = "None"


class Pair(NamedTuple):
    """Two mentions in a sentence that may be related, in text order, and their relation."""

    document: Document
    sentence: Span
    head: int
    tail: int
    label: str

    def text(self, head: str = "@{}$", tail: str = "@{}$") -> str:
        """The sentence with both mentions blinded."""
        document, text = self.document, self.document.text[: self.sentence.end]
        for index, form in sorted(((self.head, head), (self.tail, tail)), reverse=True):
            mention = document.mentions[index]
            text = text[: mention.start] + form.format(mention.type) + text[mention.end :]
        return text[self.sentence.start :]


def pairs(documents: Iterable[Document]) -> list[Pair]:
    found = []
    for document in documents:
        labels = {relation.mentions: relation.type for relation in document.relations if relation.mentions}
        sentences = defaultdict(list)
        for index, mention in enumerate(document.mentions):
            sentences[document.sentence_of(mention)].append(index)
        for sentence, mentions in sentences.items():
            assert sentence is not None
            for head, tail in permutations(mentions, 2):
                types = document.mentions[head].type, document.mentions[tail].type
                if types[1] == "problem" and (types[0] != "problem" or head < tail):
                    label = labels.get((head, tail), NONE)
                    found.append(Pair(document, document.sentences[sentence], head, tail, label))
    return found


@cache
def corpus(seed: int = 1) -> Synthetic:
    return synthesize(hospitals=6, notes=60, seed=seed)


@cache
def candidates(split: str) -> list[Pair]:
    return pairs(getattr(corpus(), split))


def counting_words() -> float:
    """F1 of TF-IDF on the blinded sentence, the pair marked, with logistic regression."""
    train, test = candidates("train"), candidates("test")
    words = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"\S+", sublinear_tf=True)
    features = words.fit_transform(pair.text("@E1.{}$", "@E2.{}$") for pair in train)
    with threadpool_limits(1):  # on a busy machine BLAS threads wait for each other: 30 s in place of 1
        model = LogisticRegression(C=30, max_iter=500).fit(features, [pair.label for pair in train])
    predicted = model.predict(words.transform(pair.text("@E1.{}$", "@E2.{}$") for pair in test))
    return float(f1_score([pair.label for pair in test], predicted, labels=RELATIONS, average="micro"))
