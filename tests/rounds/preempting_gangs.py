"""A full cluster in which gangs of higher priority arrive: who makes way for whom, and that it is not in vain."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flotilla.events import Action, Resource
from services.cycle.events import Unschedulable
from services.queue import events as queue
from services.queue.scheduling.cluster_event import ClusterChange
from services.snapshot import events as snapshot
from shared.cluster.eviction_units import family_of, priority_of
from shared.framework.clusterevents import ClusterEvent
from shared.messages.binding import Evict
from shared.model.composite_groups import CompositePodGroup
from shared.model.load import load_of
from shared.model.objects import ObjectKind, Pod, PodGroup, ResourceClaim, object_from
from testing.builders import PodBuilder
from tests.rounds.gangs import members
from tests.rounds.preempting_world import Preempting

WHOLE: Mapping[str, Any] = {"disruptionMode": "PodGroup"}


def pod_group(name: str, least: int, **spec: Any) -> PodGroup:
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}, **spec}
    group = object_from(ObjectKind.POD_GROUP, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    assert isinstance(group, PodGroup)
    return group


def claim_on(node: str) -> ResourceClaim:
    """`shared`, which has a device of this node and is reserved for no pod."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    device = {"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"}
    allocation = {"devices": {"results": [device]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    claim = object_from(
        ObjectKind.RESOURCE_CLAIM,
        {
            "metadata": {"name": "shared", "namespace": "default", "uid": "shared"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {"allocation": allocation},
        },
    )
    assert isinstance(claim, ResourceClaim)
    return claim


def gang_of(name: str, count: int, of: PodBuilder) -> list[Pod]:
    return members(of.group(name), count, f"{name}-")


class PreemptingGangs(Preempting):
    """Checks for each eviction that victims are of lower priority, and that the whole gang is nominated with it."""

    def add_group(self, group: PodGroup | CompositePodGroup) -> None:
        self.observe(snapshot.ObjectSeen(group))
        added = ClusterChange(ClusterEvent(Resource.POD_GROUP, Action.ADD), None, group)
        self._tell_queue(queue.WatchEvents([added]))

    def add_claim(self, claim: ResourceClaim) -> None:
        self.observe(snapshot.ObjectSeen(claim))
        self.queue.objects.upsert(claim)

    def submit_gang(self, group: PodGroup, pods: Sequence[Pod]) -> None:
        self.add_group(group)
        self.submit(pods)

    def unfit(self, pods: Iterable[Pod]) -> dict[str, Unschedulable]:
        """The last outcomes of those that do not fit."""
        found = {each.name: self.outcomes.get(each.uid) for each in pods}
        return {name: outcome for name, outcome in found.items() if isinstance(outcome, Unschedulable)}

    def _carry_out_snapshot(self, effects: Iterable[snapshot.Effect]) -> None:
        effects = list(effects)
        super()._carry_out_snapshot(effects)
        for effect in effects:
            if isinstance(effect, Evict) and (group := self._group_of(effect.uid)) is not None:
                name = self.submitted[effect.uid].spec.scheduling_group
                fellows = [uid for uid, each in self.submitted.items() if each.spec.scheduling_group == name]
                reserved = [uid for uid in fellows if uid in self.promised or uid in self.placed]
                assert len(reserved) >= group.least, "victims of a gang that is not nominated as a whole"

    def _audit(self, evict: Evict) -> None:
        group = self._group_of(evict.uid)
        if group is None:
            super()._audit(evict)
            return
        groups = self.snapshot.cluster.objects.pod_groups
        own = load_of(self.submitted[evict.uid])
        for victim in evict.victims:
            _, load = self.placed[victim.uid]
            assert priority_of(load, groups) < priority_of(own, groups)
            assert family_of(load, groups) != family_of(own, groups)
        self.evictions.append(evict)

    def _group_of(self, uid: str) -> PodGroup | None:
        pod = self.submitted[uid]
        group = pod.spec.scheduling_group
        if group is None:
            return None
        return self.snapshot.cluster.objects.pod_groups[f"{pod.namespace}/{group.pod_group_name}"]
