"""What commands that look into a running Flotilla have in common: they reach its services over NATS."""

import argparse
import logging
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from shared.bus import Bus, NatsAccess, NoAnswer
from shared.bus.access import where
from shared.config.settings import Settings
from shared.config.sources import all_given, settings_from
from shared.errors import ClusterError
from shared.messages.codec import Message
from shared.telemetry import Telemetry
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer

CONNECT_PATIENCE = 3.0
ANSWER_PATIENCE = 10.0
HINT = "--nats URL or FLOTILLA_NATS_URL say where it is; flotilla up prints what to set"

M = TypeVar("M", bound=Message)


class Asker:
    """Complaints name the server, without its password, and the prefix."""

    def __init__(self, bus: Bus, settings: Settings) -> None:
        self.bus = bus
        self.where = f"NATS at {where(settings.nats_url)}, prefix {settings.prefix!r}"

    async def ask(self, service: str, subject: str, question: Message, answer: type[M], patience: float) -> M:
        """ClusterError where the service says nothing in time."""
        try:
            return await self.bus.request(subject, question, answer, timeout=patience)
        except NoAnswer as none:
            raise ClusterError(f"the {service} does not answer: {none.silence} ({self.where})") from none


@asynccontextmanager
async def asking(options: argparse.Namespace) -> AsyncIterator[Asker]:
    """ClusterError if nobody is there within a few seconds."""
    settings = settings_from(os.environ, vars(options))
    try:
        bus = await Bus.connect(
            NatsAccess.of(settings), settings.prefix, f"flotilla-{os.getpid()}", _quiet(), patience=CONNECT_PATIENCE
        )
    except ClusterError as cause:
        given = all_given(os.environ, vars(options)).get("nats_url")
        origin = "" if given is None else f" (the URL comes from {given.origin})"
        raise ClusterError(f"{cause}{origin}; {HINT}") from cause
    try:
        yield Asker(bus, settings)
    finally:
        await bus.close()


def _quiet() -> Telemetry:
    """What goes wrong is told once, by whoever asks."""
    log = logging.getLogger("flotilla.cli")
    log.addHandler(logging.NullHandler())
    log.propagate = False
    return Telemetry(Metrics(), Tracer("cli", "cli", ids=random.Random()), log)
