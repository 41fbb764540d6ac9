"""What travels: a few kinds of payload, packed for the wire, checked on arrival.

`pack` turns a payload into tensors and one JSON header, `Packed.to_bytes` writes these with safetensors, and `unpack`
gives the payload back after checking it. In process the packed form passes by reference: bytes are counted from the
manifest, not by encoding.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from blake3 import blake3
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor, nn
from torch.nn import functional as F

from grandrounds.errors import ConfigError, GrandRoundsError, unknown
from grandrounds.federation import quantize
from grandrounds.federation.quantize import Form
from grandrounds.federation.rows import Rows, Tables, rows_of, table_names
from grandrounds.federation.scaled import SCALES, all_grown
from grandrounds.federation.state import unfrozen
from grandrounds.models.lora import LORA_A, LORA_B

Compression = Literal["fp32", "fp16", "int8"]
DTYPES = {  # in the order of the wire: safetensors writes the widest types first
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.float16: "F16",
    torch.int8: "I8",
    torch.uint8: "U8",
}

OFF_SIMPLEX = "predictions are not on the simplex: a row is negative or does not sum to one"
_FORMS: dict[Form, str] = {"probabilities": "p", "log_probabilities": "log p"}  # short: they are in every upload
OF_ROWS = " rows"
"""With a table's name: which rows travel under that name alone."""
MOST_LAYOUT = 1 << 23
"""Bytes of a payload's names, shapes and header: a model has some thousand tensors."""
MOST_HEADER, MOST_NAME = 1 << 20, 200
"""Bytes of a header, which says what tensors can't (a few names and numbers), and letters of a name."""
MOST_PRODUCT = 1e30
"""Of an adapter's two parts: what is added to a weight stays finite, whatever it is scaled by."""
FLOATS, INTEGERS = (torch.float32, torch.float16), (torch.int64, torch.uint8)


class PayloadError(GrandRoundsError):
    """A payload that may not be used; the site that sent it is named and left out of the round."""


@dataclass(frozen=True)
class Expected:
    """What a server knows about a payload before it arrives."""

    manifest: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Name and shape of each parameter that may travel."""
    classes: int = 0
    """Of a question about the public set."""
    public: tuple[int, str] = (0, "")
    """Questions about the public set, and its digest."""
    max_bytes: int = 1 << 34
    integers: frozenset[str] = frozenset()
    """Parameters that are counters, not weights."""
    trained: frozenset[str] = frozenset()
    """Those of the manifest that have gradients."""
    tables: frozenset[str] = frozenset()
    """Those of the manifest that are embeddings, of which rows may travel."""
    tensors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Name and shape of what an algorithm sends beside: `Tensors`."""
    adapted: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Layers with low-rank adapters, and how many numbers each gives and takes: `Adapters`."""
    base: Mapping[str, Tensor] | None = field(default=None, compare=False)
    """The weights that differences are to; None: no differences come."""
    labels: int = 0
    """Of which a site may count its examples."""


@dataclass(frozen=True)
class Packed:
    """A payload as it stands on the wire."""

    kind: str
    header: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    @cached_property
    def nbytes(self) -> int:
        """The length of `to_bytes()`, without making them."""
        layout: dict[str, Any] = {"__metadata__": {self.kind: self._metadata}}
        offset = 0
        for name in sorted(self.tensors, key=self._wire_order):
            tensor = self.tensors[name]
            layout[name] = {
                "dtype": DTYPES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [offset, offset := offset + tensor.nbytes],
            }
        length = len(json.dumps(layout, separators=(",", ":"), ensure_ascii=False).encode())
        return 8 + -(-length // 8) * 8 + offset

    @cached_property
    def digest(self) -> str:
        """BLAKE3 of the content, the same on both sides of the wire; SHA-256 would take 4% of a round's time."""
        hasher = blake3(f"{self.kind}{self._metadata}".encode())
        for name in sorted(self.tensors):
            tensor = self.tensors[name].detach().cpu().contiguous()
            hasher.update(f"{name}{DTYPES[tensor.dtype]}{list(tensor.shape)}".encode())
            hasher.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
        return hasher.hexdigest()

    def to_bytes(self) -> bytes:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors.items()}
        # A single key, the kind: safetensors writes several in random order.
        return safetensors.save(tensors, {self.kind: self._metadata})

    @classmethod
    def from_bytes(cls, data: bytes, max_bytes: int = 1 << 34) -> Self:
        if len(data) > max_bytes:
            raise PayloadError(f"a payload of {len(data)} bytes is over the budget of {max_bytes}")
        try:
            length = int.from_bytes(data[:8], "little")
            if length > MOST_LAYOUT:
                raise PayloadError(f"a payload's layout of {length} bytes is over the limit of {MOST_LAYOUT}")
            ((kind, metadata),) = json.loads(data[8 : 8 + length])["__metadata__"].items()
            header = _header(metadata)
            tensors = safetensors.load(data)
        except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PayloadError("a payload can't be decoded: it is cut short or not ours") from error
        if longest := max((name for name in (kind, *tensors) if len(name) > MOST_NAME), key=len, default=""):
            raise PayloadError(f"a payload has a name of {len(longest)} letters; {MOST_NAME} are the limit")
        for name, tensor in tensors.items():
            if tensor.dtype not in DTYPES:
                raise PayloadError(f"{name!r} has the type {tensor.dtype}, which does not travel")
        return cls(str(kind), header, tensors)

    @cached_property
    def _metadata(self) -> str:
        return json.dumps(dict(self.header), sort_keys=True, separators=(",", ":"))

    def _wire_order(self, name: str) -> tuple[int, str]:
        return list(DTYPES).index(self.tensors[name].dtype), name


