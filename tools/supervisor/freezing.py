"""Services that do not answer for long: they are killed, and so start again.

Silence is counted in questions, not in seconds: while this process stands still itself, as on a machine that is
suspended, nobody is asked, so nothing counts.
"""

import asyncio
from collections.abc import Callable

from tools.supervisor.children import Service
from tools.supervisor.probe import get
from tools.supervisor.relay import Level

ASK_EVERY = 5.0
"""Seconds between two questions."""
PATIENCE = 2.0
"""Seconds to wait for an answer."""
WARN_AFTER = 2
"""Questions in a row that are not answered; then a warning says when the service will be killed."""
MOST_UNANSWERED = 12
"""In a row; then the service is killed."""


async def mind(service: Service, tell: Callable[[str, Level], None]) -> None:
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
        answer = None if port is None else await get(port, "/livez", PATIENCE)
        if answer is not None and unanswered >= WARN_AFTER:
            tell(f"{service.name} (pid {process.pid}) answers again", "info")
        unanswered = 0 if answer is not None else unanswered + 1
        if unanswered == WARN_AFTER < MOST_UNANSWERED:
            silent, most = (f"{count * (ASK_EVERY + PATIENCE):g} s" for count in (unanswered, MOST_UNANSWERED))
            text = f"{service.name} (pid {process.pid}) does not answer for {silent}; it is killed after {most}"
            tell(text, "warning")
        if unanswered >= MOST_UNANSWERED:
            tell(f"{service.name} is killed: it has left {unanswered} questions in a row unanswered", "warning")
            process.kill()
            unanswered = 0
