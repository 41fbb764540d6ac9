"""Record what every algorithm and task computes and sends, so that a redesign can show that it changed nothing.

    python -m tests.record before.json
    python -m tests.record after.json --against before.json

Each case is a small federation, run in one process, with two workers and over Flower's Grid in memory. Recorded are
digests of all weights, of the scores, and of each audit line's round, exchange, site, direction, kind, bytes and
payload digest. Bits depend on the CPU and on torch, so compare records of one machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grandrounds
from tests.conftest import DISTANT_RE, DOCUMENT_RE, JOINT, corpus, make_encoder_folder, write_corpus
from tests.deployment.grids import run_over_grid
from tests.hosts import own_labels
from tests.simulation.crashes import metrics, timeless

LINE = ("round", "exchange", "site", "direction", "kind", "bytes", "digest")
Content = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", type=Path, help="An earlier record; exit 1 where this one differs from it.")
    parser.add_argument("--only", default="", help="Cases whose name holds this.")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    with TemporaryDirectory() as scratch:
        for name, content in cases(Path(scratch)):
            if given.only in name:
                for runtime in ("process", "workers", "grid"):
                    key = f"{name}/{runtime}"
                    found[key] = record(content, runtime, Path(scratch) / "runs" / key)
                    print(key, found[key]["weights"][:12], flush=True)
                    assert found[key]["weights"] == found[f"{name}/process"]["weights"], f"{key} has other bits"
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.against is not None:
        sys.exit(compare(json.loads(given.against.read_text(encoding="utf-8")), found))


def record(content: Content, runtime: str, out: Path) -> dict[str, Any]:
    out.parent.mkdir(parents=True, exist_ok=True)
    if runtime == "grid":
        run_over_grid(content, out)
    else:
        grandrounds.run({**content, "workers": 2 if runtime == "workers" else 1}, out=out)
    weights = sha256()
    for path in sorted(out.glob("model*/**/model.safetensors")):
        weights.update(str(path.relative_to(out)).encode() + path.read_bytes())
    lines = [json.loads(line) for line in (out / "audit.jsonl").read_text(encoding="utf-8").splitlines()]
    sent = sorted([line.get(key) for key in LINE] for line in lines if "digest" in line)
    scores = timeless([{key: line[key] for key in ("validation", "test") if key in line} for line in metrics(out)])
    return {"weights": weights.hexdigest(), "scores": digest(scores), "sent": digest(sent), "lines": len(sent)}


def digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    differing = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
    for key in differing:
        parts = [part for part in before.get(key, {}) if before[key][part] != after.get(key, {}).get(part)]
        print(f"{key}: {', '.join(parts) or 'new' if key in after else 'gone'}")
    print(f"{len(after) - len(differing)} of {len(before)} records are the same")
    return 1 if differing else 0


def cases(folder: Path) -> Iterator[tuple[str, Content]]:
    """Every algorithm with every task that it fits, and the options that change what travels."""
    base = shared(folder)
    encoder = base["model"]
    yield from (
        (f"sentence_re/{name}", {**base, "algorithm": {"name": name}})
        for name in ("fedavg", "fedatt", "fedprox", "moon", "feded", "local_only", "validation_only", "centralized")
    )
    for option, value in (("average", "probabilities"), ("download", "predictions"), ("vote", "counts")):
        yield f"sentence_re/feded-{value}", {**base, "algorithm": {"name": "feded", option: value}}
    yield "sentence_re/feded-int8", {**base, **rounds(compression="int8"), "algorithm": {"name": "feded"}}
    yield "sentence_re/fedavg-fp16", {**base, **rounds(compression="fp16"), "algorithm": {"name": "fedavg"}}
    yield "sentence_re/fedavg-half", {**base, **rounds(fraction=0.5), "server": {"epochs": 1}}
    yield "sentence_re/lora", {**base, "model": {**encoder, "parameter_efficient": "lora", "lora_rank": 2}}
    for name in ("fedavg", "fedlcc", "moon", "local_only", "centralized"):
        yield f"document_re/{name}", {**base, "task": DOCUMENT_RE, "algorithm": {"name": name}}
    for bag in ("one", "ave", "att", "att_ra"):
        yield f"distant_re/{bag}", {**base, "task": {**DISTANT_RE, "bag": bag}, "model": {"encoder": "words"}}
    for na in ("agree", "own"):
        algorithm = {"name": "lazy_mil", "na": na}
        yield f"distant_re/lazy_mil-{na}", {**base, "task": DISTANT_RE, "algorithm": algorithm}
    yield (
        "masked_lm/fedavg",
        {
            **base,
            **rounds(weight_by="patients"),
            "task": {"name": "masked_lm", "length": 32, "next_sentence": True},
        },
    )
    for name in ("fedavg", "fedprox", "fedper", "local_only", "centralized"):
        yield f"joint/{name}", {**base, "task": JOINT, "algorithm": {"name": name}}
    yield "ner/fedavg", {**base, "task": {"name": "ner"}}
    for name, options in (("fedner", {"batch": 16, "iterations": 3}), ("local_only", {})):
        yield f"ner/{name}", {**own_labels(folder, {"name": name, **options}), **rounds()}


def rounds(**more: Any) -> Content:
    return {"federation": {"rounds": 2, **more}}


def shared(folder: Path) -> Content:
    return {
        "seed": 1,
        "device": "cpu",
        "task": {"name": "sentence_re", "max_length": 32},
        "data": {
            "format": "json",
            "train": str(write_corpus(folder / "train.jsonl", corpus(60))),
            "test": str(write_corpus(folder / "test.jsonl", corpus(24, "t"))),
            "public": 0.2,
            "validation": 0.1,
        },
        "partition": {"scheme": "iid", "sites": 3},
        "model": {"encoder": str(make_encoder_folder("bert", folder / "bert"))},
        "training": {"epochs": 1, "batch_size": 8, "learning_rate": 2e-3},
        "algorithm": {"name": "fedavg"},
        **rounds(),
    }


if __name__ == "__main__":
    main()
