"""What reading raw text takes in memory: many short notes over few, each count in a process of its own:

    python -m benchmarks.extraction_memory DOCUMENTS

One document of 100,000 words is read by tests/real/test_long_document.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import torch

from benchmarks.extraction import random_tagger
from benchmarks.measuring import Row, Settings
from benchmarks.memory import peak_mb
from grandrounds.data.synthetic import synthesize
from grandrounds.models.encoder import Encoder
from grandrounds.pipeline.pipeline import Pipeline

FLAT = 1.1


def measure(settings: Settings) -> Iterator[Row]:
    few, many = (100, 200) if settings.quick else (100, 10_000)
    peaks = {}
    for count in (few, many):
        settings.say(f"memory of {count} documents")
        command = [sys.executable, "-m", "benchmarks.extraction_memory", str(count)]
        peaks[count] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    yield Row(
        f"peak memory, {many:,} notes over {few}, tiny",
        peaks[many]["megabytes"] / peaks[few]["megabytes"],
        FLAT,
        note=f"{peaks[many]['megabytes']:.0f} MB over {peaks[few]['megabytes']:.0f} MB",
        detail={str(count): peak for count, peak in peaks.items()},
    )


def read(count: int) -> dict[str, Any]:
    """Of synthetic hospitals: short, so that thousands are read in a minute."""
    texts = [document.text for document in synthesize(hospitals=1, notes=100).train]
    nlp = Pipeline((random_tagger(Encoder.find("tiny", public=texts), texts[:16]),))
    mentions = sum(len(document.mentions) for document in nlp.pipe(islice(cycle(texts), count)))
    return {"megabytes": peak_mb(), "mentions": mentions}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(read(int(sys.argv[1]))))