class Payload:
    """One kind of thing that may leave a site."""

    kind: ClassVar[str]
    fields: ClassVar[frozenset[str]] = frozenset()
    """What its header may hold; most kinds need none."""

    def pack(self, compression: Compression) -> Packed:
        """As it goes over the wire."""
        raise NotImplementedError

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        """The payload, after every check that can be made before it is used; PayloadError otherwise."""
        raise NotImplementedError


KINDS: dict[str, type[Payload]] = {}
K = TypeVar("K", bound=type[Payload])


def _kind(cls: K) -> K:
    KINDS[cls.kind] = cls
    return cls


def unpack(packed: Packed, expected: Expected, kind: type[Payload] | None = None) -> Payload:
    """The payload in a packed one; `kind` is the one that the algorithm declared."""
    if packed.kind not in KINDS:
        raise PayloadError(unknown("payload kind", packed.kind, KINDS))
    if kind is not None and packed.kind != kind.kind:
        raise PayloadError(f"a payload of kind '{packed.kind}' came where '{kind.kind}' was declared")
    if surplus := packed.header.keys() - KINDS[packed.kind].fields:
        raise PayloadError(f"the header of '{packed.kind}' has the undeclared {min(surplus)!r}")
    if packed.nbytes > expected.max_bytes:
        raise PayloadError(f"a payload of {packed.nbytes} bytes is over the budget of {expected.max_bytes}")
    return KINDS[packed.kind].unpack(packed, expected)


