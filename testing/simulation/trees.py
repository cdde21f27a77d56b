"""Trees of pod groups: two or three groups in a composite group that needs two, in a cluster with little room.

Some are of higher priority than all else, and preempt: other trees, and pods without a group.
"""

import asyncio
import random
from collections.abc import Callable

from shared.messages.binding import Evict
from shared.messages.codec import Message
from shared.messages.state import Committed
from shared.model.composite_groups import (
    CompositeGangPolicy,
    CompositePodGroup,
    CompositePodGroupSpec,
    CompositeSchedulingPolicy,
)
from shared.model.objects import (
    Chosen,
    DisruptionMode,
    GangPolicy,
    GroupApi,
    Node,
    ObjectKind,
    ObjectMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    SchedulingPolicy,
)
from testing.simulation.apiserver import FINISHED, GRACE
from testing.simulation.gangs import MAX_TURNS, PREEMPTING, GangWorld, alive, by_gang, cpu_of, placed_of
from testing.simulation.schedule import Entry, Schedule

NEEDED = 2
"""Groups of each tree that are placed together."""


class TreeWorld(GangWorld):
    """Once settled, of each tree no group is placed or at least NEEDED, and each group whole or not at all.

    A tree is excused with any of its groups. The last release knows no trees, so no process is of it. `victims`: for
    every victim, the last tree that it was to make room for.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.trees: dict[str, list[str]] = {}
        """The groups of each tree, by its name."""
        self.victims: dict[str, str] = {}

    # Actions

    def _create_gang(self) -> None:
        """Create a tree, its groups and their pods in any order, over a few seconds."""
        root, _ = self.next_name("t")
        cpu = self.dice.choice(("500m", "1"))
        priority = PREEMPTING if self._preempts(root) else 0
        steps: list[Callable[[], None]] = [lambda: self._put_root(root, priority)]
        names = [f"{root}-{which}" for which in "abc"[: self.dice.choice((2, 2, 3))]]
        for name in names:
            self._priorities[name] = priority
            least = self.dice.choice((1, 2))
            steps.append(lambda name=name, least=least: self._put_group_in(name, root, least))  # type: ignore[misc]
            for _ in range(least):
                member = self.next_name(f"{name}-")
                steps.append(
                    lambda name=name, member=member: self._put_member(  # type: ignore[misc]
                        name, member, GroupApi.SCHEDULING, cpu
                    )
                )
        self.trees[root] = names
        self.dice.shuffle(steps)
        for step in steps:
            self.later(self.dice.choice((0.0, 0.0, 0.0, 0.3, 2.0)), step)

    def _put_root(self, name: str, priority: int) -> None:
        """How it is evicted itself is drawn from a stream of its own, so that all else is as without."""
        modes = (None, DisruptionMode(), DisruptionMode(all=Chosen()))
        spec = CompositePodGroupSpec(
            scheduling_policy=CompositeSchedulingPolicy(gang=CompositeGangPolicy(min_group_count=NEEDED)),
            disruption_mode=random.Random(f"{self.schedule.seed} {name} goes").choice(modes),
            priority=priority,
            preemption_policy=None if priority else "Never",
        )
        if name in self.trees:
            self.server.put_object(CompositePodGroup(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))

    def _put_group_in(self, name: str, root: str, least: int) -> None:
        policy = SchedulingPolicy(gang=GangPolicy(min_count=least))
        spec = PodGroupSpec(scheduling_policy=policy, parent_composite_pod_group_name=root)
        group = PodGroup(
            api_version=GroupApi.SCHEDULING, metadata=ObjectMeta(name=name, namespace="default"), spec=spec
        )
        if root in self.trees:
            self.groups[name] = group
            self.server.put_object(group)

    def _put_member(self, name: str, member_name: tuple[str, str], api: GroupApi, cpu: str) -> None:
        if name.rpartition("-")[0] in self.trees:
            super()._put_member(name, member_name, api, cpu)

    def _resize(self) -> None:
        """Minimums stay."""

    def _gang_goes(self) -> None:
        if (root := self._any_of(self.trees, str)) is not None:
            self._remove_tree(root)

    def _remove_tree(self, root: str) -> None:
        self.server.delete_object(ObjectKind.COMPOSITE_POD_GROUP, f"default/{root}")
        for name in self.trees.pop(root):
            if name in self.groups:
                self._remove_gang(name)
        for each in list(self.server.pods.values()):
            if self.root_of(each.uid) == root:
                self.server.terminate(each.uid)

    def happen(self, entry: Entry) -> None:
        if not (entry.what == "release" and entry.arguments["is"] == "last"):
            super().happen(entry)

    # What must hold

    def checks(self) -> tuple[Callable[[], list[str]], ...]:
        return *super().checks(), self._trees_torn, self._trees_left_over

    def _overhear(self, message: Message) -> None:
        super()._overhear(message)
        if isinstance(message, Evict) and message.uid in self._gang_of:
            root = self.root_of(message.uid)
            for victim in message.victims:
                self.victims[victim.uid] = root
                if self.root_of(victim.uid) == root:
                    self._report(f"{victim.name} is to make room for its own tree")

    def _on_committed(self, committed: Committed) -> None:
        super()._on_committed(committed)
        commit = self._commits.get((committed.epoch, committed.number))
        if commit is None or self.is_forged:
            return
        refused = {conflict.uid for conflict in committed.conflicts}
        for gang, together in by_gang(commit.nominations).items():
            self._check_whole(gang, together, refused, "nominated")
            if self.is_calm and not refused:
                self._check_nominated(gang, together)

    def _check_nominated(self, gang: str, nominated: set[str]) -> None:
        """The tree will have places for all that it needs: nobody makes room for less."""
        root = gang.rpartition("/")[2]
        if root not in self.trees or self._is_excused(root):
            return
        placed = self.leading("snapshot").core.cluster.pods
        there = {
            group.metadata.name: sum(each.uid in placed or each.uid in nominated for each in self.members(group))
            for group in self._groups_of(root)
        }
        if sum(there[group.metadata.name] >= group.least for group in self._groups_of(root)) < NEEDED:
            self._report(f"{root} needs {NEEDED} groups, and others make room for {there}")

    def root_of(self, uid: str) -> str:
        """The name of the pod's tree; empty for a pod without one."""
        return self._gang_of.get(uid, "").rpartition("-")[0]

    def _is_excused(self, root: str) -> bool:
        return self.is_forged or any(name in self.excused for name in self.trees[root])

    def _groups_of(self, root: str) -> list[PodGroup]:
        return [self.groups[name] for name in self.trees[root] if name in self.groups]

    def _is_met(self, group: PodGroup) -> bool:
        return len(placed_of(self.members(group))) >= group.least

    def _trees_torn(self) -> list[str]:
        wrong: list[str] = []
        for root in self.trees:
            placed = [group.metadata.name for group in self._groups_of(root) if self._is_met(group)]
            if not self._is_excused(root) and 0 < len(placed) < NEEDED:
                wrong.append(f"{root} needs {NEEDED} groups, and has only {placed}")
        return wrong

    def _trees_left_over(self) -> list[str]:
        return [f"{root} needs {NEEDED} groups, and they would fit" for root in self.trees if self._tree_fits(root)]

    def _tree_fits(self, root: str) -> bool:
        """Whether the groups that it lacks fit, on any nodes, without pods that it may preempt: all pods of a tree are
        of one size.
        """
        groups = self._groups_of(root)
        lacks = NEEDED - sum(map(self._is_met, groups))
        waiting = [each for group in groups for each in alive(self.members(group)) if not each.spec.node_name]
        if lacks <= 0 or not waiting or (ObjectKind.COMPOSITE_POD_GROUP, f"default/{root}") not in self.server.objects:
            return False
        missing = sorted(
            group.least - len(placed_of(self.members(group)))
            for group in groups
            if not self._is_met(group) and len(alive(self.members(group))) >= group.least
        )
        open_nodes = [where for where in self.server.nodes.values() if not where.spec.unschedulable]
        priority = self._priorities[self.trees[root][0]]
        places = sum(max(self._room_for(priority, where), 0) // max(map(cpu_of, waiting)) for where in open_nodes)
        return len(missing) >= lacks and places >= sum(missing[:lacks])

    def _room_for(self, priority: int, where: Node) -> int:
        """What is free there, and what pods of lower priority have."""
        on_it = [each for each in self.server.pods.values() if each.spec.node_name == where.name]
        lesser = (each for each in on_it if (each.spec.priority or 0) < priority and each.status.phase != FINISHED)
        return self._room(where) + sum(map(cpu_of, lesser))

    def _fits(self, group: PodGroup) -> bool:
        """Groups are judged as parts of their trees."""
        return False

    def _is_due(self, pod: Pod) -> bool:
        return pod.uid not in self._gang_of

    async def _settle(self) -> None:
        """Settle, then remove trees that are placed or incomplete, until every complete one was placed."""
        for _ in range(MAX_TURNS):
            await super(GangWorld, self)._settle()
            for root in list(self.trees):
                groups = self._groups_of(root)
                complete = [group for group in groups if len(alive(self.members(group))) >= group.least]
                if sum(map(self._is_met, groups)) >= NEEDED or len(complete) < NEEDED:
                    self._remove_tree(root)
            if not self.trees:
                return
            for each in [each for each in self.server.pods.values() if each.uid not in self._gang_of]:
                self.server.terminate(each.uid)
            await asyncio.sleep(max(GRACE) + 0.1)
        raise AssertionError(f"after {MAX_TURNS} turns these still wait for room: {list(self.trees)}")
