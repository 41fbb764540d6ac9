"""One vocabulary from what five silos may tell, against the one from all their text.

    python experiments/silo_vocabulary.py --data DIR --out vocabulary.json       (DIR holds text/mtsamples.jsonl)

Silos are of specialties, as in mtsamples-bert.toml; a tenth of the reports is held out, and cut into pieces of both.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grandrounds.data.formats import read
from grandrounds.data.partition import Unit, partition, share
from grandrounds.federation.payloads import VocabularyCounts
from grandrounds.models.word_pieces import by_person, count_strings, cut, learn_pieces, words_in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--documents", type=int, nargs="+", default=[5, 20], help="thresholds")
    parser.add_argument("--pieces", type=int, default=8000)
    wanted = parser.parse_args()
    documents = read(wanted.data / "text" / "mtsamples.jsonl", "notes-json").documents
    units = [Unit(str(i), "note", document.attributes, (i,)) for i, document in enumerate(documents)]
    held_out, rest = share(units, 0.1, 1, "test")
    silos = partition(rest, "by", sites=5, seed=1, by="specialty").sites
    texts = {name: [documents[i].text for i in members] for name, members in silos.items()}
    words = Counter(word for unit in held_out for i in unit.examples for word in words_in(documents[i].text))
    everything = Counter(word for own in texts.values() for text in own for word in words_in(text))
    whole = learn_pieces(dict(sorted(everything.items())), wanted.pieces)
    found: dict[str, dict[str, Any]] = {"centralised": _cut_into(whole, words)}
    for least in wanted.documents:
        total, uploads = Counter[str](), {}
        for name, own in texts.items():
            counts = count_strings(by_person((None, text) for text in own), least)
            total.update(counts)
            uploads[name] = {"strings": len(counts), "bytes": VocabularyCounts(least, counts).pack("fp32").nbytes}
        pieces = learn_pieces(dict(sorted(total.items())), wanted.pieces)
        common = len({*pieces} & {*whole}) / max(len(pieces), len(whole))
        reported = {"in_common": common, **_cut_into(pieces, words), "uploads": uploads}
        found[f"silos, {least} documents"] = reported
    for name, row in found.items():
        shared = row.get("in_common", 1.0)
        print(f"{name}: {row['pieces']:,} pieces, {shared:.1%} in common, {row['pieces_a_word']:.3f} a held-out word")
    command = f"python experiments/silo_vocabulary.py --data DIR --out {wanted.out.name}"
    wanted.out.write_text(json.dumps({"command": command, "held_out_words": words.total(), **found}, indent=1) + "\n")


def _cut_into(pieces: Iterable[str], words: Mapping[str, int]) -> dict[str, float]:
    known, total = frozenset(pieces), sum(words.values())
    parts = {word: cut(word, known) for word in words}
    return {
        "pieces": len(known),
        "pieces_a_word": sum(len(parts[word] or ("",)) * times for word, times in words.items()) / total,
        "unknown_words": sum(times for word, times in words.items() if parts[word] is None) / total,
    }


if __name__ == "__main__":
    main()
