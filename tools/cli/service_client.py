"""Requests of the command line to running services, over NATS."""

import argparse
import logging
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from shared.bus import Bus, NatsAccess, NoAnswer
from shared.bus.access import where
from shared.config.setting_sources import URL_FILE_VARIABLE, Given
from shared.config.settings import Settings
from shared.config.sources import all_given, settings_from
from shared.errors import ClusterError
from shared.messages.codec import Message
from shared.telemetry import Telemetry
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer

CONNECT_TIMEOUT = 3.0
REPLY_TIMEOUT = 10.0
COMPARISON_TIMEOUT = 150.0
"""For comparing the cache with the API server; the snapshot gives up earlier."""
UNANSWERED = "it is starting, down, or has another prefix: flotilla status says which"
HINT = "set --nats or FLOTILLA_NATS_URL; flotilla up prints the variables to set"

M = TypeVar("M", bound=Message)


class ServiceClient:
    """Errors name the server, without its password, and the prefix."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self.bus = bus
        self.where = f"NATS at {where(settings.nats_url)}, prefix {settings.prefix!r}"

    async def request(
        self, service: str, subject: str, message: Message, reply: type[M], timeout: float = REPLY_TIMEOUT
    ) -> M:
        """ClusterError if the service does not reply in time."""
        try:
            return await self.bus.request(subject, message, reply, timeout=timeout)
        except NoAnswer as none:
            raise ClusterError(f"no reply from the {service}: {none.silence} ({self.where}); {UNANSWERED}") from none

    async def pages(self, service: str, subject: str, message: Any, reply: type[Any]) -> AsyncIterator[Any]:
        """All pages of a listing. ClusterError if the service restarts meanwhile."""
        while True:
            page = await self.request(service, subject, message, reply)
            if not page.listing:
                raise ClusterError(f"the {service} restarted during the listing; try again")
            yield page
            if not page.next:
                return
            message = msgspec.structs.replace(message, listing=page.listing, after=page.next)


def stale_url(given: Given | None) -> str:
    """What to do if nothing listens where a file of `flotilla up` says; empty if the URL is from elsewhere."""
    if given is None or not given.origin.startswith(URL_FILE_VARIABLE):
        return ""
    return "if the flotilla up that printed this variable has ended, unset it, or set it to what a new one prints"


@asynccontextmanager
async def connected(options: argparse.Namespace) -> AsyncIterator[ServiceClient]:
    """ClusterError if NATS cannot be reached within a few seconds."""
    settings, telemetry = settings_from(os.environ, vars(options)), silent_telemetry("flotilla.cli")
    access, name = NatsAccess.of(settings), f"flotilla-{os.getpid()}"
    try:
        bus = await Bus.connect(access, settings.prefix, name, telemetry, patience=CONNECT_TIMEOUT)
    except ClusterError as cause:
        given = all_given(os.environ, vars(options)).get("nats_url")
        origin = "" if given is None else f" (the URL comes from {given.origin})"
        raise ClusterError(f"{cause}{origin}; {stale_url(given) or HINT}") from cause
    try:
        yield ServiceClient(bus, settings)
    finally:
        await bus.close()


def silent_telemetry(name: str) -> Telemetry:
    """Logs nothing: errors are reported once, by the command."""
    log = logging.getLogger(name)
    log.addHandler(logging.NullHandler())
    log.propagate = False
    return Telemetry(Metrics(), Tracer("cli", "cli", ids=random.Random()), log)
