"""flair's and spaCy's named-entity recognition on raw text, in a process of their own, as in `ner_peers`.

    python -m benchmarks.extraction_peers PEER TEXTS.json

TEXTS.json holds the texts and the folder of an encoder. It says what it is, then for each line it reads, "FIRST PAST",
how many CPU seconds the texts from FIRST to PAST took, from characters to spans. Weights are random: they do not
change how long a tag takes.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.ner_peers import say

LABELS = ("Chemical", "Disease")


class Reader(NamedTuple):
    about: str
    parameters: int
    read: Callable[[Sequence[str]], object]


def flair_reader(encoder: str) -> Reader:
    """Its sentence splitter, then its SequenceTagger on our encoder: a linear layer on each word's first piece."""
    import flair
    import torch
    from flair.data import Dictionary
    from flair.embeddings import TransformerWordEmbeddings
    from flair.models import SequenceTagger
    from flair.splitter import SegtokSentenceSplitter

    logging.getLogger("flair").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    labels = Dictionary(add_unk=False)
    labels.span_labels = True
    for label in LABELS:
        labels.add_item(label)
    tagger = SequenceTagger(
        embeddings=TransformerWordEmbeddings(encoder, layers="-1", subtoken_pooling="first", fine_tune=False),
        tag_dictionary=labels,
        tag_type="ner",
        tag_format="BIO",
        use_rnn=False,
        use_crf=False,
        reproject_embeddings=False,
    ).eval()
    splitter = SegtokSentenceSplitter()

    def read(texts: Sequence[str]) -> None:
        sentences = [sentence for text in texts for sentence in splitter.split(text)]
        tagger.predict(sentences, mini_batch_size=64)
        for sentence in sentences:
            sentence.get_spans("ner")

    size = sum(parameter.numel() for parameter in tagger.parameters())
    return Reader(f"flair {flair.__version__} on the same encoder", size, read)


def spacy_reader(encoder: str) -> Reader:
    """Its tokenizer and its `ner` as it comes: hashed words and affixes, a CNN of four layers 96 wide, transitions."""
    import spacy
    from spacy.training import Example

    nlp = spacy.blank("en")
    recogniser = nlp.add_pipe("ner")
    for label in LABELS:
        recogniser.add_label(label)
    nlp.initialize(lambda: [Example.from_dict(nlp.make_doc("aspirin eased pain"), {"entities": []})])

    def read(texts: Sequence[str]) -> None:
        for document in nlp.pipe(texts, batch_size=64):
            len(document.ents)

    held = ((node, name) for node in recogniser.model.walk() for name in node.param_names)
    size = sum(node.get_param(name).size for node, name in held if node.has_param(name))
    return Reader(f"spaCy {spacy.__version__} with its CNN", size, read)


PEERS: Mapping[str, Callable[[str], Reader]] = {"spaCy": spacy_reader, "flair": flair_reader}


def main(name: str, path: str) -> None:
    own, sys.stdout = sys.stdout, sys.stderr  # libraries print
    held = json.loads(Path(path).read_text())
    try:
        reader = PEERS[name](held["encoder"])
    except ImportError as error:
        say(own, {"missing": str(error)})
        return
    say(own, {"about": reader.about, "parameters": reader.parameters})
    for line in sys.stdin:
        first, past = map(int, line.split())
        began = time.process_time()
        reader.read(held["texts"][first:past])
        say(own, time.process_time() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
