"""States as folders that are whole or absent, read back against their digests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors import torch as safetensors

from grandrounds.errors import GrandRoundsError
from grandrounds.federation.files import disk_error, sync, write_synced
from grandrounds.federation.state import Flat


class DamagedError(GrandRoundsError):
    """A saved state that is cut short or altered."""


def write_folder(folder: Path, flat: Mapping[str, Flat], record: Mapping[str, Any]) -> None:
    """Save states and a JSON record as one folder that appears at once, or not at all."""
    part = folder.with_name(f".{folder.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        digests = {}
        for name, state in flat.items():
            data = safetensors.save(dict(state.tensors))
            digests[name] = sha256(data).hexdigest()
            write_synced(part / f"{name}.safetensors", data)
        trees = {name: state.tree for name, state in flat.items()}
        text = json.dumps({"record": record, "trees": trees, "digests": digests}).encode()
        write_synced(part / "state.json", text)
        write_synced(part / "digest", sha256(text).hexdigest().encode())
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
        sync(folder.parent)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        raise disk_error(error, folder) from error


def read_folder(folder: Path) -> tuple[dict[str, Flat], dict[str, Any]]:
    """What `write_folder` saved; DamagedError where a byte is not as it was written."""
    try:
        text = (folder / "state.json").read_bytes()
        if sha256(text).hexdigest() != (folder / "digest").read_text().strip():
            raise DamagedError(f"{folder.name}/state.json is damaged")
        saved = json.loads(text)
        states = {}
        for name, digest in saved["digests"].items():
            data = (folder / f"{name}.safetensors").read_bytes()
            if sha256(data).hexdigest() != digest:
                raise DamagedError(f"{folder.name}/{name}.safetensors is damaged")
            states[name] = Flat(safetensors.load(data), saved["trees"][name])
        return states, saved["record"]
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise DamagedError(f"{folder.name} is incomplete") from error
