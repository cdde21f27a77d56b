"""Starting a pipeline for a cluster that is there already, and looking at its processes meanwhile."""

import asyncio
import time

from tools.api_objects import ObjectWriter
from tools.bench.start.cluster import Cluster
from tools.cli.processes import MIB, resident_memory
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

LOOK = 0.25
"""Seconds between two looks at how much memory a process has."""
AFTERWARDS = 5.0
"""Seconds for which they are looked at once all is ready."""
PATIENCE = 3600.0


async def measure(cluster: Cluster, workers: int) -> int:
    services = PipelineOptions(workers=workers).services()
    options = PipelineOptions(workers=workers, start_patience=PATIENCE, held=frozenset(services))
    async with Pipeline.running(options) as pipeline:
        creator = ObjectWriter(pipeline.api_url or "")
        await creator.create("/api/v1/nodes", cluster.nodes())
        await creator.create("/api/v1/namespaces/default/pods", cluster.pods())
        kind = "that fit nowhere" if cluster.pending else "on them"
        print(f"{cluster.node_count:,} nodes, {cluster.pod_count:,} pods {kind}, {workers} workers", flush=True)
        began = time.monotonic()
        starting = asyncio.create_task(pipeline.release())
        most: dict[str, int] = {}
        while not starting.done():
            await _look(pipeline, most)
        await starting
        print(f"ready after {time.monotonic() - began:.1f} s")
        until = time.monotonic() + AFTERWARDS
        while time.monotonic() < until:
            await _look(pipeline, most)
        _tell(pipeline, most)
    return 0


async def _look(pipeline: Pipeline, most: dict[str, int]) -> None:
    for name, held in resident_memory(pipeline.processes).items():
        most[name] = max(most.get(name, 0), held)
    await asyncio.sleep(LOOK)


def _tell(pipeline: Pipeline, most: dict[str, int]) -> None:
    print(f"{'':<14}{'CPU s':>8}{'most MB':>9}{'MB':>7}")
    spent = pipeline.cpu()
    for name, held in resident_memory(pipeline.processes).items():
        print(f"{name:<14}{spent[name]:>8.1f}{max(most.get(name, 0), held) / MIB:>9.0f}{held / MIB:>7.0f}")
