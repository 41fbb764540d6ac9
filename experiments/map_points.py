"""Where real corpora lie on the maps of FedNER and federated BERT, estimated as the generator's dials are.

    python experiments/map_points.py --data DIR      (DIR holds ade-corpus, psytar, bc5cdr-ner and text/mtsamples.jsonl)

Label schemes: the share of a site's mentions whose label no other site uses, the mean over sites. Silos: the
Jensen-Shannon divergence of their words (nats, the same number of words each), less that of the same notes dealt at
random, a patient's together, which is what chance alone gives.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import fmean

import numpy as np

from grandrounds.data.documents import Document
from grandrounds.data.formats import read
from grandrounds.data.partition import Unit, partition
from grandrounds.data.synthetic import synthesize

WORDS, REPEATS = 4000, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    for percent in (0, 25, 50, 75, 100):
        sites = [synthesize(1, 40, first=n, disagreement=percent).train for n in (1, 2, 3)]
        print(f"synthetic notes, disagreement {percent}: {_disagreement(sites)}")
    platforms = [
        read([data / "ade-corpus" / name for name in ("DRUG-AE.rel", "DRUG-DOSE.rel")], "ade").documents,
        read([data / "psytar" / name for name in ("train.txt", "dev.txt")], "conll").documents,
        read(data / "bc5cdr-ner" / "train.tsv", "conll").documents,
    ]
    print(f"three platforms: {_disagreement(platforms)}")
    for percent in (0, 25, 50, 75, 100):
        notes = synthesize(2, 80, divergence=percent).train
        print(f"synthetic silos, divergence {percent}: {_divergence(_by(notes, 'silo', None))}")
    reports = read(data / "text" / "mtsamples.jsonl", "notes-json").documents
    for sites in (2, 5):
        print(f"mtsamples by specialty, {sites} silos: {_divergence(_by(reports, 'specialty', sites))}")


def _disagreement(sites: Sequence[Sequence[Document]]) -> str:
    labels = [Counter(mention.type for note in notes for mention in note.mentions) for notes in sites]
    alone = []
    for site, own in enumerate(labels):
        others = {label for other, held in enumerate(labels) if other != site for label in held}
        alone.append(sum(count for label, count in own.items() if label not in others) / own.total())
    sentences = [sum(len(note.sentences) or 1 for note in notes) for notes in sites]
    return f"{fmean(alone):.1%} of mentions have a label of one site alone; sentences {sentences}"


def _by(notes: Sequence[Document], attribute: str, sites: int | None) -> list[list[Document]]:
    units = [Unit(str(i), "note", note.attributes, (i,)) for i, note in enumerate(notes)]
    found = partition(units, "by", sites=sites, seed=1, by=attribute).sites
    return [[notes[i] for i in members] for members in found.values()]


def _divergence(silos: Sequence[Sequence[Document]]) -> str:
    found, chance = [], []
    everything = [note for notes in silos for note in notes]
    for repeat in range(REPEATS):
        rng = Random(repeat)
        found.append(_jensen_shannon([_some_words(notes, rng) for notes in silos]))
        chance.append(_jensen_shannon([_some_words(notes, rng) for notes in _at_random(everything, len(silos), rng)]))
    words = sum(len(_words(note.text)) for note in everything) / len(silos)
    excess = fmean(found) - fmean(chance)
    return f"{excess:.4f} nats above chance ({fmean(found):.4f} - {fmean(chance):.4f}); {words:,.0f} words a silo"


def _at_random(notes: Sequence[Document], silos: int, rng: Random) -> list[list[Document]]:
    by_patient: dict[str, list[Document]] = {}
    for note in notes:
        by_patient.setdefault(note.attributes.get("patient", note.id), []).append(note)
    patients = rng.sample(list(by_patient.values()), len(by_patient))
    return [[note for patient in patients[silo::silos] for note in patient] for silo in range(silos)]


def _some_words(notes: Sequence[Document], rng: Random) -> Counter[str]:
    """Of whole notes, until there are enough."""
    counts = Counter[str]()
    for note in rng.sample(notes, len(notes)):
        counts.update(_words(note.text)[: WORDS - counts.total()])
    return counts


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _jensen_shannon(silos: Sequence[Counter[str]]) -> float:
    """The entropy of the mixture less the mean entropy: 0 where silos are alike, ln(silos) where they share no word."""
    vocabulary = sorted(set().union(*silos))
    rows = np.array([[counts[word] / counts.total() for word in vocabulary] for counts in silos])
    return _entropy(rows.mean(axis=0)) - fmean(_entropy(row) for row in rows)


def _entropy(p: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    held = p[p > 0]
    return float(-(held * np.log(held)).sum())


if __name__ == "__main__":
    main()