@_kind
@dataclass(frozen=True)
class Parameters(Payload):
    """Weights by name. In process these are the model's own tensors: a cursor, valid until the model changes."""

    kind: ClassVar[str] = "parameters"
    fields: ClassVar[frozenset[str]] = frozenset({"since"})
    values: Mapping[str, Tensor]
    rows: Mapping[str, Rows] = field(default_factory=dict)
    """Of embeddings, only the rows that are not as they were before round 1."""

    @classmethod
    def of(
        cls, model: nn.Module, shared: Callable[[str], bool] = lambda name: True, start: Tables | None = None
    ) -> Self:
        """What is frozen does not travel: it is the same everywhere. Nor, with the start, do rows that are as there."""
        values = {name: tensor.detach() for name, tensor in unfrozen(model).items() if shared(name)}
        rows = {}
        for name in table_names(model) if start is not None else ():
            if start is not None and name in values and (changed := start.changed(name, values[name])) is not None:
                rows[name] = changed
                del values[name]
        return cls(values, rows)

    def pack(self, compression: Compression) -> Packed:
        since = {name: rows.since for name, rows in self.rows.items()}
        return Packed(self.kind, {"since": since} if since else {}, _wired(self.values, self.rows, compression))

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        tables = frozenset(name for name in expected.tables if name + OF_ROWS in packed.tensors)
        values, rows = _unwired(packed, expected.manifest, tables, expected.integers)
        if SCALES in packed.tensors:
            if not _is_digest(packed.header.get("since", "")):
                raise PayloadError("differences come with a digest of what they differ from, or with none")
            return cls(_added(expected, values, rows))
        since = packed.header.get("since", {})
        if not isinstance(since, dict) or since.keys() != rows.keys() or not all(map(_is_digest, since.values())):
            raise PayloadError("rows of weights come with a digest of the table that has the others")
        return cls(values, {name: replace(some, since=str(since[name])) for name, some in rows.items()})


@_kind
@dataclass(frozen=True)
class Gradients(Payload):
    """Gradients of shared parameters by name; of embeddings, the rows that are not zero, which tell what words a batch
    has."""

    kind: ClassVar[str] = "gradients"
    values: Mapping[str, Tensor]
    rows: Mapping[str, Rows] = field(default_factory=dict)

    @classmethod
    def of(cls, model: nn.Module, shared: Callable[[str], bool]) -> Self:
        """What a backward pass left; a parameter that it did not reach has zeros."""
        named = ((name, p) for name, p in model.named_parameters() if shared(name) and p.requires_grad)
        found = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in named}
        rows = {name: rows_of(found.pop(name)) for name in table_names(model) if name in found}
        return cls(found, rows)

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {}, _wired(self.values, self.rows, compression))

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        manifest = {name: expected.manifest[name] for name in expected.trained}
        return cls(*_unwired(packed, manifest, expected.tables & expected.trained))


@_kind
@dataclass(frozen=True)
class Tensors(Payload):
    """Named tensors of an algorithm's own, with the names and shapes that `Algorithm.tensors` declares."""

    kind: ClassVar[str] = "tensors"
    values: Mapping[str, Tensor]

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {}, _wired(self.values, {}, compression))

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        values, _ = _unwired(packed, expected.tensors, frozenset())
        return cls(values)


@_kind
@dataclass(frozen=True)
class Adapters(Payload):
    """Low-rank adapters by the name of their weight. Each site chooses the rank of its own."""

    kind: ClassVar[str] = "adapters"
    values: Mapping[str, Tensor]

    @classmethod
    def of(cls, model: nn.Module) -> Self:
        named = model.named_parameters()
        return cls({name: weight.detach() for name, weight in named if name.endswith((LORA_A, LORA_B))})

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {}, _wired(self.values, {}, compression))

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        shapes = dict[str, tuple[int, ...]]()
        for layer, (outputs, inputs) in expected.adapted.items():
            found, most = packed.tensors.get(layer + LORA_A), min(outputs, inputs)
            rank = 0 if found is None or found.ndim != 2 else len(found)
            if not 1 <= rank <= most:
                raise PayloadError(f"the adapter of {layer!r} must have a rank from 1 to {most}")
            shapes |= {layer + LORA_A: (rank, inputs), layer + LORA_B: (outputs, rank)}
        values, _ = _unwired(packed, shapes, frozenset())
        for layer in expected.adapted:
            down, up = values[layer + LORA_A], values[layer + LORA_B]
            if len(down) * float(down.abs().max()) * float(up.abs().max()) > MOST_PRODUCT:
                raise PayloadError(f"the adapter of {layer!r} has a product that may not be finite")
        return cls(values)


