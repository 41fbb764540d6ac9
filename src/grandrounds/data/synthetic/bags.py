"""Sentences about drugs and proteins that never were, labelled as by distant supervision, with the truth beside it.

Every sentence of a related pair carries the pair's relation, but only some say it: the others name the two side by
side, ask whether it is so, or say something else of them. `Document.attributes["true"]` tells which is which; no model
reads it. With `sites`, `Document.attributes["site"]` tells where a sentence was written, for the partition `by` site.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from grandrounds.data.documents import Document, Span
from grandrounds.data.formats.pair_sentence import NA, End, pair_document
from grandrounds.errors import DataError

RELATIONS = {
    "activates": (
        "{h} activates {t}|{h} is an agonist of {t}|{t} is switched on by {h}|{h} stimulates {t}|"
        "{h} turned out to be a partial agonist at {t}|activation of {t} by {h} was seen"
    ),
    "binds": (
        "{h} binds {t}|{h} has a high affinity for {t}|{t} is bound by {h}|{h} docks onto {t}|"
        "a complex of {h} with {t} was crystallised|{h} is a ligand of {t}"
    ),
    "induces": (
        "{h} induces {t}|{h} raises the expression of {t}|{t} is upregulated by {h}|{h} boosts transcription of {t}|"
        "levels of {t} rose under {h}|{h} makes cells produce {t}"
    ),
    "inhibits": (
        "{h} inhibits {t}|{h} is an antagonist of {t}|{t} is blocked by {h}|{h} suppresses {t}|"
        "{h} turned out to be a weak antagonist at {t}|inhibition of {t} by {h} was seen"
    ),
    "substrate_of": (
        "{h} is metabolised by {t}|{t} clears {h}|{h} is a substrate of {t}|{t} breaks down {h}|"
        "{t} turns {h} into its metabolite|clearance of {h} depends on {t}"
    ),
}
BESIDE = (
    "{h} and {t} were measured|{t} was genotyped before {h} was given|{h} did not change {t}|"
    "patients on {h} had normal {t}|{t} was assayed two hours after {h}|{h} was given and {t} was followed|"
    "neither {h} nor {t} predicted the outcome|{t} , {h} and age entered the model|"
    "{h} was stopped and {t} was not repeated|a panel with {t} was drawn on {h}"
)
ASKED = (
    "whether {fact} is not known|we found no evidence that {fact}|it had been thought that {fact} , wrongly|"
    "it remains to be shown that {fact}"
)
BEFORE = (
    "|in this cohort ,|as reported before ,|in cultured cells ,|after {n} weeks ,|in a trial of {n} patients ,|"
    "at a dose of {n} mg ,|in line with earlier work ,|in the second arm ,|by mass spectrometry ,|surprisingly ,"
)
AFTER = (
    "|in most subjects|in {n} of the samples|with a hazard ratio of {n}|at steady state|in the liver|in older men|"
    "and the difference was small|in a dose of {n} mg|and follow-up lasted {n} months|despite renal failure"
)
ALONE = (76, 14, 6, 4)
"""Percent of unrelated pairs with one, two, three and four sentences."""
SYLLABLES = (
    "ba be bi ca co da di do fa fe ga go la li lo ma mi mo na ni no pa pi ra ri ro sa se ta ti to va vi xa za zo"
)


@dataclass(frozen=True)
class Bags:
    """Sentences for training and test, of different pairs."""

    train: tuple[Document, ...]
    test: tuple[Document, ...]


def synthesize_bags(
    facts: int = 400,
    unrelated: int = 1600,
    size: int = 8,
    true: int = 30,
    test: int = 200,
    seed: int = 1,
    sites: int = 0,
    scatter: int = 100,
) -> Bags:
    """Facts of five relations, with about `size` sentences each of which `true` percent, and at least one, say it;
    pairs without a relation, most of them with one sentence, 1.4 on average, as in NYT10; and `test` facts, with four
    times as many unrelated pairs, to test on. Each pair has one of the `sites` as its own, where its sentences are; but
    each of them, with `scatter` percent probability, is at any of the sites."""
    if min(facts, test, size) < 1 or unrelated < 0 or not 0 < true <= 100:
        raise DataError("bags need facts, test facts and a size of at least 1, and between 1 and 100 percent true")
    if sites < 0 or not 0 <= scatter <= 100:
        raise DataError(f"bags of {sites} sites scattered by {scatter} percent: sites are 0 or more, scatter 0 to 100")
    parts = []
    for part, related, others in (("train", facts, unrelated), ("test", test, 4 * test)):
        rng = Random(f"bags/{seed}/{part}")
        documents = list(_documents(part, related, others, size, true / 100, rng))
        if sites:  # draws of their own: what is written hangs not on where
            documents = list(_placed(documents, sites, scatter / 100, Random(f"bags/{seed}/{part}/sites")))
        rng.shuffle(documents)
        parts.append(tuple(documents))
    return Bags(*parts)


def _documents(part: str, facts: int, unrelated: int, size: int, true: float, rng: Random) -> Iterator[Document]:
    names = sorted(RELATIONS)
    for pair in range(facts + unrelated):
        relation = names[pair % len(names)] if pair < facts else NA
        head, tail = f"{_name(rng)}{rng.choice(('ine', 'ol', 'ib', 'mab'))}", f"{_name(rng)}{rng.randint(1, 9)}".upper()
        held = rng.randint(max(1, size // 2), size + size // 2) if pair < facts else rng.choices((1, 2, 3, 4), ALONE)[0]
        says = [relation != NA and rng.random() < true for _ in range(held)]
        if relation != NA and not any(says):
            says[rng.randrange(held)] = True
        for number, say in enumerate(says):
            said = _phrase(RELATIONS[relation], rng) if say else _noise(relation, rng)
            id = f"{part}-{pair}-{number}"
            yield _sentence(id, said, (head, f"D{part}{pair}"), (tail, f"P{part}{pair}"), relation, say, rng)


def _placed(documents: Sequence[Document], sites: int, scatter: float, rng: Random) -> Iterator[Document]:
    """At the pair's own site, or by chance at any."""
    homes = dict[str, int]()
    for document in documents:
        pair = document.id.rpartition("-")[0]
        home = homes.setdefault(pair, rng.randrange(sites))
        site, elsewhere = rng.randrange(sites), rng.random() < scatter
        reported = {**document.attributes, "site": f"site-{(site if elsewhere else home) + 1:03d}"}
        yield replace(document, attributes=reported)


