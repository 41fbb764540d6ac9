"""Documents that exercise all that BioC and PubAnnotation have to carry."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span, entities_by_concept
from grandrounds.data.formats import brat, pubtator

ABSTRACT = (
    "1|t|V600E and BRAF\n"
    "1|a|ERK, β & <V600K>. It did.\n"
    "1\t0\t5\tV600E\tSequenceVariant\tp|SUB|V|600|E\n"
    "1\t10\t14\tBRAF\tGene\t673,5594\n"
    "1\t15\t18\tERK\tGene\t5594;5595\n"
    "1\t20\t21\tβ\tGene\t-1\n"
    "1\t25\t30\tV600K\tSequenceVariant\n"
    "1\tAssociation\tp|SUB|V|600|E\t5594\tNovel\n"
    "1\tBind\t673\t5595\tNo\n"
)
TEXT = "Aspirin caused acute and\nlate pain. Quux was stopped.\n\n"
ANN = (
    "T3\tProblem 25 34\tlate pain\n"
    "T1\tDrug 0 7\tAspirin\n"
    "T2\tProblem 15 20;30 34\tacute pain\n"
    "T4\tDrug 36 40\tQuux\n"
    "T5\tProblem 15 34\tacute and late pain\n"
    "R1\tCauses Arg1:T1 Arg2:T2\n"
    "R2\tCauses Arg1:T4 Arg2:T3\n"
    "*\tEquiv T1 T4\n"
    "N1\tReference T1 MESH:D1\tAspirin\n"
    "N2\tReference T1 RX:7\n"
    "A1\tCertain T2\n"
    "A2\tSure R1 very\n"
    "#1\tAnnotatorNotes T1\tagain\n"
)


def documents() -> tuple[Document, ...]:
    (abstract,) = pubtator.parse(ABSTRACT, Path("a"))
    report = brat.parse(TEXT, ANN, "a/b", Path("a"), Counter())
    shared = (Mention(0, 1, "A", "x", "D1|D2"), Mention(2, 3, "B", "y", ""), Mention(4, 5, "B", "R1"))
    several = Document(
        "\n",
        "a b c\r\n d",
        (Span(0, 3), Span(4, 9)),
        shared,
        entities_by_concept(shared),
        (
            Relation("r", "D2", "y", (0, 1), {"score": "0.5"}),
            Relation("r", "D1", "R1", (0, 2)),
            Relation("s", "D1", "D2"),
        ),
        {"hospital": "north", "empty": ""},
    )
    grouped = Document(
        "g",
        "a b",
        (Span(0, 3),),
        (Mention(0, 1, "A", "1", "C"), Mention(2, 3, "A", "2", "D")),
        (Entity("e", "A", (0, 1)),),
    )
    return abstract, report, several, grouped, Document("empty", ""), Document("lines", "\n\na\n\n", (Span(2, 3),))
