"""Link: a process's connection to NATS, and local delivery beside it; the buses of all its services share one."""

import logging
from collections.abc import Callable
from typing import Protocol

from shared.bus.access import NatsAccess
from shared.bus.connection import Connection
from shared.bus.local import LocalDelivery
from shared.messages.limits import MAX_BYTES

PATIENCE = 30.0
"""Seconds to wait for NATS when a process starts."""


class User(Protocol):
    """A bus on the link. The link calls `takes` of one user after the other until one returns True."""

    def lost(self) -> None: ...

    def back(self) -> None: ...

    def takes(self, error: Exception) -> bool: ...


class Link:
    """Create it with `Link.open`."""

    def __init__(self, access: NatsAccess, name: str, log: logging.Logger, on_away: Callable[[str], None]) -> None:
        self._users: list[User] = []
        self.connection = Connection(
            access,
            name,
            log,
            payload=MAX_BYTES,
            on_lost=self._lost,
            on_back=self._back,
            on_error=self._heard_error,
            on_away=on_away,
        )
        self.local = LocalDelivery(self.connection.client)

    @classmethod
    async def open(
        cls,
        access: NatsAccess | str,
        name: str,
        log: logging.Logger,
        *,
        patience: float = PATIENCE,
        on_away: Callable[[str], None] = lambda why: None,
    ) -> "Link":
        """`access` may be a plain URL. `on_away` gets the reason each time no server answers.

        UserError if the URL, a certificate or the credentials are wrong, ClusterError if no server answers in time.
        """
        link = cls(NatsAccess(url=access) if isinstance(access, str) else access, name, log, on_away)
        await link.connection.open(patience)
        return link

    def join(self, user: User) -> None:
        self._users.append(user)

    def leave(self, user: User) -> None:
        if user in self._users:
            self._users.remove(user)

    async def close(self) -> None:
        """Messages that were sent before still arrive, if that is quick."""
        await self.connection.close()

    def _lost(self) -> None:
        for user in self._users:
            user.lost()

    def _back(self) -> None:
        for user in self._users:
            user.back()

    def _heard_error(self, error: Exception) -> None:
        for user in self._users:
            if user.takes(error):
                return
