"""What a word piece costs in pre-training BERT: over Hugging Face's Trainer with its collator for masked language, on
the same notes, from the same weights, as its example script does it (notes end to end, cut into blocks); and what is
saved by packing sentences into rows, over a sentence a row.

Notes are in word pieces before the clock starts; masks are drawn under it, by both. An epoch is one call of each, whose
set-up is under the clock: about 0.2 s of Trainer's. One thread; seconds of the processor; padding is no piece.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from transformers import (
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

from benchmarks.measuring import Row, Settings, ratio
from benchmarks.ner import timed
from grandrounds.data.formats import read
from grandrounds.data.synthetic import synthesize
from grandrounds.federation.learner import LearnerSpec, Server, Split
from grandrounds.federation.training import Training, make_optimizer
from grandrounds.models.encoder import Encoder, Size
from grandrounds.tasks.masked_lm import MaskedLM, MaskedLMOptions, Note

LENGTH = 128
SIZE = Size(layers=4, width=256, heads=4, pieces=8000, dropout=0.0)
BATCH = 8
LEARNT_FROM = 2000
"""Notes from which a new BERT's word pieces are learnt."""


def measure(settings: Settings) -> Iterator[Row]:
    source, notes = _notes()
    made = Encoder.new(SIZE, [note.text for note in notes[:LEARNT_FROM]], None)
    rows, turns = (16, 1) if settings.quick else (256, 3)
    yield from _race(Race(source, "4 x 256", made, notes, rows, 5e-4), settings, turns, packing=True)
    if not settings.quick:
        real = Race(source, settings.encoder_name, _still(settings.encoder), notes, rows // 2, 5e-5)
        yield from _race(real, settings, turns)


def _still(encoder: str) -> Encoder:
    """Without dropout: what both spend on it alike would only hide the rest."""
    found = Encoder.find(encoder)
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        setattr(found.config, key, 0.0)
    return found


def _notes() -> tuple[str, Sequence[Note]]:
    """mtsamples' reports where GRANDROUNDS_DATA is the folder of the corpora, else synthetic notes."""
    data = os.environ.get("GRANDROUNDS_DATA")
    if data and (file := Path(data, "text", "mtsamples.jsonl")).exists():
        source, documents = "mtsamples", read(file, "notes-json").documents
    else:
        source, documents = "synthetic notes", synthesize(hospitals=6, notes=200).train
    return source, MaskedLM(MaskedLMOptions()).examples(documents)[0]


class Race:
    """Notes enough for so many rows, and both ways to learn from them."""

    def __init__(self, source: str, name: str, encoder: Encoder, notes: Sequence[Note], rows: int, rate: float) -> None:
        self.source, self.name, self.encoder = source, name, encoder
        self.training = Training(batch_size=BATCH, learning_rate=rate)
        self.task = MaskedLM(MaskedLMOptions(length=LENGTH))
        self.spec = LearnerSpec(self.task, encoder, self.training, 1, torch.device("cpu"))
        taken = self._enough(notes, rows)
        self.notes, self.held_out = notes[:taken], notes[taken : taken + max(1, taken // 4)]

    def _enough(self, notes: Sequence[Note], rows: int) -> int:
        found = self.task.features(notes[:rows], self.encoder).documents  # a note has a row at least
        return int(found[:rows].max()) + 1


class Ours:
    """Learns as a site does; `sentences`: each in a row of its own."""

    def __init__(self, race: Race, sentences: bool = False) -> None:
        notes = [replace(note, sentences=(s,)) for note in race.notes for s in note.sentences] if sentences else None
        features = race.task.features(notes or race.notes, race.encoder)
        held_out = race.task.features(race.held_out, race.encoder)
        self.pieces = len(features.ids)
        self.rows = len(features.documents)
        splits = {"train": _whole(features), "test": _whole(held_out)}
        self.server = Server(race.spec, splits, race.spec.initial_model())
        self.optimizer = make_optimizer(
            race.training, self.server.model.named_parameters(), race.training.learning_rate
        )
        self._score = race.task.score

    def epoch(self) -> None:
        self.server.train(epochs=1, optimizer=self.optimizer)

    @property
    def loss(self) -> float:
        return float(self._score(self.server.counts("test"))["loss"])


class Theirs:
    """Trainer, and our starting weights in its model; all its other options as they are."""

    def __init__(self, race: Race, folder: Path) -> None:
        sentences = race.encoder.pieces([note.text[start:end] for note in race.notes for start, end in note.sentences])
        cls, sep = race.encoder.tokenizer.cls_token_id, race.encoder.tokenizer.sep_token_id
        pieces = list(chain.from_iterable(sentences))
        self.pieces, room = len(pieces), LENGTH - 2
        blocks = [[cls, *pieces[at : at + room], sep] for at in range(0, len(pieces), room)]
        self.rows = len(blocks)
        self.model = BertForMaskedLM(race.encoder.config)
        self.model.load_state_dict(race.spec.initial_model().state_dict(), strict=False)
        self._trainer = Trainer(
            self.model,
            TrainingArguments(
                output_dir=str(folder),
                num_train_epochs=1,
                per_device_train_batch_size=race.training.batch_size,
                learning_rate=race.training.learning_rate,
                lr_scheduler_type="constant",
                weight_decay=race.training.weight_decay,
                max_grad_norm=race.training.clip_norm,
                use_cpu=True,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            DataCollatorForLanguageModeling(race.encoder.tokenizer, mlm_probability=0.15),
            [{"input_ids": block} for block in blocks],
        )
        self._trainer.remove_callback(PrinterCallback)

    def epoch(self) -> None:
        self._trainer.train()

    def weights(self) -> dict[str, Any]:
        return dict(self.model.state_dict())


def _race(race: Race, settings: Settings, turns: int, packing: bool = False) -> Iterator[Row]:
    ours, theirs = Ours(race), Theirs(race, settings.folder / "trainer")
    rivals: dict[str, Callable[[], None]] = {"ours": ours.epoch, "Trainer": theirs.epoch}
    loose = Ours(race, sentences=True) if packing else None
    if loose is not None:
        rivals["a sentence a row"] = loose.epoch
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(turns + 1):
        settings.say(f"{race.name}: turn {turn} of {turns}" if turn else f"{race.name}: to warm up")
        for name, epoch in rivals.items():
            spent = timed(epoch).cpu
            if turn:
                seconds[name].append(spent)
    both = {"ours": ours.pieces, "Trainer": theirs.pieces, "a sentence a row": loose.pieces if loose else 0}
    speeds = {name: both[name] / median(held) for name, held in seconds.items()}
    detail = {
        "pieces": ours.pieces,
        "pieces_a_second_of_cpu": speeds,
        "vocabulary": len(race.encoder.tokenizer),
        "batch_size": race.training.batch_size,
        "turns": turns,
        "rows": {"ours": ours.rows, "Trainer": theirs.rows, **({"a sentence a row": loose.rows} if loose else {})},
        "held_out_loss": _losses(ours, theirs, loose),
    }
    reported = f"{speeds['ours']:,.0f} and {speeds['Trainer']:,.0f} pieces a second"
    case = f"{race.source}: pre-training {race.name} over Trainer's"
    yield ratio(case, seconds["ours"], seconds["Trainer"], 1.0, note=reported, detail=detail)
    if loose is not None:
        case = f"{race.source}: rows of whole sentences over a sentence a row"
        reported = f"{speeds['ours']:,.0f} and {speeds['a sentence a row']:,.0f} pieces a second"
        yield ratio(case, seconds["ours"], seconds["a sentence a row"], None, note=reported, detail=detail)


def _losses(ours: Ours, theirs: Theirs, loose: Ours | None) -> dict[str, float]:
    """Of the same masks in the same held-out notes: that each has learnt as much from as many epochs."""
    found = {"ours": ours.loss}
    if loose is not None:
        found["a sentence a row"] = loose.loss
    ours.server.model.load_state_dict(theirs.weights(), strict=False)
    return {**found, "Trainer": ours.loss}


def _whole(features: Any) -> Split:
    return Split(features, np.arange(len(features.documents)))
