"""Pre-training of BERT (Devlin et al., NAACL 2019) on notes: masked word pieces, and whether one text follows another.

An example is a note; its sentences are packed into rows of at most `length` word pieces. Masks are drawn anew in each
epoch, by (seed, round, site, row), and are the same for all where a model is tested. In a federation the random second
segments of next-sentence prediction can only come from the same site, and do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp
from typing import Any, ClassVar, Literal, Self
from unicodedata import category

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.data.clinical import clinical_sentences
from grandrounds.data.documents import Document, Span
from grandrounds.errors import ConfigError, DataError
from grandrounds.metrics.score import LOSS, Objective
from grandrounds.models.encoder import Encoder
from grandrounds.models.masked_language import MaskedLanguage
from grandrounds.tasks.abilities import PrivateParts, Redrawn
from grandrounds.tasks.language_features import LanguageFeatures, LanguageRows, Specials, pack
from grandrounds.tasks.masking import Masking
from grandrounds.tasks.task import Counts, Example, Reading, Task

NOTE = "note"
"""The one label: text is its own answer."""
EMPTY = "documents without text"
OUTSIDE = "documents with text outside of their sentences, which is not learnt"
UNREAD = "CMZ"
"""Kinds of Unicode that BERT reads nothing of: control characters and the like, accents on their own, white space."""
LOST = "\ufffd"
"""Unicode's replacement for a character that could not be decoded; BERT reads nothing of it either."""
TALLIES = ("nats", "masked", "right", "next_nats", "next_right", "rows")
"""What is counted for each row."""
MOST_UNKNOWN = 0.5
"""The share of [UNK] above which a model would learn little but to predict [UNK]."""
AT_ONCE = 256
"""Notes that are cut into word pieces together."""


class MaskedLMOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["masked_lm"] = "masked_lm"
    length: int = Field(128, ge=16, le=8192)
    """Word pieces of a row, with [CLS] and [SEP]."""
    masked: float = Field(0.15, gt=0, lt=1)
    """The share of pieces to mask and predict."""
    max_predictions: int | None = Field(None, ge=1)
    """The most in a row; by default that share of `length`, rounded up: 20 of 128."""
    whole_words: bool = False
    """Mask all pieces of a word or none."""
    next_sentence: bool = False
    """Also learn whether a second segment follows the first; half of them come from another note of the site."""
    freeze_encoder: bool = False
    """Train only the head, to measure what the encoder is worth at the start."""


@dataclass(frozen=True)
class Note(Example):
    text: str
    sentences: tuple[Span, ...]


@dataclass(frozen=True)
class LanguageReading(Reading):
    """`logits` are of the masked pieces, `pair` their states."""

    unrelated: Tensor | None = None
    """[rows, 2]: the logits of whether B follows A, or is another text."""