@_kind
@dataclass(frozen=True)
class Predictions(Payload):
    """A model's answer to every question about the public set, [questions, classes]."""

    kind: ClassVar[str] = "predictions"
    fields: ClassVar[frozenset[str]] = frozenset({"public"})
    values: Tensor
    form: Form
    public: str
    """Digest of the public set that was answered."""

    def to(self, form: Form) -> Self:
        """The same answer in that form."""
        if form == self.form:
            return self
        values = self.values.exp() if form == "probabilities" else quantize.bounded(_log(self.values))
        return replace(self, form=form, values=values)

    def pack(self, compression: Compression) -> Packed:
        header = {"public": self.public}
        if compression != "int8":
            return Packed(self.kind, header, {_FORMS[self.form]: _shrink(self.values, compression)})
        return Packed(self.kind, header, {_FORMS[self.form]: quantize.packed(self.values, self.form)})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        rows, digest = expected.public
        _check_public(packed, digest)
        form = next((form for form, name in _FORMS.items() if name in packed.tensors), None)
        if form is None:
            raise PayloadError("predictions come as 'p' or 'log p', and neither is there")
        values = packed.tensors[_FORMS[form]]
        if values.dtype == torch.uint8:
            try:
                values = quantize.inflated(values, (rows, expected.classes - 1))
            except ValueError as problem:
                raise PayloadError(f"predictions {problem}") from problem
            name = _FORMS[form]
            _check_manifest({**packed.tensors, name: values}, {name: (rows, expected.classes - 1)}, frozenset({name}))
            # Rounding adds at most half a step for each class. (Log-ratios are on the simplex whatever they are.)
            if form == "probabilities" and bool((values.sum(dim=1) > 255 + expected.classes / 2).any()):
                raise PayloadError(OFF_SIMPLEX)
            values = quantize.values_of(values, form)
        else:
            _check_manifest(packed.tensors, {_FORMS[form]: (rows, expected.classes)})
            _check_finite(packed.tensors)
            values = _grow(values)
        simplex = values if form == "probabilities" else values.exp()
        # fp16 keeps three decimals, so a row's sum may be off by about one in a thousand.
        if bool((simplex < 0).any()) or not torch.allclose(simplex.sum(dim=1), torch.ones(rows), atol=5e-3):
            raise PayloadError(OFF_SIMPLEX)
        return cls(values if form == "probabilities" else quantize.bounded(values), form, digest)


@_kind
@dataclass(frozen=True)
class PredictedLabels(Payload):
    """A model's class for every question about the public set, [questions], without its confidence."""

    kind: ClassVar[str] = "predicted_labels"
    fields: ClassVar[frozenset[str]] = frozenset({"public"})
    values: Tensor
    classes: int
    public: str
    """Digest of the public set that was answered."""

    def votes(self) -> Tensor:
        """[rows, classes]: one for the class of the row, else zero."""
        return F.one_hot(self.values, self.classes).float()

    def pack(self, compression: Compression) -> Packed:
        """A byte a row, two from 257 classes on, and less where they can be deflated, whatever the compression."""
        coded = [(self.values >> 8 * place) & 255 for place in range(_bytes_for(self.classes))]
        return Packed(self.kind, {"public": self.public}, {"y": quantize.deflated(torch.stack(coded, dim=1).byte())})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        rows, digest = expected.public
        _check_public(packed, digest)
        shape = (rows, _bytes_for(expected.classes))
        coded = packed.tensors.get("y")
        if coded is None or coded.dtype != torch.uint8 or len(packed.tensors) != 1:
            raise PayloadError("predicted labels are bytes, named 'y'")
        try:
            coded = quantize.inflated(coded, shape)
        except ValueError as problem:
            raise PayloadError(f"predicted labels {problem}") from problem
        _check_manifest({"y": coded}, {"y": shape}, frozenset({"y"}))
        values = sum((coded[:, place].long() << 8 * place for place in range(shape[1])), torch.zeros(rows).long())
        if bool((values >= expected.classes).any()):
            raise PayloadError(f"a predicted label is not one of the {expected.classes} classes")
        return cls(values, expected.classes, digest)


@_kind
@dataclass(frozen=True)
class LabelCounts(Payload):
    """How many of a site's training examples have each label, [classes]."""

    kind: ClassVar[str] = "label_counts"
    values: Tensor

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {}, {"n": self.values})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        _check_manifest(packed.tensors, {"n": (expected.labels,)}, frozenset({"n"}))
        counts = packed.tensors["n"].long()
        if bool((counts < 0).any()) or not counts.any():
            raise PayloadError("label counts must be whole numbers from zero, not all zero")
        return cls(counts)


@_kind
@dataclass(frozen=True)
class PublicSet(Payload):
    """The server's examples as sites get them: without labels, before any tokenizer, since sites may differ in it."""

    kind: ClassVar[str] = "public_set"
    examples: Sequence[Mapping[str, Any]]

    @cached_property
    def digest(self) -> str:
        """What a site and the server compare to know that they hold the same set; it is in every upload, so short."""
        return sha256(self._json).hexdigest()[:16]

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {}, {"examples": torch.frombuffer(bytearray(self._json), dtype=torch.uint8)})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        try:
            examples = json.loads(packed.tensors["examples"].numpy().tobytes())
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            raise PayloadError("the public set can't be decoded") from error
        if not isinstance(examples, list) or not all(isinstance(example, dict) for example in examples):
            raise PayloadError("the public set must be a list of examples")
        return cls(examples)

    @cached_property
    def _json(self) -> bytes:
        return json.dumps(self.examples, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


DIGEST_BYTES, DIGEST_LETTERS = 16, 16


@_kind
@dataclass(frozen=True)
class BagScores(Payload):
    """A site's confidence in its best sentence for each of its facts; a fact is a digest under the sites' secret."""

    kind: ClassVar[str] = "bag_scores"
    facts: Tensor
    """[facts, 16] bytes, in order, none twice: what order a site keeps its facts in says nothing."""
    values: Tensor
    """[facts, 2] bytes: the confidence in 256 steps, offset by a value that only sites know."""

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {}, {"facts": self.facts, "values": self.values})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        number = len(packed.tensors["facts"]) if "facts" in packed.tensors and packed.tensors["facts"].ndim else 0
        shapes = {"facts": (number, DIGEST_BYTES), "values": (number, 2)}
        _check_manifest(packed.tensors, shapes, frozenset(shapes))
        facts, values = packed.tensors["facts"], packed.tensors["values"]
        if facts.dtype != torch.uint8 or values.dtype != torch.uint8:
            raise PayloadError("bag scores are bytes")
        names = [row.tobytes() for row in facts.numpy()]
        if names != sorted(set(names)):
            raise PayloadError("the facts of bag scores must be in order, each once")
        return cls(facts, values)


@_kind
@dataclass(frozen=True)
class Selection(Payload):
    """For each fact that a site scored, in its order, whether the site's sentence was chosen."""

    kind: ClassVar[str] = "selection"
    chosen: Tensor
    """[facts] bytes, 0 or 1."""

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {}, {"chosen": self.chosen})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        chosen = packed.tensors.get("chosen")
        if chosen is None or chosen.ndim != 1 or chosen.dtype != torch.uint8 or len(packed.tensors) != 1:
            raise PayloadError("a selection is one byte a fact")
        if bool((chosen > 1).any()):
            raise PayloadError("a selection says yes or no to each fact")
        return cls(chosen)


@_kind
@dataclass(frozen=True)
class VocabularyCounts(Payload):
    """Words and parts of words that at least `least` of a site's documents have, and how often: the one kind that
    holds pieces of text. A site's policy must name the number from which on it lets them leave."""

    kind: ClassVar[str] = "vocabulary_counts"
    fields: ClassVar[frozenset[str]] = frozenset({"least"})
    least: int
    counts: Mapping[str, int]

    def pack(self, compression: Compression) -> Packed:
        strings = "\n".join(sorted(self.counts)).encode()
        tensors = {
            "strings": torch.frombuffer(bytearray(strings), dtype=torch.uint8) if strings else torch.zeros(0).byte(),
            "counts": torch.tensor([self.counts[string] for string in sorted(self.counts)], dtype=torch.int64),
        }
        return Packed(self.kind, {"least": self.least}, tensors)

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        written, counts, least = packed.tensors.get("strings"), packed.tensors.get("counts"), packed.header.get("least")
        if written is None or counts is None or len(packed.tensors) != 2 or not isinstance(least, int) or least < 1:
            raise PayloadError("vocabulary counts are strings, how often each occurs, and from how many documents on")
        if (written.dtype, counts.dtype, written.ndim, counts.ndim) != (torch.uint8, torch.int64, 1, 1):
            raise PayloadError("vocabulary counts are bytes and whole numbers")
        try:
            strings = written.numpy().tobytes().decode().split("\n") if len(written) else []
        except UnicodeDecodeError as error:
            raise PayloadError("the strings of vocabulary counts can't be read") from error
        if strings != sorted(set(strings)) or "" in strings or len(strings) != len(counts):
            raise PayloadError("the strings of vocabulary counts must be in order, each once, with a count each")
        if len(counts) and not 1 <= int(counts.min()) <= int(counts.max()) < 1 << 53:
            raise PayloadError("a string of vocabulary counts occurs at least once")
        return cls(least, dict(zip(strings, counts.tolist(), strict=True)))


@_kind
@dataclass(frozen=True)
class Scores(Payload):
    """Named numbers that can be summed over sites: tp, fp, fn, n ..."""

    kind: ClassVar[str] = "scores"
    fields: ClassVar[frozenset[str]] = frozenset({"values"})
    values: Mapping[str, float]

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {"values": dict(self.values)}, {})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        values = packed.header.get("values")
        if not isinstance(values, dict) or packed.tensors:
            raise PayloadError("scores must be named numbers")
        if not all(isinstance(v, (int, float)) and abs(v) <= sys.float_info.max for v in values.values()):
            raise PayloadError("scores must be finite numbers")
        if any(len(name) > MOST_NAME for name in values):
            raise PayloadError(f"a score's name has at most {MOST_NAME} letters")
        return cls({str(name): float(value) for name, value in values.items()})


@_kind
@dataclass(frozen=True)
class Done(Payload):
    """Nothing but the word that it is done."""

    kind: ClassVar[str] = "done"

    def pack(self, compression: Compression) -> Packed:
        return Packed(self.kind, {}, {})

    @classmethod
    def unpack(cls, packed: Packed, expected: Expected) -> Self:
        if packed.tensors:
            raise PayloadError("'done' carries nothing")
        return cls()


def largest_upload(expected: Expected, examples: int) -> int:
    """Bytes that a payload of a site may have: by what is declared, and for bag scores by how many examples a site has
    at most, since it has no more facts than that."""
    widest = 8  # bytes of an integer; floats have four
    adapters = ((min(shape), sum(shape)) for shape in expected.adapted.values())
    shapes = (*expected.manifest.values(), *expected.tensors.values(), *adapters)
    weights = sum(widest * prod(shape) for shape in shapes)
    indices = sum(widest * expected.manifest[name][0] for name in expected.tables)
    answers = 4 * expected.public[0] * max(expected.classes, 2)
    return weights + indices + answers + examples * (DIGEST_BYTES + 2) + widest * expected.labels + MOST_LAYOUT


def _header(text: str) -> dict[str, Any]:
    """PayloadError where it is larger or deeper than any kind needs: what is measured later must not fail."""
    if len(text) > MOST_HEADER:
        raise PayloadError(f"a payload's header of {len(text)} letters is over the limit of {MOST_HEADER}")
    header = json.loads(text)
    if not isinstance(header, dict):
        raise TypeError
    inner = [value for field in header.values() if isinstance(field, dict) for value in field.values()]
    if any(isinstance(value, dict | list) for value in inner) or any(isinstance(v, list) for v in header.values()):
        raise PayloadError("a payload's header is nested deeper than any kind needs")
    return header


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) <= DIGEST_LETTERS


def _check_public(packed: Packed, digest: str) -> None:
    if packed.header.get("public") != digest:
        theirs = str(packed.header.get("public"))[: len(digest)]
        raise PayloadError(f"predictions are about version {theirs} of the public set, the server's is {digest}")


