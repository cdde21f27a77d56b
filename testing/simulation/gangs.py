"""Gangs: groups of pods that are placed together or not at all, in a cluster with room for some of them."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from shared.messages.binding import BindingOutcomes
from shared.messages.codec import Message
from shared.messages.queue import POD_GONE, Forgotten
from shared.messages.state import Commit, Committed, Decision, Nominate
from shared.messages.watch import Kind
from shared.model.objects import (
    GROUP_LABEL,
    Chosen,
    DisruptionMode,
    GangPolicy,
    GroupApi,
    Node,
    ObjectMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodSchedulingGroup,
    SchedulingConstraints,
    SchedulingPolicy,
    TopologyConstraint,
    group_of,
    key_of,
    kind_of,
)
from shared.model.resources import allocatable, filter_requests
from testing.builders import pod
from testing.simulation.actions import ELSEWHERE, ZONE
from testing.simulation.apiserver import FINISHED, GRACE, Change
from testing.simulation.schedule import Entry, Schedule
from testing.simulation.world import World

PREEMPTING, PREEMPTING_SHARE = 10, 0.3
"""The priority of gangs that evict pods of priority 0, and their share of those of Kubernetes' own API."""
MAX_TURNS = 12
"""At the end placed gangs are removed this often; each time at least one that waits gets their room."""


