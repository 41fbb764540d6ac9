"""A transformer encoder with its tokenizer: any of Hugging Face's by hub name or folder, or one from scratch.

`tiny` is a BERT for a laptop CPU whose word pieces are learnt from the server's public text, never from a site's; `new`
is a BERT of any size, for pre-training, whose word pieces are learnt so, too, or come from a file.
"""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    BertConfig,
    PreTrainedTokenizerFast,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.utils import logging as transformers_logging

from grandrounds.errors import ConfigError, GrandRoundsError
from grandrounds.models.lora import Lora
from grandrounds.models.word_pieces import SPECIAL, read_pieces, without_capitals
from grandrounds.models.words import (
    DEVIATION,
    WordsConfig,
    draw_by_word,
    fill_vectors,
    names_of,
    read_vectors,
    word_tokenizer,
    words_of,
)

TINY: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "max_position_embeddings": 512,
    # Dropping out within so small a net costs a third of a step on a CPU and gains nothing; the head still does.
    "attention_probs_dropout_prob": 0.0,
    "hidden_dropout_prob": 0.0,
}

transformers_logging.set_verbosity_error()
transformers_logging.disable_progress_bar()


NO_CODE: dict[str, Any] = {"trust_remote_code": False}
LOCAL: dict[str, Any] = {**NO_CODE, "local_files_only": True}
SHAPE = "encoder.json"
"""The encoder's config in the folder of a model that is not one of Hugging Face's."""
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".h5", ".msgpack", ".npy", ".npz")
"""Weights in forms that may run code when they are read, or that we never write."""


@dataclass(frozen=True)
class Size:
    """Of a new BERT."""

    layers: int
    width: int
    heads: int
    pieces: int
    """The most word pieces to learn, unless they come from a file."""
    dropout: float

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ConfigError(f"model.width is {self.width}, which {self.heads} heads can't share; set model.heads")


