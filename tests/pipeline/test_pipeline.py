"""Saved models as one extractor: raw text in, mentions and relations out."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import grandrounds
from grandrounds.data.documents import Document, Entity, Mention, Span
from grandrounds.errors import GrandRoundsError
from grandrounds.models.encoder import Encoder
from grandrounds.pipeline.linking import Dictionary
from grandrounds.pipeline.pipeline import Pipeline
from grandrounds.pipeline.windows import LONGEST, TOO_FAR, _possible, cut_long_sentences, extract_in_windows
from grandrounds.reports.extraction import extraction_page
from grandrounds.tasks.document_features import MARKER
from grandrounds.tasks.document_re import DocumentRE, DocumentREOptions
from grandrounds.tasks.saved import Extractor
from grandrounds.tasks.sentence_re import TOO_LONG, SentenceRE, SentenceREOptions
from tests.cli.commands import run
from tests.conftest import corpus, write_corpus
from tests.pipeline.models import saved, sentence_relater, word_tagger
from tests.tasks.extractors import TEXT, everything

SURFACES = ["aspirin", "pain", "ct  scan", "stroke", "fever", "heparin"]


@pytest.fixture(scope="module")
def tagger() -> Extractor:
    return word_tagger()


@pytest.fixture(scope="module")
def sentences(encoder_folder: Callable[[str], Path]) -> Extractor:
    return sentence_relater(encoder_folder("bert"))


@pytest.fixture(scope="module")
def documents(encoder_folder: Callable[[str], Path]) -> Extractor:
    """Relates every treatment to every problem of its document."""
    return everything(Encoder.find(str(encoder_folder("bert")), (MARKER,)))


@pytest.fixture(scope="module")
def folders(tagger: Extractor, sentences: Extractor, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    where = tmp_path_factory.mktemp("models")
    return [saved(where / "ner", tagger), saved(where / "re", sentences)]


def test_raw_text_gives_mentions_and_the_relations_between_them(folders: list[Path]) -> None:
    found = grandrounds.load(*folders)(TEXT)
    assert found.text == TEXT
    assert [found.surface(mention) for mention in found.mentions] == SURFACES
    ends = [[found.surface(found.mentions[m]) for m in relation.mentions or ()] for relation in found.relations]
    assert ends == [["aspirin", "pain"], ["heparin", "fever"]]
    # Whatever the order of the folders, taggers read first.
    assert grandrounds.load(*reversed(folders))(TEXT) == found


def test_a_dict_has_texts_numbers_and_evidence(folders: list[Path]) -> None:
    found = grandrounds.load(*folders)(TEXT).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert [mention["text"] for mention in found["mentions"]] == SURFACES
    assert all(isinstance(mention["score"], float) and 0.5 < mention["score"] <= 1 for mention in found["mentions"])
    first = found["relations"][0]
    assert (first["type"], first["head"]["text"], first["tail"]["text"]) == ("TrIP", "aspirin", "pain")
    assert [sentence["text"] for sentence in first["evidence"]] == ["The aspirin eased\nthe pain ."]
    assert 0.9 < first["score"] <= 1


def test_what_triggered_an_assertion_is_shown_in_a_dict() -> None:
    mention = Mention(3, 8, "problem", "T1", attributes={"negated": "0-2", "note": "0-2"})
    (found,) = Document("d", "No fever .", mentions=(mention,)).to_dict()["mentions"]
    assert found["negated"] == {"trigger": "No", "start": 0, "end": 2}
    assert found["note"] == "0-2"


def test_many_texts_are_read_together_as_each_by_itself(folders: list[Path]) -> None:
    nlp = grandrounds.load(*folders)
    texts = [
        TEXT,
        "",
        "The aspirin eased the fever .",
        "\n\n",
        TEXT * 3,
        "No stroke .",
        "😀 aspirin eased pain .",
        "疼痛",
    ]
    alone, together = [nlp(text) for text in texts], list(nlp.pipe(texts, batch=3))
    for one, other in zip(alone, together, strict=True):
        assert [(m.start, m.end, m.type) for m in one.mentions] == [(m.start, m.end, m.type) for m in other.mentions]
        assert [r.mentions for r in one.relations] == [r.mentions for r in other.relations]
    assert [document.text for document in together] == texts
    assert list(nlp.pipe([])) == []


def test_half_a_character_is_replaced_and_offsets_hold(folders: list[Path]) -> None:
    found = grandrounds.load(*folders)("\ud83d aspirin eased pain .")
    assert found.text == "\ufffd aspirin eased pain ."
    assert [found.surface(mention) for mention in found.mentions] == ["aspirin", "pain"]
    found.text.encode()


def test_a_threshold_leaves_out_what_scores_lower(folders: list[Path]) -> None:
    scores = sorted(mention["score"] for mention in grandrounds.load(*folders)(TEXT).to_dict()["mentions"])
    middle = (scores[2] + scores[3]) / 2
    assert len(grandrounds.load(folders[0], threshold=middle)(TEXT).mentions) == 3
    assert len(grandrounds.load(folders[0]).extract(TEXT, middle).mentions) == 3


def test_gold_relations_are_not_handed_through(sentences: Extractor) -> None:
    document = next(document for document in corpus(8) if document.relations)
    stated = replace(document, relations=tuple(replace(r, type="stated") for r in document.relations))
    assert {relation.type for relation in Pipeline((), (sentences,))(stated).relations} <= {"TrIP"}


def test_two_relation_models_add_up(tagger: Extractor, sentences: Extractor, documents: Extractor) -> None:
    nlp = Pipeline((tagger,), (sentences, documents))
    found = nlp("The aspirin eased the pain .")
    assert [relation.type for relation in found.relations] == ["TrIP", documents.task.labels[1]]


def test_two_taggers_give_each_mention_once(tagger: Extractor) -> None:
    found = Pipeline((tagger, tagger))(TEXT)
    assert [found.surface(mention) for mention in found.mentions] == SURFACES
    assert [mention.id for mention in found.mentions] == [f"T{i}" for i in range(1, 7)]


def test_a_saved_pipeline_finds_the_same(folders: list[Path], tmp_path: Path) -> None:
    nlp = grandrounds.load(*folders, threshold=0.2, window=7)
    grandrounds.save(nlp, tmp_path / "pipeline")
    again = grandrounds.load(tmp_path / "pipeline")
    assert (again.threshold, again.window) == (0.2, 7)
    assert again(TEXT) == nlp(TEXT)
    assert grandrounds.load(tmp_path / "pipeline", window=9).window == 9


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is damaged; save or copy the pipeline again"),
        ('{"models": []}', "is damaged"),
        ('{"models": ["../ner"]}', "names a folder outside of the pipeline's own"),
        ('{"models": [".."]}', "names a folder outside of the pipeline's own"),
        ('{"version": 99, "models": ["a"]}', "was saved by a newer version of grandrounds"),
        ('{"models": ["a"]}', "is not a saved model: it has no grandrounds.json"),
    ],
)
def test_a_damaged_or_foreign_pipeline_is_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text(content)
    with pytest.raises(GrandRoundsError, match=said):
        grandrounds.load(tmp_path)


def test_models_that_do_not_fit_together_are_named(tagger: Extractor, sentences: Extractor) -> None:
    strange = SentenceRE(SentenceREOptions(), ["binds"], [("gene", "drug")])
    with pytest.raises(GrandRoundsError, match="relates gene and drug, and the tagger finds problem, test, treatment"):
        Pipeline((tagger,), (replace(sentences, task=strange),))


def test_a_relation_model_asks_for_a_tagger(sentences: Extractor) -> None:
    with pytest.raises(GrandRoundsError, match="relates mentions, and a text has none: give it documents"):
        Pipeline((), (sentences,))("He has pain .")


def test_a_pair_longer_than_the_window_is_counted_and_the_others_are_read(
    tagger: Extractor, encoder_folder: Callable[[str], Path]
) -> None:
    narrow = sentence_relater(encoder_folder("bert"), max_length=16, blind=False)
    long = "pain " * 40
    text = f"The aspirin eased the {long.strip()} . The aspirin eased the fever ."
    mentions = (
        Mention(4, 11, "treatment", "T1"),
        Mention(22, 22 + 199, "problem", "T2"),
        Mention(text.rindex("aspirin"), text.rindex("aspirin") + 7, "treatment", "T3"),
        Mention(text.index("fever"), text.index("fever") + 5, "problem", "T4"),
    )
    nlp = Pipeline((), (narrow,))
    found = nlp(Document("d", text, (Span(0, 224), Span(225, len(text))), mentions))
    assert [relation.mentions for relation in found.relations] == [(2, 3)]
    assert nlp.warnings == {TOO_LONG: 1}


@pytest.mark.parametrize("version", [2, 99])
def test_a_model_of_a_newer_version_is_called_that(version: int, folders: list[Path], tmp_path: Path) -> None:
    shutil.copytree(folders[0], tmp_path / "model")
    about = json.loads((tmp_path / "model" / "grandrounds.json").read_text())
    assert about["version"] == 1
    (tmp_path / "model" / "grandrounds.json").write_text(json.dumps({"version": version, "unheard": "of"}))
    with pytest.raises(GrandRoundsError, match="was saved by a newer version of grandrounds; install that one"):
        grandrounds.load(tmp_path / "model")
    (tmp_path / "model" / "grandrounds.json").write_text(json.dumps({**about, "version": "two"}))
    with pytest.raises(GrandRoundsError, match="is damaged"):
        grandrounds.load(tmp_path / "model")


# Long documents


def pairs(number: int) -> Document:
    """A sentence a pair, "a1 eased p1 .", each of entities of its own."""
    text, sentences, mentions = "", list[Span](), list[Mention]()
    for i in range(number):
        start = len(text)
        for before, name, type in (("", f"a{i}", "treatment"), (" eased ", f"p{i}", "problem")):
            text += before + name
            mentions.append(Mention(len(text) - len(name), len(text), type, f"T{len(mentions)}"))
        text += " . "
        sentences.append(Span(start, len(text) - 1))
    entities = tuple(Entity(mention.id, mention.type, (i,)) for i, mention in enumerate(mentions))
    return Document("d", text, tuple(sentences), tuple(mentions), entities)


def test_windows_ask_about_every_pair_that_is_close_once_and_count_the_rest(documents: Extractor) -> None:
    document, warnings = pairs(11), Counter[str]()
    (found,) = extract_in_windows(documents, [document], 4, 0.0, torch.device("cpu"), warnings)
    asked = {(int(r.head[1:]) // 2, int(r.tail[1:]) // 2) for r in found.relations}
    starts = range(0, 9, 2)  # windows of four sentences, each two after the last
    expected = {(i, j) for start in starts for i in range(start, start + 4) for j in range(start, start + 4)}
    expected = {(i, j) for i, j in expected if i < 11 and j < 11}
    assert asked == expected
    assert len(found.relations) == len(expected)
    assert warnings == {TOO_FAR: 11 * 11 - len(expected)}
    assert found.text == document.text
    assert found.mentions == document.mentions


def test_evidence_has_the_numbers_of_the_documents_sentences(documents: Extractor) -> None:
    (found,) = extract_in_windows(documents, [pairs(11)], 4, 0.0, torch.device("cpu"), Counter())
    for relation in found.relations:
        near = range(min(int(end[1:]) // 2 for end in (relation.head, relation.tail)) - 4, 11)
        assert found.evidence(relation)
        assert all(number in near for number in found.evidence(relation))


def test_a_short_document_is_read_whole(documents: Extractor) -> None:
    warnings = Counter[str]()
    (found,) = extract_in_windows(documents, [pairs(4)], 4, 0.0, torch.device("cpu"), warnings)
    assert found == documents.extract(pairs(4))
    assert not warnings


def test_types_of_any_kind_are_counted_by_order() -> None:
    document = pairs(3)
    assert _possible(document, None, True) == 6 * 5
    assert _possible(document, None, False) == 15
    assert _possible(document, [("treatment", "treatment")], True) == 6
    task = DocumentRE(DocumentREOptions(pairs="docred"), ["r"], ())
    assert task.pair_types() is None


def test_a_sentence_without_end_is_cut_outside_of_mentions_for_relations() -> None:
    text = "aspirin pain " * 2000
    mentions = tuple(Mention(i * 13, i * 13 + 12, "problem", f"T{i}") for i in range(2000))
    warnings = Counter[str]()
    found = cut_long_sentences(Document("d", text, (Span(0, len(text) - 1),), mentions), warnings)
    assert all(end - start <= LONGEST + 12 for start, end in found.sentences)
    assert (found.sentences[0].start, found.sentences[-1].end) == (0, len(text) - 1)
    assert all(found.sentence_of(mention) is not None for mention in found.mentions)
    assert sum(warnings.values()) == 1
    assert cut_long_sentences(pairs(3), warnings) == pairs(3)


def test_of_unordered_pairs_the_document_decides_which_end_is_first(documents: Extractor) -> None:
    """A is before B in the first window and after it in the second."""
    names = ["A", "x", "B", "x", "B", "x", "A", "x"]
    text = " . ".join(names) + " ."
    sentences = tuple(Span(4 * i, 4 * i + 3) for i in range(8))
    held = {name: tuple(i for i, other in enumerate(names) if other == name) for name in ("A", "B")}
    mentions = tuple(Mention(4 * i, 4 * i + 1, "treatment", f"T{i}") for i in range(8))
    entities = tuple(Entity(name, "treatment", members) for name, members in held.items())
    task = DocumentRE(DocumentREOptions(block=8, pairs=[("treatment", "treatment")]), ["cures"], ())
    task.asked = replace(task.asked, ordered=False)
    document = Document("d", text, sentences, mentions, entities)
    (found,) = extract_in_windows(replace(documents, task=task), [document], 4, 0.0, torch.device("cpu"), Counter())
    ends = [(relation.head, relation.tail) for relation in found.relations]
    assert [pair for pair in ends if set(pair) == {"A", "B"}] == [("A", "B")]


def test_documents_without_sentences_get_them_for_a_relation_model(sentences: Extractor) -> None:
    mentions = (Mention(4, 11, "treatment", "T1"), Mention(22, 26, "problem", "T2"))
    found = Pipeline((), (sentences,))(Document("d", "The aspirin eased the pain .", (), mentions))
    assert [relation.mentions for relation in found.relations] == [(0, 1)]


def test_attributes_never_stand_in_for_fields_and_scores_may_be_words() -> None:
    mention = Mention(0, 2, "problem", "T1", attributes={"text": "other", "type": "zzz", "score": "high"})
    (found,) = Document("d", "No fever .", mentions=(mention,)).to_dict()["mentions"]
    assert (found["text"], found["type"], found["score"]) == ("No", "problem", "high")


# The command


def test_what_is_found_may_be_written_over_what_was_read(folders: list[Path], tmp_path: Path) -> None:
    path = write_corpus(tmp_path / "notes.jsonl", corpus(6))
    run("extract", folders[1], path, "--out", path).good()
    assert len(path.read_text().splitlines()) == 6
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{")
    run("extract", folders[1], broken, "--out", path).complaint()
    assert len(path.read_text().splitlines()) == 6


def test_text_from_standard_input_goes_end_to_end(folders: list[Path]) -> None:
    piped = f"import io, sys; sys.stdin = io.TextIOWrapper(io.BytesIO({TEXT.encode()!r}))"
    (line,) = run("extract", *folders, "-", "--to", "dict", prelude=piped).good().stdout.splitlines()
    assert json.loads(line)["mentions"] == grandrounds.load(*folders)(TEXT).to_dict()["mentions"]


def test_a_folder_of_notes_is_read_one_after_the_other(folders: list[Path], tmp_path: Path) -> None:
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text("The aspirin eased the pain .")
    outcome = run("extract", *folders, tmp_path, "--batch", "2").good()
    assert [json.loads(line)["id"] for line in outcome.stdout.splitlines()] == [f"{i}.txt" for i in range(5)]
    assert "10 mentions, 5 relations in 5 documents" in outcome.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "-"], "'nowhere' is not a saved model: it has no grandrounds.json"),
        (["NER"], "nothing to read: name files or folders after the models, or - for standard input"),
        (["RE", "-"], "relates mentions, and text has none"),
        (["NER", "missing.txt"], "no such file or folder; check the path"),
        (["NER", "missing"], "no such file or folder; check the path"),
        (["NER", "-", "--format", "brat"], "standard input is read as text, not as 'brat'; give a file"),
        (["NER", "-", "--device", "gpu"], "device = 'gpu'; it must be auto, cpu, cuda or mps"),
        (["NER", "-", "--device", "cuda"], "device = 'cuda', which this machine or this torch does not have"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(words: list[str], said: str, folders: list[Path]) -> None:
    named = {"NER": str(folders[0]), "RE": str(folders[1])}
    assert said in run("extract", *(named.get(word, word) for word in words)).complaint()


# Assertions, links and entities


def test_mentions_are_asserted_linked_and_grouped(tagger: Extractor, tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("D1\tpain\tache\nD2\tfever\tpyrexia\n")
    Dictionary.build(tmp_path / "names.tsv", tmp_path / "names.sqlite").close()
    nlp = Pipeline((tagger,), dictionary=Dictionary.open(tmp_path / "names.sqlite"))
    found = nlp("The aspirin eased the pain . No fever was seen before heparin . The insulin eased the pain .")
    reported = {mention["text"]: mention for mention in found.to_dict()["mentions"]}
    assert reported["fever"]["negated"]["trigger"] == "No"
    assert tuple(reported["fever"][key] for key in ("concept", "link", "link_score")) == ("D2", "exact", 1.0)
    assert "negated" not in reported["pain"]
    pains = next(entity for entity in found.entities if found.surface(found.mentions[entity.mentions[0]]) == "pain")
    assert len(pains.mentions) == 2
    assert "negated" not in Pipeline((tagger,), assertions=False)("No fever was seen .").to_dict()["mentions"][0]


def test_a_saved_pipeline_keeps_its_dictionary(tagger: Extractor, tmp_path: Path) -> None:
    (tmp_path / "names.tsv").write_text("D2\tfever\n")
    Dictionary.build(tmp_path / "names.tsv", tmp_path / "names.sqlite").close()
    nlp = Pipeline((tagger,), assertions=False, dictionary=Dictionary.open(tmp_path / "names.sqlite"))
    grandrounds.save(nlp, tmp_path / "pipeline")
    again = grandrounds.load(tmp_path / "pipeline")
    assert not again.assertions
    assert again("No fever was seen .").mentions[0].concept == "D2"


def test_the_page_says_what_is_negated_and_by_what(tagger: Extractor) -> None:
    page = extraction_page([Pipeline((tagger,))("No fever was seen .")], "Found", "mentions")
    assert 'data-said="negated"' in page
    assert "negated (&quot;No&quot;)" in page
