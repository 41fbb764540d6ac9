"""The task ner: sentences, taggers, scores against seqeval, federations, and mentions found in raw text."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2

import grandrounds
from grandrounds.config.schema import make_config
from grandrounds.data.documents import Document, Mention, Span
from grandrounds.data.formats import read
from grandrounds.data.formats import write as store
from grandrounds.data.pairs import PAIRS
from grandrounds.deployment.terms import write_terms
from grandrounds.errors import ConfigError, DataError
from grandrounds.models.encoder import Encoder
from grandrounds.models.taggers import TAGGERS
from grandrounds.simulation.prepare import prepare
from grandrounds.tasks.batching import predict_outputs
from grandrounds.tasks.ner import NER, OTHER_TYPES, NEROptions
from grandrounds.tasks.ner_coding import MERGED, OVERLAPPING
from grandrounds.tasks.ner_features import LONGEST_WORD, spell, vector_finder
from grandrounds.tasks.ner_words import ACROSS
from grandrounds.tasks.saved import Extractor, save_model
from tests.conftest import TinyConfig, corpus
from tests.models.elmo_files import write
from tests.tasks.extractors import SMALL, TEXT, made, small, taught

TYPES = ["problem", "test", "treatment"]
WORD_TAGGERS = [name for name in TAGGERS if name != "elmoner"]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def words() -> Encoder:
    return Encoder.find("words", public=[document.text for document in corpus()])


@pytest.fixture(scope="module")
def transformer(encoder_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.find(str(encoder_folder("bert")))


# Documents and examples


def test_labels_are_the_corpus_types_and_tags_follow_the_scheme() -> None:
    task = small(scheme="BIOES")
    assert list(task.labels) == ["None", *TYPES]
    assert len(task.tags) == 1 + 4 * 3
    again = NER.restore(json.loads(json.dumps(task.schema())))
    assert (again.options, again.types, again.tags) == (task.options, task.types, task.tags)


def test_an_example_counts_for_its_mentions() -> None:
    task = small()
    examples, notes = task.examples(corpus(4))
    assert notes == {}
    assert [task.answers(example) for example in examples[:2]] == [["treatment", "problem"], ["test", "problem"]]
    bare, _ = task.examples([task.without_answers(document) for document in corpus(4)])
    assert [(task.answers(example), example.label) for example in bare] == [(["None"], "None")] * 4


def test_types_that_labels_leave_out_are_counted_and_strange_ones_an_error() -> None:
    documents = corpus(4)
    examples, notes = small(labels=["problem"]).examples(documents)
    assert {type for example in examples for type in small().answers(example)} == {"problem"}
    assert notes == {OTHER_TYPES: 4}
    strange = replace(documents[0], mentions=(Mention(0, 3, "gene", "T1"),), entities=(), relations=())
    with pytest.raises(DataError, match="'gene' is not in the label set"):
        small().examples([strange])


def test_neighbours_that_io_joins_are_counted() -> None:
    text = "pain fever eased"
    document = Document("d", text, (), (Mention(0, 4, "problem", "T1"), Mention(5, 10, "problem", "T2")))
    assert small(scheme="IO").examples([document])[1] == {MERGED: 1}
    assert small().examples([document])[1] == {}


def test_without_answers_nothing_tells_where_mentions_were() -> None:
    document = replace(corpus(1)[0], attributes={PAIRS: "T1 T2", "tokens": "between white space"})
    bare = small().without_answers(document)
    assert (bare.mentions, bare.entities, bare.relations) == ((), (), ())
    assert bare.attributes == {"tokens": "between white space"}


def test_a_question_is_the_sentence_without_its_answers(words: Encoder) -> None:
    task = small()
    (example, *_), _ = task.examples(corpus(1))
    again = task.from_question(json.loads(json.dumps(task.question(example))))
    assert again == replace(example, document=0, sentence=0, label="None", gold=())
    for broken in ({"text": "a"}, {"text": "a", "words": [[0, 9]]}, {"text": "a", "words": []}):
        with pytest.raises(DataError, match="public set"):
            task.from_question(broken)


def test_label_counts_are_of_mentions_and_of_sentences_without(words: Encoder) -> None:
    task = small()
    documents = [*corpus(4), task.without_answers(corpus(1)[0])]
    features = task.features(task.examples(documents)[0], words)
    assert task.label_counts(features, np.arange(5)).tolist() == [1, 4, 2, 2]
    assert task.label_counts(features, np.array([4, 4])).tolist() == [2, 0, 0, 0]


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tagger": "elmoner"}, "name it in task.language"),
        ({"tagger": "lstm_crf", "language": "x"}, "'lstm_crf' does not read one"),
        ({"tagger": "cnn_crf", "crf": False}, "'cnn_crf' ends in a CRF"),
        ({"tagger": "spans", "crf": False}, "'spans' has none"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NEROptions(**options)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("tagger=lstm", "task.tagger: input should be"),
        ("taggr=bert", "did you mean 'task.tagger'"),
        ("scheme=IOB", "BIO"),
    ],
)
def test_unknown_options_are_named(key: str, message: str, tiny_config: TinyConfig) -> None:
    name, _, value = key.partition("=")
    with pytest.raises(ConfigError, match=message):
        make_config(tiny_config(task={"name": "ner", name: value}))


@pytest.mark.parametrize(
    ("options", "reads", "message"),
    [
        ({"tagger": "bert"}, "words", "'bert' reads a transformer"),
        ({"tagger": "spans"}, "words", "'spans' reads a transformer"),
        ({"crf": False}, "words", "ends in a CRF"),
        ({"tagger": "cnn_crf"}, "pieces", "'cnn_crf' reads words"),
        ({"language": "x"}, "pieces", "set model.encoder = 'words'"),
    ],
)
def test_a_tagger_must_fit_its_encoder(
    options: dict[str, Any], reads: str, message: str, words: Encoder, transformer: Encoder
) -> None:
    task = small(**options)
    encoder = words if reads == "words" else transformer
    for use in (lambda: task.model(encoder), lambda: task.features([], encoder)):
        with pytest.raises(ConfigError, match=message):
            use()


def test_the_default_tagger_follows_from_encoder_and_language(words: Encoder, transformer: Encoder) -> None:
    assert small().tagger(words) == "cnn_clstm_crf"
    assert small(language="x").tagger(words) == "elmoner"
    assert small().tagger(transformer) == "bert"
    assert set(get_args(get_args(NEROptions.model_fields["tagger"].annotation)[0])) == {*TAGGERS, "bert", "spans"}


def test_a_corpus_without_mentions_and_impossible_types_are_refused() -> None:
    with pytest.raises(DataError, match="no mention"):
        NER.of(NEROptions(), [Document("d", "text")])
    for labels in (["None"], [""], ["drug", "drug"]):
        with pytest.raises(ConfigError, match="entity type"):
            NER.of(NEROptions(labels=labels), [])


# Numbers


def test_words_are_looked_up_whole_and_in_small_letters(words: Encoder) -> None:
    find, vocabulary = vector_finder(words), words.tokenizer.get_vocab()
    assert find("Aspirin") == find("aspirin") == find("áspirin") == vocabulary["aspirin"]
    assert find("ct-scan") == find("[PAD]") == find("never-heard") == words.tokenizer.unk_token_id


def test_vectors_of_a_file_are_where_training_starts(words: Encoder, tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("pain 1 2 3\nfever 4 5 6\n")
    encoder = Encoder.find("words", public=[d.text for d in corpus()], vectors=tmp_path / "vectors.txt")
    model: Any = NER.of(NEROptions(filters=4, hidden=4), corpus()).model(encoder)
    assert model.words.weight[encoder.tokenizer.get_vocab()["pain"]].tolist() == [1, 2, 3]
    assert model.words.weight[encoder.tokenizer.get_vocab()["the"]].abs().max() > 0.1  # no shrunken start
    with pytest.raises(ConfigError, match="set the tagger's word_width"):
        small().model(encoder)


def test_letters_are_bytes_and_of_monsters_both_ends_are_read() -> None:
    assert spell("né") == b"n\xc3\xa9"
    monster = "a" * 40 + "b" * 40 + "c" * 40
    assert spell(monster) == b"a" * 25 + b"c" * 25
    assert len(spell(monster)) == LONGEST_WORD


def test_a_batch_holds_words_letters_and_tags_with_zeros_past_the_end(words: Encoder) -> None:
    task = small()
    features = task.features(task.examples(corpus(12))[0], words)
    batch = features.batch([9, 0]).to(CPU)
    vocabulary = words.tokenizer.get_vocab()
    assert batch.lengths.tolist() == [7, 6]
    assert batch.words[1].tolist() == [*(vocabulary[w] for w in ("the", "aspirin", "eased", "the", "pain", ".")), 0]
    assert [task.tags[i] for i in batch.targets[1]] == ["O", "B-treatment", "O", "O", "B-problem", "O", "O"]
    assert [task.tags[i] for i in batch.targets[0]] == ["O", "B-test", "I-test", "O", "B-problem", "O", "O"]
    letters = ["".join(chr(c - 1) for c in word if c) for word in batch.characters[1].tolist()]
    assert letters == ["The", "aspirin", "eased", "the", "pain", ".", ""]
    assert batch.language is None
    assert features.answers[[9, 0]].tolist() == features.lengths[[9, 0]].tolist() == [7, 6]


@pytest.mark.parametrize("tagger", [*WORD_TAGGERS, "bert"])
def test_padding_changes_nothing(tagger: str, words: Encoder, transformer: Encoder) -> None:
    task = small(tagger=tagger)
    found = made(task, transformer if tagger == "bert" else words)
    features = task.features(task.examples(corpus(12))[0], found.encoder)
    together = predict_outputs(task, found.model, features, np.arange(12), CPU)
    alone = [predict_outputs(task, found.model, features, np.array([row]), CPU) for row in range(12)]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=2e-5)
    np.testing.assert_allclose(together[:, 1:].sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"crf": False}])
def test_a_sentence_in_windows_is_tagged_as_one(options: dict[str, Any], transformer: Encoder) -> None:
    """A word whose window shows all that its model looks at has the tags' scores of the whole."""
    long = Document("long", " ".join(["pain eased", "the fever"] * 60))
    task = small(max_length=32, **options)
    found = made(task, transformer)
    examples = task.examples([*corpus(3), long])[0]
    features = task.features(examples, transformer)
    batch = features.batch([3, 0])
    assert batch.first.shape == (2, 240)
    assert len(batch.input_ids) > 10
    ids = batch.input_ids.flatten()[batch.first[0]]
    assert transformer.tokenizer.convert_ids_to_tokens(ids) == ["pain", "eased", "the", "fever"] * 60
    given = predict_outputs(task, found.model, features, np.arange(4), CPU)
    assert given.shape == (features.answers.sum(), 1 + len(task.tags))
    short = predict_outputs(task, found.model, features, np.arange(3), CPU)
    np.testing.assert_allclose(given[: len(short)], short, atol=2e-5)
    assert task.loss(found.model, batch).isfinite()


