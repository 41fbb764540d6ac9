"""negspacy's and medspaCy's assertions, run by the Python of their own environment; see assertion.py.

Reports come as JSON on standard input, with the characters of their sentences and mentions, so that all systems judge
the same mentions in the same sentences; each mention's categories go to standard output.
"""

from __future__ import annotations

import json
import sys
from bisect import bisect_right
from typing import Any

import spacy
from spacy.tokens import Doc, Span

MEDSPACY = {
    "negated": "is_negated",
    "possible": "is_uncertain",
    "family": "is_family",
    "historical": "is_historical",
    "conditional": "is_hypothetical",
}


def main() -> None:
    system = sys.argv[1]
    nlp = spacy.blank("en")
    components = [nlp.add_pipe(name, **options) for name, options in pipes(system)]
    answers = []
    for report in json.load(sys.stdin):
        document = nlp.make_doc(report["text"])
        mark_sentences(document, report["sentences"])
        places = [document.char_span(*place, label="MENTION", alignment_mode="expand") for place in report["mentions"]]
        document.set_ents(places)
        for component in components:
            document = component(document)
        entities = {(entity.start, entity.end): entity for entity in document.ents}
        answers.append([categories(system, entities[place.start, place.end]) for place in places])
    json.dump({"answers": answers, "versions": versions(system)}, sys.stdout)


def pipes(system: str) -> list[tuple[str, dict[str, Any]]]:
    """Each with its rules as they come."""
    if system == "negspacy":
        import negspacy.negation  # noqa: F401  (registers the component)
        from negspacy.termsets import termset

        return [("negex", {"config": {"neg_termset": termset("en_clinical").get_patterns()}})]
    import medspacy.context
    import medspacy.section_detection  # noqa: F401

    context: list[tuple[str, dict[str, Any]]] = [("medspacy_context", {})]
    return [("medspacy_sectionizer", {}), *context] if "sections" in system else context


def mark_sentences(document: Doc, sentences: list[tuple[int, int]]) -> None:
    """The first token that reaches into a sentence begins it, even where spaCy cuts elsewhere ("1.Normal")."""
    ends = [token.idx + len(token) for token in document]
    starts = {bisect_right(ends, start) for start, _ in sentences}
    for token in document:
        token.is_sent_start = token.i == 0 or token.i in starts


def categories(system: str, entity: Span) -> list[str]:
    if system == "negspacy":
        return ["negated"] if entity._.negex else []
    return [category for category, attribute in MEDSPACY.items() if getattr(entity._, attribute)]


def versions(system: str) -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in (system.split(" ")[0].lower(), "spacy")}


if __name__ == "__main__":
    main()
