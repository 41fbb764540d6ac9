"""Links and entities on BioCreative V CDR, with a dictionary of the training part's names; and how fast a large one is.

    python experiments/linking.py --data DIR --out docs/results/linking.json         (DIR holds cdr/pubtator)

The dictionary has a line for each (text, concept) of the training part, the commonest first. The threshold is chosen on
the development part, by the F1 of links: precision over mentions that were linked, recall over all that have a concept.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from grandrounds.data.documents import NO_CONCEPT, Document
from grandrounds.data.formats import read
from grandrounds.pipeline.entities import group_entities
from grandrounds.pipeline.linking import THRESHOLD, Dictionary, link_mentions, surface
from grandrounds.pipeline.names import normalise
from grandrounds.runs.provenance import provenance

COMMAND = "python experiments/linking.py --data DIR --out docs/results/linking.json"
THRESHOLDS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6)
FIRST_LINK = """
import sys, time
start = time.perf_counter()
from pathlib import Path
from grandrounds.pipeline.linking import Dictionary
imported = time.perf_counter()
Dictionary.open(Path(sys.argv[1])).link(["acute nefritis"])
print(imported - start, time.perf_counter() - imported)
"""
Linker = Callable[[Document], Sequence[str | None]]
"""The concept that it gives to each mention."""
Grouping = Callable[[Document], Iterable[Sequence[int]]]
"""Which mentions, by their indices, are of one thing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", type=int, default=500_000, help="of the generated dictionary")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        result = {**on_cdr(wanted.data, Path(scratch)), "speed": speed(wanted.names, Path(scratch))}
    content = {**provenance(), "command": COMMAND, **result}
    wanted.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def on_cdr(data: Path, scratch: Path) -> dict[str, Any]:
    train, dev, test = (
        read(data / f"cdr/pubtator/CDR_{part}Set.PubTator.txt", "pubtator").documents
        for part in ("Training", "Development", "Test")
    )
    names = Counter(
        (document.surface(mention).replace("\n", " "), mention.concept)
        for document in train
        for mention in document.mentions
        if mention.concept and mention.concept not in NO_CONCEPT
    )
    tsv = scratch / "train.tsv"
    listed = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    tsv.write_text("".join(f"{concept}\t{name}\n" for (name, concept), _ in listed), encoding="utf-8")
    known = {str(concept) for _, concept in names}
    with Dictionary.build(tsv, scratch / "train.dictionary") as dictionary:
        tried = [{"threshold": t, **scores(dev, linker(dictionary, t), known)["all"]} for t in THRESHOLDS]
        chosen = max(tried, key=lambda row: row["f1"])["threshold"]
        assert chosen == THRESHOLD, f"the default is {THRESHOLD}, and {chosen} is best"
        linkers = {
            "exact": by_string(dictionary, ("exact",)),
            "normalised": by_string(dictionary, ("exact", "normalised")),
            "abbreviations": linker(dictionary, 1),
            "similar": linker(dictionary, chosen),
        }
        groupings = {
            "string": by_name(str),
            "normalised": by_name(normalise),
            "abbreviations": by_entity(bare),
            "links": by_entity(lambda document: link_mentions(bare(document), dictionary)),
        }
        return {
            "dictionary": {**dictionary.counts, "ambiguous": sum(dictionary.warnings.values())},
            "threshold": chosen,
            "dev": tried,
            "test": {name: scores(test, linker, known) for name, linker in linkers.items()},
            "entities": {name: b_cubed(test, grouping) for name, grouping in groupings.items()},
        }


def bare(document: Document) -> Document:
    """As a tagger gives it."""
    mentions = tuple(replace(mention, concept=None) for mention in document.mentions)
    return replace(document, mentions=mentions, entities=(), relations=())


def linker(dictionary: Dictionary, threshold: float) -> Linker:
    return lambda document: [m.concept for m in link_mentions(bare(document), dictionary, threshold).mentions]


def by_string(dictionary: Dictionary, steps: Sequence[str]) -> Linker:
    """Without abbreviations, by the first steps alone."""

    def link(document: Document) -> list[str | None]:
        links = dictionary.link([surface(document, mention) for mention in document.mentions], 1)
        return [link.concept if link and link.how in steps else None for link in links]

    return link


def scores(documents: Iterable[Document], linker: Linker, known: set[str]) -> dict[str, dict[str, float]]:
    """By type and over all; a mention of several concepts is right if it has all of them, in the same order."""
    counts: dict[str, Counter[str]] = {}
    for document in documents:
        for mention, found in zip(document.mentions, linker(document), strict=True):
            if mention.concept and mention.concept not in NO_CONCEPT:
                one = {"mentions": 1, "linked": found is not None, "right": found == mention.concept}
                for type in ("all", mention.type):
                    counts.setdefault(type, Counter()).update({**one, "known": mention.concept in known})
    return {
        type: {
            **count,
            "accuracy": count["right"] / count["mentions"],
            "upper_bound": count["known"] / count["mentions"],
            "precision": count["right"] / max(count["linked"], 1),
            "f1": 2 * count["right"] / (count["linked"] + count["mentions"]),
        }
        for type, count in sorted(counts.items())
    }


