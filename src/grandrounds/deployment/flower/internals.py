"""All that we use of Flower beyond its public API (`flwr.app`, `flwr.serverapp`, `flwr.clientapp`).

Any release may move these, so `flwr` is pinned to one version, and a test names each of them.
"""

# mypy: implicit-reexport
# ruff: noqa: F401

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flwr.app.message import remove_content_from_message
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import fab_to_proto, message_from_proto, message_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PushObjectRequest, PushObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullAppMessagesRequest, PullTaskInputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    ObjectUnavailableError,
    inflate_object_from_contents,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor


def run_superlink(
    middleware: Callable[[], tuple[Any, ...]], connections: int, replaced: Callable[[Any, Any], tuple[Any, Any]]
) -> None:
    """Flower's SuperLink with this middleware, so many connections at most, and its handlers of pushed messages and
    objects replaced. Its database and web server are imported only where it runs."""
    import uvicorn
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from flwr.superlink.servicer.fleet import fleet_handlers

    from grandrounds.deployment.flower.connections import Connection

    extensions.get_middleware = middleware
    uvicorn.run = partial(uvicorn.run, limit_concurrency=connections, http=Connection, ws="none")
    handlers = fleet_handlers.push_messages, fleet_handlers.push_object
    fleet_handlers.push_messages, fleet_handlers.push_object = replaced(*handlers)
    flower_superlink()
