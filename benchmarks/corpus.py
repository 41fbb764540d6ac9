"""Sentences with a pair of mentions each, as many and as long as a benchmark needs, and an encoder of real size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from grandrounds.data.documents import Document, Entity, Mention, Relation, Span
from grandrounds.data.formats import write
from grandrounds.experiment.config import Config, make_config
from grandrounds.models.encoder import SPECIAL

CONTEXT = (
    "the patient was seen again after two days and had no further signs of this while on that dose which she took at "
    "night with food for some weeks before her visit to our clinic where all other results were within normal limits"
)
WORDS = CONTEXT.split()
VERBS = {"eased": "improves", "worsened": "worsens", "and": None, "without": None}
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


def federation(
    folder: Path, encoder: str, sites: int, per_site: int, words: tuple[int, int] = (12, 40), **overrides: Any
) -> Config:
    """A FedAvg run over sites of equal size, whose rounds hold nothing but training and averaging."""
    folder.mkdir(parents=True, exist_ok=True)
    write("json", sentences(sites * per_site, words, "train"), folder / "train.jsonl")
    write("json", sentences(200, words, "public"), folder / "public.jsonl")
    write("json", sentences(20, words, "test"), folder / "test.jsonl")
    content = {
        "device": "cpu",
        "threads": 1,
        "data": {"train": "train.jsonl", "public": "public.jsonl", "test": "test.jsonl"},
        "partition": {"scheme": "iid", "sites": sites},
        "model": {"encoder": encoder},
        "training": {"epochs": 1, "batch_size": 8, "learning_rate": 5e-5},
        "federation": {"rounds": NEVER, "evaluate_every": NEVER, "checkpoint_every": NEVER},
        "algorithm": {"name": "fedavg"},
    }
    return make_config(content, overrides)


def random_encoder(folder: Path) -> str:
    """A BERT of MiniLM's shape that has learnt nothing: for speed, what it has learnt does not matter."""
    known = [*SPECIAL, *sorted({*WORDS, *VERBS, *"@.$", "treatment", "problem"})]
    vocabulary = [*known, *(f"[unused{i}]" for i in range(30_522 - len(known)))]
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=made, **named).save_pretrained(folder)
    torch.manual_seed(1)
    shape = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    BertModel(shape).save_pretrained(folder)
    return str(folder)
