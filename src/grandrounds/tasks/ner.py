"""Named-entity recognition as in FedNER (Ge et al., 2020, section 3.1): an example is a sentence, its words have tags.

The tagger is one of the paper's seven, which read word vectors (the encoder `words`), letters and perhaps a frozen
language model, or a transformer with tags or spans. What is scored are mentions, strictly and relaxed (section 4.1),
against all that the corpus has: those that a tagger can't say (see ner_words.py and ner_coding.py) are missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from grandrounds.data.documents import Document, Mention, Span, owned
from grandrounds.data.formats import brat
from grandrounds.data.pairs import NOT_INCLUDE, PAIRS
from grandrounds.data.words import PLAIN, TextRules
from grandrounds.errors import ConfigError, DataError
from grandrounds.metrics.spans import Span as WordSpan
from grandrounds.metrics.spans import span_counts, span_score
from grandrounds.models.crf import words_inside
from grandrounds.models.decoder import Decoder
from grandrounds.models.encoder import Encoder
from grandrounds.models.taggers import (
    DECODER,
    DEFAULT,
    NOTHING,
    TAGGERS,
    BertTagger,
    Inputs,
    Shape,
    SpanTagger,
    Tagger,
)
from grandrounds.models.word_layers import embedding
from grandrounds.models.words import draw_by_word, fill_vectors
from grandrounds.tasks.abilities import OwnLabels, PrivateParts, SplitsText
from grandrounds.tasks.ner_coding import Overlaps, SpanCoding, TagCoding
from grandrounds.tasks.ner_features import LETTERS, Answers, NERRows, PieceFeatures, WordFeatures
from grandrounds.tasks.ner_language import Language, LanguageStates, find_language
from grandrounds.tasks.ner_pieces import pieces_of
from grandrounds.tasks.ner_words import word_sentences
from grandrounds.tasks.task import NONE, Counts, Example, ExtractionTask, Reading

OTHER_TYPES = "mentions of types that task.labels leaves out"
BERT, SPANS = "bert", "spans"
BESIDE = "language"
"""The folder beside a saved model that has its language model."""


class NEROptions(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Literal["ner"] = "ner"
    tagger: (
        Literal[
            "cnn_crf", "lstm_crf", "gram_cnn", "cnn_lstm_crf", "s_lstm_crf", "cnn_clstm_crf", "elmoner", "bert", "spans"
        ]
        | None
    ) = None
    """By default `bert` for a transformer; for the encoder `words`, `elmoner` with a language model, `cnn_clstm_crf`
    without. `spans`, on a transformer, also finds mentions that overlap."""
    scheme: Literal["BIO", "BIOES", "IO"] = "BIO"
    crf: bool = True
    """`bert` may also tag each word for itself."""
    span_words: int = Field(10, ge=1)
    """The longest mention that `spans` can find."""
    overlaps: Overlaps = "types"
    """Which mentions `spans` may find together: `types`, those of different types that lie in one another; `nested`,
    also of the same type; `any`, also those that cross; `none`, none that overlap."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """By default FedNER's 0.2, and 0.1 for `bert` and `spans`."""
    word_width: int | None = Field(None, ge=1)
    """By default that of model.vectors (FedNER's have 300), or 50 where there are none."""
    character_width: int = Field(100, ge=1)
    filters: int = Field(200, ge=1)
    """Of the CNN over characters and of that over words."""
    hidden: int = Field(200, ge=1)
    """Of the Bi-LSTM, in each direction; of what `spans` makes of a first and of a last word."""
    language: str | None = None
    """The frozen language model that `elmoner` reads: a folder with ELMo's options.json and weights.hdf5 (or its
    options file), or a transformer's folder or hub name."""
    language_batch: int = Field(1, ge=1)
    """How many sentences the language model reads at once. More are faster, much so with ELMo; but the last bits of
    their states then depend on what else a site holds, so that a simulation is no longer the same to the bit as a
    federation between hosts."""
    labels: list[str] | None = None
    """Entity types; by default those of the corpora."""
    max_length: int = Field(512, ge=16)
    """Word pieces that a transformer reads at once, if it can; longer sentences take several windows."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.tagger == "elmoner" and self.language is None:
            raise ConfigError("task.tagger = 'elmoner' reads a language model: name it in task.language")
        if self.language is not None and self.tagger not in (None, "elmoner"):
            raise ConfigError(f"task.language is for task.tagger = 'elmoner'; '{self.tagger}' does not read one")
        if not self.crf and self.tagger not in (None, BERT):
            end = "has none" if self.tagger == SPANS else "ends in a CRF"
            raise ConfigError(f"task.crf = false is for task.tagger = 'bert'; '{self.tagger}' {end}")
        return self


@dataclass(frozen=True)
class SentenceExample(Example):
    """A sentence and its words, as characters of its text."""

    text: str
    start: int
    """Where in the document it begins."""
    words: tuple[Span, ...]
    gold: tuple[WordSpan, ...]
    """All mentions that begin in it, by its words."""

    def forms(self) -> tuple[str, ...]:
        """The words, with the space before them where there is white space."""
        return tuple(
            (" " if start and self.text[start - 1].isspace() else "") + self.text[start:end]
            for start, end in self.words
        )


@dataclass(frozen=True, kw_only=True)
class TaggerReading(Reading):
    """A tagger's forward pass by word; `grade` also needs the sentences' scores and the decoder."""

    scores: Tensor
    decoder: Decoder


class NER(ExtractionTask, OwnLabels, PrivateParts, SplitsText):
    name: ClassVar[str] = "ner"
    unit: ClassVar[str] = "sentence"
    finds: ClassVar[str] = "mentions"
    Options: ClassVar[type[NEROptions]] = NEROptions
    options: NEROptions

    def __init__(
        self, options: NEROptions, types: Sequence[str], folder: Path = Path(), learnt: TextRules = PLAIN
    ) -> None:
        """`learnt` is how the training data were split into sentences and words."""
        self.options, self.types, self._folder, self._learnt = options, tuple(types), folder, learnt
        self._rules = PLAIN
        self.coding = (
            SpanCoding(self.types, options.span_words, options.overlaps)
            if options.tagger == SPANS
            else TagCoding(self.types, options.scheme)
        )

    @classmethod
    def private_parts(cls, options: NEROptions, encoder: str) -> Mapping[str, Sequence[str]]:
        """By default FedNER's: the layers above the words and the CNN, or above a transformer."""
        if options.tagger in (BERT, SPANS) or (options.tagger is None and encoder != "words"):
            top = (SPANS,) if options.tagger == SPANS else ("crf",) if options.crf else ("output",)
            return {DEFAULT: top, DECODER: top, NOTHING: ()}
        named = options.tagger or ("cnn_clstm_crf" if options.language is None else "elmoner")
        return TAGGERS[named].splits()

    def label_parts(self) -> Sequence[str]:
        return ("crf", "output", SPANS)

    @classmethod
    def of(cls, options: NEROptions, documents: Iterable[Document]) -> Self:
        held = list(documents)
        types = entity_types(options.labels, held, cls.name)
        return cls(options, types, learnt=TextRules.learn(held))

    @property
    def labels(self) -> Sequence[str]:
        return (NONE, *self.types)

    def schema(self) -> dict[str, Any]:
        """The path of the language model is the one that `save` writes to."""
        options = self.options.model_dump()
        if self.options.language is not None:
            options["language"] = BESIDE
        return {"options": options, "types": self.types, "rules": self._learnt.as_json()}

    @classmethod
    def restore(cls, schema: Mapping[str, Any]) -> Self:
        learnt = TextRules.from_json(schema["rules"])
        if schema["options"].get("language") not in (None, BESIDE):  # a stranger's model must not have one fetched
            raise ValueError("its language model is not beside it")
        return cls(cls.Options(**schema["options"]), schema["types"], learnt=learnt)

    def at(self, folder: Path) -> Self:
        return type(self)(self.options, self.types, folder, self._learnt)

    def as_trained(self) -> Self:
        made = self.at(self._folder)
        made._rules = self._learnt
        return made

    def save(self, folder: Path) -> None:
        if self.language is not None:
            self.language.save(folder / BESIDE)

    @cached_property
    def language(self) -> Language | None:
        return None if self.options.language is None else find_language(self.options.language, self._folder)

    @property
    def tags(self) -> Sequence[str]:
        """What a model tells apart: tags, or the types of spans."""
        return self.coding.classes

    # From documents to examples

    def examples(self, documents: Sequence[Document]) -> tuple[list[SentenceExample], dict[str, int]]:
        examples: list[SentenceExample] = []
        warnings: Counter[str] = Counter()
        for index, document in enumerate(documents):
            for sentence in word_sentences(document, self._known(document, warnings), warnings, self._rules):
                start, end = sentence.span
                counted = Counter(type for *_, type in sentence.gold)
                examples.append(
                    SentenceExample(
                        document=index,
                        sentence=sentence.number,
                        label=max(sorted(counted), key=counted.__getitem__, default=NONE),
                        text=document.text[start:end],
                        start=start,
                        words=tuple(Span(word.start - start, word.end - start) for word in sentence.words),
                        gold=sentence.gold,
                    )
                )
        for example in examples:
            warnings.update(self.coding.unsaid(example.gold, len(example.words)))
        return examples, dict(+warnings)

    def _known(self, document: Document, warnings: Counter[str]) -> list[Mention]:
        return known_mentions(document, self.types, self.options.labels is not None, warnings)

    def answers(self, example: SentenceExample) -> list[str]:
        return [type for *_, type in example.gold] or [NONE]

    def without_answers(self, document: Document) -> Document:
        return without_mentions(document)

    # From examples to numbers

    def text(self, example: SentenceExample) -> str:
        return example.text

    def question(self, example: SentenceExample) -> dict[str, Any]:
        return {"text": example.text, "words": example.words}

    def from_question(self, question: Mapping[str, Any]) -> SentenceExample:
        text, words = text_of_question(question, self.name)
        return SentenceExample(0, 0, NONE, text, 0, words, ())

    def label_counts(self, features: WordFeatures | PieceFeatures, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Mentions of each type; for None, sentences without any."""
        gold = [features.said.gold[row] for row in rows.tolist()]
        counted = Counter(type for spans in gold for *_, type in spans)
        return np.array([gold.count(()), *(counted[type] for type in self.types)], dtype=np.int64)

    def features(self, examples: Sequence[SentenceExample], encoder: Encoder) -> WordFeatures | PieceFeatures:
        tagger = self.tagger(encoder)
        targets = [self.coding.targets(example.gold, len(example.words)) for example in examples]
        said = Answers.of(targets, [example.gold for example in examples])
        forms = [example.forms() for example in examples]
        if tagger in (BERT, SPANS):
            window = min(self.options.max_length, encoder.window)
            return PieceFeatures.of(said, pieces_of(forms, encoder), window, encoder)
        states = None
        if self.language is not None:
            states = LanguageStates(self.language, forms, self.options.language_batch)
        return WordFeatures.of(said, [[word.strip() for word in words] for words in forms], encoder, states)

    # The network and its score

    def tagger(self, encoder: Encoder) -> str:
        """The tagger for this encoder; ConfigError if the two don't fit."""
        reads_words = encoder.config.model_type == "words"
        by_words = "cnn_clstm_crf" if self.options.language is None else "elmoner"
        chosen = self.options.tagger or (by_words if reads_words else BERT)
        if reads_words and chosen in (BERT, SPANS):
            raise ConfigError(
                f"task.tagger = '{chosen}' reads a transformer, and model.encoder = 'words' is none; name one"
            )
        if not reads_words and chosen not in (BERT, SPANS):
            raise ConfigError(
                f"task.tagger = '{chosen}' reads words: set model.encoder = 'words', and model.vectors if you have them"
            )
        if reads_words and not self.options.crf:
            raise ConfigError(f"task.crf = false is for task.tagger = 'bert'; '{chosen}' ends in a CRF")
        if not reads_words and self.options.language is not None:
            raise ConfigError("task.language is for task.tagger = 'elmoner': set model.encoder = 'words'")
        return chosen

    def model(self, encoder: Encoder) -> nn.Module:
        options, tagger = self.options, self.tagger(encoder)
        if tagger in (BERT, SPANS):
            dropout = 0.1 if options.dropout is None else options.dropout
            if tagger == SPANS:
                return SpanTagger(encoder, len(self.tags), options.span_words, options.hidden, dropout)
            return BertTagger(encoder, self.tags, options.scheme, options.crf, dropout)
        inputs = Inputs(len(encoder.tokenizer), LETTERS)
        if self.language is not None:
            inputs = replace(inputs, language=self.language.width, language_layers=self.language.layers)
        shape = Shape(
            word_width=options.word_width or encoder.width,
            character_width=options.character_width,
            filters=options.filters,
            hidden=options.hidden,
            dropout=0.2 if options.dropout is None else options.dropout,
        )
        return TAGGERS[tagger](inputs, self.tags, options.scheme, shape, _vectors(encoder, shape.word_width))

    def read(self, model: nn.Module, batch: NERRows) -> TaggerReading:
        tagger = cast("Tagger", model)
        states = tagger.states(batch)
        scores = tagger.decoder(states)
        inside = words_inside(batch.lengths, states.shape[1])
        return TaggerReading(scores[inside], states[inside], scores=scores, decoder=tagger.decoder)

    def grade(self, reading: Reading, batch: NERRows) -> Tensor:
        """Eq. 1, as the mean over sentences."""
        read = cast("TaggerReading", reading)
        return read.decoder.loss(read.scores, batch.targets, batch.lengths)

    def loss(self, model: nn.Module, batch: NERRows) -> Tensor:
        return cast("Tagger", model).loss(batch, batch.targets)  # type: ignore[arg-type]  # of one of the two kinds

    def outputs(self, model: nn.Module, batch: NERRows) -> Tensor:
        """[words, width]: what the decoder answers for each word."""
        tagger = cast("Tagger", model)
        answers = tagger.decoder.outputs(tagger(batch), batch.lengths)
        return answers[words_inside(batch.lengths, answers.shape[1])]

    def probabilities(self, outputs: Tensor) -> Tensor:
        """As they are: the best answers for each word and probabilities."""
        return outputs

    def counts(
        self, outputs: NDArray[np.float32], features: WordFeatures | PieceFeatures, rows: NDArray[np.int64]
    ) -> Counts:
        gold = [features.said.gold[row] for row in rows.tolist()]
        parts = np.split(outputs, features.said.words[rows].cumsum()[:-1])
        found = [[span for span, _ in self.coding.mentions(part)] for part in parts]
        return span_counts(gold, found, self.types)

    def score(self, counts: Counts) -> dict[str, Any]:
        """The counts may come from a site with entity types of its own."""
        counted = {key.partition("/")[2] for key in counts if "/" in key}
        known = [type for type in self.types if type in counted]
        return span_score(counts, [*known, *sorted(counted.difference(known))])

    def annotate(
        self,
        document: Document,
        examples: Sequence[SentenceExample],
        probabilities: NDArray[np.float32],
        threshold: float,
    ) -> Document:
        parts = np.split(probabilities, np.cumsum([len(example.words) for example in examples])[:-1])
        mentions, number = list[Mention](), count(1)
        for example, part in zip(examples, parts, strict=True):
            for (first, past, type), score in self.coding.mentions(part):
                if score >= threshold:
                    start, end = example.start + example.words[first].start, example.start + example.words[past - 1].end
                    mentions.append(Mention(start, end, type, f"T{next(number)}", attributes={"score": f"{score:.4f}"}))
        sentences = self._rules.sentences(document)
        return owned(replace(document, sentences=sentences, mentions=tuple(mentions), entities=(), relations=()))


def known_mentions(document: Document, types: Sequence[str], named: bool, warnings: Counter[str]) -> list[Mention]:
    """The mentions of these types; others are left out if the types were `named` in the config, else refused."""
    known = [mention for mention in document.mentions if mention.type in types]
    if named:
        warnings[OTHER_TYPES] += len(document.mentions) - len(known)
    elif len(known) < len(document.mentions):
        strange = min({mention.type for mention in document.mentions}.difference(types))
        raise DataError(
            f"entity type '{strange}' is not in the label set ({', '.join(types)}); "
            "name it in task.labels, or take it out of the corpus"
        )
    return known


def entity_types(options_labels: Sequence[str] | None, documents: Iterable[Document], task: str) -> list[str]:
    """Those of the config, or of the documents; DataError or ConfigError if they can't be a label set."""
    types = options_labels
    if types is None:
        types = sorted({mention.type for document in documents for mention in document.mentions})
    if not types:
        raise DataError(f"the corpora hold no mention; {task} needs mentions to learn from")
    if NONE in types or "" in types:
        raise ConfigError(f"'{NONE}' and '' can't be entity types; rename them")
    if len(set(types)) < len(types):
        raise ConfigError("task.labels names an entity type twice; name each once")
    return list(types)


def text_of_question(question: Mapping[str, Any], task: str) -> tuple[str, tuple[Span, ...]]:
    """The text of an example of the public set, and its words."""
    try:
        text, words = str(question["text"]), tuple(Span(int(start), int(end)) for start, end in question["words"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"an example of the public set is not one of {task}; has the server another task?") from error
    if not words or not all(0 <= start < end <= len(text) for start, end in words):
        raise DataError("an example of the public set has no words, or words outside of its text")
    return text, words


def without_mentions(document: Document) -> Document:
    """Also without the attributes that refer to mentions."""
    kept = {name: value for name, value in document.attributes.items() if name not in (PAIRS, NOT_INCLUDE, brat.KEPT)}
    return replace(document, mentions=(), entities=(), relations=(), attributes=kept)


def _vectors(encoder: Encoder, width: int) -> Tensor | None:
    """The file's vectors; words that it lacks start as they would without a file."""
    by_word = encoder.config.drawn_by_word
    if encoder.vectors is None and not by_word:
        return None
    # Vectors of a file have a width of their own.
    width = width if encoder.vectors is None else encoder.width
    table = embedding(len(encoder.tokenizer), width).weight.detach()
    if by_word:
        draw_by_word(table, encoder.tokenizer, width**-0.5)
    if encoder.vectors is not None:
        fill_vectors(table, encoder.tokenizer, encoder.vectors)
    return table