@dataclass(frozen=True)
class Encoder:
    """How to build an encoder, and its tokenizer. Building draws from torch's global generator: seed it first."""

    name: str
    tokenizer: Any
    config: Any
    weights: str | None
    """Where the pretrained weights are; None: built from the config alone."""
    vectors: Path | None = None
    """A file of initial word vectors, for `words`."""
    lora: Lora | None = None
    """Adapters; if set, only they are trained."""
    usage: Tensor | None = field(default=None, compare=False)
    """How often each word piece occurs, as counted by sites or in public text: a new masked_lm head starts from these
    frequencies."""

    @classmethod
    def find(
        cls,
        name: str,
        markers: Sequence[str] = (),
        public: Iterable[str] = (),
        vectors: Path | None = None,
        first_words: int | None = None,
        words: Sequence[str] | None = None,
    ) -> Encoder:
        """The encoder of that name; `public` is the text from which `tiny` learns its word pieces, and `words` its
        words unless they are given, beside the first so many of a file of vectors."""
        if name == "words":
            return cls._words(public, vectors, first_words, words)
        if name == "tiny":
            tokenizer = _train_word_pieces(public)
            encoder = cls(name, tokenizer, BertConfig(vocab_size=len(tokenizer), **TINY), None)
        else:
            encoder = _from_hub_or_folder(name)
        if markers:
            encoder.tokenizer.add_tokens(list(markers), special_tokens=True)
        encoder._check()
        return encoder

    @classmethod
    def new(cls, size: Size, public: Iterable[str], pieces: Path | None, markers: Sequence[str] = ()) -> Encoder:
        """A BERT from scratch; its word pieces are those of a file, one a line, or are learnt from the public text."""
        tokenizer = _train_word_pieces(public, size.pieces, "new") if pieces is None else _read_word_pieces(pieces)
        if markers:
            tokenizer.add_tokens(list(markers), special_tokens=True)
        config = BertConfig(
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            hidden_size=size.width,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            intermediate_size=4 * size.width,
            hidden_dropout_prob=size.dropout,
            attention_probs_dropout_prob=size.dropout,
        )
        tokenizer.model_max_length = config.max_position_embeddings
        return cls("new", tokenizer, config, None)

    @classmethod
    def _words(
        cls, public: Iterable[str], vectors: Path | None, first_words: int | None, words: Sequence[str] | None
    ) -> Encoder:
        first = None if vectors is None else read_vectors(vectors, most=first_words or 1)
        if words is not None:
            tokenizer = word_tokenizer(words)
        else:
            texts = list(public)
            names = [] if vectors is None else names_of(texts, vectors)
            listed = [] if first is None or first_words is None else first
            tokenizer = word_tokenizer([*listed, *words_of(texts), *names])
        if len(tokenizer) <= len(SPECIAL):
            raise ConfigError("encoder 'words' needs words: raise data.public, or give model.vectors")
        width = 50 if first is None else len(next(iter(first.values())))
        by_word = words is not None
        config = WordsConfig(len(tokenizer), width, tokenizer.pad_token_id, drawn_by_word=by_word)
        return cls("words", tokenizer, config, None, vectors)

    @classmethod
    def saved(cls, folder: Path) -> Encoder:
        """What `save` wrote: shapes and tokenizer, without weights. Nothing of it is run, and nothing is fetched."""
        check_folder(folder, PICKLED)
        name = (folder / "encoder_name").read_text().strip() if (folder / "encoder_name").exists() else "saved"
        place = folder / SHAPE if (folder / SHAPE).exists() else folder
        found = cls(name, _tokenizer(str(folder), LOCAL), AutoConfig.from_pretrained(place, **LOCAL), None)
        lora = folder / "lora.json"
        if not lora.exists():
            return found
        saved = json.loads(lora.read_text(encoding="utf-8"))
        return replace(found, lora=Lora(**{**saved, "modules": tuple(saved["modules"])}))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self.tokenizer.save_pretrained(folder)
        except Exception as error:  # of no narrower kind: tokenizers raises nothing else
            if "os error" not in str(error):
                raise
            raise GrandRoundsError(f"the tokenizer could not be written to '{folder}': {error}") from error
        self.config.save_pretrained(folder)
        # Do not publish where a folder was; a hub name has a slash too.
        name = Path(self.name).name if Path(self.name).is_dir() else self.name
        (folder / "encoder_name").write_text(name + "\n")
        if self.lora is not None:
            (folder / "lora.json").write_text(json.dumps(asdict(self.lora)) + "\n", encoding="utf-8")

    def dropping_attention(self, share: float) -> Encoder:
        """The same encoder with another attention dropout."""
        config = copy.deepcopy(self.config)
        named = [name for name in ("attention_probs_dropout_prob", "attention_dropout") if hasattr(config, name)]
        if not named:
            raise ConfigError(f"encoder '{self.name}' has no dropout of attention; leave out model.attention_dropout")
        setattr(config, named[0], share)
        return replace(self, config=config)

    def first_layers(self, number: int) -> Encoder:
        """The same without its later layers."""
        has = getattr(self.config, "num_hidden_layers", 0)
        if number > has:
            raise ConfigError(f"model.layers = {number}, but encoder '{self.name}' has {has} layers; lower it")
        config = copy.deepcopy(self.config)
        config.num_hidden_layers = number
        return replace(self, config=config)

    def build(self) -> nn.Module:
        """The network, with room for every word piece of the tokenizer."""
        if self.weights is None:
            model: nn.Module = AutoModel.from_config(copy.deepcopy(self.config))
        else:
            model, _ = self.pretrained(AutoModel, may_lack=("pooler",))
        # Random new rows: the default, a draw around the mean of 30,000 old ones, takes seconds and no better.
        # (To mypy the method of a plain nn.Module might be a tensor.)
        model.resize_token_embeddings(len(self.tokenizer), mean_resizing=False)  # type: ignore[operator]
        if getattr(self.config, "drawn_by_word", False):
            draw_by_word(model.embeddings.weight, self.tokenizer, DEVIATION)  # type: ignore[arg-type, union-attr]
        if self.vectors is not None:
            fill_vectors(model.embeddings.weight, self.tokenizer, self.vectors)  # type: ignore[arg-type, union-attr]
        return model if self.lora is None else self.lora.put_into(model, self.name)

    def pretrained(self, kind: Any, may_lack: tuple[str, ...]) -> tuple[Any, frozenset[str]]:
        """A `transformers` network of this kind with its weights, and the names of the weights that are new because the
        checkpoint lacks them; they must start with `may_lack`, as those of heads do."""
        try:
            model, loading = kind.from_pretrained(
                self.weights,
                config=copy.deepcopy(self.config),
                dtype=torch.float32,
                output_loading_info=True,
                **NO_CODE,
            )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            why = str(error).partition("\n")[0]
            problem = f"the weights of encoder '{self.name}' can't be read; fetch them again ({why})"
            raise ConfigError(problem) from error
        lacking = sorted(name for name in loading["missing_keys"] if not name.startswith(may_lack))
        if lacking:
            raise ConfigError(
                f"the weights of encoder '{self.name}' are not those of its config.json: {len(lacking)} are missing, "
                f"such as {lacking[0]}; name a folder as Hugging Face saves it, or one of masked_lm"
            )
        return model, frozenset(loading["missing_keys"])

    @property
    def width(self) -> int:
        return int(self.config.hidden_size)

    @property
    def window(self) -> int:
        """The longest sequence that it can read."""
        positions = int(getattr(self.config, "max_position_embeddings", 512))
        # RoBERTa counts positions from pad_token_id + 1.
        return positions - (self.config.pad_token_id + 1 if "roberta" in self.config.model_type else 0)

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Word-piece ids of each text, without [CLS] and [SEP], never truncated."""
        backend = self.tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        return [encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=False)]

    def count_pieces(self, documents: Iterable[str], least: int) -> dict[str, int]:
        """Its word pieces that at least so many documents have, and how often each occurs in them."""
        counts, having = Counter[int](), Counter[int]()
        for ids in self.pieces(list(documents)):
            counts.update(ids)
            having.update(set(ids))
        common = [id for id in counts if having[id] >= least]
        names: list[str] = self.tokenizer.convert_ids_to_tokens(common)
        return {name: counts[id] for name, id in sorted(zip(names, common, strict=True))}

    def _check(self) -> None:
        for token in ("cls_token_id", "sep_token_id", "pad_token_id"):
            if getattr(self.tokenizer, token) is None:
                raise ConfigError(
                    f"encoder '{self.name}' has no {token.removesuffix('_id')}; take a BERT-like encoder "
                    "(BERT, RoBERTa, DistilBERT, ELECTRA ...)"
                )


def last_hidden(encoder: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
    """The last layer's states, [batch, length, width]."""
    states: Tensor = encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    return states


