"""Answers those who ask a worker, instead of the busy snapshot, for the state and for what is decided by."""

from collections.abc import Callable

from shared.bus import Envelope
from shared.errors import FlotillaError
from shared.messages.inspection import ConfigurationRead, ReadConfiguration, ReadState, StateRead
from shared.store.pages import PageReader

MAX_ASKED = 64
"""Requests that wait; further ones are dropped, and repeated by who asks."""


class Relay:
    """One page is read at a time, so askers cost a worker no memory, and Redis little."""

    def __init__(self, reader: PageReader, configuration: Callable[[], ConfigurationRead]) -> None:
        self._reader = reader
        self._configuration = configuration

    async def answer(self, asked: ReadState | ReadConfiguration, envelope: Envelope) -> None:
        if isinstance(asked, ReadConfiguration):
            envelope.respond(self._configuration())
            return
        try:
            page = await self._reader.page(asked)
        except FlotillaError as cause:
            page = StateRead(problem=str(cause))
        envelope.respond(page)
