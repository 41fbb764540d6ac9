"""What one site may leave in SuperLink's memory: one reply at a time, and no more of it than a reply can have.

Flower knows who pushes, and keeps whatever is pushed until the coordinator fetches it. It would also keep what a site
pushes as if it were the coordinator, and any number of further objects under the name of a reply that it has.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grandrounds.deployment.flower.internals import (
    PushMessagesRequest,
    PushMessagesResponse,
    PushObjectRequest,
    PushObjectResponse,
)


@dataclass
class _Push:
    """A reply that a site is pushing, or has pushed last."""

    ask: str
    reply: str
    left: int
    """Bytes that it may still have."""
    session: str = ""


class Quota:
    """Between SuperLink's routes and Flower's handlers of them, which are called with a request and a state."""

    def __init__(
        self,
        push_messages: Callable[..., PushMessagesResponse],
        push_object: Callable[..., PushObjectResponse],
        largest: int,
        keys: Mapping[str, bytes],
        say: Callable[[str, str], None],
    ) -> None:
        """`say` hears which site did what; `keys` are the sites'."""
        self._push_messages, self._push_object = push_messages, push_object
        self.largest, self._keys, self._say = largest, keys, say
        self._pushes: dict[int, _Push] = {}
        self._lock = threading.Lock()

    def push_messages(self, request: PushMessagesRequest, state: Any) -> PushMessagesResponse:
        """Flower's answer; where nothing is kept, the one that asks for no objects."""
        node = request.node.node_id
        with self._lock:
            if why := self._refusal(request):
                self._say(self._name(node, state), why)
                return PushMessagesResponse()
            about = request.messages_list[0].metadata
            push = self._pushes.get(node)
            if push is None or push.reply != about.message_id:
                if push is not None:  # the coordinator has it, or has stopped waiting for it
                    state.object_store.delete(push.reply)
                push = self._pushes[node] = _Push(about.reply_to_message_id, about.message_id, self.largest)
        response = self._push_messages(request=request, state=state)
        push.session = response.session_id
        return response

    def push_object(self, request: PushObjectRequest, state: Any) -> PushObjectResponse:
        node, size = request.node.node_id, len(request.object_content)
        with self._lock:
            push = self._pushes.get(node)
            if push is None or request.session_id != push.session:
                why = "an object of no reply of its own"
            elif size > push.left:
                push.left, why = 0, f"a reply of more than {self.largest} bytes"
            else:
                push.left, why = push.left - size, ""
            if why:
                self._say(self._name(node, state), why)
                return PushObjectResponse(stored=False)
        return self._push_object(request=request, state=state)

    def _refusal(self, request: PushMessagesRequest) -> str:
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            return "not one message at a time"
        about, push = request.messages_list[0].metadata, self._pushes.get(request.node.node_id)
        if not about.reply_to_message_id:
            return "a message that is no reply: only the coordinator asks"
        if about.src_node_id != request.node.node_id:
            return "a message in the name of another"
        if request.message_object_trees[0].object_id != about.message_id:
            return "objects of another message"
        if push is not None and push.ask == about.reply_to_message_id and push.reply != about.message_id:
            return "a second reply to one message"
        return ""

    def _name(self, node: int, state: Any) -> str:
        """Whose node it is."""
        return next((site for site, key in self._keys.items() if state.get_node_id_by_public_key(key) == node), "")