def states_and_attention(
    encoder: nn.Module, input_ids: Tensor, attention_mask: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor]:
    """The last layer's states, [batch, length, width], and its attention from some positions, [batch, heads, rows,
    length], without dropout. Only these rows are ever made: a whole matrix, of each layer, is what `output_attentions`
    costs. `rows` is [batch, rows], where -1 fills up; the encoder is one of `showing_attention`."""
    last: list[tuple[Tensor, Tensor, Tensor | None, float]] = []
    states: Tensor = encoder(input_ids=input_ids, attention_mask=attention_mask, remember=last).last_hidden_state
    ((query, key, mask, scaling),) = last
    at = rows.clamp(min=0)[:, None, :, None]
    scores = (query.gather(2, at.expand(-1, query.shape[1], -1, query.shape[3])) @ key.transpose(2, 3)) * scaling
    if mask is not None:  # padding, and for a layer that looks only nearby what lies beyond
        mask = mask.expand(len(scores), -1, key.shape[2], -1)
        seen = mask.gather(2, at.expand(-1, mask.shape[1], -1, mask.shape[3]))
        scores = scores.masked_fill(~seen, -torch.inf) if seen.dtype == torch.bool else scores + seen
    return states, scores.softmax(dim=-1)


def showing_attention(encoder: Any, name: str) -> nn.Module:
    """The same network, ready for `states_and_attention`."""
    if not encoder._can_set_attn_implementation():
        raise ConfigError(f"encoder '{name}' does not show its attention; take BERT, RoBERTa, DistilBERT or ELECTRA")
    encoder.set_attn_implementation(_REMEMBERING)
    shown: nn.Module = encoder
    return shown


_REMEMBERING = "sdpa_that_remembers"


def _remembering(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    remember: list[Any] | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """The usual attention; each layer leaves what it looks by in `remember`, in place of the one's before."""
    if remember is not None:
        remember[:] = [(query, key, attention_mask, options.get("scaling") or query.shape[-1] ** -0.5)]
    out: tuple[Tensor, Tensor | None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return out


AttentionInterface.register(_REMEMBERING, _remembering)
AttentionMaskInterface.register(_REMEMBERING, sdpa_mask)


def _from_hub_or_folder(name: str) -> Encoder:
    if Path(name).is_dir():
        check_folder(Path(name))
        if (Path(name) / SHAPE).exists():
            raise ConfigError(
                f"'{name}' is a trained extractor, not an encoder; give what it was trained from, or one of masked_lm"
            )
    try:
        config = AutoConfig.from_pretrained(name, **NO_CODE)
        tokenizer = _tokenizer(name)
    except (OSError, ValueError, StrictDataclassError) as error:
        offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") == "1" else ""
        raise ConfigError(
            f"cannot load encoder '{name}'{offline}; give a folder with config.json, weights and tokenizer, a name on "
            f"the Hugging Face hub, or in a config 'tiny' ({str(error).splitlines()[0]})"
        ) from error
    if not tokenizer.is_fast:
        raise ConfigError(f"encoder '{name}' has no fast tokenizer; save it with a tokenizer.json first")
    return Encoder(name, tokenizer, config, name)


def check_folder(folder: Path, refused: Sequence[str] = ()) -> None:
    """ConfigError where a model's folder holds code, names code that is elsewhere, or has files that end like these."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in (".py", *refused):
            raise ConfigError(f"'{path}' is not data: a model's folder holds safetensors and JSON, and no code is run")
        if path.suffix == ".json" and path.is_file() and b"auto_map" in path.read_bytes():
            _check_json(path)


def _check_json(path: Path) -> None:
    """Word pieces may well have that name; a key of a config may not."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"'{path}' can't be read: {error}") from error
    if isinstance(held, dict) and "auto_map" in held:
        raise ConfigError(f"'{path}' names code to run (auto_map); delete that entry if the model works without it")


def _tokenizer(place: str, options: Mapping[str, bool] | None = None) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(place, **(options or NO_CODE))
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what transformers makes of a folder without any
        raise ConfigError(f"'{place}' has no tokenizer; save it beside the weights")
    return tokenizer


def _train_word_pieces(texts: Iterable[str], size: int = 4000, name: str = "tiny") -> PreTrainedTokenizerFast:
    vocabulary = _learn_vocabulary(sorted(set(texts)), size)
    if len(vocabulary) <= len(SPECIAL):
        other = "" if name == "tiny" else ", or learn them from what sites count: model.vocabulary = 'sites'"
        raise ConfigError(
            f"encoder '{name}' learns its word pieces from the public set, which holds no text; "
            f"set data.public to a share of train or a file{other}"
        )
    return _word_piece_tokenizer(vocabulary)


def _read_word_pieces(path: Path) -> PreTrainedTokenizerFast:
    """A piece a line, as BERT's vocab.txt has them; special ones that it lacks come first. Where no piece has a
    capital, text is read without."""
    try:
        found = read_pieces(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"model.vocabulary: '{path}' can't be read ({error})") from error
    named = (piece or f"[unused line {i}]" for i, piece in enumerate(found, start=1))  # the others keep their numbers
    pieces = [*(special for special in SPECIAL if special not in found), *named]
    if len(set(pieces)) < len(pieces) or not set(found) - {"", *SPECIAL}:
        raise ConfigError(f"model.vocabulary: '{path}' is no vocabulary: it must have a word piece a line, each once")
    return _word_piece_tokenizer({piece: i for i, piece in enumerate(pieces)}, without_capitals(pieces))


def _word_piece_tokenizer(vocabulary: dict[str, int], lowercase: bool = True) -> PreTrainedTokenizerFast:
    tokenizer = _bert_tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"), lowercase)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)


def _learn_vocabulary(texts: Sequence[str], size: int) -> dict[str, int]:
    """The same for the same texts: the trainer numbers '##x' at random and breaks ties by number; we number first."""
    learner = _bert_tokenizer(models.WordPiece(unk_token="[UNK]"))
    letters = sorted({letter for text in texts for letter in learner.normalizer.normalize_str(text)} - {" "})
    first = [*SPECIAL, *(f"##{letter}" for letter in letters)]
    learner.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=size, min_frequency=2, special_tokens=first, show_progress=False)
    )
    vocabulary: dict[str, int] = learner.get_vocab()
    return vocabulary


def _bert_tokenizer(model: models.WordPiece, lowercase: bool = True) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer
