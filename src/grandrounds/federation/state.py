"""State dicts on disk without pickle: tensors in safetensors, everything round them in JSON.

A state dict of torch's (module, optimiser, scheduler) is a tree of dicts and lists; `flatten` takes its tensors out,
`rebuild` puts them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn


class Stateful(Protocol):
    """Modules, optimisers and schedulers: torch's own protocol."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> object: ...


def unfrozen(module: nn.Module) -> dict[str, Tensor]:
    """What of its state may change: all but the parameters that take no gradient, which are as they were built."""
    frozen = {name for name, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad}
    return {name: value for name, value in module.state_dict().items() if name not in frozen}


def state_of(part: Stateful) -> dict[str, Any]:
    """What must be saved of it."""
    return unfrozen(part) if isinstance(part, nn.Module) else part.state_dict()


def put_back(part: Stateful, state: dict[str, Any]) -> None:
    """What `state_of` gave; a module keeps what is not in it."""
    if isinstance(part, nn.Module):
        copy_into(part, state)
    else:
        part.load_state_dict(state)


def copy_into(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        own = module.state_dict()
        for name, value in values.items():
            own[name].copy_(value)


class TensorState(dict[str, Tensor]):
    """Named tensors that live on from round to round."""

    def state_dict(self) -> dict[str, Any]:
        """As torch's modules give it."""
        return dict(self)

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Take these tensors in place of those that are there."""
        self.clear()
        self.update(state)


@dataclass(frozen=True)
class Flat:
    """A state dict as tensors and the JSON that says where they go."""

    tensors: Mapping[str, Tensor]
    tree: Any

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


def flatten(state: Any) -> Flat:
    """A copy: later training does not change it."""
    tensors: dict[str, Tensor] = {}
    tree = _flatten(state, "", tensors)
    return Flat(tensors, tree)


def rebuild(flat: Flat) -> Any:
    return _rebuild(flat.tree, flat.tensors)


def _flatten(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    match value:
        case Tensor():
            name = f"{len(tensors)}{path}"  # keys may hold a slash, or be 1 and "1": the number makes it unique
            tensors[name] = value.detach().cpu().clone().contiguous()
            return {"tensor": name}
        case Mapping():
            return {"dict": [[key, _flatten(item, f"{path}/{key}", tensors)] for key, item in value.items()]}
        case list() | tuple():
            name = "list" if isinstance(value, list) else "tuple"
            return {name: [_flatten(item, f"{path}/{i}", tensors) for i, item in enumerate(value)]}
        case None | bool() | int() | float() | str():
            return {"plain": value}
    raise TypeError(
        f"a state dict may hold tensors, dicts, lists and plain values, not {type(value).__name__} at {path}"
    )


def _rebuild(tree: dict[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    ((kind, value),) = tree.items()
    match kind:
        case "tensor":
            return tensors[value].clone()  # an optimiser changes in place what it has loaded
        case "dict":
            return {key: _rebuild(item, tensors) for key, item in value}
        case "list":
            return [_rebuild(item, tensors) for item in value]
        case "tuple":
            return tuple(_rebuild(item, tensors) for item in value)
    return value
