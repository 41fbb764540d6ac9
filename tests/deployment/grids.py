"""Flower's Grid in memory: messages are really encoded and decoded, and may be lost, repeated or late on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from grandrounds.config.schema import make_config
from grandrounds.deployment.flower.grid import OverGrid, Roster
from grandrounds.deployment.flower.node import app_of
from grandrounds.deployment.handler import MessageHandler
from grandrounds.deployment.keys import CURVE
from grandrounds.deployment.ledger import SiteLedger
from grandrounds.deployment.protocol import Asked, Request, Response, Said, decode, encode
from grandrounds.federation.audit import Audit
from grandrounds.federation.contract import Registration
from grandrounds.federation.runner import SiteRunner
from grandrounds.runs.folder import RunFolder
from grandrounds.runs.loop import RoundLoop, Silent
from grandrounds.simulation.prepare import Simulation, prepare

TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
Trouble = Callable[[str, Message], list[Message]]
"""What becomes of a site's reply on its way."""


class MemoryGrid(Grid):
    def __init__(self, apps: Mapping[str, ClientApp], trouble: Trouble = lambda site, reply: [reply]) -> None:
        self.sites = dict(enumerate(sorted(apps), start=2))
        self.apps, self.trouble = apps, trouble
        self.away: set[str] = set()
        self.lives = dict.fromkeys(apps, 1)
        self.replies: list[Message] = []
        self.bytes = 0

    def keys(self) -> dict[bytes, str]:
        return {site.encode(): site for site in self.apps}

    def get_node_ids(self) -> Iterable[int]:
        return list(self.sites)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=node, public_key=site.encode(), status="online", last_activated_at=str(self.lives[site]))
            for node, site in self.sites.items()
            if site not in self.away
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            site = self.sites[message.metadata.dst_node_id]
            arrived = self.carried(message)
            ids.append(arrived.metadata.message_id)
            if site in self.away:
                reply = Message(Error(code=3, reason="node unavailable"), reply_to=arrived)
            else:
                context = Context(1, arrived.metadata.dst_node_id, {}, RecordDict(), {})
                reply = self.carried(self.apps[site](arrived, context))
            self.replies += self.trouble(site, reply)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Like SuperLink's, and worse: replies that nobody waits for come too."""
        came, self.replies = self.replies, []
        return came

    def carried(self, message: Message) -> Message:
        """What arrives of it: bytes, put together again."""
        name = message.object_id
        objects = {key: value.deflate() for key, value in get_all_nested_objects(message).items()}
        self.bytes += sum(map(len, objects.values()))
        arrived = inflate_object_from_contents(name, objects)
        assert isinstance(arrived, Message)
        arrived.metadata.__dict__["_message_id"] = name
        return arrived

    def set_run(self, run: Any) -> None: ...
    def run(self) -> Any: ...  # type: ignore[override]
    def create_message(self, *given: Any, **named: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *given: Any, **named: Any) -> Iterable[Message]:
        raise NotImplementedError


def handlers(simulation: Simulation, host: SiteRunner, folder: Path, rounds: int = 9) -> dict[str, MessageHandler]:
    """A handler for each site, each with its own audit log."""
    made = {}
    for name, site_data in simulation.sites.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        made[name] = handler(host, site_data.registration, folder / name, rounds=rounds)
    return made


def handler(
    host: SiteRunner,
    registration: Registration,
    folder: Path,
    key: Any = None,
    rounds: int = 9,
    checkpoint_every: int = 1,
) -> MessageHandler:
    log = folder / "audit.jsonl"
    key = key or ec.generate_private_key(CURVE())
    ledger = SiteLedger(log, rounds, host.algorithm, checkpoint_every)
    return MessageHandler(host, registration, {}, Audit(log), key, folder, ledger)


def over(grid: MemoryGrid, folder: Path, **options: Any) -> OverGrid:
    settings: dict[str, Any] = {"deadline": 5.0, "absence": 0.3, "poll": 0.001, **options}
    return OverGrid(grid, Roster(grid, grid.keys(), every=0.0), folder / "spool", **settings)


def apps(handlers: Mapping[str, MessageHandler]) -> dict[str, ClientApp]:
    return {name: app_of(handler) for name, handler in handlers.items()}


def reported(handler: MessageHandler, message: Asked) -> Said:
    """What a handler says to a message without payloads."""
    data, sent = handler(encode(Request(id="1", message=message)), [])
    assert sent == []
    response = decode(Response, data)
    assert (response.id, response.registration) == ("1", handler.digest)
    return response.message


def run_over_grid(
    content: Mapping[str, Any],
    out: Path,
    trouble: Trouble = lambda site, reply: [reply],
    kind: type[MemoryGrid] = MemoryGrid,
    **options: Any,
) -> MemoryGrid:
    """The run of `grandrounds.run`, with a handler and a Grid between the server and each site."""
    config = make_config(content)
    folder = RunFolder(out, config, resume=False)
    simulation = prepare(config, Path(), out)
    folder.claim(config)
    host = simulation.runner(config, out, memory=0)
    grid = kind(apps(handlers(simulation, host, out / "sites", config.federation.rounds)), trouble)
    sites = [site_data.registration for _, site_data in sorted(simulation.sites.items())]
    RoundLoop(config, folder, simulation, sites, over(grid, out, **options), Silent()).go()
    folder.close()
    return grid


def asked_by(reply: Message) -> Message:
    """A message whose reply would be taken for this one's."""
    message = Message(reply.content, dst_node_id=reply.metadata.src_node_id, message_type="query")
    message.metadata.__dict__["_message_id"] = reply.metadata.reply_to_message_id
    return message
