"""A simulated API server and a client of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from shared.config.settings import ApiSettings
from shared.kube.client import KubeClient
from testing.simulator.service import Simulator, SimulatorOptions

PATIENCE = 30.0
"""Seconds; no more than a moment of them is needed where there is nothing else to do."""


@asynccontextmanager
async def api_server(options: SimulatorOptions | None = None) -> AsyncIterator[Simulator]:
    simulator = Simulator(options or SimulatorOptions(kubelet=False, seed=1))
    await simulator.start()
    try:
        yield simulator
    finally:
        await simulator.stop()


@asynccontextmanager
async def client_of(simulator: Simulator, token: str | None = None) -> AsyncIterator[KubeClient]:
    client = await KubeClient.open(ApiSettings(server=simulator.url, token=token))
    try:
        yield client
    finally:
        await client.close()


async def until(holds: Callable[[], object], what: str = "it") -> None:
    """Waits for something that happens elsewhere."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise TimeoutError(f"{what} has not come about within {PATIENCE:g} s") from None


def raw_pod(name: str, *, node: str = "", cpu: str = "100m", **fields: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulerName": "default-scheduler", **spec, **fields},
        "status": {"phase": "Pending"},
    }


def raw_node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }
