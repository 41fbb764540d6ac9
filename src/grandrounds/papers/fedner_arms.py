"""FedNER's protocol (section 4.1) as configs: its settings, taggers alone and together, and what they may share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from grandrounds.config.schema import Config
from grandrounds.errors import ConfigError
from grandrounds.models.taggers import DEFAULT, TAGGERS
from grandrounds.papers.options import Overrides, ReproduceOptions
from grandrounds.papers.platforms import PLATFORMS
from grandrounds.papers.settings import TRAINING, At, Said, Tell
from grandrounds.tasks.ner_language import is_elmo

TITLES = {
    "cnn_crf": "CNN-CRF",
    "lstm_crf": "LSTM-CRF",
    "gram_cnn": "GRAM-CNN",
    "cnn_lstm_crf": "CNN-LSTM-CRF",
    "s_lstm_crf": "S-LSTM-CRF",
    "cnn_clstm_crf": "CNN-CLSTM-CRF",
    "elmoner": "ELMoNER",
}
ELMO, BERT = "ELMo", "BERT"
"""Language models by their kind, the paper's first; any transformer is of BERT's."""
ELMO_NAMES = ("elmo", "ELMo", *(f"elmo_2x4096_512_2048cnn_2xhighway{kind}_options.json" for kind in ("", "_5.5B")))
"""How its folder, or its official options file, is called."""
STATED = {
    "language model": Said("ELMo", ELMO_NAMES),
    "word vectors": Said("GloVe, 300 wide", tuple(f"glove.{tokens}.300d.txt" for tokens in ("6B", "42B", "840B"))),
    "character width": 100,
    "filters": 200,
    "hidden states": "2 x 200",
    "dropout": 0.2,
    "tag scheme": "BIO",
    "private at a platform": "lstm, crf",
    "optimizer": "adam",
    "learning rate": 0.001,
    "sentences an iteration, N": 64,
    "tested on": "0.2",
    "share of train at platforms": 1,
    "rounds": "until it converges",
}
SETTINGS: Mapping[str, Tell] = {
    "language model": At("task.language", lambda place: Path(place or "none").name),
    "word vectors": At("model.vectors", lambda file: Path(file).name if file else "learnt, 50 wide"),
    "character width": At("task.character_width"),
    "filters": At("task.filters"),
    "hidden states": At("task.hidden", lambda states: f"2 x {states}"),
    "dropout": At("task.dropout"),
    "tag scheme": At("task.scheme"),
    "private at a platform": At("algorithm.private", lambda parts: ", ".join(parts) or "nothing"),
    "sentences an iteration, N": At("algorithm.batch"),
    "sentences a step alone": At(
        "training.batch_size", whole=lambda config: _of_sites(config, lambda name: config.training_at(name).batch_size)
    ),
    "tested on": lambda config: _of_sites(config, lambda name: _reported_test(config.sites[name].test)),
    "validation": At("data.validation"),
    "server's text": At("data.public"),
    "share of train at platforms": At("data.train_share"),
    "rounds": At("federation.rounds"),
    "epochs a round, alone": At("training.epochs"),
    "iterations a round, FedNER": At("algorithm.iterations"),
    **TRAINING,
}


def content(corpus: str, options: ReproduceOptions) -> dict[str, Any]:
    """The paper's protocol as a config; --encoder is the language model, without which there is no ELMoNER."""
    platforms = PLATFORMS[corpus]
    given = list(languages(options).values())
    language = {"language": given[0]} if given else {}
    vectors = platforms.vectors
    words: dict[str, Any] = {}
    if "model.vectors" not in options.overrides and vectors and options.data and (options.data / vectors).exists():
        words = {"vectors": vectors, "vocabulary": "public"}
    return {
        "task": {"name": "ner", "tagger": full(options), "scheme": "BIO", "dropout": 0.2, **language},
        "data": {
            "format": "conll",
            "public": 0.0 if "model.vectors" in options.overrides else platforms.public,
            "validation": 0.1,
        },
        "sites": platforms.tables(),
        "model": {"encoder": "words", **words},
        "training": {
            "optimizer": "adam",
            "learning_rate": 1e-3,
            "epochs": platforms.epochs,
            "weight_decay": 0.0,
            "optimizer_state": "keep",
        },
        "federation": {"rounds": options.rounds, "evaluate_on": ["validation"], "checkpoint_every": options.rounds},
        "algorithm": {"name": "fedner", "iterations": platforms.iterations},
    }


