"""Low-rank adapters (LoRA, Hu et al., 2022): W x + (alpha / rank) B A x, where W is frozen and B starts at zero.

peft puts them into an encoder; a finished model has them added to W, so that reading it needs no peft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from grandrounds.errors import ConfigError

ADAPTER = "default"
"""What peft calls the only one."""
LORA_A, LORA_B = (f".lora_{part}.{ADAPTER}.weight" for part in "AB")
"""How the names of its weights end, after that of the layer."""
ALSO_CALLED = {"query": ("q_lin", "query_proj"), "value": ("v_lin", "value_proj"), "key": ("k_lin", "key_proj")}
"""By DistilBERT and DeBERTa."""


@dataclass(frozen=True)
class Lora:
    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    modules: tuple[str, ...] = ("query", "value")
    """Linear layers that get an adapter, by the end of their name; the encoder must have each."""

    def put_into(self, model: nn.Module, encoder: str) -> nn.Module:
        """The same network with adapters, of which alone gradients are taken; A is drawn from the global generator."""
        linear = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
        own = {module: _own_name(module, linear) for module in self.modules}
        found = [name for name in own.values() if name is not None]
        if len(found) < len(own):
            there = ", ".join(sorted({name.rpartition(".")[2] for name in linear})) or "none"
            asked = " or ".join(f"'{module}'" for module, name in own.items() if name is None)
            raise ConfigError(f"model.lora_modules: encoder '{encoder}' has no linear {asked}; it has {there}")
        peft = _peft()
        config = peft.LoraConfig(r=self.rank, lora_alpha=self.alpha, lora_dropout=self.dropout, target_modules=found)
        adapted: nn.Module = peft.inject_adapter_in_model(config, model, ADAPTER)
        return adapted


def _own_name(module: str, linear: Sequence[str]) -> str | None:
    """What this encoder calls it."""
    names = (module, *ALSO_CALLED.get(module, ()))
    return next((name for name in names if any(f".{one}".endswith(f".{name}") for one in linear)), None)


def without_adapters(model: nn.Module) -> dict[str, Tensor]:
    """The state of the network as if W had been trained: adapters are added to it, and names are as they were."""
    named = {name: value for name, value in model.state_dict().items() if ".lora_" not in name}
    weights = {name.replace(".base_layer.", "."): value.detach() for name, value in named.items()}
    for name, part in adapted_layers(model).items():
        weights[f"{name}.weight"] = weights[f"{name}.weight"] + part.get_delta_weight(ADAPTER).detach()
    return weights


def check_adapted(model: nn.Module, lora: Lora | None) -> None:
    """Whether what was asked for is in the model: a task may build one without the encoder's transformer."""
    if lora is not None and not adapted_layers(model):
        raise ConfigError(
            "model.parameter_efficient = 'lora' adapts a transformer, and this task's model has none; name one as "
            "model.encoder, or set it to 'off'"
        )


def adapted_layers(model: nn.Module) -> Mapping[str, Any]:
    return {name: part for name, part in model.named_modules() if hasattr(part, "get_delta_weight")}


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise ConfigError("model.parameter_efficient = 'lora' needs peft; pip install grandrounds[lora]") from error
    return peft
