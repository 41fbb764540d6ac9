"""Connections to SuperLink: whoever opens one asks something soon, and in few words.

uvicorn waits without end for a request's headers and keeps all of them, and has a place for so many connections: a
stranger who opens them all and says nothing, or says it slowly, would keep every site out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

SOON = 30.0
"""Seconds in which a request's headers are there; between requests, too."""
MOST_HEADERS = 1 << 16
"""Bytes of them."""
MOST_SILENT = 100
"""Connections from one address that have not asked anything yet: those of sites ask at once."""
silent = Counter[str]()
"""How many there are."""


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # whichever of its two uvicorn has here
    _deadline: asyncio.TimerHandle | None = None
    _address, _unread, _asked = "", 0, False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = self.client[0] if self.client else ""
        silent[self._address] += 1
        if silent[self._address] > MOST_SILENT:
            transport.close()
        else:
            self._expect_headers()

    def connection_lost(self, error: Exception | None) -> None:
        self._has_asked()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._busy:
            self._has_asked()
            return
        self._unread += len(data)
        if self._unread > MOST_HEADERS:
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._busy:
            self._expect_headers()

    @property
    def _busy(self) -> bool:
        """Whether a request's headers are there, and it is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_headers(self) -> None:
        self._unread = 0
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(SOON, self._hang_up)

    def _has_asked(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._unread = 0
        if not self._asked:
            self._asked = True
            silent[self._address] -= 1
            if not silent[self._address]:
                del silent[self._address]

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
