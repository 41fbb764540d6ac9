"""Documents about drugs and diseases that never were, for document-level relation extraction at sites that drift apart.

A sentence states of a drug and a disease that the one causes or treats the other, or that they are unrelated, and one
made-up word of it tells which. `drift` says how often that word is the site's own, which no other site uses. The rest
is the same everywhere: names, the text around, the share of each relation. `Document.attributes["own"]` tells how many
of a document's sentences have such a word; no model reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from random import Random

from grandrounds.data.documents import Document, Mention, Relation, Span, entities_by_concept
from grandrounds.errors import DataError

DRUG, DISEASE = "drug", "disease"
RELATIONS = ("causes", "treats")
UNRELATED = "unrelated"
COMMON = 0
"""Whose words those in common are; sites are numbered from 1 on."""

_SYLLABLES = "ba be bi co da do fa fe ga go la li lo ma mi mo na ni no pa pi ra ri ro sa se ta ti to va vi xa za zo"
_NAMES = 12
"""Drugs, and as many diseases. They are seen often, but how two of them are related is drawn anew in each document."""
_CUES = 2
"""Words for each relation, and for none."""
_SENTENCES = (2, 3, 4)
_BEFORE = (
    "",
    "",
    "of note ,",
    "in this cohort ,",
    "as reported before ,",
    "later ,",
    "in older men ,",
    "after weeks ,",
)
_AFTER = ("", "", "in most subjects", "at steady state", "at low doses", "in the second arm", "in all arms")


@dataclass(frozen=True)
class Documents:
    """Documents for training and test, of all sites."""

    train: tuple[Document, ...]
    test: tuple[Document, ...]


def synthesize_documents(
    sites: int = 4, documents: int = 40, drift: int = 0, test: int = 40, seed: int = 1
) -> Documents:
    """So many documents a site to train on, and `test` of each to test on. A site has words of its own for `drift`
    percent of what it states."""
    if min(sites, documents, test) < 1 or not 0 <= drift <= 100:
        raise DataError("synthetic documents need at least 1 site, document and test document, and a drift of 0 to 100")
    lexicon = Lexicon(seed)
    train, held_out = (
        tuple(
            _write(f"site-{site:02d}-{part}-{number}", site, drift / 100, lexicon)
            for site in range(1, sites + 1)
            for number in range(1, count + 1)
        )
        for part, count in (("train", documents), ("test", test))
    )
    return Documents(train, held_out)


@dataclass(frozen=True)
class Lexicon:
    """Made-up words, each with one use."""

    seed: int

    @cached_property
    def _words(self) -> Sequence[str]:
        words = ["".join(syllables) for syllables in product(_SYLLABLES.split(), repeat=3)]
        Random(f"words/{self.seed}").shuffle(words)
        return words

    @property
    def names(self) -> Mapping[str, Sequence[str]]:
        return {DRUG: self._words[:_NAMES], DISEASE: self._words[_NAMES : 2 * _NAMES]}

    def cues(self, site: int, relation: str) -> Sequence[str]:
        """The words of a site, or those in common, that tell the relation."""
        kinds = (UNRELATED, *RELATIONS)
        start = 2 * _NAMES + _CUES * (site * len(kinds) + kinds.index(relation))
        return self._words[start : start + _CUES]


@dataclass
class _Draft:
    """A document in the making."""

    text: str = ""
    sentences: list[Span] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)

    def add(self, words: Sequence[tuple[str, str | None]]) -> None:
        """A sentence, of words and the types of those that are names."""
        start = len(self.text) + bool(self.text)
        for word, type in words:
            self.text += " " if self.text else ""
            if type is not None:
                place, id = len(self.text), f"T{len(self.mentions) + 1}"
                self.mentions.append(Mention(place, place + len(word), type, id, word))
            self.text += word
        self.sentences.append(Span(start, len(self.text)))


def _write(id: str, site: int, drift: float, lexicon: Lexicon) -> Document:
    rng, draft = Random(f"document/{lexicon.seed}/{id}"), _Draft()
    drugs, diseases = rng.sample(lexicon.names[DRUG], 2), rng.sample(lexicon.names[DISEASE], 3)
    relations, own = [], 0
    for drug, disease in rng.sample(list(product(drugs, diseases)), rng.choice(_SENTENCES)):
        relation = rng.choice((UNRELATED, *RELATIONS))
        drifted = rng.random() < drift
        own += drifted
        cue = rng.choice(lexicon.cues(site if drifted else COMMON, relation))
        first, second = rng.sample(((drug, DRUG), (disease, DISEASE)), 2)
        before, after = rng.choice(_BEFORE), rng.choice(_AFTER)
        words = ((before, None), first, (cue, None), second, (after, None), (".", None))
        draft.add([(word, type) for word, type in words if word])
        if relation != UNRELATED:
            relations.append(Relation(relation, drug, disease))
    return Document(
        id,
        draft.text,
        tuple(draft.sentences),
        tuple(draft.mentions),
        entities_by_concept(draft.mentions),
        tuple(relations),
        {"site": f"site-{site:02d}", "own": str(own)},
    )
