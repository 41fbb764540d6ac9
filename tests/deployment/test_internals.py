"""What we use of Flower beyond its public API: each name is there, and only one file imports them."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import grandrounds
from grandrounds.deployment.flower import internals

ROOT = Path(grandrounds.__file__).parent
PUBLIC = ("flwr.app", "flwr.serverapp", "flwr.clientapp")
INTERNAL = {
    "flwr.app.message": "remove_content_from_message",
    "flwr.cli.build": "build_fab_from_disk",
    "flwr.common.constant": "SUPERLINK_NODE_ID",
    "flwr.common.serde": "fab_to_proto message_from_proto message_to_proto run_from_proto",
    "flwr.proto.control_pb2": "RegisterNodeRequest StartRunRequest",
    "flwr.proto.fleet_pb2": (
        "ActivateNodeRequest DeactivateNodeRequest PullMessagesRequest PushMessagesRequest PushMessagesResponse"
    ),
    "flwr.proto.heartbeat_pb2": "SendNodeHeartbeatRequest",
    "flwr.proto.message_pb2": "ConfirmMessageReceivedRequest PushObjectRequest PushObjectResponse",
    "flwr.proto.node_pb2": "Node",
    "flwr.proto.runtime_pb2": "AcquireTaskRequest PullAppMessagesRequest PullTaskInputRequest",
    "flwr.supercore.constant": "TaskType",
    "flwr.supercore.control": "ControlHttpClient",
    "flwr.supercore.fab": "Fab",
    "flwr.supercore.heartbeat": "HeartbeatSender make_task_heartbeat_fn_http",
    "flwr.supercore.inflatable.inflatable_object": (
        "get_all_nested_objects get_object_tree iterate_object_tree no_object_id_recompute"
    ),
    "flwr.supercore.inflatable.inflatable_protobuf_utils": (
        "make_confirm_message_received_fn_protobuf make_pull_object_fn_protobuf make_push_object_fn_protobuf"
    ),
    "flwr.supercore.inflatable.inflatable_utils": (
        "ObjectPullError ObjectPushError ObjectUnavailableError inflate_object_from_contents "
        "pull_and_inflate_object_from_tree push_objects"
    ),
    "flwr.supercore.interceptors": "RuntimeTokenHttpInterceptor RuntimeVersionHttpInterceptor",
    "flwr.supercore.primitives.asymmetric": "public_key_to_bytes",
    "flwr.supercore.protobuf.client": "ProtobufCall ProtobufRequestContext",
    "flwr.supercore.runtime": "RuntimeHttpClient",
    "flwr.supercore.task_identity": "TaskIdentity",
    "flwr.superlink": "extensions",
    "flwr.superlink.cli.flower_superlink": "flower_superlink",
    "flwr.superlink.extensions": "get_middleware",
    "flwr.superlink.grid": "HttpGrid",
    "flwr.superlink.servicer.fleet": "fleet_handlers",
    "flwr.supernode.fleet_http_client": "FleetHttpClient",
    "flwr.supernode.node_auth_http_interceptor": "NodeAuthHttpInterceptor",
}
NAMES = [(module, name) for module, names in INTERNAL.items() for name in names.split()]


def internal_imports(source: str) -> list[tuple[str, str]]:
    """Module and name of each import from Flower that is not of its public API."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(name.name, "") for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.module or "", name.name) for name in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] == "flwr" and module not in PUBLIC]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_flower_still_has_what_we_use_of_its_internals(module: str, name: str) -> None:
    try:
        found = hasattr(import_module(module), name) or import_module(f"{module}.{name}") is not None
    except ImportError:
        found = False
    assert found, f"this flwr has no '{name}' in '{module}': install the version that pyproject.toml pins"


def test_the_list_above_is_complete() -> None:
    source = Path(internals.__file__).read_text(encoding="utf-8")
    assert {*internal_imports(source), ("flwr.superlink.extensions", "get_middleware")} == set(NAMES)


def test_no_other_file_imports_an_internal_module() -> None:
    for path in ROOT.rglob("*.py"):
        if path != Path(internals.__file__):
            assert internal_imports(path.read_text(encoding="utf-8")) == [], path.relative_to(ROOT)


def test_the_walk_sees_what_it_must_refuse() -> None:
    assert internal_imports("import flwr.proto.node_pb2") == [("flwr.proto.node_pb2", "")]
    assert internal_imports("def f():\n    from flwr.superlink import grid") == [("flwr.superlink", "grid")]
    assert internal_imports("from flwr import cli") == [("flwr", "cli")]
    assert internal_imports("from flwr.app import Message\nimport flwrs") == []