def full(options: ReproduceOptions) -> str:
    """The paper's own tagger, or the same without a language model."""
    return "elmoner" if options.encoder else "cnn_clstm_crf"


def languages(options: ReproduceOptions) -> dict[str, str]:
    """Where the language models lie that --encoder names: ELMo, a transformer, or both with a comma between."""
    found: dict[str, str] = {}
    for name in (options.encoder or "").split(",") if options.encoder else []:
        place = options.place(name.strip())
        kind = ELMO if is_elmo(place, options.data or Path()) else BERT
        if found.setdefault(kind, place) != place:
            raise ConfigError(f"--encoder names two language models of {kind}'s kind; give ELMo's and a transformer")
    return {kind: found[kind] for kind in (ELMO, BERT) if kind in found}


def with_language(kind: str, options: ReproduceOptions) -> dict[str, Overrides] | None:
    """The full tagger alone and under FedNER with such a language model; None where --encoder names none."""
    given = languages(options)
    if kind not in given:
        return None
    arms = alone_and_together("elmoner", options)
    if kind == next(iter(given)):
        return arms
    return {
        name.replace("elmoner", f"elmoner-{kind.lower()}"): {**own, "task.language": given[kind]}
        for name, own in arms.items()
    }


def taggers(options: ReproduceOptions) -> list[str]:
    """Those that can be run, the full one first."""
    return [full(options), *(name for name in TITLES if name not in (full(options), "elmoner"))]


def arm(tagger: str, algorithm: str, options: ReproduceOptions) -> Overrides:
    """What a tagger alone, or under FedNER, changes of the protocol."""
    own = {"algorithm.name": algorithm, "task.tagger": tagger}
    return {**own, "task.language": None} if options.encoder and tagger != full(options) else own


def alone_and_together(tagger: str, options: ReproduceOptions) -> dict[str, Overrides]:
    """The arms' folders are those of every target that has them."""
    return {f"{tagger}-alone": arm(tagger, "local_only", options), f"{tagger}-fedner": arm(tagger, "fedner", options)}


def mixed_schemes(corpus: str, options: ReproduceOptions) -> tuple[str, Overrides]:
    """FedNER where the first platform tags in BIOES and the others in BIO: the arm's name, and what it changes."""
    first = PLATFORMS[corpus].corpora[0].name
    own = arm(full(options), "fedner", options)
    return f"{full(options)}-fedner-mixed", {**own, f"sites.{first}.task.scheme": "BIOES"}


def splits(tagger: str, options: ReproduceOptions) -> dict[str, tuple[str, Overrides]]:
    """By what is shared, from nothing to everything: the arm's name, and what it changes."""
    kind = TAGGERS[tagger]
    layers = list(kind.layers())
    (alone, separate), (default, _) = alone_and_together(tagger, options).items()
    found = {"nothing": (alone, separate)}
    for above in range(len(layers) + 1):
        private = layers[above:]
        shared = " + ".join(["embeddings", *layers[:above]]) if private else "everything"
        own = arm(tagger, "fedner", options)
        if tuple(private) == kind.splits()[DEFAULT]:
            found[shared] = (default, own)
        else:
            name = f"{tagger}-private-{'-'.join(private) or 'nothing'}"
            found[shared] = (name, {**own, "algorithm.private": private})
    return found


def _of_sites(config: Config, tell: Callable[[str], object]) -> str:
    """Once, where it is the same at all of them."""
    found = {name: str(tell(name)) for name in config.sites}
    (one, *others) = dict.fromkeys(found.values())
    return ", ".join(f"{value} ({name})" for name, value in found.items()) if others else one


def _reported_test(test: object) -> str:
    return str(test) if isinstance(test, float) else "its test part"
