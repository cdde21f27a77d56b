"""Handles the events of the watch: how nodes, pods and other objects change the cluster's state."""

from collections.abc import Iterable
from contextlib import suppress

import msgspec

from services.snapshot.events import (
    AlikePodsSeen,
    AssignedPodSeen,
    Effect,
    NodeGone,
    NodeOpened,
    NodeSeen,
    NodeUnreadable,
    ObjectGone,
    ObjectSeen,
    PodDeleted,
    PodSeen,
    PodStale,
    PodUnreadable,
    Problem,
    WatchEvent,
    WatchEvents,
)
from services.snapshot.state.cluster_state import ClusterState, DeltaBuilder
from services.snapshot.state.group_trees import GroupTrees
from shared.errors import ClusterError, FlotillaError, InvariantBroken, UnreadableObject
from shared.messages.binding import Withdraw
from shared.messages.queue import POD_GONE, ForgottenPod
from shared.messages.state import Change, Loads, NominationGone, PodGone, PodPlaced
from shared.model.composite_groups import CompositePodGroup
from shared.model.kinds import GROUP_KINDS, ObjectKind
from shared.model.load import PodLoad, load_of
from shared.model.objects import Node, ObjectMeta, Pod, PodGroup, validate_node

MAX_CHANGES = 1 << 12
"""In one delta, far fewer than a message may hold: a node comes with all its pods."""
FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class EventHandlers:
    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._nodes = cluster.nodes
        self._pods = cluster.pods
        self._nominator = cluster.nominator
        self._trees = GroupTrees()
        self._bound = 0
        """How many pods are bound."""

    def is_bound(self, uid: str) -> bool:
        """Whether the watch has shown this pod on a node, and not finished or gone since."""
        placement = self._pods.get(uid)
        return (placement is not None and placement.shown) or self._nodes.closed.is_closed_by(uid)

    def handle_all(self, observed: WatchEvents, now: float) -> list[Effect]:
        cluster, effects = self._cluster, list[Effect]()
        try:
            for event in observed.events:
                cluster.building = building = cluster.building or DeltaBuilder()
                effects += self.handle(event, now)
                if len(building.changes) >= MAX_CHANGES:
                    effects += cluster.publish_built()
            return effects + cluster.publish_built()
        finally:
            cluster.building = None

    def handle(self, event: WatchEvent, now: float) -> list[Effect]:
        cluster = self._cluster
        match event:
            case AssignedPodSeen(uid=uid) if self._is_new(uid):
                return self._on_new_pod(event)
            case AssignedPodSeen(uid=uid):
                self._bound += not self.is_bound(uid)
                return [*self._on_assigned_pod(event, now), *self._open_for(uid)]
            case AlikePodsSeen():
                return [effect for each in event.singly() for effect in self.handle(each, now)]
            case PodSeen(pod=pod):
                return self._on_pod(pod, now)
            case PodDeleted(uid=uid):
                return self.on_pod_gone(uid)
            case PodUnreadable():
                return self._on_pod_unreadable(event, now)
            case NodeSeen(node=node, problem=problem):
                return self._on_node(node, problem)
            case NodeUnreadable(name=name, problem=problem):
                return self._on_node(self._nodes.reported(name) or Node(metadata=ObjectMeta(name=name)), problem)
            case NodeGone(name=name) if name not in self._nodes:
                return [Problem(ClusterError(f"Node {name}: metadata.name: no such node is known"))]
            case NodeGone(name=name):
                # Its pods stay known, and count again when the node comes back.
                return cluster.publish(self._nodes.remove(name, cluster.seq + 1))
            case ObjectSeen(object=PodGroup() | CompositePodGroup() as group):
                return self._on_groups(self._trees.seen(group))
            case ObjectGone(kind=kind, key=key) if kind in GROUP_KINDS:
                effects = self._on_groups(self._trees.gone(kind, key))
                is_published = kind is not ObjectKind.COMPOSITE_POD_GROUP
                removed = cluster.objects.remove(kind, key, cluster.seq + 1) if is_published else []
                return [*effects, *cluster.publish(removed)]
            case ObjectSeen(object=obj, version=version):
                return cluster.publish(cluster.objects.upsert(obj, cluster.seq + 1, version))
            case ObjectGone(kind=kind, key=key):
                return cluster.publish(cluster.objects.remove(kind, key, cluster.seq + 1))

    def _on_groups(self, groups: Iterable[PodGroup]) -> list[Effect]:
        cluster = self._cluster
        changes = [change for each in groups for change in cluster.objects.upsert(each, cluster.seq + 1)]
        return cluster.publish(changes)

    # Pods

    def _on_pod(self, pod: Pod, now: float) -> list[Effect]:
        if pod.status.phase in FINISHED_PHASES:
            return self.on_pod_gone(pod.uid)
        if not pod.spec.node_name:
            return self._on_pending_pod(pod, now)
        try:
            seen = _assigned(pod)
        except (FlotillaError, ValueError) as cause:
            return self._on_pod_unreadable(PodUnreadable(pod.uid, pod.key, pod.spec.node_name, str(cause)), now)
        return self.handle(seen, now)

    def _on_pending_pod(self, pod: Pod, now: float) -> list[Effect]:
        uid, nominated = pod.uid, pod.status.nominated_node_name
        if self.is_bound(uid):  # pods are never unbound
            return [PodStale(uid, pod.key)]
        if pod.metadata.deletion_timestamp is not None:
            revoked = uid not in self._pods and self._nominator.forget(uid)
            return [*self._withdraw(uid), *(self._cluster.publish([NominationGone(uid)]) if revoked else ())]
        if uid in self._pods:
            self._nominator.observe_assumed(uid, nominated)
            return []
        if not nominated and not self._nominator.knows(uid):
            return []
        try:
            load = load_of(pod)
        except (FlotillaError, ValueError) as cause:
            return [Problem(cause if isinstance(cause, FlotillaError) else ClusterError(f"Pod {pod.key}: {cause}"))]
        before = self._nominator.get(uid)
        after = self._nominator.observe(uid, nominated, load, pod.key, now)
        if after == before:
            return []
        if after is None:
            return self._cluster.publish([NominationGone(uid)])
        loads = Loads()
        return self._cluster.publish([after.nominated(uid, loads)], loads.items, writes=(after.node,))

    def _on_pod_unreadable(self, seen: PodUnreadable, now: float) -> list[Effect]:
        """Counts what could be read of the pod, now or before, and closes its node."""
        effects: list[Effect] = []
        self._bound += not self.is_bound(seen.uid)
        if seen.pod is not None and seen.pod.status.phase not in FINISHED_PHASES:
            with suppress(FlotillaError, ValueError):
                effects += self._on_assigned_pod(_assigned(seen.pod), now)
        closed, reason = self._nodes.closed, f"pod {seen.key}: {seen.problem}"
        if closed.node_of(seen.uid) != seen.node:
            effects += self._open_for(seen.uid)
        if closed.close_for(seen.uid, seen.node, reason):
            why = f"Node {seen.node} gets no further pod, as what is on it is unknown: {reason}"
            effects.append(Problem(UnreadableObject(why)))
        return [*effects, *self._refresh(seen.node)]

    def _is_new(self, uid: str) -> bool:
        """Whether nothing is known of the pod."""
        return not (uid in self._pods or self._nominator.knows(uid) or self._nodes.closed.is_closed_by(uid))

    def _on_new_pod(self, seen: AssignedPodSeen) -> list[Effect]:
        """Most pods of a listing."""
        uid, node, load, key, started = seen.uid, seen.node, seen.load, seen.key, seen.started
        self._bound += 1
        self._pods.put(uid, node, load, key, started, assumed=False, shown=True)
        if node not in self._nodes:
            return [_unknown_node(seen)]
        if (building := self._cluster.building) is not None:
            building.place(uid, node, load, key, started)
            return []
        return self._cluster.publish([PodPlaced(uid, node, 0, key, started)], [load], writes=(node,))

    def _on_assigned_pod(self, seen: AssignedPodSeen, now: float) -> list[Effect]:
        cluster, uid, node, key, started = self._cluster, seen.uid, seen.node, seen.key, seen.started
        before, load = self._pods.get(uid), cluster.victims.observe(uid, seen.load)
        changes: list[Change] = []
        if self._nominator.forget(uid):
            changes.append(NominationGone(uid))
        entry = cluster.ledger.remove(uid)
        settled, held = () if entry is None else (uid,), list[Effect]()
        if entry is not None:
            is_there = entry.node == node
            held = cluster.hold_devices(entry, is_bound=is_there or entry.bound)
            if is_there:
                cluster.objects.confirm(uid, now)
            else:
                changes += cluster.objects.release(uid, cluster.seq + 1)
        if before is not None and before.assumed and before.node == node:
            cluster.topology_labels.learn(load.labels, node)
        stays = before is not None and before.node == node and before.load == load
        load = before.load if before is not None and stays else load
        takes_as_much = before is not None and before.node == node and _takes_as_much(load, before.load)
        if before is not None and stays and (before.key, before.started) == (key, started):
            before.assumed, before.shown = False, True
            return [*held, *cluster.publish(changes, settled=settled)]
        self._pods.put(uid, node, load, key, started, assumed=False, shown=True)
        if node not in self._nodes:
            changes += [PodGone(uid)] if before is not None else []
            return [_unknown_node(seen), *held, *cluster.publish(changes, settled=settled)]
        changes.append(PodPlaced(uid, node, 0, key, started))
        writes = () if stays else (node,)
        if takes_as_much and len(changes) == 1:
            return [*held, *cluster.postpone(changes, [load], writes=writes, settled=settled)]
        return [*held, *cluster.publish(changes, [load], writes=writes, settled=settled)]

    def on_pod_gone(self, uid: str) -> list[Effect]:
        self._bound -= self.is_bound(uid)
        withdrawn = self._withdraw(uid)
        if self._nominator.forget(uid):
            return [*withdrawn, *self._cluster.publish([NominationGone(uid)]), *self._open_for(uid)]
        return [*withdrawn, *self._cluster.remove_pod(uid), *self._open_for(uid)]

    def _withdraw(self, uid: str) -> list[Effect]:
        """A deleted pod must not be bound any more."""
        entry = self._cluster.ledger.get(uid)
        if entry is None or entry.bound:
            return []
        return [Withdraw(uid, entry.attempt, "", "the pod is deleted")]

    # Nodes

    def _on_node(self, node: Node, problem: str) -> list[Effect]:
        """`problem`: a part of it could not be read: it keeps its pods, and gets no further one."""
        try:
            validate_node(node)
        except FlotillaError as cause:
            return [Problem(cause)]
        name, closed, effects = node.name, self._nodes.closed, list[Effect]()
        if problem and closed.close(name, problem):
            why = f"Node {name}: {problem}; it gets no further pod until it can be read"
            effects.append(Problem(UnreadableObject(why)))
        elif not problem and closed.open(name):
            effects.append(NodeOpened(name))
        is_new = name not in self._nodes
        changes, loads = self._nodes.upsert(node), Loads()
        if not changes:
            return effects
        if is_new:
            changes += [self._pods[uid].placed(uid, loads) for uid in sorted(self._pods.on_node(name))]
        return [*effects, *self._cluster.publish(changes, loads.items, writes=(name,))]

    def _open_for(self, uid: str) -> list[Effect]:
        """The pod is readable again, finished or gone."""
        name = self._nodes.closed.open_for(uid)
        if not name or name in self._nodes.closed:
            return []
        return [*self._refresh(name), ForgottenPod(uid, f"{POD_GONE} from closed node {name}"), NodeOpened(name)]

    def _refresh(self, name: str) -> list[Effect]:
        return self._cluster.publish(self._nodes.refresh(name), writes=(name,)) if name in self._nodes else []

    def validate(self) -> None:
        """Every pod seen on a node counts there, or has closed it, until it is finished or gone."""
        shown = {uid for uid, placement in self._pods.items() if placement.shown}
        self._trees.validate()
        if len(shown | self._nodes.closed.pods) != self._bound:
            raise InvariantBroken(f"{self._bound} pods are on nodes, and not all of them count or close their node")


def _assigned(pod: Pod) -> AssignedPodSeen:
    """Raises FlotillaError or ValueError if it cannot be read what the pod uses."""
    return AssignedPodSeen(pod.uid, pod.key, pod.spec.node_name, load_of(pod), pod.started)


def _unknown_node(seen: AssignedPodSeen) -> Problem:
    return Problem(ClusterError(f"Pod {seen.key}: spec.nodeName: no node {seen.node!r} is known"))


def _takes_as_much(load: PodLoad, before: PodLoad) -> bool:
    """Whether at most labels differ: the API server adds some to a pod when it is bound."""
    return load == before or load == msgspec.structs.replace(before, labels=load.labels)
