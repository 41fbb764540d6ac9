"""SuperLink keeps one reply of a site at a time, and no more of it than a reply can have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree, PushObjectRequest, PushObjectResponse
from flwr.proto.node_pb2 import Node

from grandrounds.deployment.flower.quota import Quota

SITE, OTHER, LARGEST = 7, 8, 1000


class Link:
    """Flower's handlers, which keep everything; and what the quota says."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.said: list[tuple[str, str]] = []
        self.quota = Quota(self._messages, self._object, LARGEST, {"mercy": b"key"}, lambda *who: self.said.append(who))
        self.object_store = SimpleNamespace(delete=lambda name: self.kept.pop(name, None))

    def get_node_id_by_public_key(self, key: bytes) -> int:
        return SITE

    def _messages(self, request: Any, state: Any) -> PushMessagesResponse:
        name = request.messages_list[0].metadata.message_id
        self.kept.setdefault(name, 0)
        return PushMessagesResponse(session_id=f"session of {name}", objects_to_push=["a"])

    def _object(self, request: Any, state: Any) -> PushObjectResponse:
        self.kept[request.session_id.removeprefix("session of ")] += len(request.object_content)
        return PushObjectResponse(stored=True)

    def announce(self, reply: str, ask: str, sender: int = SITE, tree: str = "", times: int = 1) -> str:
        """The session that it gives; empty: nothing is kept."""
        about = Metadata(message_id=reply, reply_to_message_id=ask, src_node_id=sender)
        request = PushMessagesRequest(
            node=Node(node_id=SITE),
            messages_list=[Message(metadata=about)] * times,
            message_object_trees=[ObjectTree(object_id=tree or reply)] * times,
        )
        return str(self.quota.push_messages(request=request, state=self).session_id)

    def push(self, session: str, size: int, node: int = SITE) -> bool:
        request = PushObjectRequest(node=Node(node_id=node), session_id=session, object_content=b"x" * size)
        return bool(self.quota.push_object(request=request, state=self).stored)


def test_a_reply_has_so_many_bytes_and_no_more() -> None:
    link = Link()
    session = link.announce("reply", "ask")
    assert [link.push(session, size) for size in (600, 400, 1)] == [True, True, False]
    assert link.kept == {"reply": LARGEST}
    assert link.said == [("mercy", "a reply of more than 1000 bytes")]
    assert link.announce("reply", "ask") == session  # once more under the same name: the count goes on
    assert not link.push(session, 1)


def test_what_is_left_of_a_reply_goes_when_the_next_one_comes() -> None:
    """A site that is always too late leaves one reply in memory, not one a round."""
    link = Link()
    for round in range(50):
        assert link.push(link.announce(f"reply {round}", f"ask {round}"), LARGEST)
    assert link.kept == {"reply 49": LARGEST}


def test_the_limit_is_what_the_coordinator_says_last() -> None:
    link = Link()
    link.quota.largest = 5000
    assert link.push(link.announce("reply", "ask"), 5000)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"reply": "forged", "ask": ""}, "a message that is no reply: only the coordinator asks"),
        ({"reply": "forged", "ask": "2", "sender": OTHER}, "a message in the name of another"),
        ({"reply": "forged", "ask": "2", "tree": "another"}, "objects of another message"),
        ({"reply": "forged", "ask": "1"}, "a second reply to one message"),
        ({"reply": "forged", "ask": "2", "times": 2}, "not one message at a time"),
    ],
)
def test_a_site_pushes_replies_of_its_own_and_nothing_else(how: Any, why: str) -> None:
    link = Link()
    assert link.announce("reply", "1")
    assert link.announce(**how) == ""
    assert (list(link.kept), link.said) == (["reply"], [("mercy", why)])


def test_objects_belong_to_a_reply_of_who_pushes_them() -> None:
    link = Link()
    session = link.announce("reply", "ask")
    assert not link.push(session, 1, OTHER)
    assert not link.push("", 1)
    assert {why for _, why in link.said} == {"an object of no reply of its own"}
