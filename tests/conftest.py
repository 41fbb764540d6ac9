"""Tiny encoders, a small corpus and a config for quick federations: all made here, nothing fetched."""

from __future__ import annotations

import os
import re

os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from grandrounds import subprocesses
from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import documents_json
from grandrounds.models.encoder import Encoder
from grandrounds.registry import ALGORITHMS
from grandrounds.tasks.abilities import Bagged, Localized
from grandrounds.tasks.sentence_re import MARKERS, SentenceRE, SentenceREOptions

torch.set_num_threads(1)

FAMILIES = ("bert", "roberta", "distilbert", "electra")
HOSPITALS = ("charity", "general", "mercy", "university")
DRUGS = ("aspirin", "heparin", "insulin", "morphine")
PROBLEMS = ("pain", "stroke", "fever", "sepsis", "edema")
TESTS = ("ct scan", "mri", "ecg")
Named = tuple[str, str]  # surface, type


def sentence(
    id: str, parts: list[str | Named], relations: Mapping[tuple[int, int], str], **attributes: str
) -> Document:
    """A document of one sentence: plain strings are context, (surface, type) are mentions in order."""
    text, mentions = "", list[Mention]()
    for part in parts:
        if isinstance(part, tuple):
            end = len(text) + len(part[0])
            mentions.append(Mention(len(text), end, part[1], f"T{len(mentions) + 1}", concept=part[0]))
            text += part[0]
        else:
            text += part
    entities = tuple(Entity(m.id, m.type, (i,)) for i, m in enumerate(mentions))
    related = tuple(
        Relation(type, mentions[head].id, mentions[tail].id, (head, tail)) for (head, tail), type in relations.items()
    )
    return Document(id, text, (Span(0, len(text)),), tuple(mentions), entities, related, attributes)


