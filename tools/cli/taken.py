"""Whether the NATS that `flotilla up` was given has a pipeline already, which would not share the Redis of this one."""

import os
from contextlib import suppress

from shared.bus import Bus, NatsAccess
from shared.bus.access import where
from shared.config.settings import Settings
from shared.errors import FlotillaError, UserError
from shared.messages.status import ProcessStatus
from tools.cli.service_client import CONNECT_TIMEOUT, silent_telemetry
from tools.status import asking

PATIENCE = 1.0
"""Seconds to wait for an answer; on a free NATS none comes."""
NAMED = 4
"""Processes that the complaint names."""


async def refuse_taken(settings: Settings, origin: str) -> None:
    """UserError if any process answers there. `origin`: where the NATS URL comes from."""
    if statuses := await _answering(settings):
        names = [each.name for each in statuses[:NAMED]]
        if len(statuses) > NAMED:
            names.append(f"{len(statuses) - NAMED} more")
        at = f"NATS at {where(settings.nats_url)}, prefix {settings.prefix!r}"
        how = f"leave out {origin}" if origin.startswith("-") else f"unset {origin}"
        raise UserError(
            f"{at}, has a pipeline ({', '.join(names)}), which would not share the Redis of this one. For the same"
            f" cluster, stop that one first; for another cluster, {how} (this one then starts a NATS of its own) or set"
            " --prefix to another one"
        )


async def _answering(settings: Settings) -> list[ProcessStatus]:
    """Empty as well if NATS cannot be asked: the services say why."""
    with suppress(FlotillaError):
        access, telemetry = NatsAccess.of(settings), silent_telemetry("flotilla.up")
        name = f"flotilla-{os.getpid()}"
        bus = await Bus.connect(access, settings.prefix, name, telemetry, patience=CONNECT_TIMEOUT)
        try:
            async with asking(bus) as asker:
                return await asker.ask(PATIENCE)
        finally:
            await bus.close()
    return []
