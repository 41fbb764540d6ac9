"""The coordinator's side: asks go out over Flower's Grid, answers come back in site order.

A reply counts once, for the ask that waits for it: whatever is late or repeated is never looked at again, and what
answers something else is rejected. A site that comes back within an exchange is asked anew; it starts from the state
that the ask names.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import httpx
from flwr.app import Array, Message, RecordDict
from flwr.serverapp import Grid

from grandrounds.deployment.flower.internals import ObjectPushError
from grandrounds.deployment.flower.records import from_records, to_records
from grandrounds.deployment.heads import SignedHead, read_heads, write_heads
from grandrounds.deployment.keys import PublicKey
from grandrounds.deployment.protocol import Answered, Asked, AskMethod, Refused, Request, Response, Said, decode, encode
from grandrounds.errors import GrandRoundsError, foreign
from grandrounds.federation.exchange import Answer, Ask
from grandrounds.federation.payloads import Packed, PayloadError

MOST_MISSED, GRACE = 3, 1.0
"""Answers that a site may owe us in a row before it costs nobody's time any more; seconds that it has at least."""
LARGE = 1 << 20
"""Bytes above which a reply that is early waits on disk."""


class Letter(NamedTuple):
    """A message to a site, and the payloads that go with it."""

    site: str
    message: Asked
    payloads: Sequence[bytes] = ()


@dataclass
class Presence:
    """What the coordinator knows of a site's whereabouts."""

    node: int = 0
    online: bool = False
    since: str = ""
    """When it joined; another value is another life of the site's process."""
    seen: float = 0.0
    doing: str = ""
    asked: float = 0.0
    answered: float = 0.0
    refused: str = ""
    """Why it takes no part in this run."""
    bytes_up: int = 0
    bytes_down: int = 0


class Roster:
    """Which site is which of Flower's nodes: by the public key that the coordinator was given for it."""

    def __init__(self, grid: Grid, keys: Mapping[bytes, str], every: float = 1.0) -> None:
        self.sites = {name: Presence() for name in sorted(keys.values())}
        self._grid, self._keys, self._every = grid, dict(keys), every
        self._looked = float("-inf")

    def look(self) -> Mapping[str, Presence]:
        """Who is there, at most a second old."""
        if time.monotonic() - self._looked >= self._every:
            self._looked = time.monotonic()
            here = {}
            with _heard():
                nodes = list(self._grid.get_nodes())
            for node in nodes:
                if node.public_key in self._keys and node.status in ("", "online"):
                    here[self._keys[node.public_key]] = node
            for name, presence in self.sites.items():
                presence.online = name in here
                if name in here:
                    node = here[name]
                    presence.node, presence.since = node.node_id, node.last_activated_at
                    presence.seen = time.time()
        return self.sites


@dataclass
class _Pending:
    """A request that waits for its response."""

    request: Request
    payloads: Sequence[bytes]
    messages: list[str] = field(default_factory=list)
    """Flower's names for it, one for each time that it was sent: a reply to any of them will do."""
    since: str | None = None
    """The life of the site's process that it was sent to."""
    gone: float | None = None
    """Since when the site has been out of sight."""


@dataclass(frozen=True)
class Received:
    """What a site says to a request, or why it says nothing."""

    site: str
    response: Response | None = None
    payloads: Sequence[bytes] = ()
    lost: str = ""
    waiting: tuple[Path, Sequence[int]] | None = None
    """Where its payloads lie meanwhile, and how long each is."""
    arrived: float = field(default_factory=time.time)

    @property
    def message(self) -> Said | None:
        return None if self.response is None else self.response.message

    def unspooled(self) -> Received:
        if self.waiting is None:
            return self
        path, lengths = self.waiting
        with path.open("rb") as file:
            payloads = [file.read(length) for length in lengths]
        path.unlink()
        return replace(self, payloads=payloads, waiting=None)