def corpus(size: int = 60, prefix: str = "d", **attributes: str) -> list[Document]:
    """Sentences whose verb tells the relation: a treatment that eases, a test that shows, and pairs without one."""
    documents = []
    for i, (drug, problem, test) in enumerate(islice(cycle(product(DRUGS, PROBLEMS, TESTS)), size)):
        treatment, finding, exam = (drug, "treatment"), (problem, "problem"), (test, "test")
        parts: list[str | Named]
        match i % 4:
            case 0:
                parts, relations = ["The ", treatment, " eased the ", finding, " ."], {(0, 1): "TrIP"}
            case 1:
                parts, relations = ["The ", exam, " showed ", finding, " again ."], {(0, 1): "TeRP"}
            case 2:
                parts, relations = ["No ", finding, " was seen before ", treatment, " ."], {}
            case _:
                parts, relations = ["The ", exam, " was refused despite ", finding, " ."], {}
        where = {"hospital": HOSPITALS[(i // 4) % 4], "patient": f"p{i % 17}", **attributes}
        documents.append(sentence(f"{prefix}{i:03d}", parts, relations, **where))
    return documents


def write_corpus(path: Path, documents: list[Document]) -> Path:
    path.write_text(documents_json.render(documents), encoding="utf-8")
    return path


TEXTS = [document.text for document in corpus()] + ["@treatment$ @problem$ @test$ a b c d e f g h i j k l m n o p q"]


def word_pieces() -> PreTrainedTokenizerFast:
    """Whole words, letters and '##' letters: the trainer's own vocabulary differs from run to run."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = sorted({word for text in TEXTS for word in re.findall(r"\w+|[^\w\s]", text.lower())})
    letters = sorted({letter for word in words for letter in word})
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *words])
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(names, special, strict=True)))


def byte_pieces() -> PreTrainedTokenizerFast:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    names = ("cls_token", "pad_token", "sep_token", "unk_token", "mask_token")
    also = {"bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(names, special, strict=True)), **also)


def make_encoder_folder(family: str, folder: Path) -> Path:
    tokenizer = byte_pieces() if family == "roberta" else word_pieces()
    wide = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
    }
    with torch.random.fork_rng():
        torch.manual_seed(7)
        match family:
            case "bert":
                model: Any = BertModel(BertConfig(**wide))
            case "roberta":
                ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
                model = RobertaModel(RobertaConfig(**{**wide, "max_position_embeddings": 66}, **ids))
            case "distilbert":
                shape = {"vocab_size": len(tokenizer), "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48}
                model = DistilBertModel(DistilBertConfig(**shape, max_position_embeddings=64))
            case _:
                model = ElectraModel(ElectraConfig(**wide, embedding_size=16))
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with random weights, config and tokenizer of a family, made once."""
    made: dict[str, Path] = {}

    def find(family: str) -> Path:
        if family not in made:
            made[family] = make_encoder_folder(family, tmp_path_factory.mktemp(family))
        return made[family]

    return find


@pytest.fixture(scope="session")
def encoder(encoder_folder: Callable[[str], Path]) -> Encoder:
    """A random BERT of 2 layers, 32 wide, with the four markers."""
    return Encoder.find(str(encoder_folder("bert")), MARKERS)


@pytest.fixture(scope="session")
def documents() -> list[Document]:
    return corpus()


@pytest.fixture(scope="session")
def task(documents: list[Document]) -> SentenceRE:
    return SentenceRE.of(SentenceREOptions(), documents)


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.jsonl, test.jsonl and one file for each hospital."""
    folder = tmp_path_factory.mktemp("corpora")
    train = corpus(60)
    write_corpus(folder / "train.jsonl", train)
    write_corpus(folder / "test.jsonl", corpus(24, "t"))
    for name in HOSPITALS:
        write_corpus(folder / f"{name}.jsonl", [d for d in train if d.attributes["hospital"] == name])
    return folder


TinyConfig = Callable[..., dict[str, Any]]
PLAIN_SGD = {
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "weight_decay": 0.0,
    "clip_norm": 0.0,
    "epochs": 1,
    "batch_size": 8,
}
DOCUMENT_RE = {"name": "document_re", "block": 16}
JOINT = {"name": "joint", "hidden": 24, "span_words": 4}
DISTANT_RE = {"name": "distant_re", "dropout": 0.1, "precision_at": [5, 10]}


def task_for(algorithm: str) -> dict[str, Any]:
    """What to set in a tiny config for an algorithm that needs localized contexts, bags, plain steps of SGD, or
    adapters."""
    if algorithm == "flora":
        return {"model.parameter_efficient": "lora", "model.lora_rank": 4, "training.learning_rate": 1e-2}
    if algorithm == "scaffold":
        return {"training": PLAIN_SGD}
    needs = ALGORITHMS[algorithm].needs
    return {"task": DOCUMENT_RE} if Localized in needs else {"task": DISTANT_RE} if Bagged in needs else {}


@pytest.fixture(scope="session")
def tiny_config(corpora: Path, encoder_folder: Callable[[str], Path]) -> TinyConfig:
    """A config's content for `grandrounds.run`: tiny_config(**{"federation.rounds": 3})."""

    def make(**overrides: Any) -> dict[str, Any]:
        content: dict[str, Any] = {
            "seed": 1,
            "device": "cpu",
            "task": {"name": "sentence_re", "max_length": 32},
            "data": {
                "format": "json",
                "train": str(corpora / "train.jsonl"),
                "test": str(corpora / "test.jsonl"),
                "public": 0.2,
                "validation": 0.1,
            },
            "partition": {"scheme": "iid", "sites": 3},
            "model": {"encoder": str(encoder_folder("bert"))},
            "training": {"epochs": 1, "batch_size": 8, "learning_rate": 2e-3},
            "federation": {"rounds": 2},
            "algorithm": {"name": "fedavg"},
        }
        for key, value in overrides.items():
            *sections, last = key.split(".")
            place = content
            for section in sections:
                place = place.setdefault(section, {})
            if value is None:
                place.pop(last, None)
            else:
                place[last] = value
        return content

    return make


@pytest.fixture(scope="session", autouse=True)
def _shared_imports() -> Iterator[None]:
    """A worker process takes 6 s of CPU for its imports, so they are forked from one that has them."""
    from tests.cli.commands import share_imports

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocesses, "multiprocessing", share_imports())
        yield


@pytest.fixture
def found(tmp_path: Path, encoder_folder: Callable[[str], Path]) -> Iterator[Callable[..., Any]]:
    """Founds federations between hosts, whose processes end with the test: found(federation__rounds=3)."""
    from tests.hosts import Hosts  # needs Flower, and this module

    made: list[Hosts] = []

    def make(**settings: Any) -> Hosts:
        folder = tmp_path / f"hosts{len(made)}"
        folder.mkdir()
        made.append(Hosts(folder, encoder_folder("bert"), **settings).found())
        return made[-1]

    yield make
    for hosts in made:
        hosts.close()


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory, tiny_config: TinyConfig) -> Callable[[str], Any]:
    """A run to disturb, by the name of its settings, with what it leaves undisturbed; run once."""
    from tests.kills import ROUNDS, SETTINGS, Federation  # needs this module

    made: dict[str, Federation] = {}

    def find(name: str) -> Federation:
        if name not in made:
            always = {"federation.rounds": ROUNDS, "partition.sites": 4}
            made[name] = Federation(tmp_path_factory.mktemp(name), tiny_config(**always, **SETTINGS[name]))
        return made[name]

    return find