class MaskedLM(Task, Redrawn, PrivateParts):
    name: ClassVar[str] = "masked_lm"
    unit: ClassVar[str] = "document"
    objective: ClassVar[Objective] = LOSS
    Options: ClassVar[type[MaskedLMOptions]] = MaskedLMOptions
    options: MaskedLMOptions

    def __init__(self, options: MaskedLMOptions) -> None:
        self.options = options

    @classmethod
    def private_parts(cls, options: MaskedLMOptions, encoder: str) -> Mapping[str, Sequence[str]]:
        return {"default": ("cls",), "nothing": ()}

    @classmethod
    def of(cls, options: MaskedLMOptions, documents: Iterable[Document]) -> Self:
        return cls(options)

    @property
    def labels(self) -> Sequence[str]:
        return (NOTE,)

    def schema(self) -> dict[str, Any]:
        return {"options": self.options.model_dump()}

    @classmethod
    def restore(cls, schema: Mapping[str, Any]) -> Self:
        return cls(cls.Options(**schema["options"]))

    # From documents to rows

    def examples(self, documents: Sequence[Document]) -> tuple[list[Note], dict[str, int]]:
        notes = [
            Note(i, 0, NOTE, document.text, document.sentences or clinical_sentences(document.text))
            for i, document in enumerate(documents)
            if any(letter != LOST and category(letter)[0] not in UNREAD for letter in document.text)
        ]
        left_out = {EMPTY: len(documents) - len(notes), OUTSIDE: sum(map(_outside, notes))}
        return notes, {what: number for what, number in left_out.items() if number}

    def text(self, example: Note) -> str:
        return example.text

    def question(self, example: Note) -> dict[str, Any]:
        return {"text": example.text, "sentences": example.sentences}

    def from_question(self, question: Mapping[str, Any]) -> Note:
        try:
            sentences = tuple(Span(int(start), int(end)) for start, end in question["sentences"])
            return Note(0, 0, NOTE, str(question["text"]), sentences)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                "an example of the public set is not one of masked_lm; has the server another task?"
            ) from error

    def label_counts(self, features: LanguageFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([len(rows)], dtype=np.int64)

    def features(self, examples: Sequence[Note], encoder: Encoder) -> LanguageFeatures:
        options, tokenizer = self.options, encoder.tokenizer
        if options.length > encoder.window:
            raise ConfigError(f"task.length is {options.length}, and the encoder reads {encoder.window}; set it lower")
        if tokenizer.mask_token_id is None:
            raise ConfigError(f"encoder '{encoder.name}' has no mask token; take a BERT, or 'new'")
        continues = _continuations(encoder)
        room = options.length - (3 if options.next_sentence else 2)
        ids, opens, ends, documents = [], [], [0], []
        for first in range(0, len(examples), AT_ONCE):
            for number, pieces in enumerate(_pieces(examples[first : first + AT_ONCE], encoder), start=first):
                packed = pack(pieces, room, continues)
                ids.append(packed.ids)
                opens.append(packed.opens)
                documents += [number] * len(packed.ends)
                ends += [ends[-1] + end for end in packed.ends] if packed.ends else []
        _check_known(ids, encoder)
        return LanguageFeatures(
            ids=np.concatenate([np.zeros(0, dtype=np.int32), *ids]),
            starts=np.array(ends, dtype=np.int64),
            opens=np.concatenate([np.zeros(0, dtype=np.bool_), *opens]),
            continues=continues,
            documents=np.array(documents, dtype=np.int64),
            specials=Specials(tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id),
            masking=self._masking(encoder),
            length=options.length,
            next_sentence=options.next_sentence,
        )

    def _masking(self, encoder: Encoder) -> Masking:
        options = self.options
        most = ceil(options.masked * options.length) if options.max_predictions is None else options.max_predictions
        tokenizer = encoder.tokenizer
        return Masking(options.masked, most, options.whole_words, tokenizer.mask_token_id, len(tokenizer))

    def rows(self, features: LanguageFeatures, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        return features.of_examples(examples)

    def examples_of(self, features: LanguageFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return features.documents[rows]

    def redraw(self, features: LanguageFeatures, rows: NDArray[np.int64], seed: int) -> LanguageFeatures:
        return features.drawn(rows, seed)

    # The network and its score

    def model(self, encoder: Encoder) -> nn.Module:
        return MaskedLanguage(encoder, self.options.next_sentence, self.options.freeze_encoder)

    def read(self, model: Any, batch: LanguageRows) -> LanguageReading:
        states, unrelated = model.states(batch)
        return LanguageReading(model.vocabulary(states), states, unrelated=unrelated)

    def grade(self, reading: Reading, batch: LanguageRows) -> Tensor:
        loss = F.cross_entropy(reading.logits, batch.targets)
        if isinstance(reading, LanguageReading) and reading.unrelated is not None and batch.unrelated is not None:
            loss = loss + F.cross_entropy(reading.unrelated, batch.unrelated)
        return loss

    def outputs(self, model: nn.Module, batch: LanguageRows) -> Tensor:
        """[rows, tallies]: sums for each row; logits over the vocabulary at each mask would take gigabytes."""
        reading = self.read(model, batch)
        rows, length = batch.input_ids.shape
        tallies = torch.zeros(rows, len(TALLIES), device=batch.input_ids.device)
        row = batch.places // length
        nats = F.cross_entropy(reading.logits.float(), batch.targets, reduction="none")
        right = (reading.logits.argmax(dim=1) == batch.targets).float()
        tallies[:, :3].index_add_(0, row, torch.stack([nats, torch.ones_like(nats), right], dim=1))
        if reading.unrelated is not None and batch.unrelated is not None:
            tallies[:, 3] = F.cross_entropy(reading.unrelated.float(), batch.unrelated, reduction="none")
            tallies[:, 4] = (reading.unrelated.argmax(dim=1) == batch.unrelated).float()
        tallies[:, 5] = 1
        return tallies

    def counts(self, outputs: NDArray[np.float32], features: LanguageFeatures, rows: NDArray[np.int64]) -> Counts:
        sums = outputs.astype(np.float64).reshape(-1, len(TALLIES)).sum(axis=0)  # of no row there is not even a width
        counted = dict(zip(TALLIES, sums.tolist(), strict=True))
        return counted if self.options.next_sentence else {k: v for k, v in counted.items() if "next" not in k}

    def score(self, counts: Counts) -> dict[str, Any]:
        masked, rows = counts["masked"], max(counts["rows"], 1.0)
        if not masked:
            raise DataError("the text to be tested on has no word piece that can be masked; test on other notes")
        loss = counts["nats"] / masked
        score = {
            "log_likelihood": -loss,
            "loss": loss,
            "perplexity": exp(min(loss, 700.0)),
            "accuracy": counts["right"] / masked,
        }
        if "next_right" in counts:
            score |= {"next_loss": counts["next_nats"] / rows, "next_accuracy": counts["next_right"] / rows}
        return {**score, "n": int(counts["masked"]), "per_class": {}}


def _outside(note: Note) -> bool:
    """Whether something is written between, before or after its sentences."""
    edges = [0, *(edge for sentence in note.sentences for edge in sentence), len(note.text)]
    return any(note.text[end:start].strip() for end, start in zip(edges[::2], edges[1::2], strict=True))


def _check_known(ids: Sequence[NDArray[np.int32]], encoder: Encoder) -> None:
    total = sum(map(len, ids))
    unknown = sum(int((own == encoder.tokenizer.unk_token_id).sum()) for own in ids)
    if total and unknown / total > MOST_UNKNOWN:
        raise ConfigError(
            f"{unknown / total:.0%} of the notes' words are none of the {len(encoder.tokenizer):,} word pieces of "
            f"encoder '{encoder.name}'; is its vocabulary of this language, and a word piece a line?"
        )


def _pieces(notes: Sequence[Note], encoder: Encoder) -> Iterable[list[list[int]]]:
    """For each note the word pieces of its sentences."""
    sentences = encoder.pieces([note.text[start:end] for note in notes for start, end in note.sentences])
    at = 0
    for note in notes:
        yield sentences[at : at + len(note.sentences)]
        at += len(note.sentences)


def _continuations(encoder: Encoder) -> NDArray[np.bool_]:
    """[word pieces]: which go on with a word, by their '##'."""
    pieces = encoder.tokenizer.convert_ids_to_tokens(list(range(len(encoder.tokenizer))))
    return np.array([piece is not None and piece.startswith("##") for piece in pieces], dtype=np.bool_)
