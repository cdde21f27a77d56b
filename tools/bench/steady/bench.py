"""Runs the rates one after the other on one pipeline, and prints what each costs."""

import asyncio
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TextIO

from redis.asyncio import Redis

from tools.bench.pipeline.cases import PROCESSES
from tools.bench.steady.costs import REDIS_TIMEOUT, Costs, costs_of, costs_since
from tools.bench.steady.load import Load, percentile
from tools.bench.steady.pages import Page, Pairs, Turn, open_page
from tools.cli.output import Screen, table
from tools.console.follower import UNWATCHED
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

WARM_UP_RATE = 200.0
WARM_UP_PODS = 10
"""Of each kind, before anything is measured."""
BOUND_PATIENCE = 60.0
"""Seconds after the last creation."""
SETTLED = 2.0
"""Seconds of calm before the first and after each measurement: Events and conditions are written, too."""
PERCENTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class SteadyCase:
    """`rates`: pods per second, each for `seconds`. `idle`: seconds without pods that are measured first.

    `pairs`: runs of each load in turn without and with an open page of the console; 0: only without it, in detail.
    """

    rates: Sequence[int]
    seconds: int
    nodes: int
    classes: int
    workload: str
    idle: int = 10
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """What `pods` pods at this rate have cost. `latencies`: seconds from created to bound, sorted."""

    rate: int
    pods: int
    latencies: Sequence[float]
    costs: Costs

    def micros(self, *kinds: str) -> float:
        """Microseconds of CPU per pod of all processes of these kinds."""
        return 1e6 * of_kinds(self.costs.cpu, *kinds) / self.pods


class SteadyBench:
    def __init__(self, options: PipelineOptions, output: TextIO) -> None:
        self._options = options
        self._screen = Screen(output)

    async def run(self, case: SteadyCase) -> int:
        try:
            self._screen.status("starting NATS, Redis and all services")
            async with (
                Pipeline.running(self._options) as pipeline,
                Load.of(pipeline.api, case.workload, case.classes) as load,
                aclosing(Redis.from_url(pipeline.redis_url, socket_timeout=REDIS_TIMEOUT)) as redis,
            ):
                watching = asyncio.create_task(load.watch())
                try:
                    await self._run(case, pipeline, load, redis)
                finally:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
        finally:
            self._screen.release()
        return 0

    async def _run(self, case: SteadyCase, pipeline: Pipeline, load: Load, redis: Redis) -> None:
        say = self._screen.say
        say(
            f"{os.cpu_count()} CPUs, {platform.machine()}, Python {platform.python_version()}; {case.nodes:,} nodes, "
            f"pods of {case.classes} kinds ({case.workload}), {case.seconds} s at each rate"
        )
        self._screen.status(f"creating {case.nodes:,} nodes")
        await load.add_nodes(case.nodes)
        await load.listed()
        self._screen.status("warming up")
        await load.create(WARM_UP_PODS * case.classes, WARM_UP_RATE)
        await load.all_bound(BOUND_PATIENCE)
        load.take_latencies()
        await asyncio.sleep(SETTLED)
        if case.pairs:
            await self._compare(case, pipeline, load, redis)
            return
        if case.idle:
            self._screen.status(f"idle for {case.idle} s")
            before = await costs_of(pipeline, redis)
            await asyncio.sleep(case.idle)
            idle = await costs_since(before, pipeline, redis)
            say(f"idle: {100 * of_kinds(idle.cpu, *PROCESSES) / case.idle:.1f} % of a core")
        for rate in case.rates:
            pods = rate * case.seconds
            self._screen.status(f"{pods:,} pods at {rate}/s")
            before = await costs_of(pipeline, redis)
            await load.create(pods, rate)
            await load.all_bound(BOUND_PATIENCE)
            await asyncio.sleep(SETTLED)
            costs = await costs_since(before, pipeline, redis)
            for line in lines_of(Figures(rate, pods, load.take_latencies(), costs)):
                say(line)

    async def _compare(self, case: SteadyCase, pipeline: Pipeline, load: Load, redis: Redis) -> None:
        """Each load without and with an open page; the console calms down before the next one without."""
        console = await pipeline.open_console()

        async def turn(rate: int, page: Page | None) -> Turn:
            received = 0 if page is None else page.received
            before, began = await costs_of(pipeline, redis), time.monotonic()
            if rate:
                await load.create(rate * case.seconds, rate)
                await load.all_bound(BOUND_PATIENCE)
                await asyncio.sleep(SETTLED)
                load.take_latencies()
            else:
                await asyncio.sleep(case.seconds)
            seconds = time.monotonic() - began
            costs = await costs_since(before, pipeline, redis)
            return Turn(rate * case.seconds, seconds, costs, None if page is None else page.received - received)

        for rate in (0, *case.rates):
            pairs = Pairs()
            for number in range(1, case.pairs + 1):
                self._screen.status(f"{rate} pods/s: pair {number} of {case.pairs}")
                pairs.without_page.append(await turn(rate, None))
                async with open_page(console) as page:
                    await asyncio.sleep(SETTLED)
                    pairs.with_page.append(await turn(rate, page))
                await asyncio.sleep(UNWATCHED + SETTLED)
            self._screen.say(f"{rate} pods/s:")
            for line in pairs.lines():
                self._screen.say(line)


def lines_of(run: Figures) -> Iterator[str]:
    """The latencies; CPU and switches by process; messages and bytes by subject; commands and calls."""
    shown = ", ".join(f"p{share * 100:g} {1e3 * percentile(run.latencies, share):.0f} ms" for share in PERCENTILES)
    yield ""
    yield f"{run.rate}/s, {run.pods:,} pods: created to bound {shown}"
    kinds = [kind for kind in PROCESSES if of_kinds(run.costs.cpu, kind)]
    head = ("", *(PROCESSES[kind] for kind in kinds), "total")
    micros = [run.micros(kind) for kind in kinds]
    switches = [of_kinds(run.costs.switches, kind) / run.pods for kind in kinds]
    rows = [
        head,
        ("CPU, us a pod", *(f"{each:.0f}" for each in micros), f"{sum(micros):.0f}"),
        ("switches a pod", *(f"{each:.1f}" for each in switches), f"{sum(switches):.1f}"),
    ]
    yield from (f"  {line}" for line in table(rows))
    messages, sizes = run.costs.messages, run.costs.bytes
    yield f"  messages a pod: {sum(messages.values()) / run.pods:.2f}, {sum(sizes.values()) / run.pods:,.0f} bytes"
    most = sorted(messages, key=lambda subject: -messages[subject])
    subjects = [("subject", "messages", "bytes")]
    subjects += [
        (subject, f"{messages[subject] / run.pods:.2f}", f"{sizes.get(subject, 0) / run.pods:,.0f}") for subject in most
    ]
    yield from (f"    {line}" for line in table(subjects))
    yield f"  Redis commands a pod: {_listed(run.costs.commands, run.pods)}"
    yield f"  API calls a pod: {_listed(run.costs.calls, run.pods)}"


def _listed(counts: Mapping[str, float], pods: int) -> str:
    most = sorted(counts, key=lambda name: -counts[name])
    return ", ".join(f"{name} {counts[name] / pods:.2f}" for name in most) or "none"


def of_kinds(values: Mapping[str, float], *kinds: str) -> float:
    """Added up over all processes of these kinds."""
    return sum(value for name, value in values.items() if name.partition("-")[0] in kinds)
