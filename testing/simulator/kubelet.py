"""Runs the simulated kubelets on the event loop: a few pods at a time, so that requests are answered in between."""

import asyncio
import contextlib

from testing.simulator.cluster import Cluster
from testing.simulator.lifecycle import FINISHED, Complete, Kubelets, Start, Step, Vanish
from testing.simulator.resources import NODES, PODS, Object
from testing.simulator.store import ADDED, Change, Item

PODS_AT_A_TIME = 64
LONGEST_SLEEP = 1.0
NO_ADDRESS = "127.0.0.1"
MISSHAPEN = (AttributeError, KeyError, TypeError)
"""A pod that no kubelet could decode stays as it is."""
_NODE = PODS.field_index["spec.nodeName"]


class KubeletRunner:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._kubelets = Kubelets()
        self._wake = asyncio.Event()
        self._bucket = cluster.store.bucket(PODS)
        self._nodes = cluster.store.bucket(NODES)

    async def run(self) -> None:
        self._bucket.listeners.append(self._on_change)
        self._nodes.listeners.append(self._on_node)
        try:
            while True:
                self._wake.clear()
                for step in self._kubelets.due(self._cluster.clock(), PODS_AT_A_TIME):
                    with contextlib.suppress(*MISSHAPEN):
                        self._carry_out(step)
                if self._kubelets.waiting:
                    await asyncio.sleep(0)
                else:
                    await self._sleep()
        finally:
            self._bucket.listeners.remove(self._on_change)
            self._nodes.listeners.remove(self._on_node)

    async def _sleep(self) -> None:
        due = self._kubelets.next_time()
        if due is None:
            await self._wake.wait()
            return
        seconds = min(max(0.0, due - self._cluster.clock()), LONGEST_SLEEP)
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _on_change(self, change: Change) -> None:
        if self._kubelets.on_change(change):
            self._wake.set()

    def _on_node(self, change: Change) -> None:
        if change.type == ADDED and self._kubelets.on_node(change.item.name):
            self._wake.set()

    def _carry_out(self, step: Step) -> None:
        namespace, name, uid = step.key
        item = self._bucket.get(namespace, name)
        if item is None or item.uid != uid:
            return
        pod = item.decode()
        node = self._nodes.get("", item.fields[_NODE])
        if node is None:
            self._kubelets.park(step, item.fields[_NODE])
            return
        phase = (pod.get("status") or {}).get("phase")
        now = self._cluster.clock()
        match step:
            case Vanish():
                self._cluster.delete(PODS, item, 0)
            case Start() if phase == "Pending":
                self._kubelets.run(pod, _address(node), now)
                self._cluster.store.put(PODS, pod)
            case Complete() if phase not in FINISHED:
                self._kubelets.complete(pod, now)
                self._cluster.store.put(PODS, pod)


def _address(node: Item) -> str:
    if b'"InternalIP"' not in node.raw:
        return NO_ADDRESS
    addresses: list[Object] = (node.decode().get("status") or {}).get("addresses") or []
    return next((str(found["address"]) for found in addresses if found.get("type") == "InternalIP"), NO_ADDRESS)
