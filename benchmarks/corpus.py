"""Sentences with a pair of mentions each, and documents with many, as many and as long as a benchmark needs; and an
encoder of real size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from grandrounds.config.schema import Config, make_config
from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import write
from grandrounds.models.encoder import SPECIAL

CONTEXT = (
    "the patient was seen again after two days and had no further signs of this while on that dose which she took at "
    "night with food for some weeks before her visit to our clinic where all other results were within normal limits"
)
WORDS = CONTEXT.split()
VERBS = {"eased": "improves", "worsened": "worsens", "and": None, "without": None}
CHEMICALS = ["lithium", "cisplatin", "heparin", "cyclosporine", "haloperidol", "morphine", "ketamine", "tacrolimus"]
RENAL = ["nephrotoxicity", "proteinuria", "edema", "hypertension"]
CARDIAC = ["hypotension", "bradycardia", "arrhythmia", "cardiomyopathy"]
NERVOUS = ["tremor", "seizures", "catalepsy", "dyskinesia", "psychosis"]
DISEASES = [*RENAL, *CARDIAC, *NERVOUS]
NEVER = 10**6  # rounds until an evaluation or a checkpoint that would be timed with the round


def sentences(count: int, words: tuple[int, int], seed: str) -> Iterator[Document]:
    """Documents of one sentence, of at least and at most so many words."""
    draw = Random(seed)
    for number in range(count):
        verb = draw.choice(list(VERBS))
        context = draw.choices(WORDS, k=draw.randint(*words) - 5)
        middle = len(context) // 2
        yield _sentence(f"{seed}-{number}", context[:middle], verb, context[middle:])


def _sentence(id: str, before: list[str], verb: str, after: list[str]) -> Document:
    start = len(" ".join([*before, ""]))
    text = " ".join([*before, "aspirin", verb, "pain", *after, "."])
    tail = start + len(f"aspirin {verb} ")
    mentions = (Mention(start, start + 7, "treatment", "T1"), Mention(tail, tail + 4, "problem", "T2"))
    entities = (Entity("T1", "treatment", (0,)), Entity("T2", "problem", (1,)))
    type = VERBS[verb]
    relations = (Relation(type, "T1", "T2", (0, 1)),) if type else ()
    return Document(id, text, (Span(0, len(text)),), mentions, entities, relations)


def abstracts(count: int, seed: str) -> Iterator[Document]:
    """Documents of CDR's size: 250 to 450 word pieces, some 8 entities with 24 mentions, 12 pairs, a fifth related."""
    draw = Random(seed)
    for number in range(count):
        named = [(name, "Chemical") for name in draw.sample(CHEMICALS, draw.randint(1, 3))]
        named += [(name, "Disease") for name in draw.sample(DISEASES, draw.randint(4, 8))]
        once = [entity for entity in named for _ in range(draw.randint(1, 5))]
        words: list[str | tuple[str, str]] = [*draw.choices(WORDS, k=draw.randint(140, 300)), *once]
        draw.shuffle(words)
        pairs = [(head, tail) for head, type in named if type == "Chemical" for tail, other in named if other != type]
        yield _abstract(f"{seed}-{number}", words, draw.sample(pairs, max(1, len(pairs) // 5)))


def _abstract(id: str, words: list[str | tuple[str, str]], related: Iterable[tuple[str, str]]) -> Document:
    """Of words and mentions (name, type), in sentences of about 25."""
    text, sentences, begun, mentions = "", list[Span](), 0, list[Mention]()
    for place, word in enumerate(words, 1):
        name = word if isinstance(word, str) else word[0]
        if not isinstance(word, str):
            mentions.append(Mention(len(text), len(text) + len(name), word[1], f"T{len(mentions) + 1}", name))
        text += name + " "
        if place % 25 == 0 or place == len(words):
            text += ". "
            sentences.append(Span(begun, len(text) - 1))
            begun = len(text)
    members: dict[tuple[str, str], list[int]] = {}
    for i, mention in enumerate(mentions):
        members.setdefault((str(mention.concept), mention.type), []).append(i)
    entities = tuple(Entity(name, type, tuple(held)) for (name, type), held in members.items())
    relations = tuple(Relation("CID", head, tail) for head, tail in related)
    return Document(id, text.rstrip(), tuple(sentences), tuple(mentions), entities, relations)


def federation(
    folder: Path, encoder: str, sites: int, per_site: int, words: tuple[int, int] = (12, 40), **overrides: Any
) -> Config:
    """A FedAvg run over sites of equal size, whose rounds hold nothing but training and averaging."""
    folder.mkdir(parents=True, exist_ok=True)
    write("json", sentences(sites * per_site, words, "train"), folder / "train.jsonl")
    write("json", sentences(200, words, "public"), folder / "public.jsonl")
    write("json", sentences(20, words, "test"), folder / "test.jsonl")
    files = {part: f"{part}.jsonl" for part in ("train", "public", "test")}
    return _rounds_alone({"data": files, "model": {"encoder": encoder}}, sites, overrides)


def document_federation(
    folder: Path, encoder: str, sites: int, documents: Sequence[Document], **overrides: Any
) -> Config:
    """A FedAvg run over documents as FedLCC's Table 2 has it; attention is not dropped out, which is slow on a CPU."""
    folder.mkdir(parents=True, exist_ok=True)
    write("json", documents, folder / "train.jsonl")
    write("json", documents[:1], folder / "test.jsonl")
    content = {
        "task": {"name": "document_re"},
        "data": {"train": "train.jsonl", "test": "test.jsonl"},
        "model": {"encoder": encoder, "attention_dropout": 0.0},
    }
    return _rounds_alone(content, sites, {"training.batch_size": 3, "training.optimizer": "adam", **overrides})


def _rounds_alone(content: Mapping[str, Any], sites: int, overrides: Mapping[str, Any]) -> Config:
    """No evaluation, no checkpoint."""
    settled = {
        "device": "cpu",
        "threads": 1,
        "partition": {"scheme": "iid", "sites": sites},
        "training": {"epochs": 1, "batch_size": 8, "learning_rate": 5e-5},
        "federation": {"rounds": NEVER, "evaluate_every": NEVER, "checkpoint_every": NEVER},
        "algorithm": {"name": "fedavg"},
    }
    return make_config({**settled, **content}, overrides)


def random_encoder(folder: Path) -> str:
    """A BERT of MiniLM's shape that has learnt nothing: for speed, what it has learnt does not matter."""
    known = [*SPECIAL, *sorted({*WORDS, *VERBS, *CHEMICALS, *DISEASES, *"@.$", "treatment", "problem"})]
    vocabulary = [*known, *(f"[unused{i}]" for i in range(30_522 - len(known)))]
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=made, **named).save_pretrained(folder)
    torch.manual_seed(1)
    shape = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    BertModel(shape).save_pretrained(folder)
    return str(folder)