def by_name(key: Callable[[str], str]) -> Grouping:
    """By type and what `key` makes of a mention's text, and nothing else."""

    def group(document: Document) -> Iterable[Sequence[int]]:
        groups: dict[tuple[str, str], list[int]] = {}
        for i, mention in enumerate(document.mentions):
            groups.setdefault((mention.type, key(document.surface(mention))), []).append(i)
        return groups.values()

    return group


def by_entity(prepare: Callable[[Document], Document]) -> Grouping:
    return lambda document: [entity.mentions for entity in group_entities(prepare(document)).entities]


def b_cubed(documents: Iterable[Document], grouping: Grouping) -> dict[str, float]:
    """Precision and recall of each mention's group against those of its type and concept, and their mean's F1."""
    precision = recall = mentions = 0.0
    for document in documents:
        gold: dict[tuple[str, str], set[int]] = {}
        for i, mention in enumerate(document.mentions):
            if mention.concept and mention.concept not in NO_CONCEPT:
                gold.setdefault((mention.type, mention.concept), set()).add(i)
        judged = set[int]().union(*gold.values())
        group_of = {i: judged.intersection(group) for group in grouping(document) for i in group}
        for together in gold.values():
            for i in together:
                right = len(together & group_of[i])
                precision += right / len(group_of[i])
                recall += right / len(together)
                mentions += 1
    precision, recall = precision / mentions, recall / mentions
    f1 = 2 * precision * recall / (precision + recall)
    return {"mentions": int(mentions), "precision": precision, "recall": recall, "f1": f1}


def speed(names: int, scratch: Path) -> dict[str, float]:
    """Of a generated dictionary; wall-clock seconds of fresh processes, the better of two."""
    tsv, path = scratch / "many.tsv", scratch / "many.dictionary"
    listed = generate(names, tsv)
    start = time.perf_counter(), time.process_time()
    dictionary = Dictionary.build(tsv, path)
    build = {"build_seconds": time.perf_counter() - start[0], "build_cpu_seconds": time.process_time() - start[1]}
    draw = random.Random(2)
    some = draw.sample(listed, 2000)
    spelt = [name[:i] + name[i + 1 :] for name in some for i in [draw.randrange(1, len(name))]]
    asked = {"exact": some, "normalised": [name.upper() for name in some], "misspelt": spelt}
    rates = {}
    for kind, batch in asked.items():
        start_cpu = time.process_time()
        dictionary.link(batch)
        rates[f"{kind}_a_cpu_second"] = len(batch) / (time.process_time() - start_cpu)
    dictionary.close()
    command = [sys.executable, "-c", FIRST_LINK, str(path)]
    times = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)]
    imports, first = min(([float(t) for t in one] for one in times), key=sum)
    megabytes = path.stat().st_size / 1e6
    return {"names": names, **build, "megabytes": megabytes, "import": imports, "open_and_first_link": first, **rates}


ROOTS = "cardi nephr hepat gastr enter derm arthr neur myel oste angi phleb encephal pneum bronch retin splen thyr cyst"
ENDS = "itis osis pathy oma algia ectomy plasia trophy megaly emia uria sclerosis stenosis lysis penia genesis"
KINDS = "acute chronic recurrent primary secondary left right congenital familial drug-induced severe mild juvenile"
DRUGS = "ine ol ide ate one amide azole mycin cillin statin pril sartan"


def generate(names: int, tsv: Path) -> list[str]:
    """A dictionary of names with the common stems and endings that make medical trigrams so uneven."""
    draw = random.Random(1)
    roots, ends, kinds, drugs = (words.split() for words in (ROOTS, ENDS, KINDS, DRUGS))
    syllables = [c + v for c in "b c d f g l m n p r s t v z ch ph tr pr".split() for v in "aeiouy"]  # noqa: SIM905

    def word() -> str:
        if draw.random() < 0.5:
            return f"{draw.choice(roots)}o{draw.choice([*roots, ''])}{draw.choice(ends)}"
        return "".join(draw.choices(syllables, k=draw.randint(2, 4))) + draw.choice(drugs)

    words = [word() for _ in range(60_000)]
    found: dict[str, None] = {}
    while len(found) < names:
        kind = [draw.choice(kinds)] if draw.random() < 0.6 else []
        number = [str(draw.randint(1, 40))] if draw.random() < 0.2 else []
        found[" ".join([*kind, *draw.choices(words, k=draw.choice((1, 1, 2, 2, 3))), *number])] = None
    listed = list(found)
    rows = (f"C{i}\t{listed[i]}\t{'|'.join(listed[i + 1 : i + 3])}\n" for i in range(0, names, 3))
    tsv.write_text("".join(rows), encoding="utf-8")
    return listed


if __name__ == "__main__":
    main()
