"""flotilla queue --watch: the queue, drawn again and again on a terminal; elsewhere a line for each change."""

import asyncio
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from shared.errors import ClusterError
from shared.messages.inspection import DescribedPod, ListQueue, QueueListed
from tools.cli.output import Screen, table
from tools.cli.queue_listing import queue_pages, rows, summary
from tools.cli.words import why_pending

if TYPE_CHECKING:
    from tools.cli.service_client import ServiceClient

INTERVAL = 1.0
"""Seconds from one look to the next."""
ROWS_BESIDE = 3
"""Lines of a screen that are not for pods: the summary, the heads, and how many more there are."""


async def watch(client: "ServiceClient", request: ListQueue, limit: int | None, *, wide: bool) -> None:
    """Returns never; Ctrl-C ends it. A queue that does not reply is asked again."""
    screen, on_terminal = Screen(sys.stdout), sys.stdout.isatty()
    before: dict[str, DescribedPod] | None = None
    silent = ""
    try:
        while True:
            room = max(shutil.get_terminal_size().lines - ROWS_BESIDE, 1) if on_terminal else None
            most = room if limit is None else limit if room is None else min(limit, room)
            try:
                pages = [page async for page in queue_pages(client, request, most)]
            except ClusterError as cause:
                if str(cause) != silent:
                    silent = str(cause)
                    screen.say(f"{_clock()} {silent}; asking again")
            else:
                silent = ""
                if on_terminal:
                    screen.progress(list(drawn(pages, wide=wide)), "")
                else:
                    now = {pod.uid: pod for page in pages for pod in page.pods}
                    for line in [summary(pages[-1])] if before is None else changes(before, now):
                        screen.say(f"{_clock()} {line}")
                    before = now
            await asyncio.sleep(INTERVAL)
    finally:
        screen.release()


def drawn(pages: list[QueueListed], *, wide: bool) -> Iterator[str]:
    last = pages[-1]
    yield summary(last)
    width = shutil.get_terminal_size().columns - 1
    cells = [rows(page, wide=wide, width=width) for page in pages]
    shown = [*cells[0], *(row for each in cells[1:] for row in each[1:])]
    if len(shown) > 1:
        yield from table(shown, width)
    if (more := last.total - (len(shown) - 1)) > 0:
        yield f"{more:,} more"


def changes(before: Mapping[str, DescribedPod], now: Mapping[str, DescribedPod]) -> Iterator[str]:
    """A line for each pod that came, left, or changed its state or reason."""
    for uid, pod in now.items():
        was = before.get(uid)
        why = why_pending(pod)
        told = f"{pod.state}{f': {why}' if why else ''}"
        if was is None:
            yield f"{pod.namespace}/{pod.name} came: {told}"
        elif was.state != pod.state or was.attempts != pod.attempts or why_pending(was) != why:
            moved = f"{was.state} -> " if was.state != pod.state else ""
            yield f"{pod.namespace}/{pod.name} {moved}{told}"
    for uid in before.keys() - now.keys():
        pod = before[uid]
        where = f", it was being bound to {pod.node}" if pod.node else ""
        yield f"{pod.namespace}/{pod.name} left the queue{where}"


def _clock() -> str:
    return time.strftime("%H:%M:%S")