class OverGrid:
    """Sites on other hosts."""

    def __init__(
        self,
        grid: Grid,
        roster: Roster,
        spool: Path,
        *,
        deadline: float = 3600.0,
        absence: float = 180.0,
        poll: float = 0.1,
        idle: Callable[[], None] = lambda: None,
        keys: Mapping[str, PublicKey] | None = None,
        logs: Path | None = None,
    ) -> None:
        """`idle` is called while waiting: to draw a table, to see that SuperLink is alive. `logs` is where the heads of
        sites' audit logs are kept, signed with their `keys`."""
        self._keys, self._logs = keys, logs
        self.heads = read_heads(logs) if logs is not None else {}
        self.roster = roster
        self.registered: dict[str, str] = {}
        """Digests of what sites registered, which every answer must repeat."""
        self.largest = 1 << 34
        """Bytes of a payload from a site; less, once it is known what they can be."""
        self._grid, self._spool, self._poll, self._idle = grid, spool, poll, idle
        self._deadline, self._absence = deadline, absence
        self._session, self._number = secrets.token_hex(8), 0
        self._reported: dict[str, str] = {}
        self._missed: dict[str, int] = {}
        """How many answers in a row a site owes us though it is in sight."""
        self._punctual: float | None = None
        """When all had answered but sites that owe several."""
        self._heard = False
        self.close()  # a coordinator that was killed may have left replies

    def exchange(self, asks: Sequence[Ask]) -> Iterator[Answer]:
        encoded: dict[int, bytes] = {}
        for received in self.converse([_letter(ask, encoded) for ask in asks]):
            yield self._answer(received)

    def converse(self, letters: Sequence[Letter], patience: float | None = None) -> Iterator[Received]:
        """Send each site its letter; responses come in the order of the letters."""
        self._spool.mkdir(parents=True, exist_ok=True)
        pending, arrived = dict[str, _Pending](), dict[str, Received]()
        for site, message, payloads in letters:
            if site not in self.roster.sites:  # its key was withdrawn
                arrived[site] = Received(site, lost="gone: the coordinator holds no key of it any more")
                continue
            self._number += 1
            pending[site] = _Pending(Request(id=f"{self._session}.{self._number}", message=message), payloads)
        began, self._punctual, self._heard = time.monotonic(), None, False
        until, wait = began + (patience or self._deadline), self._poll
        for site, _, _ in letters:
            while site not in arrived:
                self._send(pending)
                came = self._receive(pending, arrived, site)
                self._give_up(pending, arrived, until, patience or self._deadline, began)
                self._turn_away()
                self._idle()
                wait = self._poll if came else min(wait * 1.2, 1.0)
                if site not in arrived:
                    time.sleep(wait)
            yield arrived.pop(site).unspooled()

    def _answer(self, received: Received) -> Answer:
        return replace(self._checked(received), arrived=received.arrived)

    def _checked(self, received: Received) -> Answer:
        if received.response is None:
            return Answer(received.site, lost=received.lost)
        try:
            if not isinstance(received.message, Answered):
                raise PayloadError("it is not an answer to an ask")
            answer = received.message.answer(received.site, received.payloads, self.largest)
        except Exception as problem:  # of one site's making: the others' round goes on
            return Answer(received.site, lost=f"rejected: {_why(problem)}")
        known = self.registered.get(received.site)
        if not answer.payloads or known is None or received.response.registration == known:
            return answer
        # It was started again with other data.
        return Answer(answer.site, lost="rejected: it holds other data than it registered before round 1")

    def flush(self) -> None:
        """A site's private state is on its disk before its reply leaves; what it signed so far is on ours."""
        if self._logs is not None:
            write_heads(self._logs, self.heads)

    def close(self) -> None:
        for left in self._spool.glob("*.reply"):
            left.unlink()

    def _send(self, pending: Mapping[str, _Pending]) -> None:
        """To whom it was not sent yet, and to sites that were away since and may know nothing of it any more."""
        here, arrays = self.roster.look(), dict[int, Array]()
        unsent = [
            (waiting, here[site])
            for site, waiting in pending.items()
            if here[site].online and waiting.since != here[site].since
        ]
        messages = [
            Message(
                to_records(encode(waiting.request), waiting.payloads, arrays),
                presence.node,
                "query",
                ttl=self._deadline + 60,
            )
            for waiting, presence in unsent
        ]
        if not messages:
            return
        with _heard():
            names = list(self._grid.push_messages(messages))
        for (waiting, presence), name in zip(unsent, names, strict=bool(names)):  # none at all: SuperLink took none
            if name is not None:
                waiting.messages.append(name)
                waiting.since = presence.since
                presence.doing, presence.asked = _doing(waiting.request.message), time.time()
                presence.bytes_down += sum(map(len, waiting.payloads))

    def _receive(self, pending: dict[str, _Pending], arrived: dict[str, Received], turn: str) -> bool:
        by_message = {name: site for site, waiting in pending.items() for name in waiting.messages}
        if not by_message:
            return False
        came = False
        with _heard():
            messages = list(self._grid.pull_messages(list(by_message)))
        for message in messages:
            site = by_message.get(message.metadata.reply_to_message_id)
            if site is None or site not in pending:
                continue
            if message.has_error():  # out of Flower's sight for a minute: it will be asked again if it comes back
                pending[site].messages.remove(message.metadata.reply_to_message_id)
                pending[site].since = pending[site].since if pending[site].messages else None
                continue
            reply = self._signed(_read(site, message.content, pending[site].request.id))
            came = self._heard = True
            self._missed.pop(site, None)
            arrived[site] = self._early(reply) if site != turn else reply
            presence = self.roster.sites[site]
            presence.doing, presence.answered = "", reply.arrived
            presence.bytes_up += sum(map(len, reply.payloads))
            del pending[site]
        return came

    def _signed(self, reply: Received) -> Received:
        """The reply, with the head of the site's log noted down; rejected where that is not signed with its key."""
        if self._keys is None or reply.response is None:
            return reply
        head = SignedHead(reply.response.log, reply.response.signature)
        if not head.signed_by(self._keys[reply.site]):
            return Received(reply.site, lost="rejected: the head of its log is not signed with its key")
        self.heads[reply.site] = head
        return reply

    def _give_up(
        self,
        pending: dict[str, _Pending],
        arrived: dict[str, Received],
        until: float,
        patience: float,
        began: float,
    ) -> None:
        now = time.monotonic()
        self._look_who_is_punctual(pending, now)
        # Whoever is silent again and again has as much time again as the others took, and no more.
        over = self._punctual is not None and now - self._punctual >= max(self._punctual - began, GRACE)
        nobody = not any(presence.online for presence in self.roster.sites.values())
        for site, waiting in list(pending.items()):
            if nobody or self.roster.sites[site].online:
                waiting.gone = None  # where nobody is in sight, it is we who are cut off
            elif waiting.gone is None:
                waiting.gone = now
            silent = over and self._missed.get(site, 0) >= MOST_MISSED
            late = now >= until or silent
            if late or (waiting.gone is not None and now - waiting.gone >= self._absence):
                if late and waiting.gone is None:
                    why = self._late(site, silent, patience)
                else:
                    why = f"cut off: not seen for {now - (waiting.gone or now):.0f} s"
                arrived[site] = Received(site, lost=why)
                self.roster.sites[site].doing = ""
                del pending[site]

    def _look_who_is_punctual(self, pending: Mapping[str, _Pending], now: float) -> None:
        if not self._heard or any(self._missed.get(site, 0) < MOST_MISSED for site in pending):
            self._punctual = None
        elif self._punctual is None:
            self._punctual = now

    def _late(self, site: str, silent: bool, patience: float) -> str:
        self._missed[site] = missed = self._missed.get(site, 0) + 1
        if silent:
            return f"late: no answer for the {missed}th time in a row, so it was not waited for"
        further = "; from now on it is not waited for longer than the others" if missed == MOST_MISSED else ""
        return f"late: no answer within {patience:g} s{further}"

    def _turn_away(self) -> None:
        """A site that comes after the run began hears so, once, instead of waiting for an ask that never comes."""
        if not self.registered:
            return
        for site, presence in self.roster.sites.items():
            if presence.online and site not in self.registered and self._reported.get(site) != presence.since:
                self._reported[site] = presence.since
                presence.refused = why = f"this run began without site '{site}'; join the next one"
                request = encode(Request(id="", message=Refused(why=why)))
                with _heard():
                    self._grid.push_messages([Message(to_records(request), presence.node, "query", ttl=60)])

    def _early(self, reply: Received) -> Received:
        """A large one waits on disk till it is its turn, so that memory does not grow with the number of sites."""
        if sum(map(len, reply.payloads)) < LARGE:
            return reply
        path = self._spool / f"{self.roster.sites[reply.site].node}.reply"
        path.write_bytes(b"".join(reply.payloads))
        return replace(reply, payloads=(), waiting=(path, tuple(map(len, reply.payloads))))


