"""The seven taggers of FedNER (Ge et al., 2020, sections 3.1 and 4.2), and two on a transformer.

    name            words from                                context                  decoded by
    cnn_crf         vectors                                   CNN                      CRF    Collobert et al., 2011
    lstm_crf        vectors                                   Bi-LSTM                  CRF    Habibi et al., 2017
    gram_cnn        vectors, character CNN                    CNN over n-grams         CRF    Zhu et al., 2017
    cnn_lstm_crf    vectors, character CNN                    Bi-LSTM                  CRF    Ma and Hovy, 2016
    s_lstm_crf      vectors, character Bi-LSTM                two Bi-LSTMs             CRF    Lample et al., 2016
    cnn_clstm_crf   vectors, character CNN                    CNN, Bi-LSTM             CRF    Shen et al., 2017
    elmoner         vectors, character CNN, language model    CNN, Bi-LSTM             CRF    FedNER, Figure 1
    bert            a transformer's first piece of each word                           CRF or softmax
    spans           the same                                                           biaffine  Yu et al., 2020

A tagger's parts have the names by which layers are shared or private: `words`, `characters`, `language`, `cnn`,
`lstm`, `crf`; of a transformer `encoder` and `crf`, `output` or `spans`. `splits` are by name what stays at
a site; by default it is what lies above words and CNN.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, cast

import torch
from torch import Tensor, nn

from grandrounds.errors import ConfigError
from grandrounds.models.crf import CRFDecoder, SoftmaxDecoder, words_inside
from grandrounds.models.decoder import Decoder
from grandrounds.models.encoder import Encoder, last_hidden
from grandrounds.models.initialization import initialized_as
from grandrounds.models.spans import SpanClassifier
from grandrounds.models.word_layers import (
    BiLSTM,
    CharacterCNN,
    CharacterLSTM,
    GramCNN,
    LayerMix,
    WordCNN,
    embedding,
)

DEFAULT, ALL_BUT_EMBEDDINGS, DECODER, NOTHING = "default", "all but embeddings", "decoder", "nothing"


class WordBatch(Protocol):
    """Sentences of words, padded with 0 to the longest sentence and the longest word."""

    @property
    def words(self) -> Tensor:
        """[sentences, words]"""

    @property
    def characters(self) -> Tensor:
        """[sentences, words, characters]"""

    @property
    def language(self) -> Tensor | None:
        """A frozen language model's states, [sentences, words, width], or [sentences, words, layers, width] to mix."""

    @property
    def lengths(self) -> Tensor:
        """[sentences], each at least 1"""


class PieceBatch(Protocol):
    """Sentences of word pieces, [windows, pieces]: a sentence that is too long for one has several. `first` [sentences,
    words] is where each word's first piece stands, as a place in all windows end to end."""

    @property
    def input_ids(self) -> Tensor: ...
    @property
    def attention_mask(self) -> Tensor: ...
    @property
    def first(self) -> Tensor: ...
    @property
    def lengths(self) -> Tensor:
        """How many words, [sentences], each at least 1"""


class Tagger(nn.Module, ABC):
    """Scores of tags, [sentences, words, tags], or of spans; `decoder` makes of them a loss or answers."""

    @property
    @abstractmethod
    def decoder(self) -> Decoder: ...

    @abstractmethod
    def states(self, batch: Any) -> Tensor:
        """What the decoder reads, [sentences, words, width]."""

    def forward(self, batch: WordBatch | PieceBatch) -> Tensor:
        return cast(Tensor, self.decoder(self.states(batch)))

    def loss(self, batch: WordBatch | PieceBatch, targets: Tensor) -> Tensor:
        """The mean loss of gold tags, [sentences, words], or spans; what stands past the end is not read."""
        return self.decoder.loss(self(batch), targets, batch.lengths)


@dataclass(frozen=True)
class Inputs:
    """How many words and characters have ids (0 is padding), and how wide the language model's states are."""

    words: int
    characters: int
    language: int = 0
    language_layers: int = 1
    """More than one are mixed by weights that are learnt."""


