"""What the processes of a pipeline have used so far: CPU, context switches, messages, calls; and differences."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis

from tools.supervisor.pipeline import Pipeline

REDIS_TIMEOUT = 5.0
CALLS = "rest_client_requests_total"
MESSAGES, BYTES = "flotilla_bus_messages_total", "flotilla_bus_bytes_total"
SCRAPES = frozenset({"info"})
"""Redis commands that the benchmark itself sends."""
SWITCHES = "voluntary_ctxt_switches:"


@dataclass(frozen=True, slots=True)
class Costs:
    """Sums since the processes started. `cpu`, `switches`: by process; `messages`, `bytes`: sent, by subject;
    `commands`: of Redis, by name; `calls`: to the API server, by method.
    """

    cpu: Mapping[str, float] = field(default_factory=dict)
    switches: Mapping[str, float] = field(default_factory=dict)
    messages: Mapping[str, float] = field(default_factory=dict)
    bytes: Mapping[str, float] = field(default_factory=dict)
    commands: Mapping[str, float] = field(default_factory=dict)
    calls: Mapping[str, float] = field(default_factory=dict)

    def since(self, before: "Costs") -> "Costs":
        return Costs(
            _less(self.cpu, before.cpu),
            _less(self.switches, before.switches),
            _less(self.messages, before.messages),
            _less(self.bytes, before.bytes),
            _less(self.commands, before.commands),
            _less(self.calls, before.calls),
        )


async def costs_of(pipeline: Pipeline, redis: Redis) -> Costs:
    """The costs so far, for `costs_since`; asking for them is not counted."""
    counted = await _counted(pipeline, redis)
    return replace(counted, **_used(pipeline))


async def costs_since(before: Costs, pipeline: Pipeline, redis: Redis) -> Costs:
    """The costs since then; asking for them is not counted."""
    used = _used(pipeline)
    counted = await _counted(pipeline, redis)
    return replace(counted, **used).since(before)


def _used(pipeline: Pipeline) -> dict[str, Mapping[str, float]]:
    switches = {name: voluntary_switches(pid) for name, pid in pipeline.processes.items()}
    return {"cpu": pipeline.cpu(), "switches": switches}


async def _counted(pipeline: Pipeline, redis: Redis) -> Costs:
    services = list(pipeline.options.services())
    pages = await asyncio.gather(*(pipeline.ask(name, "/metrics") for name in services))
    texts = [page.body for page in pages if page is not None]
    stats = await redis.info("commandstats")
    return Costs(
        messages=added_up(texts, MESSAGES, "subject", {"direction": "out"}),
        bytes=added_up(texts, BYTES, "subject", {"direction": "out"}),
        commands={
            name: float(each["calls"])
            for key, each in stats.items()
            if (name := key.removeprefix("cmdstat_")) not in SCRAPES
        },
        calls=added_up(texts, CALLS, "method", {}),
    )


def added_up(texts: Iterable[str], name: str, by: str, only: Mapping[str, str]) -> dict[str, float]:
    """A counter of several processes, added up by one of its labels. `only`: values of other labels."""
    found: defaultdict[str, float] = defaultdict(float)
    for text in texts:
        lines = "".join(line + "\n" for line in text.splitlines() if line.startswith(name))
        for family in text_string_to_metric_families(lines):
            for sample in family.samples:
                if sample.name == name and only.items() <= sample.labels.items():
                    found[sample.labels[by]] += sample.value
    return dict(found)


def voluntary_switches(pid: int) -> float:
    """Of all threads of a process; 0 where the system does not tell, or the process has ended."""
    total = 0.0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                if line.startswith(SWITCHES):
                    total += int(line.removeprefix(SWITCHES))
    except OSError:
        pass
    return total


def _less(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    differences = {name: value - before.get(name, 0.0) for name, value in now.items()}
    return {name: value for name, value in differences.items() if value}
