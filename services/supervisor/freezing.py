"""Services that do not answer for long: they are killed, and so start again.

Silence is counted in questions, not in seconds: while this process stands still itself, as on a machine that is
suspended, nobody is asked, so nothing counts.
"""

import asyncio
from collections.abc import Callable

from services.supervisor.children import Service
from services.supervisor.probe import get

ASK_EVERY = 5.0
"""Seconds between two questions."""
MOST_UNANSWERED = 12
"""In a row; then the service is killed."""


async def mind(service: Service, tell: Callable[[str], None]) -> None:
    """Ask the service whether it lives, for as long as the pipeline runs."""
    asked_of, unanswered = None, 0
    while True:
        await asyncio.sleep(ASK_EVERY)
        process = service.process
        if process is None or process.returncode is not None or process is not asked_of:
            asked_of, unanswered = process, 0
        if process is None or process.returncode is not None:
            continue
        port = service.port
        answer = None if port is None else await get(port, "/livez")
        unanswered = 0 if answer is not None else unanswered + 1
        if unanswered >= MOST_UNANSWERED:
            tell(f"{service.name} is killed: it has left {unanswered} questions in a row unanswered")
            process.kill()
            unanswered = 0
