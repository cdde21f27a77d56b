"""What an open page of the console costs a pipeline: equal loads in turn without and with one, and their differences.

A page is a reader of the console's stream, which is all that services notice of a browser.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import mean, median, stdev

import aiohttp

from shared.errors import ClusterError
from tools.bench.pipeline.cases import PROCESSES
from tools.bench.steady.costs import Costs

LOADED_PATIENCE = 30.0
"""Seconds until the page has the whole cluster."""
CONSOLE = "console"
ASKED = ("reply", "status.answers")
"""Where services send what the console asks for; it hears the deltas as well, which are sent anyway."""


class Page:
    """`received`: bytes so far."""

    def __init__(self) -> None:
        self.received = 0
        self.loaded = asyncio.Event()

    async def read(self, url: str) -> None:
        """Until it is cancelled, or the console ends the stream."""
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(read_bufsize=1 << 24, timeout=timeout) as session,
            session.get(f"{url}api/stream") as stream,
        ):
            async for line in stream.content:
                self.received += len(line)
                if b'"loaded":true' in line:
                    self.loaded.set()


@asynccontextmanager
async def open_page(url: str) -> AsyncIterator[Page]:
    """Once it has the cluster; closed with the context. ClusterError if the console ends the stream before."""
    page = Page()
    reading = asyncio.create_task(page.read(url))
    try:
        try:
            async with asyncio.timeout(LOADED_PATIENCE):
                await page.loaded.wait()
        except TimeoutError:
            raise ClusterError(f"the console shows no cluster within {LOADED_PATIENCE:g} s") from None
        yield page
        if reading.done():
            raise ClusterError("the console has ended the page's stream: what was measured is of no use")
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Turn:
    """One load, of `pods` pods in `seconds`. `received`: bytes of the page; None if none was open."""

    pods: int
    seconds: float
    costs: Costs
    received: int | None = None

    def cpu(self) -> float:
        """Seconds of all services and servers."""
        return sum(used for name, used in self.costs.cpu.items() if name.partition("-")[0] in PROCESSES)


@dataclass(slots=True)
class Pairs:
    """Turns without and with a page, in pairs."""

    without_page: list[Turn] = field(default_factory=list)
    with_page: list[Turn] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """CPU by pod, or by second if there are none; then what the page makes processes send."""
        unit = "us a pod" if self.without_page[0].pods else "ms a second"
        yield f"  CPU of services and servers, {unit}"
        yield f"    without a page: {_listed(self.without_page)}; with one: {_listed(self.with_page)}"
        ratios = [
            100 * (b.cpu() / a.cpu() - 1) for a, b in zip(self.without_page, self.with_page, strict=True) if a.pods
        ]
        if len(ratios) > 1:
            each, error = ", ".join(f"{ratio:+.1f}" for ratio in ratios), stdev(ratios) / len(ratios) ** 0.5
            yield f"    % more with one, by pair: {each}"
            yield f"    mean {mean(ratios):+.1f} ± {error:.1f}, median {median(ratios):+.1f}"
        seconds = sum(turn.seconds for turn in self.with_page)
        console = 1e3 * sum(turn.costs.cpu.get(CONSOLE, 0.0) for turn in self.with_page) / seconds
        received = sum(turn.received or 0 for turn in self.with_page) / seconds
        yield f"  console: {console:.1f} ms of CPU a second; the page gets {received:,.0f} bytes a second"
        before, after = _rates(self.without_page), _rates(self.with_page)
        more = {subject: rate - before.get(subject, 0.0) for subject, rate in after.items() if subject in ASKED}
        added = ", ".join(f"{subject} {rate:.2f}" for subject, rate in sorted(more.items()))
        yield f"  messages a second that services send in addition: {added or 'none'}"


def _rates(turns: Sequence[Turn]) -> dict[str, float]:
    """Messages a second by subject."""
    seconds = sum(turn.seconds for turn in turns)
    subjects = {subject for turn in turns for subject in turn.costs.messages}
    return {each: sum(turn.costs.messages.get(each, 0.0) for turn in turns) / seconds for each in subjects}


def _listed(turns: Sequence[Turn]) -> str:
    return ", ".join(f"{1e6 * t.cpu() / t.pods:.0f}" if t.pods else f"{1e3 * t.cpu() / t.seconds:.1f}" for t in turns)
