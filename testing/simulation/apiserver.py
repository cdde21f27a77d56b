"""The API server: the truth, and the judge of every binding. It may be slow, and do late what nobody waits for.

A pod on a node that is to go terminates for a while first; one without a node goes at once.
"""

import asyncio
import random
from collections.abc import Callable, Container
from typing import Any

from msgspec.structs import replace

from shared.kube.notes import Condition, PodRef
from shared.kube.outcome import Outcome, Result
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, PodCondition, PodStatus, key_of, kind_of
from shared.model.resources import allocatable, filter_requests

FINISHED = "Succeeded"
What = Pod | Node | ClusterObject
CALL_PATIENCE = 10.0
GRACE = (0.2, 1.0, 3.0, 8.0)
"""Seconds that a pod takes to terminate."""
TERMINATING = "2026-01-01T00:00:00Z"
LATEST = 0.9
"""Seconds after which a call that its caller has given up is not carried out any more."""


class ApiServer:
    """`followers` hear of every change, in order. `broken`: what must never be, and was."""

    def __init__(self, dice: random.Random) -> None:
        self.pods: dict[str, Pod] = {}
        """By uid."""
        self.nodes: dict[str, Node] = {}
        self.objects: dict[tuple[ObjectKind, str], ClusterObject] = {}
        self.bound: dict[str, str] = {}
        """Every pod that was ever bound, to which node."""
        self.priorities: dict[str, int] = {}
        """Of every pod that was ever there."""
        self.evicted: set[str] = set()
        """The uids of pods that somebody has asked to go."""
        self.broken: list[str] = []
        self.bad_luck = 0.0
        self.stalled_until = 0.0
        self.followers: list[Callable[[str, What | None, str], None]] = []
        self._dice = dice
        self._terms: dict[str, int] = {}
        self._version = 0

    def term(self, lease: str) -> int:
        self._terms[lease] = self._terms.get(lease, 0) + 1
        return self._terms[lease]

    # Objects

    def changed(self, kind: str, what: What | None, key: str) -> None:
        for follower in self.followers:
            follower(kind, what, key)

    def put_pod(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod = replace(pod, metadata=self._versioned(pod.metadata))
        self.priorities[pod.uid] = pod.priority
        self.changed("pod", pod, pod.uid)

    def put_node(self, node: Node) -> None:
        self.nodes[node.name] = node = replace(node, metadata=self._versioned(node.metadata))
        self.changed("node", node, node.name)

    def delete_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.changed("pod", None, uid)

    def delete_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.changed("node", None, name)

    def put_object(self, obj: ClusterObject) -> None:
        self.objects[kind_of(obj), key_of(obj)] = obj
        self.changed(kind_of(obj), obj, key_of(obj))

    def delete_object(self, kind: ObjectKind, key: str) -> None:
        if self.objects.pop((kind, key), None) is not None:
            self.changed(kind, None, key)

    def terminate(self, uid: str) -> None:
        """It is asked to go, and does when its grace is over."""
        pod = self.pods.get(uid)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        if not pod.spec.node_name or pod.status.phase == FINISHED:
            self.delete_pod(uid)
            return
        self.put_pod(replace(pod, metadata=replace(pod.metadata, deletion_timestamp=TERMINATING)))
        asyncio.get_running_loop().call_later(self._dice.choice(GRACE), self.delete_pod, uid)

    def pod_named(self, name: str) -> Pod | None:
        return next((pod for pod in self.pods.values() if pod.name == name), None)

    def bind(self, name: str, uid: str, node: str, version: str = "") -> Result:
        """`version`: the pod has to be at that one, if it is named."""
        pod = self.pod_named(name)
        if pod is None:
            return Result(Outcome.NOT_FOUND, 404, "pods not found")
        if pod.uid != uid or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return Result(Outcome.CONFLICT, 409, "already assigned, going, or another pod")
        if version not in ("", pod.metadata.resource_version):
            return Result(Outcome.CONFLICT, 409, "it has changed")
        if uid in self.bound:
            self.broken.append(f"{name} is bound twice")
        self.bound[uid] = node
        status = replace(pod.status, nominated_node_name="", conditions=_with(pod.status, "PodScheduled", "True"))
        self.put_pod(replace(pod, spec=replace(pod.spec, node_name=node), status=status))
        if node in self.nodes and not self.has_room(self.nodes[node]):
            on_it = sorted(pod.name for pod in self.pods.values() if pod.spec.node_name == node)
            now = asyncio.get_running_loop().time()
            self.broken.append(f"at {now:.3f} {name} comes to node {node}, which is over its capacity: {on_it}")
        if node in self.nodes:
            self.broken += self._unwelcome(self.pods[uid], self.nodes[node])
        return Result(Outcome.OK, 201, "")

    def patch_status(
        self, ref: PodRef, condition: Condition | None, nominated: str | None, version: str = ""
    ) -> Result:
        pod = self.pod_named(ref.name)
        if pod is None:
            return Result(Outcome.NOT_FOUND, 404, "pods not found")
        if pod.uid != ref.uid:
            return Result(Outcome.CONFLICT, 409, "another pod")
        if version not in ("", pod.metadata.resource_version):
            return Result(Outcome.CONFLICT, 409, "it has changed")
        status = pod.status
        if condition is not None:
            fields = {name: str(value) for name, value in condition.fields().items()}
            told = _with(status, fields["type"], fields["status"], fields["reason"], fields["message"])
            status = replace(status, conditions=told)
        if nominated is not None:
            status = replace(status, nominated_node_name=nominated)
        if status != pod.status:
            self.put_pod(replace(pod, status=status))
        return Result(Outcome.OK, 200, "")

    def clear_nomination(self, ref: PodRef, node: str) -> Result:
        pod = self.pod_named(ref.name)
        if pod is None:
            return Result(Outcome.NOT_FOUND, 404, "pods not found")
        if (pod.uid, pod.status.nominated_node_name) != (ref.uid, node):
            return Result(Outcome.FAILED, 422, "the test of the patch failed")
        return self.patch_status(ref, None, "")

    def evict(self, ref: PodRef) -> Result:
        pod = self.pod_named(ref.name)
        if pod is None:
            return Result(Outcome.NOT_FOUND, 404, "pods not found")
        if pod.uid != ref.uid:
            return Result(Outcome.CONFLICT, 409, "another pod")
        self.evicted.add(pod.uid)
        self.terminate(pod.uid)
        return Result(Outcome.OK, 200, "")

    def has_room(self, node: Node, *more: Pod, without: Container[str] = ()) -> bool:
        on_it = (pod for uid, pod in self.pods.items() if pod.spec.node_name == node.name and uid not in without)
        pods = [pod for pod in on_it if pod.status.phase != FINISHED]
        used: dict[str, int] = {"pods": len(pods) + len(more)}
        for pod in (*pods, *more):
            for name, amount in filter_requests(pod).items():
                used[name] = used.get(name, 0) + amount
        there = allocatable(node)
        return all(amount <= there.get(name, 0) for name, amount in used.items())

    def _unwelcome(self, pod: Pod, node: Node) -> list[str]:
        """Of two pods that are alike, and one of which is to be alone in a domain, both are there."""
        now = asyncio.get_running_loop().time()
        wrong = []
        for other in self.pods.values():
            there = self.nodes.get(other.spec.node_name)
            if there is None or other.uid == pod.uid or other.status.phase == FINISHED:
                continue
            for key in _excludes(pod) | _excludes(other):
                alike = pod.metadata.labels.get("app") == other.metadata.labels.get("app")
                value = there.metadata.labels.get(key)
                if alike and value is not None and value == node.metadata.labels.get(key):
                    where = f"{key} {value}"
                    wrong.append(f"at {now:.3f} {pod.name} comes to {node.name}, with {other.name} in {where}")
        return wrong

    # Calls

    async def call(self, work: Callable[[], Any], *, maybe_late: bool = False) -> Any:
        """What the work answers, once it is done; it is done also if nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        given_up: list[float] = []

        def done() -> None:
            if loop.time() < self.stalled_until:
                late = given_up and loop.time() > given_up[0] + LATEST - 0.1
                if not late:
                    loop.call_later(0.05, done)
                    return
            if given_up and loop.time() > given_up[0] + LATEST:
                return
            result = work()
            if not answer.done():
                answer.set_result(result)

        slow = maybe_late and self._dice.random() < self.bad_luck
        loop.call_later(self._dice.choice((0.3, 2.0, 9.0, 10.5)) if slow else self._dice.uniform(0.001, 0.01), done)
        try:
            return await asyncio.wait_for(answer, CALL_PATIENCE)
        except (TimeoutError, asyncio.CancelledError):
            given_up.append(loop.time())
            raise

    def refuses(self) -> bool:
        """Whether it is too busy just now."""
        return self._dice.random() < self.bad_luck / 2

    def _versioned(self, metadata: Any) -> Any:
        self._version += 1
        return replace(metadata, resource_version=str(self._version))


def _excludes(pod: Pod) -> set[str]:
    anti = None if pod.spec.affinity is None else pod.spec.affinity.pod_anti_affinity
    return set() if anti is None else {term.topology_key for term in anti.required}


def _with(status: PodStatus, type_: str, value: str, reason: str = "", message: str = "") -> list[PodCondition]:
    others = [condition for condition in status.conditions if condition.type != type_]
    return [*others, PodCondition(type=type_, status=value, reason=reason, message=message)]
