"""ChemProt as SciBERT has it: marks leave the text, and lines of one sentence belong together."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from grandrounds.data.documents import Relation
from grandrounds.data.formats import chemprot, pair_sentence, read
from grandrounds.errors import DataError


def line(text: str, label: str = "INHIBITOR", **more: object) -> str:
    return json.dumps({"text": text, "label": label, "metadata": [], **more})


def test_marks_are_no_part_of_the_text(tmp_path: Path):
    path = tmp_path / "dev.txt"
    rows = [
        line("<< Aspirin >> blocks [[ COX-1 ]] and COX-2 >> COX-3."),
        line("<< Aspirin >> blocks COX-1 and [[ COX-2 ]] >> COX-3.", "ACTIVATOR"),
        line("A [[ b-[[(c) ]] of << d >>", "NA"),
    ]
    path.write_text("\n".join(rows) + "\n")
    corpus = read(path, "chemprot")
    first, second, third = corpus.documents
    assert first.text == second.text == "Aspirin blocks COX-1 and COX-2 >> COX-3."
    assert [first.surface(m) for m in first.mentions] == ["Aspirin", "COX-1"]
    assert [second.surface(m) for m in second.mentions] == ["Aspirin", "COX-2"]
    assert first.relations == (Relation("INHIBITOR", "T1", "T2", (0, 1)),)
    assert second.relations[0].type == "ACTIVATOR"
    assert [third.surface(m) for m in third.mentions] == ["d", "b-[[(c)"]
    assert not third.relations
    names = [document.attributes["patient"] for document in corpus]
    assert names == ["dev.txt sentence 1", "dev.txt sentence 1", "dev.txt sentence 2"]
    assert [document.id for document in corpus] == ["dev.txt:1", "dev.txt:2", "dev.txt:3"]
    assert corpus.warnings == {}


def test_a_mention_within_the_other_and_further_values_are_counted():
    warnings: Counter[str] = Counter()
    (document,) = chemprot.parse([line("<< [[ insulin ]] receptor >>", split="dev")], Path("a"), warnings)
    assert [document.surface(m) for m in document.mentions] == ["insulin receptor", "insulin"]
    assert warnings == {pair_sentence.OVERLAP: 1, chemprot.PASSED_OVER: 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (line("<< Aspirin >> alone"), r"not one mention between '\[\[ ' and ' \]\]'"),
        (line("<< a >> and << b >> and [[ c ]]"), "not one mention between '<< ' and ' >>'"),
        (line("<< [[  >> ]]"), "sentence 0-0 is empty"),
        (line("<< a >> [[ b ]]", ""), "an empty relation"),
        ('{"text": "a"}', "sentence lacks 'label'"),
        ("[", "not JSON"),
    ],
)
def test_what_is_wrong_is_named_by_line(row: str, message: str):
    with pytest.raises(DataError, match=message) as caught:
        list(chemprot.parse([line("<< Aspirin >> and [[ b ]]"), row], Path("a.txt"), Counter()))
    assert str(caught.value).startswith("a.txt:2: ")
    assert "spirin" not in str(caught.value)
