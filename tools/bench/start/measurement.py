"""Starts a pipeline for an existing cluster and samples its processes; and the synthetic cluster for that."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shared.model.wellknown import HOSTNAME, ZONE
from tools.api_objects import ObjectWriter
from tools.cli.processes import MIB, resident_memory
from tools.supervisor.options import PipelineOptions
from tools.supervisor.pipeline import Pipeline

SAMPLE_INTERVAL = 0.25
"""Seconds between samples of the processes' memory."""
SAMPLE_AFTER_READY = 5.0
"""Seconds of sampling once everything is ready."""
START_TIMEOUT = 3600.0
Object = dict[str, Any]
ZONES = 10
APPS = 2_000
IMAGES = 20
IMAGES_A_NODE = 10
TOLERATIONS = [
    {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for why in ("not-ready", "unreachable")
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """`pending`: the pods fit nowhere; otherwise they are bound."""

    node_count: int
    pod_count: int
    pending: bool

    def nodes(self) -> Iterator[Object]:
        amounts = {"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        for number in range(self.node_count):
            name = _node(number)
            labels = {HOSTNAME: name, ZONE: f"zone-{number % ZONES}", "kubernetes.io/arch": "amd64"}
            first = number % IMAGES
            yield {
                "metadata": {"name": name, "labels": labels},
                "spec": {"providerID": f"cloud:///zone/i-{number:016x}"},
                "status": {
                    "allocatable": amounts,
                    "capacity": amounts,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                    "images": [_image((first + place) % IMAGES) for place in range(IMAGES_A_NODE)],
                },
            }

    def pods(self) -> Iterator[Object]:
        for number in range(self.pod_count):
            app = number % APPS
            name = f"app-{app:04}"
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
            placed = {} if self.pending else {"nodeName": _node(number % self.node_count)}
            yield {
                "metadata": {"name": f"{name}-{number:07}", "labels": {"app": name}, "ownerReferences": [owner]},
                "spec": {**placed, "containers": [self._container(app)], "tolerations": TOLERATIONS},
            }

    def _container(self, app: int) -> Object:
        return {
            "name": "app",
            "image": f"app-{app % IMAGES}:v1",
            "resources": {"requests": {"cpu": "1000" if self.pending else "100m", "memory": f"{500 + app % 50}Mi"}},
            "env": [{"name": f"SETTING_{place}", "value": "x" * 40} for place in range(8)],
        }


def _node(number: int) -> str:
    return f"node-{number:06}"


def _image(number: int) -> Object:
    digest = f"app-{number}@sha256:{number:064x}"
    return {"names": [digest, f"app-{number}:v1"], "sizeBytes": 100_000_000 + number}


async def measure(cluster: Cluster, workers: int) -> int:
    services = PipelineOptions(workers=workers).services()
    options = PipelineOptions(workers=workers, start_patience=START_TIMEOUT, held=frozenset(services))
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
            await _sample(pipeline, most)
        await starting
        print(f"ready after {time.monotonic() - began:.1f} s")
        until = time.monotonic() + SAMPLE_AFTER_READY
        while time.monotonic() < until:
            await _sample(pipeline, most)
        _print_usage(pipeline, most)
    return 0


async def _sample(pipeline: Pipeline, most: dict[str, int]) -> None:
    for name, held in resident_memory(pipeline.processes).items():
        most[name] = max(most.get(name, 0), held)
    await asyncio.sleep(SAMPLE_INTERVAL)


def _print_usage(pipeline: Pipeline, most: dict[str, int]) -> None:
    print(f"{'':<14}{'CPU s':>8}{'most MB':>9}{'MB':>7}")
    spent = pipeline.cpu()
    for name, held in resident_memory(pipeline.processes).items():
        print(f"{name:<14}{spent[name]:>8.1f}{max(most.get(name, 0), held) / MIB:>9.0f}{held / MIB:>7.0f}")