def _bytes_for(classes: int) -> int:
    """How many an index of a class takes."""
    return max(1, -(-(classes - 1).bit_length() // 8))


def _log(p: Tensor) -> Tensor:
    return p.clamp(min=torch.finfo(p.dtype).tiny).log()


def _shrink(tensor: Tensor, compression: Compression) -> Tensor:
    if compression == "int8":
        raise ConfigError("federation.compression = 'int8' is not for tensors of an algorithm's own")
    return tensor.half() if compression == "fp16" and tensor.dtype == torch.float32 else tensor


def _grow(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def _wired(values: Mapping[str, Tensor], rows: Mapping[str, Rows], compression: Compression) -> dict[str, Tensor]:
    """Tables of which rows travel have two entries: the rows, and which they are."""
    which = {name + OF_ROWS: some.index for name, some in rows.items()}
    whole = {**values, **{name: some.values for name, some in rows.items()}}
    return {**{name: _shrink(tensor, compression) for name, tensor in whole.items()}, **which}


def _unwired(
    packed: Packed,
    manifest: Mapping[str, tuple[int, ...]],
    tables: Collection[str],
    integers: frozenset[str] = frozenset(),
) -> tuple[dict[str, Tensor], dict[str, Rows]]:
    """What travelled whole, and the rows of these tables; PayloadError where it is not as declared."""
    found, shapes = dict(packed.tensors), dict(manifest)
    if SCALES in found:
        try:
            found = all_grown(found)
        except ValueError as problem:
            raise PayloadError(str(problem)) from problem
    for name in tables:
        index = found.get(name + OF_ROWS)
        if index is None or index.ndim != 1 or len(index) > manifest[name][0]:
            raise PayloadError(f"{name!r} must come as at most {manifest[name][0]} rows, and which they are")
        shapes |= {name: (len(index), *manifest[name][1:]), name + OF_ROWS: (len(index),)}
    _check_manifest(found, shapes, integers | {name + OF_ROWS for name in tables})
    _check_finite(found)
    rows = {}
    for name in sorted(tables):
        index = found.pop(name + OF_ROWS)
        if index.dtype != torch.int64 or bool((index[1:] <= index[:-1]).any()):
            raise PayloadError(f"the rows of {name!r} must be in order, each once")
        if len(index) and not 0 <= int(index[0]) <= int(index[-1]) < manifest[name][0]:
            raise PayloadError(f"{name!r} has {manifest[name][0]} rows, and others came")
        rows[name] = Rows(index, _grow(found.pop(name)))
    return {name: _grow(tensor) for name, tensor in found.items()}, rows


def _added(expected: Expected, values: Mapping[str, Tensor], rows: Mapping[str, Rows]) -> dict[str, Tensor]:
    """Weights, of which the differences came."""
    if expected.base is None:
        raise PayloadError("differences came where weights were expected")
    base = {name: expected.base[name].detach().cpu() for name in (*values, *rows)}
    whole = {
        name: base[name] + value if name not in expected.integers else value.to(base[name].dtype)
        for name, value in values.items()
    }
    for name, some in rows.items():
        whole[name] = base[name].index_add(0, some.index, some.values)
    _check_finite(whole)
    return whole


def _check_manifest(
    tensors: Mapping[str, Tensor],
    manifest: Mapping[str, tuple[int, ...]],
    integers: frozenset[str] = frozenset(),
) -> None:
    missing, surplus = manifest.keys() - tensors.keys(), tensors.keys() - manifest.keys()
    if missing or surplus:
        what, names = ("lacks", missing) if missing else ("has the undeclared", surplus)
        raise PayloadError(f"a payload {what} {min(names)!r} ({len(names)} such names)")
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != manifest[name]:
            raise PayloadError(f"{name!r} has shape {tuple(tensor.shape)}, declared was {manifest[name]}")
        if tensor.dtype not in (INTEGERS if name in integers else FLOATS):
            raise PayloadError(f"{name!r} has the type {tensor.dtype}, which was not declared")


def _check_finite(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        # A sum is finite only if every term is, and costs a twentieth of looking at each; it may overflow, though.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            raise PayloadError(f"{name!r} has values that are not finite")
