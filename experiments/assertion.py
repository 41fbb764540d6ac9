"""Our assertions of the mentions in assertions.json, beside negspacy's and medspaCy's on the same.

    python3 -m venv /tmp/negspacy && /tmp/negspacy/bin/pip install negspacy==1.1.0
    python3 -m venv /tmp/medspacy && /tmp/medspacy/bin/pip install medspacy==1.3.1
    python experiments/assertion.py --data DIR --out docs/results/assertion.json \\
        --negspacy /tmp/negspacy/bin/python --medspacy /tmp/medspacy/bin/python

DIR holds text/mtsamples.jsonl. assertions.json has 448 mentions of 264 reports, annotated by one person who read the
sentence, its section and what came before it; of each the report, the characters, the categories that hold and a
digest of the text. Reports were drawn from those whose id has an even SHA-256, one sentence of each: at random
("random"), or among sentences with a cue of one category, broad ("cue:family": any word for a relative) or narrow
("narrow:family": with a verb or "history" behind it). Intervals are 95% by a bootstrap over reports, as one sentence
often gives several mentions.

What the annotation means by its categories:

    negated      said to be absent, or not given or done; what never was is not historical as well
    possible     left open: suspected, to be ruled out, one of several; "consistent with" states, it leaves nothing open
    family       someone else's
    historical   put into the past: "history of" (a duration, "a two-day history of", is not), the past-history
                 section, earlier operations, resolved
    conditional  only under a condition or some day: if, as needed, risks of a procedure, to be prevented, on exertion
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grandrounds.data.clinical import clinical_sentences
from grandrounds.data.documents import Document, Mention
from grandrounds.data.formats import read
from grandrounds.metrics.assertions import assertion_counts
from grandrounds.metrics.relation_f1 import precision_recall_f1
from grandrounds.pipeline.assertion import CATEGORIES, assert_mentions
from grandrounds.runs.provenance import provenance

COMMAND = (
    "python experiments/assertion.py --data DIR --out docs/results/assertion.json "
    "--negspacy NEGSPACY_PYTHON --medspacy MEDSPACY_PYTHON"
)
HERE = Path(__file__).parent
DRAWS = 10_000
Answers = list[list[list[str]]]
"""By report and mention: the categories that hold."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--negspacy", help="the Python of an environment that has it")
    parser.add_argument("--medspacy", help="the Python of an environment that has it")
    wanted = parser.parse_args()
    documents, gold, strata = annotated(wanted.data / "text" / "mtsamples.jsonl")
    systems: dict[str, tuple[Answers, Sequence[str]]] = {"Grand Rounds": (ours(documents), CATEGORIES)}
    versions: dict[str, Mapping[str, str]] = {}
    for name, python, answered in (
        ("negspacy", wanted.negspacy, ("negated",)),
        ("medspaCy", wanted.medspacy, CATEGORIES),
        ("medspaCy with its sections", wanted.medspacy, CATEGORIES),
    ):
        if python:
            found, versions[name] = peer(python, name, documents)
            systems[name] = found, answered
    parts = {}
    for part in ("all", "random"):
        kept = [[part == "all" or stratum == "random" for stratum in report] for report in strata]
        answers = {name: (chosen(found, kept), which) for name, (found, which) in systems.items()}
        rows = list(scores(answers, chosen(gold, kept)))
        parts[part] = {"mentions": sum(map(sum, kept)), "reports": sum(map(any, kept)), "rows": rows}
    content = {**provenance(), "command": COMMAND, "peers": versions, **parts}
    wanted.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def annotated(path: Path) -> tuple[list[Document], Answers, list[list[str]]]:
    """The reports with their mentions, the categories of each, and the stratum."""
    rows = json.loads((HERE / "assertions.json").read_text(encoding="utf-8"))
    texts = {document.id: document.text for document in read(path, "notes-json")}
    documents, gold, strata = list[Document](), Answers(), list[list[str]]()
    for report, group in groupby(rows, key=lambda row: row["report"]):
        members = list(group)
        for row in members:
            digest = sha256(texts[report][row["start"] : row["end"]].encode()).hexdigest()
            assert digest == row["sha256"], f"report {report} has another text than the one that was annotated"
        mentions = [Mention(row["start"], row["end"], "mention", f"T{i}") for i, row in enumerate(members, 1)]
        documents.append(Document(report, texts[report], clinical_sentences(texts[report]), tuple(mentions)))
        gold.append([row["labels"] for row in members])
        strata.append([row["stratum"] for row in members])
    return documents, gold, strata


def ours(documents: Sequence[Document]) -> Answers:
    return [[list(mention.attributes) for mention in assert_mentions(document).mentions] for document in documents]


def peer(python: str, system: str, documents: Sequence[Document]) -> tuple[Answers, Mapping[str, str]]:
    """What it answers, and in which versions."""
    given = [
        {"text": d.text, "sentences": d.sentences, "mentions": [(m.start, m.end) for m in d.mentions]}
        for d in documents
    ]
    command = [python, str(HERE / "assertion_peers.py"), system]
    answered = json.loads(
        subprocess.run(command, input=json.dumps(given), stdout=subprocess.PIPE, text=True, check=True).stdout
    )
    return answered["answers"], answered["versions"]


def chosen(answers: Answers, kept: Sequence[Sequence[bool]]) -> Answers:
    pairs = [[a for a, keep in zip(*both, strict=True) if keep] for both in zip(answers, kept, strict=True)]
    return [report for report, keep in zip(pairs, kept, strict=True) if any(keep)]


def scores(systems: Mapping[str, tuple[Answers, Sequence[str]]], gold: Answers) -> Iterator[dict[str, Any]]:
    """A row for each category and system that answers it."""
    weights = np.random.default_rng(0).multinomial(len(gold), np.full(len(gold), 1 / len(gold)), size=DRAWS)
    for category in (*CATEGORIES, "all five"):
        asked = CATEGORIES if category == "all five" else (category,)
        support = sum(name in asked for report in gold for names in report for name in names)
        for name, (found, answered) in systems.items():
            if support and set(asked) <= set(answered):
                measures = figures(counted(gold, found, asked), weights)
                yield {"category": category, "mentions": support, "system": name, **measures}


def counted(gold: Answers, found: Answers, asked: Sequence[str]) -> NDArray[np.float64]:
    """[reports, 3]: right, wrong and missed."""
    rows = [assertion_counts(g, f, asked) for g, f in zip(gold, found, strict=True)]
    return np.array([[sum(row[f"{part}/{c}"] for c in asked) for part in ("tp", "fp", "fn")] for row in rows])


def figures(counts: NDArray[np.float64], weights: NDArray[Any]) -> dict[str, list[float]]:
    """Each measure with the ends of its interval."""
    measured = precision_recall_f1(*counts.sum(axis=0))
    tp, fp, fn = (weights @ counts).T
    ratios = {"precision": (tp, tp + fp), "recall": (tp, tp + fn), "f1": (2 * tp, 2 * tp + fp + fn)}
    ends = {}
    for name, (above, below) in ratios.items():
        drawn = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
        ends[name] = [measured[name], *np.quantile(drawn, (0.025, 0.975)).tolist()]
    return ends


if __name__ == "__main__":
    main()
