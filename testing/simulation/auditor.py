"""Judges every binding, assumption and eviction at the moment it happens.

It compares with the API server's objects, the calls in transit, and the snapshot's ledger of assumed pods.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from math import inf

from services.snapshot.core import SnapshotCore
from shared.errors import ProtocolError
from shared.messages.binding import Evict, Evicted
from shared.messages.codec import Message
from shared.messages.queue import Assumed, Forgotten
from shared.messages.sense import check_sense
from shared.messages.state import (
    Commit,
    Committed,
    Decision,
    Delta,
    NodeUpserted,
    NominationGone,
    PodNominated,
    PodPlaced,
)
from shared.messages.watch import Kind
from shared.model.objects import Node, ObjectKind, PersistentVolume, Pod
from shared.model.resources import allocatable, host_ports
from testing.simulation.apiserver import FINISHED, VERSION, Change
from testing.simulation.budgets import Budgets
from testing.simulation.client import Binding, Sent
from testing.simulation.processes import Process, Surroundings

KNOWN_FOR = 150.0
"""Seconds for which a binding may rest on an older version of a node: watches and calls may be this late."""
SEEN_LATELY = 1.5
"""Seconds after which binders must know that a preemptor is gone."""
NOMINATED_LATELY = 2.5
"""Seconds after which binders must know that its nomination is gone: they ask for it first, then for the pod."""
STALLED_LATELY = 15.0
"""The same, while the API server has not answered for some of these seconds."""
AT_ONCE = 0.001
"""Seconds after it is resumed in which a process may finish what it was doing when it was paused."""


class Auditor:
    """`broken`: violated invariants."""

    def __init__(self, around: Surroundings, snapshot: Callable[[], Process]) -> None:
        server, transport = around.server, around.transport
        self.broken: list[str] = []
        self._around = around
        self._transport = transport
        self._bindings = transport.bindings
        self._server = server
        self._snapshot = snapshot
        self._nodes: dict[str, deque[tuple[float, Node]]] = {}
        self._replaced_at: dict[str, float] = {}
        """When nodes were deleted, perhaps replaced, by name."""
        self._gone_at: dict[str, float] = {}
        self._preemptors: dict[str, dict[str, str]] = {}
        """By victim: all its preemptors, and on which node."""
        self._evictions: dict[str, set[tuple[str, int]]] = {}
        """By victim: the evictions that name it and have not ended."""
        self._ended: set[tuple[str, int]] = set()
        """Evictions that no call may carry on; one that is ordered again after its end is not judged."""
        self._nominated: dict[str, dict[str, float]] = {}
        """By pod: the nodes that the snapshot nominated it to, and until when."""
        self._shown: dict[tuple[int, str], int] = {}
        self._commits: dict[tuple[int, int], Commit] = {}
        self._announced: set[int] = set()
        """Terms of the snapshot of which the queue was told what is assumed."""
        self._budgets = Budgets()
        self._against_budgets: dict[tuple[int, int], dict[str, str]] = {}
        """By commit: nominations that violate a budget, and how."""
        server.followers.append(self._on_change)
        server.on_bind.append(self._on_bind)

    # Events

    def _on_change(self, change: Change) -> None:
        now = asyncio.get_running_loop().time()
        if change.kind is Kind.NODE and change.type != "DELETED":
            versions = self._nodes.setdefault(change.key, deque())
            versions.append((now, self._server.nodes[change.key]))
            while len(versions) > 1 and versions[1][0] < now - KNOWN_FOR:
                versions.popleft()
        if change.kind is Kind.NODE and change.type == "DELETED":
            self._replaced_at[change.key] = now
        if change.kind is Kind.POD and change.key not in self._gone_at:
            pod = self._server.pods.get(change.key)
            if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
                self._gone_at[change.key] = now

    def _on_bind(self, pod: Pod) -> None:
        where = pod.spec.node_name
        on_it = [each for each in self._server.pods.values() if each.spec.node_name == where]
        self._judge_room(f"{pod.name} comes to node {where}", where, on_it)
        node = self._server.nodes.get(where)
        if node is not None and not self._around.lied:  # nothing verifies constraints between pods
            self.broken += self._unwelcome(pod, node)

    def overhear(self, message: Message) -> None:
        """Skip messages that make no sense, which the receiver refuses."""
        try:
            check_sense(message)
        except ProtocolError:
            return
        match message:
            case Commit() if (number := (message.epoch, message.number)) not in self._commits:
                core = self._snapshot().core
                self._commits[number] = message
                self._against_budgets[number] = {} if core is None else self._budgets.judge(message, core)
            case Committed():
                self._on_committed(message)
            case Assumed():
                self._announced.add(message.epoch)
            case Forgotten():
                self._on_forgotten(message)
            case Delta():
                self._on_delta(message)
            case Evict(uid=uid, attempt=attempt):
                for victim in message.victims:
                    self._preemptors.setdefault(victim.uid, {})[uid] = message.node
                    self._evictions.setdefault(victim.uid, set()).add((uid, attempt))
            case Evicted(uid=uid, attempt=attempt, failure=failure):
                if (uid, attempt) not in self._ended and "may still be deleted" not in failure:
                    for keys in self._evictions.values():
                        keys.discard((uid, attempt))
                self._ended.add((uid, attempt))

    def on_delete(self, uid: str, process: Process) -> None:
        """Judge a scheduler's call to delete this pod, as it is sent."""
        now, priorities = asyncio.get_running_loop().time(), self._server.priorities
        if process.resumed_at is not None and now < process.resumed_at + AT_ONCE:
            return
        asked = self._preemptors.get(uid, {})
        alive = [each for each in asked if self._gone_at.get(each, now) + SEEN_LATELY > now]
        if not alive:
            self._report(f"({uid}) is deleted by {process.name}, and no pod waits for its place: {sorted(asked)}")
        elif not any(priorities.get(each, 0) > priorities.get(uid, 0) for each in alive):
            self._report(f"({uid}) is deleted by {process.name} for ({alive[0]}), which is not of higher priority")
        elif not any(self._is_nominated(each, asked[each], now) for each in alive):
            self._report(f"({uid}) is deleted by {process.name} for ({alive[0]}), nominated elsewhere, or nowhere")

    def on_deleted(self, uid: str, sent: Sent) -> None:
        """Judge a scheduler's call that has deleted this pod, as it is carried out."""
        if not self._evictions.get(uid, {()}):
            self._report(f"({uid}) is deleted by {sent.sender}, by a call of {sent.at:.3f} whose eviction has ended")

    def _is_nominated(self, uid: str, where: str, now: float) -> bool:
        """Whether it is nominated, was lately, or its status says so."""
        until = self._nominated.get(uid, {}).get(where, -inf)
        pod = self._server.pods.get(uid)
        in_status = "" if pod is None else pod.status.nominated_node_name
        stalled = self._transport.stalled_until + STALLED_LATELY > now
        lately = STALLED_LATELY if stalled else NOMINATED_LATELY
        return in_status == where or until + lately > now

    def _on_committed(self, committed: Committed) -> None:
        """Assumed pods fit, together with bound pods and those that calls in transit may bind."""
        commit, core = self._commits.get((committed.epoch, committed.number)), self._snapshot().core
        if commit is None or core is None or core.epoch != committed.epoch:
            return
        conflicts = {conflict.uid for conflict in committed.conflicts}
        decisions = [each for each in commit.decisions if each.uid not in conflicts]
        for uid, wrong in self._against_budgets[committed.epoch, committed.number].items():
            if uid not in conflicts:
                self._report(f"({uid}) preempts {wrong}")
        for decision in decisions:
            self._judge_volumes(decision, core, committed.seq)
        for binding in self._bindings:
            entry = core.ledger.get(binding.uid)
            if (entry is None or entry.node != binding.node) and self._may_land(binding):
                name = self._server.pods[binding.uid].name
                self._report(f"a call may bind {name} ({binding.uid}) to {binding.node}, where it is not assumed")
        there = {uid: entry.node for uid, entry in core.ledger.items()}
        there |= {binding.uid: binding.node for binding in self._bindings if self._may_land(binding)}
        there |= {uid: pod.spec.node_name for uid, pod in self._server.pods.items() if pod.spec.node_name}
        for where in sorted({decision.node for decision in decisions}):
            on_it = [self._server.pods[uid] for uid, at in there.items() if at == where and uid in self._server.pods]
            self._judge_room(f"round {committed.number} assumes pods on node {where}", where, on_it)

    def _on_delta(self, delta: Delta) -> None:
        """Within a term the snapshot never returns to an older version of a node. Track nominations."""
        self._budgets.on_delta(delta)
        now = asyncio.get_running_loop().time()
        for change in delta.changes:
            match change:
                case PodNominated() | NominationGone() | PodPlaced():
                    nodes = self._nominated.setdefault(change.uid, {})
                    nodes.update({node: min(until, now) for node, until in nodes.items()})
                    if isinstance(change, PodNominated):
                        nodes[change.node] = inf
            if isinstance(change, NodeUpserted) and VERSION in change.node.metadata.labels:
                key, version = (delta.epoch, change.node.name), int(change.node.metadata.labels[VERSION])
                if version < self._shown.get(key, 0):
                    self._report(f"node {change.node.name} goes back from version {self._shown[key]} to {version}")
                self._shown[key] = version

    def _on_forgotten(self, message: Forgotten) -> None:
        """A place is given up only when no call can take it any more, unless a later attempt has taken it again."""
        if message.epoch not in self._announced:
            self._report(f"the queue hears of forgotten pods of term {message.epoch} before it hears of that term")
        core, forgotten = self._snapshot().core, {each.uid for each in message.pods}
        for binding in self._bindings:
            entry = None if core is None else core.ledger.get(binding.uid)
            if entry is not None and entry.node == binding.node:
                continue
            if binding.uid in forgotten and self._may_land(binding):
                name = self._server.pods[binding.uid].name
                self._report(f"{name} ({binding.uid}) is forgotten, and a call may still bind it to {binding.node}")

    def _may_land(self, binding: Binding) -> bool:
        pod = self._server.pods.get(binding.uid)
        if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return False
        return binding.version in ("", pod.metadata.resource_version)

    def _judge_volumes(self, decision: Decision, core: SnapshotCore, seq: int) -> None:
        """No claim gets a volume that another one had in the snapshot at `seq`, when it took the decision."""
        objects = core.cluster.objects
        holders = {each.name: each.spec.claim_ref for each in objects.all() if isinstance(each, PersistentVolume)}
        given = decision.assignment.volumes
        for claim, volume in () if given is None else given.bindings:
            holder, written = holders.get(volume), objects._written[ObjectKind.PERSISTENT_VOLUME].get(volume, 0)
            if holder is not None and holder.key != claim and written <= seq:
                self._report(f"{decision.key} ({decision.uid}) is to have {volume}, which {holder.key} has already")

    def _judge_room(self, what: str, where: str, pods: Iterable[Pod]) -> None:
        on_it = [pod for pod in pods if pod.status.phase != FINISHED]
        if where not in self._nodes:
            self._report(f"{what}, which never was")
            return
        used = self._server.requests(on_it)
        known = [allocatable(node) for _, node in self._nodes[where]]
        names = sorted(pod.name for pod in on_it)
        if not any(all(amount <= room.get(name, 0) for name, amount in used.items()) for room in known):
            self._report(f"{what}, which is over its capacity: {names}")
        ports = [(port.protocol, port.port) for pod in on_it for port in host_ports(pod)]
        if len(ports) != len(set(ports)):
            self._report(f"{what}, where a host port is taken: {names}")

    def _unwelcome(self, pod: Pod, node: Node) -> list[str]:
        """Violations of anti-affinity between this pod and others.

        Skip nodes that were deleted lately: their pods, assumed ones too, counted in no domain for other decisions.
        """
        wrong, now = [], asyncio.get_running_loop().time()
        if now < self._replaced_at.get(node.name, -KNOWN_FOR) + KNOWN_FOR:
            return []
        for other in self._server.pods.values():
            there = self._server.nodes.get(other.spec.node_name)
            if there is None or other.uid == pod.uid or other.status.phase == FINISHED:
                continue
            if now < self._replaced_at.get(there.name, -KNOWN_FOR) + KNOWN_FOR:
                continue
            for key in _excludes(pod) | _excludes(other):
                alike = pod.metadata.labels.get("app") == other.metadata.labels.get("app")
                value = there.metadata.labels.get(key)
                if alike and value is not None and value == node.metadata.labels.get(key):
                    wrong.append(f"{pod.name} comes to {node.name}, with {other.name} in {key} {value}")
        return wrong

    def _report(self, what: str) -> None:
        self.broken.append(f"at {asyncio.get_running_loop().time():.3f} {what}")


def _excludes(pod: Pod) -> set[str]:
    anti = None if pod.spec.affinity is None else pod.spec.affinity.pod_anti_affinity
    return set() if anti is None else {term.topology_key for term in anti.required}