class GangWorld(World):
    """Once settled, a gang has no bound member or at least its minimum, and a commit takes all its decisions or none.

    `excused`: gangs that lost members, which were deleted or finished, were bound by others, whose binding failed, or
    whose decision Redis lost; the other members keep their places. `is_forged`: a process lies about gangs.
    `is_mixed`: one is or was of the last release, which knows no topology.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.groups: dict[str, PodGroup] = {}
        self.excused: set[str] = set()
        self.is_forged = False
        self.is_mixed = False
        self._commits: dict[tuple[int, int], Commit] = {}
        self._gang_of: dict[str, str] = {}
        self._priorities: dict[str, int] = {}
        """Of the pods of groups, if it is not 0."""
        self.network.overhears.append(self._overhear)
        self.server.followers.append(self._excuse_lost)

    # Actions

    def create(self, name: str = "") -> None:
        new, uid = self.next_name()
        self._put(pod(name or new).uid(uid).build(), self.dice.choice(("500m", "1")))

    def _create_gang(self) -> None:
        """Create a group and its members in any order, over a few seconds."""
        name, _ = self.next_name("g")
        least = self.dice.choice((2, 3, 5))
        api = self.dice.choice(list(GroupApi))
        cpu = self.dice.choice(("500m", "1", "1500m"))
        kind = self._a_kind(least, cpu) if api is GroupApi.SCHEDULING else PodGroupSpec()
        if api is GroupApi.SCHEDULING and self._preempts(name):
            kind = replace(kind, priority=PREEMPTING, preemption_policy=None)
            self._priorities[name] = PREEMPTING
        members = [self.next_name(f"{name}-") for _ in range(least + self.dice.choice((0, 0, 1)))]
        steps: list[Callable[[], None]] = [
            lambda member=member: self._put_member(name, member, api, cpu)  # type: ignore[misc]
            for member in members
        ]
        steps.insert(self.dice.randrange(len(steps) + 1), lambda: self._put_group(name, api, least, kind))
        for step in steps:
            self.later(self.dice.choice((0.0, 0.0, 0.0, 0.3, 2.0)), step)

    def _a_kind(self, least: int, cpu: str) -> PodGroupSpec:
        """What a group may say beside its minimum: a zone for all members, if one has room for them, a priority that
        moves it ahead in the queue, and how it is evicted itself. It evicts nobody.
        """
        has_zone = least <= 3 and cpu != "1500m" and self.dice.random() < 0.5
        zone = SchedulingConstraints(topology=[TopologyConstraint(key=ZONE)]) if has_zone else None
        return PodGroupSpec(
            scheduling_constraints=zone,
            disruption_mode=self.dice.choice((None, "Pod", "PodGroup", DisruptionMode(all=Chosen()))),
            priority=self.dice.choice((None, 0, 10)),
            preemption_policy="Never",
        )

    def _preempts(self, name: str) -> bool:
        """Whether the gang evicts others. By a stream of its own, so that all else is as without."""
        return random.Random(f"{self.schedule.seed} {name} preempts").random() < PREEMPTING_SHARE

    def _put_group(self, name: str, api: GroupApi, least: int, kind: PodGroupSpec) -> None:
        spec = replace(kind, scheduling_policy=SchedulingPolicy(gang=GangPolicy(min_count=least)))
        if api is GroupApi.COSCHEDULING:
            spec = PodGroupSpec(min_member=least)
        meta = ObjectMeta(name=name, namespace="default", uid=f"group-{name}")
        group = PodGroup(api_version=api, metadata=meta, spec=spec)
        self.groups[name] = group
        self.server.put_object(group)

    def _put_member(self, name: str, member_name: tuple[str, str], api: GroupApi, cpu: str) -> None:
        built = pod(member_name[0]).uid(member_name[1]).priority(self._priorities.get(name, 0))
        if api is GroupApi.COSCHEDULING:
            built = built.label({GROUP_LABEL: name})
        member = built.build()
        if api is GroupApi.SCHEDULING:
            spec = replace(member.spec, scheduling_group=PodSchedulingGroup(pod_group_name=name))
            member = replace(member, spec=spec)
        self._gang_of[member.uid] = name
        self._put(member, cpu)

    def _put(self, new: Pod, cpu: str) -> None:
        sized = pod(new.name).request(cpu=cpu, memory="100Mi").build()
        self.server.put_pod(replace(new, spec=replace(new.spec, containers=sized.spec.containers)))

    def _one_more(self) -> None:
        """Add a member beyond the minimum."""
        if (name := self._any_of(self.groups, str)) is not None:
            member = self.next_name(f"{name}-")
            self._put_member(name, member, self.groups[name].api, self.dice.choice(("500m", "1")))

    def _resize(self) -> None:
        """Change a group's minimum by one. Raised, it may be more than what is placed, which stays."""
        if (name := self._any_of(self.groups, str)) is None:
            return
        group = self.groups[name]
        least = max(group.least + self.dice.choice((-1, 1)), 1)
        if least > group.least:
            self.excused.add(name)
        self._put_group(name, group.api, least, group.spec)

    def _delete(self) -> None:
        if (found := self._any_pod()) is not None:
            self.server.terminate(found.uid)

    def _gang_goes(self) -> None:
        if (name := self._any_of(self.groups, str)) is not None:
            self._remove_gang(name)

    def _remove_gang(self, name: str) -> None:
        group = self.groups.pop(name)
        self.server.delete_object(kind_of(group), key_of(group))
        for each in self.members(group):
            self.server.terminate(each.uid)

    def happen(self, entry: Entry) -> None:
        if entry.what.startswith("redis_"):
            self.excused.update(self.groups)
        if entry.what == "release" and entry.arguments["is"] == "last":
            self.is_mixed = True
        if entry.what == "lies" and entry.arguments["name"] in ("cycle", "queue"):
            self.is_forged = True
        super().happen(entry)

    # What must hold

    def members(self, group: PodGroup) -> list[Pod]:
        return [each for each in self.server.pods.values() if group_of(each) == group.ref]

    def _excuse_lost(self, change: Change) -> None:
        if change.kind is Kind.POD:
            found = self.server.pods.get(change.key)
            if found is None or not alive([found]) or found.spec.node_name == ELSEWHERE:
                self._excuse([change.key])

    def _excuse(self, uids: Iterable[str]) -> None:
        self.excused.update(self._gang_of[uid] for uid in uids if uid in self._gang_of)

    def _overhear(self, message: Message) -> None:
        match message:
            case Commit():
                self._commits[message.epoch, message.number] = message
            case Committed():
                self._on_committed(message)
            case BindingOutcomes():
                self._excuse(each.uid for each in message.outcomes if each.reason)
            case Forgotten():
                self._excuse(each.uid for each in message.pods if not each.reason.startswith(POD_GONE))

    def _on_committed(self, committed: Committed) -> None:
        commit = self._commits.get((committed.epoch, committed.number))
        if commit is None or self.is_forged:
            return
        conflicts = {conflict.uid for conflict in committed.conflicts}
        for gang, together in by_gang(commit.decisions).items():
            self._check_whole(gang, together, conflicts, "committed")
        if self.is_calm:
            self._check_minimum(commit.decisions)

    def _check_whole(self, gang: str, together: set[str], refused: set[str], done: str) -> None:
        if together & refused and not together <= refused:
            self._report(f"a part of {gang} was {done}: {sorted(together - refused)}")

    def _check_minimum(self, decisions: Iterable[Decision]) -> None:
        """The gangs of a commit now have places for their minimum."""
        placed = self.leading("snapshot").core.cluster.pods
        for name in {self._gang_of.get(decision.uid, "") for decision in decisions} & self.groups.keys():
            group = self.groups[name]
            there = [each.name for each in self.members(group) if each.uid in placed]
            if name not in self.excused and 0 < len(there) < group.least:
                self._report(f"{name} needs {group.least}, and only {there} have a place")

    def checks(self) -> tuple[Callable[[], list[str]], ...]:
        return *super().checks(), self._torn, self._scattered, self._gangs_left_over

    def _torn(self) -> list[str]:
        """Gangs with fewer bound members than their minimum, but some."""
        wrong = []
        for name, group in self.groups.items():
            placed = placed_of(self.members(group))
            if name not in self.excused and not self.is_forged and 0 < len(placed) < group.least:
                wrong.append(f"{name} needs {group.least}, and has only {[each.name for each in placed]}")
        return wrong

    def _scattered(self) -> list[str]:
        """Groups that are to be in one domain, and are in several."""
        found = {
            name: {_domain(group, self.server.nodes[each.spec.node_name]) for each in self._on_nodes(group)}
            for name, group in self.groups.items()
            if name not in self.excused and not (self.is_forged or self.is_mixed)
        }
        return [f"{name} is in {sorted(domains)}" for name, domains in found.items() if len(domains) > 1]

    def _is_stuck(self, group: PodGroup) -> bool:
        """Whether another scheduler has bound members outside of the domain that the others must go to."""
        domains = {_domain(group, self.server.nodes[each.spec.node_name]) for each in self._on_nodes(group)}
        return bool(group.topology) and (len(domains) > 1 or "" in domains)

    def _is_due(self, pod: Pod) -> bool:
        """A member of a gang is due only if at most one more is missing, and may be anywhere."""
        ref = group_of(pod)
        group = None if ref is None else self.groups.get(ref.name)
        return ref is None or (group is not None and not group.topology and not self._waits_together(group))

    def _waits_together(self, group: PodGroup) -> bool:
        members = self.members(group)
        return group.least - len(placed_of(members)) > 1 or len(alive(members)) < group.least

    def _gangs_left_over(self) -> list[str]:
        return [
            f"{name} needs {group.least}, and would fit: {[each.uid for each in self.members(group)]}"
            for name, group in self.groups.items()
            if self._fits(group)
        ]

    def _fits(self, group: PodGroup) -> bool:
        """Whether its missing members fit, in any order and on any nodes: each takes at most a place of the largest."""
        members = alive(self.members(group))
        missing = group.least - len(placed_of(members))
        waiting = [cpu_of(each) for each in members if not each.spec.node_name]
        if missing <= 0 or len(waiting) < missing:
            return False
        open_nodes = (where for where in self.server.nodes.values() if not where.spec.unschedulable)
        places: Counter[str] = Counter()
        for where in open_nodes:
            if self._may_be_on(group, where):
                places[_domain(group, where)] += max(self._room(where), 0) // max(waiting)
        taken = {_domain(group, self.server.nodes[each.spec.node_name]) for each in self._on_nodes(group)}
        return any(count >= missing for domain, count in places.items() if taken <= {domain})

    def _on_nodes(self, group: PodGroup) -> list[Pod]:
        return [each for each in placed_of(self.members(group)) if each.spec.node_name in self.server.nodes]

    def _may_be_on(self, group: PodGroup, where: Node) -> bool:
        return True

    def _room(self, where: Node) -> int:
        on_it = (each for each in self.server.pods.values() if each.spec.node_name == where.name)
        return allocatable(where)["cpu"] - sum(cpu_of(each) for each in on_it if each.status.phase != FINISHED)

    async def _settle(self) -> None:
        """Settle, then remove gangs that are placed, incomplete or stuck, until every complete gang was placed."""
        for _ in range(MAX_TURNS):
            await super()._settle()
            for name, group in list(self.groups.items()):
                members = self.members(group)
                is_placed, is_incomplete = len(placed_of(members)) >= group.least, len(alive(members)) < group.least
                if is_placed or is_incomplete or self._is_stuck(group):
                    self._remove_gang(name)
            if not self.groups:
                return
            for each in [each for each in self.server.pods.values() if each.uid not in self._gang_of]:
                self.server.terminate(each.uid)
            await asyncio.sleep(max(GRACE) + 0.1)
        raise AssertionError(f"after {MAX_TURNS} turns these still wait for room: {list(self.groups)}")


def _domain(group: PodGroup, where: Node) -> str:
    """The same for all nodes if the group may be anywhere."""
    return ",".join(where.metadata.labels.get(level.key, "") for level in group.topology if not level.preferred)


def alive(members: Iterable[Pod]) -> list[Pod]:
    return [each for each in members if each.status.phase != FINISHED and not each.metadata.deletion_timestamp]


def placed_of(members: Iterable[Pod]) -> list[Pod]:
    return [each for each in alive(members) if each.spec.node_name]


def cpu_of(each: Pod) -> int:
    return filter_requests(each).get("cpu", 0)


def by_gang(committed: Iterable[Decision | Nominate]) -> dict[str, set[str]]:
    """The uids of the pods of each gang."""
    found: dict[str, set[str]] = {}
    for each in committed:
        if each.gang:
            found.setdefault(each.gang, set()).add(each.uid)
    return found
