"""A compiled dictionary links exact, normalised and similar names, says how, and refuses what is not one."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from math import log, sqrt
from pathlib import Path

import pytest

from grandrounds.data.documents import Document, Mention, Span
from grandrounds.errors import ConfigError, DataError, GrandRoundsError
from grandrounds.pipeline import dictionary_file, linking
from grandrounds.pipeline.linking import Dictionary, Link, link_mentions
from grandrounds.pipeline.names import contradict, normalise, trigrams
from tests.cli.commands import run

NAMES = """\
id\tname\tsynonyms
D009203\tMyocardial Infarction\tInfarction, Myocardial|heart attack|MI
D008944\tMitral Valve Insufficiency\tMI|mitral regurgitation
D006973\tHypertension\thigh blood pressure
D007022\tHypotension
D003924\tDiabetes Mellitus, Type 2\tNIDDM
D003922\tDiabetes Mellitus, Type 1
C1\tMI1\tpatient-controlled analgesia
C2\tPCA
"""


@pytest.fixture
def dictionary(tmp_path: Path) -> Iterator[Dictionary]:
    with build(tmp_path, NAMES) as found:
        yield found


def build(folder: Path, content: str) -> Dictionary:
    (folder / "names.tsv").write_text(content, encoding="utf-8")
    return Dictionary.build(folder / "names.tsv", folder / "names.dictionary")


def one(dictionary: Dictionary, name: str, threshold: float = linking.THRESHOLD) -> Link | None:
    (found,) = dictionary.link([name], threshold)
    return found


def test_exact_then_normalised_then_similar(dictionary: Dictionary) -> None:
    exact, normalised, similar, none = dictionary.link(
        ["heart attack", "Type 2 diabetes mellitus", "myocardal infarction", "gout"]
    )
    assert exact == Link("D009203", "heart attack", 1.0, "exact")
    assert normalised == Link("D003924", "Diabetes Mellitus, Type 2", 1.0, "normalised")
    assert similar is not None
    assert (similar.concept, similar.how) == ("D009203", "similar")
    assert none is None


def test_the_score_is_the_cosine_of_tf_idf_vectors(dictionary: Dictionary) -> None:
    keys = {normalise(name) for line in NAMES.splitlines()[1:] for name in names_of(line)}

    def vector(key: str) -> dict[str, float]:
        having = {gram: sum(gram in trigrams(other) for other in keys) for gram in trigrams(key)}
        return {gram: 1 + log((1 + len(keys)) / (1 + count)) for gram, count in having.items()}

    one_vector, other = vector("myocardal infarction"), vector("myocardial infarction")
    product = sum(one_vector[gram] * other[gram] for gram in one_vector.keys() & other.keys())
    lengths = [sqrt(sum(value**2 for value in found.values())) for found in (one_vector, other)]
    link = one(dictionary, "myocardal infarction", 0.5)
    assert link is not None
    assert link.score == pytest.approx(product / lengths[0] / lengths[1], abs=1e-6)
    assert one(dictionary, "myocardal infarction", link.score + 0.001) is None


def names_of(line: str) -> list[str]:
    _, name, *synonyms = line.split("\t")
    return [name, *(synonyms[0].split("|") if synonyms else [])]


def test_similar_finds_what_comparing_with_every_name_finds(tmp_path: Path) -> None:
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdeo", k=draw.randint(2, 7))) for _ in range(60)]
    names = sorted({" ".join(draw.choices(words, k=draw.randint(1, 3))) for _ in range(150)})
    keys = list(dict.fromkeys(map(normalise, names)))
    weight = {
        gram: dictionary_file.rarity(len(keys), sum(gram in trigrams(key) for key in keys))
        for gram in frozenset[str]().union(*map(trigrams, keys))
    }
    unknown = dictionary_file.rarity(len(keys), 0)

    def cosine(key: str, other: str) -> float:
        total, of_other, common = (
            sum(weight.get(gram, unknown) for gram in grams)
            for grams in (trigrams(key), trigrams(other), trigrams(key) & trigrams(other))
        )
        return common / sqrt(total * of_other)

    asked = [
        name[: draw.randrange(len(name))] + draw.choice("abx") + name[draw.randrange(len(name)) :] for name in names
    ]
    similar = 0
    with build(tmp_path, "".join(f"C{i}\t{name}\n" for i, name in enumerate(names))) as dictionary:
        for name, link in zip(asked, dictionary.link(asked, 0.6), strict=True):
            key = normalise(name)
            if key in keys:
                continue
            best = max((cosine(key, other) for other in keys if not contradict(key, other)), default=0)
            assert (link is not None) == (best >= 0.6)
            if link:
                similar += 1
                assert link.how == "similar"
                assert link.score == pytest.approx(best, abs=1e-6)
                assert cosine(key, normalise(link.name)) == pytest.approx(best, abs=1e-6)
    assert similar > 20


def test_numbers_and_opposites_are_never_similar(dictionary: Dictionary) -> None:
    assert one(dictionary, "hypotensions", 0.3) == Link("D007022", "Hypotension", 1.0, "normalised")
    found = dictionary.link(["Type 3 diabetes mellitus", "hyportension", "hypertensio"], 0.3)
    assert [link and link.concept for link in found] == [None, "D007022", "D006973"]


def test_a_name_of_several_concepts_means_the_preferred_one_then_the_first_listed(tmp_path: Path) -> None:
    with build(tmp_path, "A\tsome name\tcold|COPD\nB\tcold\nC\tother name\tcopd.|Cold\n") as dictionary:
        assert one(dictionary, "cold") == Link("B", "cold", 1.0, "exact", 2)
        assert one(dictionary, "COPD") == Link("A", "COPD", 1.0, "exact", 1)
        assert one(dictionary, "Copd") == Link("A", "COPD", 1.0, "normalised", 2)
        assert one(dictionary, "colds") == Link("B", "cold", 1.0, "normalised", 3)
        assert dictionary.warnings[dictionary_file.AMBIGUOUS] == 1


def test_what_is_skipped_is_counted(tmp_path: Path) -> None:
    content = "\ufeffid\tname\r\n# ours\r\n\r\nA\tone\tuno||one\r\n-1\tnothing\r\nA\teins\r\nB\t+\r\n"
    with build(tmp_path, content) as dictionary:
        assert dictionary.counts == {"concepts": 2, "names": 4, "keys": 3}
        assert dictionary.warnings == {
            dictionary_file.HEADER: 1,
            dictionary_file.COMMENTS: 1,
            dictionary_file.EMPTY: 1,
            dictionary_file.TWICE: 1,
            dictionary_file.NO_ID: 1,
            dictionary_file.SIGNS: 1,
        }
        assert [link and link.concept for link in dictionary.link(["UNO", "eins", "+", "-", "nothing"])] == [
            *("A", "A", "B"),
            *(None, None),
        ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("A\tone\nB\n", "names.tsv:2: 1 tab-separated columns where"),
        ("A\tone\tuno\tmore\n", "names.tsv:1: 4 tab-separated columns where"),
        ("A\tone\n\n\tname\n", "names.tsv:3: a line without an id or a name"),
        ("A\t \n", "names.tsv:1: a line without an id or a name"),
        ("id\tname\n", "names.tsv: no names found"),
        ("", "names.tsv: no names found"),
    ],
)
def test_a_bad_file_is_named_with_its_line_and_nothing_is_written(tmp_path: Path, content: str, problem: str) -> None:
    before = build(tmp_path, NAMES)
    before.close()
    with pytest.raises(DataError, match=problem):
        build(tmp_path, content)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["names.dictionary", "names.tsv"]
    with Dictionary.open(tmp_path / "names.dictionary") as kept:
        assert kept.counts["concepts"] == 8, "what was there before is whole"


def test_a_file_is_not_compiled_onto_itself_and_a_folder_is_made(tmp_path: Path) -> None:
    tsv = tmp_path / "names.tsv"
    tsv.write_text(NAMES)
    with pytest.raises(GrandRoundsError, match="would be replaced"):
        Dictionary.build(tsv, tsv)
    assert tsv.read_text() == NAMES
    with Dictionary.build(tsv, tmp_path / "new 100%?#" / "d") as dictionary:
        assert one(dictionary, "PCA") == Link("C2", "PCA", 1.0, "exact")
    for place in (tmp_path, tsv / "below"):
        with pytest.raises(GrandRoundsError, match="could not be written"):
            Dictionary.build(tsv, place)


def test_the_same_file_gives_the_same_bytes(tmp_path: Path) -> None:
    build(tmp_path, NAMES).close()
    first = (tmp_path / "names.dictionary").read_bytes()
    build(tmp_path, NAMES).close()
    assert (tmp_path / "names.dictionary").read_bytes() == first


@pytest.mark.parametrize(
    "name", ["", " ", "\0", "a\0b", "\ud800", "heart\ud800attack", "😀", "%_'\"; DROP TABLE names", "x" * 1_000_000]
)
def test_any_string_may_be_asked_for(dictionary: Dictionary, name: str) -> None:
    link = one(dictionary, name)
    assert link is None or (name == "heart\ud800attack" and link.how == "normalised")


def test_thresholds_that_mean_nothing_are_refused(dictionary: Dictionary) -> None:
    assert one(dictionary, "myocardal infarction", 1) is None
    for threshold in (0, -1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="above 0 and at most 1"):
            one(dictionary, "gout", threshold)


def test_what_is_no_dictionary_is_refused_in_a_sentence(tmp_path: Path) -> None:
    build(tmp_path, NAMES).close()
    whole = (tmp_path / "names.dictionary").read_bytes()
    path = tmp_path / "other"
    refused = {
        b"": "no compiled dictionary",
        b"id\tname\n" * 50: "no compiled dictionary",
        whole[:-1]: "damaged",
        whole[:200]: "damaged",
        whole[:60] + (7).to_bytes(4, "big") + whole[64:]: "has version 7, and this program reads 1",
        whole[:68] + bytes(4) + whole[72:]: "an SQLite file of something else",
        whole[:100] + bytes(4000) + whole[4100:]: "damaged",
    }
    for content, problem in refused.items():
        path.write_bytes(content)
        with pytest.raises(GrandRoundsError, match=problem):
            Dictionary.open(path)
    with pytest.raises(GrandRoundsError, match="can't be read: No such file"):
        Dictionary.open(tmp_path / "missing")
    with pytest.raises(GrandRoundsError, match="can't be read: Is a directory"):
        Dictionary.open(tmp_path)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON names BEGIN SELECT 1; END",
        "CREATE VIEW more AS SELECT load_extension('x')",
        "DROP INDEX names_by_name",
    ],
)
def test_a_file_with_more_or_less_than_our_tables_is_refused(tmp_path: Path, statement: str) -> None:
    build(tmp_path, NAMES).close()
    database = sqlite3.connect(tmp_path / "names.dictionary")
    database.execute(statement)
    database.commit()
    database.close()
    with pytest.raises(GrandRoundsError, match="holds other tables than it should"):
        Dictionary.open(tmp_path / "names.dictionary")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_damaged_file_is_a_sentence_or_a_link_never_a_traceback(tmp_path: Path) -> None:
    build(tmp_path, NAMES).close()
    whole, path, draw = (tmp_path / "names.dictionary").read_bytes(), tmp_path / "damaged", random.Random(1)
    refused = 0
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(draw.choice((1, 20, 400))):
            content[draw.randrange(100, len(whole))] = draw.randrange(256)
        path.write_bytes(content)
        try:
            with Dictionary.open(path) as dictionary:
                dictionary.link(["MI", "heart attacks", "myocardal infarction", "hypertensiv"], 0.4)
        except GrandRoundsError:
            refused += 1
    assert refused > 50


def document(text: str, *names: str) -> Document:
    mentions, at = [], 0
    for i, name in enumerate(names, start=1):
        at = text.index(name, at)
        mentions.append(Mention(at, at + len(name), "Disease", f"T{i}"))
        at += len(name)
    return Document("d", text, mentions=tuple(mentions))


def test_mentions_get_concept_and_how(dictionary: Dictionary) -> None:
    found = link_mentions(document("Hypertension, MI, gout", "Hypertension", "MI", "gout"), dictionary).mentions
    assert [mention.concept for mention in found] == ["D006973", "D009203", None]
    assert found[0].attributes == {"link": "exact", "link_score": "1.0000"}
    assert found[1].attributes == {"link": "exact", "link_score": "1.0000", "link_concepts": "2"}
    assert found[2].attributes == {}


def test_a_concept_that_is_there_stays_and_fragments_are_read_alone(dictionary: Dictionary) -> None:
    text = "high systolic blood pressure"
    mentions = (
        Mention(0, 28, "Disease", "T1", fragments=(Span(0, 4), Span(14, 28))),
        Mention(0, 28, "Disease", "T2", "OWN"),
        Mention(0, 4, "Disease", "T3", "-1", attributes={"score": "0.9"}),
    )
    found = link_mentions(Document("d", text, mentions=mentions), dictionary).mentions
    assert [mention.concept for mention in found] == ["D006973", "OWN", "-1"]
    assert found[2].attributes == {"score": "0.9"}


def test_an_abbreviation_is_linked_by_its_long_form_unless_it_is_in_the_dictionary_itself(
    dictionary: Dictionary,
) -> None:
    text = "HTN before. Hypertension (HTN). Patient-controlled analgesia (PCA), HTN and PCA. MR (mitral regurgitation)."
    found = link_mentions(document(text, "HTN", "HTN", "PCA", "HTN", "PCA", "MR"), dictionary).mentions
    assert [mention.concept for mention in found] == ["D006973", "D006973", "C2", "D006973", "C2", "D008944"]
    assert found[0].attributes["link"] == "exact", "it is the long form's"


def test_the_commands_build_and_show(tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text(NAMES)
    made = run("link", "build", tmp_path / "names.tsv", "--out", tmp_path / "d", "--json").json()
    assert (made["concepts"], made["names"]) == (8, 16)
    assert made["notes"][dictionary_file.HEADER] == 1
    shown = run("link", "show", tmp_path / "d", "MI", "gout", "--json").json()
    assert shown == [
        {"text": "MI", "link": {"concept": "D009203", "name": "MI", "score": 1.0, "how": "exact", "concepts": 2}},
        {"text": "gout", "link": None},
    ]
    assert "D006973" in run("link", "show", tmp_path / "d", "HYPERTENSION").good().stdout
    assert "no compiled dictionary" in run("link", "show", tmp_path / "names.tsv", "MI").complaint()
    assert "no such file" in run("link", "build", tmp_path / "none.tsv", "--out", tmp_path / "d").complaint()
    assert "above 0" in run("link", "show", tmp_path / "d", "MI", "--threshold", "0").complaint()
