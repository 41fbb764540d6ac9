"""flair's and spaCy's named-entity recognition as rivals, in a process of their own: flair wants another transformers
than we do. GRANDROUNDS_PEERS names a Python that has benchmarks/requirements.txt; nothing here needs grandrounds.

    python -m benchmarks.ner_peers PEER CORPUS.json

It says what it is, then for each line it reads, "training" (an epoch) or "tagging" (all test sentences, from
words to spans), what that took; for "found", the spans of the last tagging. A line is JSON.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

Span = tuple[int, int, str]


class Sentence(NamedTuple):
    words: list[str]
    spans: list[Span]


class Sizes(NamedTuple):
    """What a rival shares with ours."""

    batch: int
    tagged_at_once: int
    learning_rate: float
    clip_norm: float
    word_width: int
    hidden: int


class Peer:
    """The parent's end: a rival that works when it is told to."""

    def __init__(self, name: str, corpus: Path, module: str = "benchmarks.ner_peers") -> None:
        python = os.environ.get("GRANDROUNDS_PEERS", sys.executable)
        command = [python, "-W", "ignore", "-m", module, name, str(corpus)]
        own = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent.parent)}
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=own)
        self.about: dict[str, Any] = self._heard()

    @property
    def missing(self) -> str | None:
        """Why it can't run."""
        return self.about.get("missing")

    def asked(self, what: str) -> Any:
        if self._child.stdin is None:
            raise BrokenPipeError
        self._child.stdin.write(f"{what}\n")
        self._child.stdin.flush()
        return self._heard()

    def end(self) -> None:
        self._child.communicate()

    def _heard(self) -> Any:
        line = self._child.stdout.readline() if self._child.stdout else ""
        if not line:
            raise ChildProcessError("a rival's process ended before its time")
        return json.loads(line)


class Rival(NamedTuple):
    version: str
    parameters: int
    train: Callable[[], object]
    tag: Callable[[], list[list[Span]]]


def flair_tagger(train: Sequence[Sentence], test: Sequence[Sentence], sizes: Sizes) -> Rival:
    """Its SequenceTagger: a vector a word, a Bi-LSTM, a CRF; a step as its trainer takes it, with our optimizer."""
    import flair
    import torch
    from flair.data import Dictionary
    from flair.data import Sentence as FlairSentence
    from flair.embeddings import OneHotEmbeddings
    from flair.models import SequenceTagger
    from flair.training_utils import store_embeddings

    logging.getLogger("flair").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    flair.set_seed(1)
    made = []
    for sentence in train:
        one = FlairSentence(sentence.words)
        for first, past, type in sentence.spans:
            one[first:past].add_label("ner", type)
        made.append(one)
    words, labels = Dictionary(), Dictionary(add_unk=False)
    labels.span_labels = True
    for sentence in train:
        for word in sentence.words:
            words.add_item(word)
        for *_, type in sentence.spans:
            labels.add_item(type)
    tagger = SequenceTagger(
        embeddings=OneHotEmbeddings(words, embedding_length=sizes.word_width),
        tag_dictionary=labels,
        tag_type="ner",
        tag_format="BIO",
        hidden_size=sizes.hidden,
        reproject_embeddings=False,
    )
    optimizer = torch.optim.AdamW(tagger.parameters(), lr=sizes.learning_rate, fused=True)

    def epoch() -> None:
        tagger.train()
        for batch in shuffled(made, sizes.batch):
            optimizer.zero_grad(set_to_none=True)
            loss, count = tagger.forward_loss(batch)
            (loss / count).backward()
            torch.nn.utils.clip_grad_norm_(tagger.parameters(), sizes.clip_norm)
            optimizer.step()
            store_embeddings(batch, "none")

    def tag() -> list[list[Span]]:
        tagger.eval()
        sentences = [FlairSentence(sentence.words) for sentence in test]
        tagger.predict(sentences, mini_batch_size=sizes.tagged_at_once)
        return [
            [(span[0].idx - 1, span[-1].idx, span.tag) for span in sentence.get_spans("ner")] for sentence in sentences
        ]

    parameters = sum(parameter.numel() for parameter in tagger.parameters())
    return Rival(flair.__version__, parameters, epoch, tag)


def spacy_tagger(train: Sequence[Sentence], test: Sequence[Sentence], sizes: Sizes) -> Rival:
    """Its `ner` as it comes: hashed words and affixes, a CNN of four layers 96 wide, transitions."""
    import spacy
    from spacy.tokens import Doc
    from spacy.tokens import Span as SpacySpan
    from spacy.training import Example
    from thinc.api import Adam, fix_random_seed

    fix_random_seed(1)
    nlp = spacy.blank("en")
    recogniser = nlp.add_pipe("ner")
    references = []
    for sentence in train:
        document = Doc(nlp.vocab, sentence.words)
        document.set_ents([SpacySpan(document, first, past, type) for first, past, type in sentence.spans])
        references.append(document)
    nlp.initialize(lambda: [Example(Doc(nlp.vocab, [t.text for t in one]), one) for one in references])
    optimizer = Adam(sizes.learning_rate, L2=0.01, L2_is_weight_decay=True, grad_clip=sizes.clip_norm)

    def epoch() -> None:
        for batch in shuffled(references, sizes.batch):
            examples = [Example(Doc(nlp.vocab, [token.text for token in one]), one) for one in batch]
            nlp.update(examples, sgd=optimizer, drop=0.2)

    def tag() -> list[list[Span]]:
        documents = (Doc(nlp.vocab, sentence.words) for sentence in test)
        tagged = nlp.pipe(documents, batch_size=sizes.tagged_at_once)
        return [[(entity.start, entity.end, entity.label_) for entity in one.ents] for one in tagged]

    held = ((node, name) for node in recogniser.model.walk() for name in node.param_names)
    parameters = sum(node.get_param(name).size for node, name in held if node.has_param(name))
    return Rival(spacy.__version__, parameters, epoch, tag)


PEERS: Mapping[str, Callable[[Sequence[Sentence], Sequence[Sentence], Sizes], Rival]] = {
    "flair": flair_tagger,
    "spaCy": spacy_tagger,
}


def shuffled(sentences: Sequence[Any], size: int) -> list[list[Any]]:
    order = random.sample(sentences, len(sentences))
    return [order[start : start + size] for start in range(0, len(order), size)]


def write_corpus(path: Path, train: Sequence[Sentence], test: Sequence[Sentence], sizes: Sizes) -> Path:
    path.write_text(json.dumps({"train": train, "test": test, "sizes": sizes}))
    return path


def main(name: str, corpus: str) -> None:
    own, sys.stdout = sys.stdout, sys.stderr  # libraries print
    held = json.loads(Path(corpus).read_text())
    train, test = ([Sentence(*one) for one in held[part]] for part in ("train", "test"))
    random.seed(1)
    try:
        rival = PEERS[name](train, test, Sizes(*held["sizes"]))
    except ImportError as error:
        say(own, {"missing": str(error)})
        return
    say(own, {"version": rival.version, "parameters": rival.parameters})
    found: list[list[Span]] = []
    for line in sys.stdin:
        asked = line.strip()
        if asked == "found":
            say(own, found)
            continue
        began = time.perf_counter(), time.process_time()
        given = rival.train() if asked == "training" else rival.tag()
        say(own, [time.perf_counter() - began[0], time.process_time() - began[1]])
        if isinstance(given, list):
            found = given


def say(where: TextIO, what: object) -> None:
    where.write(json.dumps(what) + "\n")
    where.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