def _letter(ask: Ask, encoded: dict[int, bytes]) -> Letter:
    """What goes to all sites is encoded once."""
    payloads: list[bytes] = []

    def put(packed: Packed) -> int:
        if id(packed) not in encoded:
            encoded[id(packed)] = packed.to_bytes()
        payloads.append(encoded[id(packed)])
        return len(payloads) - 1

    return Letter(ask.site, AskMethod.of(ask, put), payloads)


class _Clock:
    """Whether somebody set this machine's clock, against one that nobody can set."""

    FAR = 60.0
    """Seconds; time servers correct less at once."""

    def __init__(self) -> None:
        self._last, self.jump = time.time() - time.monotonic(), 0.0

    def look(self) -> None:
        now = time.time() - time.monotonic()
        if abs(now - self._last) > self.FAR:
            self.jump = self.jump or now - self._last
        self._last = now


CLOCK = _Clock()


@contextmanager
def _heard() -> Iterator[None]:
    """SuperLink is on our own machine: if it does not answer, or does not take a message, it is gone, or the clock that
    it goes by was set."""
    CLOCK.look()
    try:
        yield
    except (httpx.HTTPError, ObjectPushError) as error:
        CLOCK.look()
        why = f"Flower's SuperLink no longer answers ({error})"
        if CLOCK.jump:
            why = f"this machine's clock jumped by {CLOCK.jump:+.0f} s, and Flower's SuperLink goes by it; set it"
        raise GrandRoundsError(f"{why}; go on with --resume") from error


def _read(site: str, content: RecordDict, wanted: str) -> Received:
    """The response to this very request. Flower takes one reply to a message, so no other will follow it."""
    try:
        data, payloads = from_records(content)
        response = decode(Response, data)
    except Exception as problem:
        return Received(site, lost=f"rejected: {_why(problem)}")
    if response.id != wanted:
        return Received(site, lost="rejected: its reply is to another request")
    return Received(site, response, payloads)


def _why(problem: Exception) -> str:
    ours = isinstance(problem, PayloadError)
    return foreign(str(problem)) if ours else f"it can't be read ({type(problem).__name__})"


def _doing(message: Asked) -> str:
    return message.method if isinstance(message, AskMethod) else message.what