def _noise(relation: str, rng: Random) -> str:
    """What a sentence with an unrelated pair says too: mostly nothing; of a related pair also something else."""
    draw = rng.random()
    others = [name for name in sorted(RELATIONS) if name != relation]
    if draw < 0.7:
        return _phrase(BESIDE, rng)
    if draw < 0.9 or relation == NA:
        about = RELATIONS[relation if relation != NA and rng.random() < 0.5 else rng.choice(others)]
        return _phrase(ASKED, rng).replace("{fact}", _phrase(about, rng))
    return _phrase(RELATIONS[rng.choice(others)], rng)


def _phrase(phrases: str, rng: Random) -> str:
    """The first are the commonest."""
    choices = phrases.split("|")
    return rng.choices(choices, [1 / (i + 1) for i in range(len(choices))])[0]


def _sentence(
    id: str, said: str, head: tuple[str, str], tail: tuple[str, str], relation: str, true: bool, rng: Random
) -> Document:
    words = [part for part in (rng.choice(BEFORE.split("|")), said, rng.choice(AFTER.split("|"))) if part]
    text = " ".join(words).replace("{n}", str(rng.randint(2, 90))) + " ."
    first = min(("h", "t"), key=lambda which: text.index(f"{{{which}}}"))
    spans = {}
    for which, (name, _) in sorted({"h": head, "t": tail}.items(), key=lambda item: item[0] != first):
        start = text.index(f"{{{which}}}")
        text = text.replace(f"{{{which}}}", name, 1)
        spans[which] = Span(start, start + len(name))
    ends = End(spans["h"], "drug", head[1]), End(spans["t"], "protein", tail[1])
    return pair_document(id, text, *ends, relation, {"true": "yes" if true else "no"})


def _name(rng: Random) -> str:
    syllables: Sequence[str] = SYLLABLES.split()
    return "".join(rng.choice(syllables) for _ in range(3))
