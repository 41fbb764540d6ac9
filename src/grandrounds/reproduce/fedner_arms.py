"""FedNER's protocol (section 4.1) as configs: its settings, taggers alone and together, and what they may share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from grandrounds.experiment.config import Config
from grandrounds.models.taggers import TAGGERS
from grandrounds.reproduce.platforms import PLATFORMS
from grandrounds.reproduce.wish import Overrides, Wish

TITLES = {
    "cnn_crf": "CNN-CRF",
    "lstm_crf": "LSTM-CRF",
    "gram_cnn": "GRAM-CNN",
    "cnn_lstm_crf": "CNN-LSTM-CRF",
    "s_lstm_crf": "S-LSTM-CRF",
    "cnn_clstm_crf": "CNN-CLSTM-CRF",
    "elmoner": "ELMoNER",
}
STATED = {
    "language model": "ELMo",
    "word vectors": "GloVe, 300 wide",
    "character width": 100,
    "filters": 200,
    "hidden states": "2 x 200",
    "dropout": 0.2,
    "tag scheme": "BIO",
    "optimizer": "adam",
    "learning rate": 0.001,
    "sentences an iteration, N": 64,
    "tested on": "0.2",
    "validation": "not said",
    "rounds": "until it converges",
}
TOLD: Mapping[str, Callable[[Config], object]] = {
    "language model": lambda config: Path(config.task_options().language or "none").name,
    "word vectors": lambda config: Path(config.model.vectors).name if config.model.vectors else "learnt, 50 wide",
    "character width": lambda config: config.task_options().character_width,
    "filters": lambda config: config.task_options().filters,
    "hidden states": lambda config: f"2 x {config.task_options().hidden}",
    "dropout": lambda config: config.task_options().dropout,
    "tag scheme": lambda config: config.task_options().scheme,
    "optimizer": lambda config: config.training.optimizer,
    "learning rate": lambda config: config.training.learning_rate,
    "sentences an iteration, N": lambda config: config.complete()["algorithm"]["batch"],
    "sentences a step alone": lambda config: _of_sites(config, lambda name: config.training_at(name).batch_size),
    "tested on": lambda config: _of_sites(config, lambda name: _told_test(config.sites[name].test)),
    "validation": lambda config: config.data.validation,
    "share of train at platforms": lambda config: config.data.train_share,
    "rounds": lambda config: config.federation.rounds,
    "epochs a round, alone": lambda config: config.training.epochs,
    "iterations a round, FedNER": lambda config: config.complete()["algorithm"]["iterations"],
}


def content(corpus: str, wish: Wish) -> dict[str, Any]:
    """The paper's protocol as a config; --encoder is the language model, without which there is no ELMoNER."""
    platforms = PLATFORMS[corpus]
    language = {"language": wish.encoder_place} if wish.encoder else {}
    vectors = platforms.vectors
    words: dict[str, Any] = {}
    if "model.vectors" not in wish.overrides and vectors and wish.data and (wish.data / vectors).exists():
        words = {"vectors": vectors, "vocabulary": "public"}
    return {
        "task": {"name": "ner", "tagger": full(wish), "scheme": "BIO", "dropout": 0.2, **language},
        "data": {
            "format": "conll",
            "public": 0.0 if "model.vectors" in wish.overrides else platforms.public,
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
        "federation": {"rounds": wish.rounds, "evaluate_on": ["validation"], "checkpoint_every": wish.rounds},
        "algorithm": {"name": "fedner", "iterations": platforms.iterations},
    }


def full(wish: Wish) -> str:
    """The paper's own tagger, or the same without a language model."""
    return "elmoner" if wish.encoder else "cnn_clstm_crf"


def taggers(wish: Wish) -> list[str]:
    """Those that can be run, the full one first."""
    return [full(wish), *(name for name in TITLES if name not in (full(wish), "elmoner"))]


def arm(tagger: str, algorithm: str, wish: Wish) -> Overrides:
    """What a tagger alone, or under FedNER, changes of the protocol."""
    own = {"algorithm.name": algorithm, "task.tagger": tagger}
    return {**own, "task.language": None} if wish.encoder and tagger != full(wish) else own


def alone_and_together(tagger: str, wish: Wish) -> dict[str, Overrides]:
    """The arms' folders are those of every target that has them."""
    return {f"{tagger}-alone": arm(tagger, "local_only", wish), f"{tagger}-fedner": arm(tagger, "fedner", wish)}


def splits(tagger: str, wish: Wish) -> dict[str, tuple[str, Overrides]]:
    """By what is shared, from nothing to everything: the arm's name, and what it changes."""
    kind = TAGGERS[tagger]
    layers = [*kind.context, "crf"]
    (alone, separate), (default, _) = alone_and_together(tagger, wish).items()
    found = {"nothing": (alone, separate)}
    for above in range(len(layers) + 1):
        private = layers[above:]
        shared = " + ".join(["embeddings", *layers[:above]]) if private else "everything"
        own = arm(tagger, "fedner", wish)
        if tuple(private) == kind.private:
            found[shared] = (default, own)
        else:
            name = f"{tagger}-private-{'-'.join(private) or 'nothing'}"
            found[shared] = (name, {**own, "algorithm.private": private})
    return found


def _of_sites(config: Config, tell: Callable[[str], object]) -> str:
    return ", ".join(f"{tell(name)} ({name})" for name in config.sites)


def _told_test(test: object) -> str:
    return str(test) if isinstance(test, float) else "its test part"