def test_reading_and_grading_is_the_loss(words: Encoder) -> None:
    task = small()
    found = made(task, words)
    batch = task.features(task.examples(corpus(8))[0], words).batch(range(8))
    reading = task.read(found.model, batch)
    assert len(reading.logits) == len(reading.pair) == int(batch.lengths.sum())
    assert torch.equal(task.grade(reading, batch), task.loss(found.model, batch))
    each = [task.loss(found.model, task.features(task.examples([d])[0], words).batch([0])) for d in corpus(8)]
    assert task.loss(found.model, batch).item() == pytest.approx(torch.stack(each).mean().item(), abs=1e-5)


@pytest.mark.parametrize("kind", ["bert", "elmo"])
def test_a_language_model_is_read_by_elmoner(
    kind: str, words: Encoder, encoder_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    source = encoder_folder("bert") if kind == "bert" else tmp_path
    write(tmp_path)
    task = small(language=str(source))
    found = made(task, words)
    features = task.features(task.examples(corpus(8))[0], words)
    assert features.batch([0, 1]).language.shape == ((2, 6, 32) if kind == "bert" else (2, 6, 4, 10))
    batch = features.batch([0])
    blind = task.outputs(found.model, replace(batch, language=torch.zeros_like(batch.language)))
    assert not torch.allclose(task.outputs(found.model, batch), blind)
    save_model(tmp_path / "saved", task, words, found.model)
    again = grandrounds.load(tmp_path / "saved")
    assert str(tmp_path) not in (tmp_path / "saved" / "grandrounds.json").read_text()
    assert again.evaluate(corpus(8)) == found.evaluate(corpus(8))


# Scores


def reported(task: NER, tags: Sequence[Sequence[str]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    best = [task.tags.index(tag) for row in tags for tag in row]
    return np.concatenate([np.array(best)[:, None], np.eye(len(task.tags))[best]], axis=1).astype(np.float32)


def conll(path: Path, rows: Sequence[Sequence[tuple[str, str]]]) -> Path:
    path.write_text("\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in row) for row in rows) + "\n")
    return path


def test_scores_are_seqevals_on_a_conll_file(tmp_path: Path, words: Encoder) -> None:
    rng = np.random.default_rng(0)
    lexicon = ["pain", "COVID-19", "(mild)", "5mg/kg", "the", "."]

    def drawn(length: int) -> list[str]:
        tags, before = [], "O"
        for _ in range(length):
            free = ["O", "B-drug", "B-problem", *([f"I{before[1:]}"] * 2 if before != "O" else [])]
            before = str(rng.choice(free))
            tags.append(before)
        return tags

    lengths = rng.integers(1, 12, size=80).tolist()
    gold, found = ([drawn(n) for n in lengths] for _ in range(2))
    found = [g if i % 3 else f for i, (g, f) in enumerate(zip(gold, found, strict=True))]
    file = conll(tmp_path / "a.conll", [[(str(rng.choice(lexicon)), tag) for tag in tags] for tags in gold])
    task = NER.of(NEROptions(), read(file, "conll").documents)
    examples, notes = task.examples(read(file, "conll").documents)
    features = task.features(examples, words)
    assert notes == {}
    assert features.answers.tolist() == lengths
    assert [[task.tags[i] for i in features.batch([row]).targets[0]] for row in range(80)] == gold
    rows = np.arange(80)
    score = task.score(task.counts(reported(task, found), features, rows))
    assert score["f1"] == pytest.approx(f1_score(gold, found, mode="strict", scheme=IOB2))
    some = rows[10:40]
    part = task.score(task.counts(reported(task, found[10:40]), features, some))
    assert part["f1"] == pytest.approx(f1_score(gold[10:40], found[10:40]))


def test_gold_that_tags_can_not_say_is_missed(words: Encoder) -> None:
    text = "severe chest pain . fever eased"
    mentions = [(0, 17, "problem"), (7, 17, "problem"), (13, 25, "test"), (26, 31, "treatment")]
    document = Document(
        "d",
        text,
        (Span(0, 19), Span(20, 31)),
        tuple(Mention(start, end, type, f"T{i}") for i, (start, end, type) in enumerate(mentions)),
    )
    task = small()
    examples, notes = task.examples([document])
    assert notes == {OVERLAPPING: 1, ACROSS: 1}
    features = task.features(examples, words)
    best = [[task.tags[i] for i in features.batch([row]).targets[0]] for row in range(2)]
    score = task.score(task.counts(reported(task, best), features, np.arange(2)))
    assert (score["precision"], score["recall"]) == (1.0, 0.5)
    inner = [["O", "B-problem", "I-problem", "O"], best[1]]  # the other of two that overlap is as right
    score = task.score(task.counts(reported(task, inner), features, np.arange(2)))
    assert (score["precision"], score["recall"]) == (1.0, 0.5)
    assert score["relaxed_recall"] == 0.75


# Federations


def ner_config(tiny_config: TinyConfig, **overrides: Any) -> dict[str, Any]:
    return tiny_config(
        **{
            "task": {"name": "ner", **SMALL},
            "model.encoder": "words",
            "training.learning_rate": 2e-2,
            "training.batch_size": 4,
            "training.epochs": 2,
            **overrides,
        }
    )


@pytest.mark.parametrize("tagger", ["cnn_clstm_crf", "bert", "elmoner"])
def test_it_learns_the_toy_corpus(
    tagger: str, tiny_config: TinyConfig, tmp_path: Path, encoder_folder: Callable[[str], Path]
) -> None:
    bert = {"model.encoder": str(encoder_folder("bert")), "training.learning_rate": 5e-3, "federation.rounds": 4}
    quick = {"training.epochs": 3, "federation.rounds": 6}
    overrides: dict[str, Any] = {"task.tagger": tagger, **(bert if tagger == "bert" else quick)}
    if tagger == "elmoner":
        overrides["task.language"] = str(encoder_folder("bert"))
    result = grandrounds.run(ner_config(tiny_config, **overrides), out=tmp_path / "run")
    assert result.test.f1 > 0.8
    found = grandrounds.load(tmp_path / "run" / "model").evaluate(corpus(24, "t"))[0]
    assert found["f1"] == result.test.f1
    assert set(found["per_class"]) == set(TYPES)


def test_the_same_seed_gives_the_same_bits(tiny_config: TinyConfig, tmp_path: Path) -> None:
    config = ner_config(tiny_config, **{"federation.rounds": 1})
    runs = [tmp_path / "one", tmp_path / "two"]
    for run in runs:
        grandrounds.run(config, out=run)
    one, two = ((run / "model" / "model.safetensors").read_bytes() for run in runs)
    assert one == two


def test_one_sites_federation_is_centralized_training(tiny_config: TinyConfig, tmp_path: Path) -> None:
    alone = {"partition.sites": 1, "federation.rounds": 1}
    for name in ("fedavg", "centralized"):
        grandrounds.run(ner_config(tiny_config, **alone, **{"algorithm.name": name}), out=tmp_path / name)
    one, two = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("fedavg", "centralized"))
    assert one == two


@pytest.mark.parametrize("name", ["local_only", "fedprox", "moon"])
def test_other_algorithms_run_it(name: str, tiny_config: TinyConfig, tmp_path: Path) -> None:
    result = grandrounds.run(ner_config(tiny_config, **{"algorithm.name": name}), out=tmp_path / name)
    assert 0 <= result.test.f1 <= 1


def test_terms_between_hosts_carry_the_language_model_and_not_its_path(
    tiny_config: TinyConfig, tmp_path: Path, encoder_folder: Callable[[str], Path]
) -> None:
    (tmp_path / "models").symlink_to(encoder_folder("bert"))
    content = ner_config(tiny_config, **{"task.language": "models"})  # relative to the config
    ready = prepare(make_config(content), tmp_path, tmp_path)
    content["task"]["language"] = str(tmp_path / "models")
    terms = write_terms(tmp_path / "terms", make_config(content), ready.spec, (0, ""))
    assert str(tmp_path) not in (tmp_path / "terms" / "federation.toml").read_text()
    (tmp_path / "models").unlink()
    examples, _ = terms.task.examples(corpus(4))
    here, there = (task.features(examples, terms.encoder).batch([0, 3]) for task in (ready.spec.task, terms.task))
    assert torch.equal(here.language, there.language)  # type: ignore[attr-defined]


def test_workers_give_the_bits_of_one_process(
    tiny_config: TinyConfig, tmp_path: Path, encoder_folder: Callable[[str], Path]
) -> None:
    config = {"task.language": str(encoder_folder("bert")), "federation.rounds": 1}
    for workers in (1, 2):
        grandrounds.run(ner_config(tiny_config, **config, workers=workers), out=tmp_path / str(workers))
    one, two = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in "12")
    assert one == two


def test_predictions_that_are_averaged_need_questions_with_one_class_each(tiny_config: TinyConfig) -> None:
    with pytest.raises(ConfigError, match="'feded' needs a task whose answers on shared text can be averaged"):
        make_config(ner_config(tiny_config, **{"algorithm.name": "feded"}))


@pytest.mark.parametrize("format", ["brat", "pubtator", "conll", "ade", "synthetic"])
def test_corpora_of_every_kind_are_read(format: str, tiny_config: TinyConfig, tmp_path: Path) -> None:
    content = ner_config(tiny_config, **{"data.format": format, "data.public": 0.3})
    match format:
        case "synthetic":
            del content["data"]["train"], content["data"]["test"]
            content["data"]["options"] = {"hospitals": 2, "notes": 6}
        case "ade":
            file = tmp_path / "DRUG-AE.rel"
            lines = [f"{i}|A drug caused pain in case {i} .|pain|14|18|drug|2|6" for i in range(30)]
            file.write_text("\n".join(lines) + "\n")
            content["data"] |= {"train": str(file), "test": str(file)}
        case _:
            documents = [replace(d, relations=(), attributes={}) for d in corpus(40)]
            if format == "pubtator":
                documents = [replace(d, id=str(1000 + i), text=f"{d.text}\n") for i, d in enumerate(documents)]
            file = tmp_path / format
            store(format, documents, file)
            content["data"] |= {"train": str(file), "test": str(file)}
    ready = prepare(make_config(content), tmp_path, tmp_path)
    labels = ready.spec.task.labels
    assert len(labels) > 1
    batch: Any = next(iter(ready.sites.values())).splits["train"].features.batch([0])
    assert ready.spec.task.loss(ready.model, batch).isfinite()


# Extraction


@pytest.fixture(scope="module")
def willing(words: Encoder) -> Extractor:
    return taught(words)


def test_mentions_point_at_characters_of_raw_text(willing: Extractor) -> None:
    found = willing.extract(Document("d", TEXT))
    assert found.text == TEXT
    surfaces = [(found.surface(mention), mention.type) for mention in found.mentions]
    assert surfaces == [
        ("aspirin", "treatment"),
        ("pain", "problem"),
        ("ct  scan", "test"),
        ("stroke", "problem"),
        ("fever", "problem"),
        ("heparin", "treatment"),
    ]
    assert all(0.5 < float(mention.attributes["score"]) <= 1 for mention in found.mentions)
    assert [entity.mentions for entity in found.entities] == [(i,) for i in range(6)]
    assert all(found.sentence_of(mention) is not None for mention in found.mentions)


def test_what_the_document_held_changes_nothing(willing: Extractor) -> None:
    for document in corpus(8):
        bare = replace(document, mentions=(), entities=(), relations=())
        assert willing.extract(document) == willing.extract(bare)


def test_a_score_is_the_least_sure_tags_and_a_threshold_goes_by_it(willing: Extractor) -> None:
    task: Any = willing.task
    document = Document("d", TEXT)
    examples, _ = task.candidates([document])
    given = willing.probabilities(examples)
    starts = [example.start + word.start for example in examples for word in example.words]
    by_start = dict(zip(starts, given, strict=True))
    mentions = willing.extract(document).mentions
    scan = next(mention for mention in mentions if mention.type == "test")
    ct, scanned = by_start[scan.start], by_start[scan.start + 4]
    least = min(ct[1 + task.tags.index("B-test")], scanned[1 + task.tags.index("I-test")])
    assert float(scan.attributes["score"]) == pytest.approx(float(least), abs=1e-4)
    scores = sorted(float(mention.attributes["score"]) for mention in mentions)
    kept = willing.extract(document, threshold=scores[2] + 1e-4).mentions
    assert len(kept) == sum(score > scores[2] + 1e-4 for score in scores)


def test_a_document_without_words_has_nothing_to_find(willing: Extractor) -> None:
    assert willing.extract(Document("d", " \n")).mentions == ()