@dataclass(frozen=True)
class Shape:
    """Section 4.1's widths; what it leaves open: n-grams of one to five words share the filters, and two Bi-LSTMs
    are stacked."""

    word_width: int = 300
    character_width: int = 100
    filters: int = 200
    window: int = 3
    hidden: int = 200
    """A direction's."""
    dropout: float = 0.2
    """Of what goes into each layer from the first of the context on."""
    grams: tuple[int, ...] = (1, 2, 3, 4, 5)
    stacked: int = 2


class WordTagger(Tagger):
    """Words from up to three sources, layers of context, a CRF; a subclass says which."""

    characters_by: ClassVar[Literal["cnn", "lstm"] | None] = None
    reads_language: ClassVar[bool] = False
    context: ClassVar[tuple[Literal["cnn", "lstm"], ...]]

    def __init__(
        self,
        inputs: Inputs,
        tags: Sequence[str],
        scheme: str | None = "BIO",
        shape: Shape | None = None,
        vectors: Tensor | None = None,
    ) -> None:
        """`vectors` [words, width] are pretrained, e.g. GloVe's, and tuned further."""
        super().__init__()
        self.shape = shape = shape or Shape()
        with initialized_as("words"):
            self.words = embedding(inputs.words, shape.word_width)
        if vectors is not None:
            start_from(self.words, vectors)
        width = shape.word_width
        if self.characters_by is not None:
            with initialized_as("characters"):
                self.characters = self._characters(inputs, shape)
            width += self.characters.width
        if self.reads_language:
            if not inputs.language:
                raise ConfigError(f"tagger '{self.name()}' reads a language model's states; name one, e.g. ELMo")
            self.language = LayerMix(inputs.language_layers) if inputs.language_layers > 1 else nn.Identity()
            width += inputs.language
        for name in self.context:
            with initialized_as(name):
                layer = self.layer(name, width, shape)
            self.add_module(name, layer)
            width = layer.width
        self.dropout = nn.Dropout(shape.dropout)
        with initialized_as("crf"):
            self.crf = CRFDecoder(width, tags, scheme)

    @classmethod
    def name(cls) -> str:
        return next((name for name, tagger in TAGGERS.items() if tagger is cls), cls.__name__)

    @classmethod
    def layers(cls) -> tuple[str, ...]:
        """What lies above the embeddings, from the bottom up."""
        return (*cls.context, "crf")

    @classmethod
    def splits(cls) -> dict[str, tuple[str, ...]]:
        """What stays at a site, by names that hold for every tagger of words."""
        default = tuple(layer for layer in cls.layers() if layer != "cnn")
        return {DEFAULT: default, ALL_BUT_EMBEDDINGS: cls.layers(), DECODER: ("crf",), NOTHING: ()}

    @property
    def decoder(self) -> Decoder:
        return self.crf

    def states(self, batch: WordBatch) -> Tensor:
        states = self.represent(batch)
        for name in self.context:
            states = getattr(self, name)(self.dropout(states), batch.lengths)
        return cast(Tensor, self.dropout(states))

    def represent(self, batch: WordBatch) -> Tensor:
        """e_i = [e_i^w; e_i^c; e_i^l], zero past the end."""
        inside = words_inside(batch.lengths, batch.words.shape[1])
        sources = [self.words(batch.words)]
        if self.characters_by is not None:
            # Words recur: each is read once.
            distinct, which = torch.unique(batch.characters[inside], dim=0, return_inverse=True)
            spelt = self.words.weight.new_zeros(*inside.shape, self.characters.width)
            spelt[inside] = self.characters(distinct)[which]
            sources.append(spelt)
        if self.reads_language:
            if batch.language is None:
                raise ConfigError(f"tagger '{self.name()}' reads a language model's states, but a batch has none")
            sources.append(self.language(batch.language.to(self.words.weight.dtype)))
        return torch.cat(sources, dim=-1).masked_fill(~inside[:, :, None], 0)

    def layer(self, name: Literal["cnn", "lstm"], width: int, shape: Shape) -> WordCNN | GramCNN | BiLSTM:
        """A layer of context over states of that width."""
        return WordCNN(width, shape.filters, shape.window) if name == "cnn" else BiLSTM(width, shape.hidden)

    def _characters(self, inputs: Inputs, shape: Shape) -> CharacterCNN | CharacterLSTM:
        if self.characters_by == "cnn":
            return CharacterCNN(inputs.characters, shape.character_width, shape.filters, shape.window)
        return CharacterLSTM(inputs.characters, shape.character_width, shape.filters // 2)


class CNNCRF(WordTagger):
    context = ("cnn",)


class LSTMCRF(WordTagger):
    context = ("lstm",)


class GRAMCNN(WordTagger):
    characters_by = "cnn"
    context = ("cnn",)

    def layer(self, name: Literal["cnn", "lstm"], width: int, shape: Shape) -> GramCNN:
        return GramCNN(width, shape.filters // len(shape.grams), shape.grams)


class CNNLSTMCRF(WordTagger):
    characters_by = "cnn"
    context = ("lstm",)


class SLSTMCRF(WordTagger):
    """S for stacked: the paper's text has a stacked Bi-LSTM, the model that it cites a character Bi-LSTM; this has
    both. Without characters it could hardly lead LSTM-CRF by the 14 points of Table 2."""

    characters_by = "lstm"
    context = ("lstm",)

    def layer(self, name: Literal["cnn", "lstm"], width: int, shape: Shape) -> BiLSTM:
        return BiLSTM(width, shape.hidden, shape.stacked, shape.dropout)


class CNNCLSTMCRF(WordTagger):
    characters_by = "cnn"
    context = ("cnn", "lstm")


class ELMoNER(CNNCLSTMCRF):
    reads_language = True


TAGGERS: dict[str, type[WordTagger]] = {
    "cnn_crf": CNNCRF,
    "lstm_crf": LSTMCRF,
    "gram_cnn": GRAMCNN,
    "cnn_lstm_crf": CNNLSTMCRF,
    "s_lstm_crf": SLSTMCRF,
    "cnn_clstm_crf": CNNCLSTMCRF,
    "elmoner": ELMoNER,
}


class TransformerTagger(Tagger):
    """A transformer's state at each word's first piece, and a decoder under the name `top`."""

    top: str

    def __init__(self, encoder: Encoder, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder.build()
        self.dropout = nn.Dropout(dropout)

    @property
    def decoder(self) -> Decoder:
        return cast(Decoder, getattr(self, self.top))

    def states(self, batch: PieceBatch) -> Tensor:
        states = last_hidden(self.encoder, batch.input_ids, batch.attention_mask)
        return cast(Tensor, self.dropout(states.flatten(0, 1)[batch.first]))


class BertTagger(TransformerTagger):
    """With a CRF or each word for itself."""

    def __init__(
        self,
        encoder: Encoder,
        tags: Sequence[str],
        scheme: str | None = "BIO",
        crf: bool = True,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(encoder, dropout)
        self.top = "crf" if crf else "output"
        with initialized_as(self.top):
            top = CRFDecoder(encoder.width, tags, scheme) if crf else SoftmaxDecoder(encoder.width, tags)
        self.add_module(self.top, top)


class SpanTagger(TransformerTagger):
    """With a class for each span of up to `longest` words."""

    top = "spans"

    def __init__(self, encoder: Encoder, classes: int, longest: int, hidden: int = 200, dropout: float = 0.1) -> None:
        super().__init__(encoder, dropout)
        with initialized_as(self.top):
            self.spans = SpanClassifier(encoder.width, classes, longest, hidden, dropout)


def start_from(table: nn.Embedding, vectors: Tensor) -> None:
    """Set an embedding to pretrained vectors, the padding's to zero."""
    if vectors.shape != table.weight.shape:
        found, wanted = (" x ".join(map(str, shape)) for shape in (vectors.shape, table.weight.shape))
        raise ConfigError(f"word vectors are {found}, but the tagger has {wanted}; set the tagger's word_width")
    with torch.no_grad():
        table.weight.copy_(vectors)
        table.weight[0] = 0
