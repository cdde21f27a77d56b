"""Which nodes, or groups of nodes, could be freed by moving their pods, found by deciding these pods on the other ones.

A unit is a node, or all nodes with one value of a label. Units are tried with the fewest pods first: the nodes of the
tried ones are drained, beside those chosen so far: they get no more pods, and their pods are decided again as their
owners would recreate them. They are chosen if all find a node and no other pod has to go.

    add units, their pods beside those that were moved before --the set has grown fourfold, or nothing is left to try-->
    confirm: move all pods of the set at once --they do not all fit--> a smaller set

So the moves are what the scheduler does if these nodes are drained at once. Units that are free already are kept free.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from services.snapshot.commit_checks import ProfileFilters
from shared.errors import ClusterError, UserError
from shared.model.objects import ClusterObject, Node, ObjectKind, Pod, PodDisruptionBudget, group_of, key_of, kind_of
from shared.model.resources import PODS, filter_requests
from shared.model.selectors import label_selector_matches
from tools.live_state import LiveState
from tools.whatif.answer import Question
from tools.whatif.claims import recreated
from tools.whatif.cores import Cores
from tools.whatif.engine import Engine, PodsOn, stays
from tools.whatif.extending import Converse
from tools.whatif.groups import SUMMED, free_room
from tools.whatif.manifests import UID

MAX_STEPS = 10_000
GROWTH = 4
"""How much a set of units grows until its moves are confirmed, so that little is lost if time runs out."""
SEARCHING = 0.6
"""The share of the time in which units are added; the rest is for the last confirmation."""
ALONE = "a pod there has no controller that would recreate it"
UNKNOWN = "its pods are not known in full"
AWAITED = "a pending pod goes there"
OF_GROUP = "a pod there is of a pod group, which may lose its work with one pod: --pod-groups moves these too"
MANY_BUDGETS = "several disruption budgets are about one pod, which cannot be evicted"
BUDGET = "a disruption budget does not allow it"
NO_ROOM = "its pods do not all fit elsewhere"
UNTRIED = "not tried: more --steps or --timeout would tell"


class Move(msgspec.Struct, frozen=True):
    """A pod, by `namespace/name`, its node, the one that it would go to, and its pod group if it is of one."""

    pod: str
    source: str
    target: str
    group: str = ""


class Freed(msgspec.Struct, frozen=True):
    """A node, or the nodes with this value of the label, that would be free of all pods but those that belong to it."""

    name: str
    nodes: list[str]
    moves: int


class Defrag(msgspec.Struct, frozen=True, omit_defaults=True):
    """`epoch`, `seq`, `at`: the state that was asked about. `by`: the label, empty for single nodes.

    `moves`: what is decided if all nodes of `freed` are drained at once, and those of `free` are cordoned. `free`: the
    units that are free already, with their nodes. `kept`: by reason, the names of units that are not freed.
    """

    epoch: int
    seq: int
    at: float
    by: str = ""
    freed: list[Freed] = []
    moves: list[Move] = []
    free: dict[str, list[str]] = {}
    kept: dict[str, list[str]] = {}
    steps: int = 0
    notes: list[str] = []


class TimeIsUp(ClusterError):
    """No time is left for another trial."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the answer takes longer than {seconds:g} s; allow more time")


@dataclass(frozen=True, slots=True)
class Unit:
    """`pods`: those that would have to move. `blocked`: why it cannot be freed, if so."""

    name: str
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    blocked: str = ""


def defrag(
    live: LiveState,
    pods_on: PodsOn,
    *,
    by: str = "",
    pod_groups: bool = False,
    steps: int = 200,
    seconds: float,
    converse: Converse | None = None,
    tell: "Callable[[Progress], None]" = lambda progress: None,
) -> Defrag:
    """At most `steps` trials, and for about `seconds`. `tell` is called after each trial.

    `by`: a node label. `pod_groups`: pods of pod groups are moved as well.
    """
    if not 1 <= steps <= MAX_STEPS:
        raise UserError(f"--steps: takes 1 to {MAX_STEPS}, not {steps}")
    clock = _Clock(seconds)
    engine = Engine(live, Question(), pods_on, clock.check, converse)
    trials = Trials(engine, pods_on, by, moves_groups=pod_groups)
    clock.stop_after(SEARCHING * seconds)
    freed, why = _Search(trials, steps, tell).run(lambda: clock.stop_after(seconds))
    kept: dict[str, list[str]] = {}
    for unit in trials.units:
        reason = unit.blocked or why.get(unit.name, "")
        if reason:
            kept.setdefault(reason, []).append(unit.name)
    return Defrag(
        live.state.epoch,
        live.state.seq,
        live.at,
        by,
        [Freed(unit.name, [node.name for node in unit.nodes], len(unit.pods)) for unit in freed],
        trials.moves,
        {unit.name: [node.name for node in unit.nodes] for unit in trials.free},
        kept,
        trials.steps,
        engine.notes,
    )


class Progress(NamedTuple):
    """Units that were tried so far, of how many, and how many of them can be freed."""

    tried: int
    units: int
    freed: int


class _Clock:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()
        self.stop_after(seconds)

    def stop_after(self, seconds: float) -> None:
        """Since the beginning."""
        self._ends = self._began + seconds

    def check(self) -> None:
        if time.monotonic() > self._ends:
            raise TimeIsUp(self._seconds)


class _Search:
    """Adds units by twos, fours and so on as long as they fit."""

    def __init__(self, trials: "Trials", steps: int, tell: Callable[[Progress], None]) -> None:
        self._trials = trials
        self._steps = steps
        self._tell = tell
        self._candidates = sorted(
            (unit for unit in trials.units if unit.pods and not unit.blocked),
            key=lambda unit: (len(unit.pods), unit.name),
        )
        self._freed: list[Unit] = []
        self._confirmed: list[Unit] = []
        self._next = 0
        self._why: dict[str, str] = {}

    def run(self, has_ended: Callable[[], None]) -> tuple[list[Unit], dict[str, str]]:
        """The units that can be freed together, and by name why others are not. `has_ended`: no more are added."""
        for step in (self._add_units, self._confirm):
            try:
                step()
            except TimeIsUp:
                self._trials.forget()
            has_ended()
        known = {unit.name for unit in self._confirmed} | self._why.keys()
        untried = {unit.name: UNTRIED for unit in self._candidates if unit.name not in known}
        return self._confirmed, self._why | untried

    def _add_units(self) -> None:
        trials, candidates, count = self._trials, self._candidates, 1
        while self._next < len(candidates) and trials.steps < self._steps:
            tried = candidates[self._next : self._next + count]
            chosen = [*self._freed, *tried]
            allowed = trials.budgets.allow(chosen)
            if allowed and not trials.room.lacks(chosen) and trials.fits(chosen):
                self._freed, count = chosen, 2 * count
                self._next += len(tried)
                if len(self._freed) >= GROWTH * max(len(self._confirmed), 1):
                    self._confirm()
            elif len(tried) > 1:
                count = len(tried) // 2
            else:
                self._why[tried[0].name] = NO_ROOM if allowed else BUDGET
                self._next += 1
            self._tell(Progress(self._next, len(candidates), len(self._freed)))

    def _confirm(self) -> None:
        """Moves all pods at once; if that does not fit, those of fewer units."""
        while self._freed != self._confirmed:
            if self._trials.confirms(self._freed):
                self._confirmed = self._freed
                return
            left = max(len(self._confirmed), len(self._freed) * 3 // 4)
            self._why |= {unit.name: NO_ROOM for unit in self._freed[left:]}
            self._freed = self._freed[:left]


class Budgets:
    """The cluster's PodDisruptionBudgets, as evictions heed them."""

    def __init__(self, objects: Sequence[ClusterObject]) -> None:
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        for obj in objects:
            if isinstance(obj, PodDisruptionBudget):
                self._by_namespace.setdefault(obj.namespace, []).append(obj)

    def about(self, pod: Pod) -> list[PodDisruptionBudget]:
        """An empty selector is about all pods of the namespace, a missing one about none."""
        return [
            budget
            for budget in self._by_namespace.get(pod.namespace, ())
            if budget.spec.selector is not None and label_selector_matches(budget.spec.selector, pod.metadata.labels)
        ]

    def allow(self, units: Sequence[Unit]) -> bool:
        """Whether all pods of these may be evicted by what the budgets allow now."""
        taken: Counter[str] = Counter()
        allowed: dict[str, int] = {}
        for pod in (pod for unit in units for pod in unit.pods):
            for budget in self.about(pod):
                taken[budget.key] += 1
                allowed[budget.key] = budget.status.disruptions_allowed
        return all(count <= allowed[key] for key, count in taken.items())


class Room:
    """What pods request and nodes have free in sum: sets of units that need more are not tried."""

    def __init__(self, engine: Engine, cores: Cores, units: Sequence[Unit]) -> None:
        filters = ProfileFilters.of(engine.config)
        self._counts = all(each.resources for each in filters.values())
        self._needs: dict[str, Counter[str]] = {}
        self._free: dict[str, Counter[str]] = {}
        used = {node.name for unit in units if unit.pods or unit.blocked for node in unit.nodes}
        grouped = {node.name for unit in units for node in unit.nodes}
        self._everywhere = Counter[str]()
        for node in engine.nodes.values():
            if not node.spec.unschedulable and (node.name in used or node.name not in grouped):
                self._everywhere.update(free_room(cores, node))
        for unit in units:
            self._needs[unit.name], self._free[unit.name] = Counter(), Counter()
            for pod in unit.pods:
                self._needs[unit.name].update({**filter_requests(pod), PODS: 1})
            for node in unit.nodes:
                self._free[unit.name].update({} if node.spec.unschedulable else free_room(cores, node))

    def lacks(self, chosen: Sequence[Unit]) -> bool:
        """Whether the other nodes have too little for the pods of these."""
        if not self._counts:
            return False
        left = self._everywhere.copy()
        for unit in chosen:
            left.subtract(self._free[unit.name])
            left.subtract(self._needs[unit.name])
        return any(left[name] < 0 for name in SUMMED)


@dataclass(frozen=True, slots=True)
class Moved:
    """A pod, the one that its owner would create instead, and the node of that one."""

    pod: Pod
    again: Pod
    node: str


@dataclass(slots=True)
class Trials:
    """Decides the pods of one set of units after another. `moves`: those of the last set that was confirmed."""

    engine: Engine
    pods_on: PodsOn
    by: str
    moves_groups: bool
    moves: list[Move] = field(default_factory=list)
    steps: int = 0
    budgets: Budgets = field(init=False)
    units: list[Unit] = field(init=False)
    room: Room = field(init=False)
    _claims: dict[tuple[ObjectKind, str], ClusterObject] = field(init=False)
    _cores: Cores | None = None
    _emptied: dict[str, Unit] = field(default_factory=dict)
    """The units whose pods have left, by name."""
    _moved: dict[str, Moved] = field(default_factory=dict)
    """Where their pods are now, by uid."""

    def __post_init__(self) -> None:
        objects = self.engine.live.state.objects
        self.budgets = Budgets(objects)
        self._claims = {(kind_of(each), key_of(each)): each for each in objects}
        self._cores = cores = self._decided()
        self.units = list(self._units(cores))
        self.room = Room(self.engine, cores, self.units)
        cores.add_nodes(_cordoned(node) for unit in self.free for node in unit.nodes)

    @property
    def free(self) -> list[Unit]:
        """Those that have no pods to move already."""
        return [unit for unit in self.units if not unit.pods and not unit.blocked]

    def fits(self, chosen: Sequence[Unit]) -> bool:
        """Whether all pods of these find a node; those that did before stay there, if it is not one of these now."""
        self.steps += 1
        return self._try(chosen, all_at_once=False)

    def confirms(self, chosen: Sequence[Unit]) -> bool:
        """Whether they do if all are moved at once."""
        fits = self._try(chosen, all_at_once=True)
        if fits:
            pods = (pod for unit in chosen for pod in unit.pods)
            self.moves = [Move(pod.key, pod.spec.node_name, self._moved[pod.uid].node, _group_key(pod)) for pod in pods]
        return fits

    def forget(self) -> None:
        """A trial was ended before it was over."""
        self._cores = None

    def _try(self, chosen: Sequence[Unit], *, all_at_once: bool) -> bool:
        cores = self._with_emptied(chosen)
        closed = {node.name for unit in (*chosen, *self.free) for node in unit.nodes}
        redone = [each for each in self._moved.values() if all_at_once or each.node in closed]
        if any(_has_claims(each.pod) for each in redone):
            self.forget()
            cores, redone = self._with_emptied(chosen), []
        cores.remove_pods((each.again.uid for each in redone), with_claims=False)
        for each in redone:
            del self._moved[each.pod.uid]
        evicted = len(cores.evicted)
        asked = [
            (pod, *recreated(pod, f"{UID}-moved-{pod.uid}", self._claims))
            for unit in chosen
            for pod in unit.pods
            if pod.uid not in self._moved
        ]
        for _, again, made in asked:
            self.engine.check()
            cores.add_objects(made)
            cores.submit([(again, 0.0)])
        cores.settle()
        moved = [Moved(pod, again, cores.node_of(again.uid)) for pod, again, _ in asked]
        if len(cores.evicted) == evicted and all(each.node and each.node not in closed for each in moved):
            self._moved |= {each.pod.uid: each for each in moved}
            return True
        if len(cores.evicted) > evicted or any(_has_claims(each.pod) for each in (*moved, *redone)):
            self.forget()  # what victims and claims leave behind cannot be taken back
        else:
            cores.remove_pods((each.again.uid for each in moved), with_claims=False)
            cores.place(_on(each.again, each.node) for each in redone)
            self._moved |= {each.pod.uid: each for each in redone}
            cores.settle()
        return False

    def _decided(self) -> Cores:
        """The state once the pods that are pending now are decided."""
        cores = self.engine.cores()
        self.engine.decide(cores, self.engine.asked())
        return cores

    def _with_emptied(self, chosen: Sequence[Unit]) -> Cores:
        """The state in which the pods of just these units have left."""
        cores = self._cores
        if cores is None:
            self._cores = cores = self._decided()
            self._emptied, self._moved = {}, {}
            cores.add_nodes(_cordoned(node) for unit in self.free for node in unit.nodes)
        wanted = {unit.name: unit for unit in chosen}
        for name in [name for name in self._emptied if name not in wanted]:
            unit = self._emptied.pop(name)
            again = [moved.again.uid for pod in unit.pods if (moved := self._moved.pop(pod.uid, None)) is not None]
            cores.remove_pods(again, with_claims=False)
            cores.place(unit.pods)
            cores.add_nodes(unit.nodes)
        for name, unit in wanted.items():
            if name not in self._emptied:
                self.engine.check()
                cores.add_nodes(map(_cordoned, unit.nodes))
                cores.remove_pods(pod.uid for pod in unit.pods)
                self._emptied[name] = unit
        cores.settle()
        return cores

    # Units

    def _units(self, cores: Cores) -> Iterator[Unit]:
        """Nodes without the label are in none."""
        pending = {each.uid for each in self.engine.live.pending}
        by_name: dict[str, list[Node]] = {}
        for node in self.engine.nodes.values():
            name = node.metadata.labels.get(self.by, "") if self.by else node.name
            if name:
                by_name.setdefault(name, []).append(node)
        if not by_name and self.engine.nodes:
            raise UserError(f"--by: no node has the label {self.by}")
        for name, nodes in sorted(by_name.items()):
            pods: list[Pod] = []
            blocked = ""
            for node in nodes:
                known = {pod.uid: pod for pod in self.pods_on.get(node.name, ())}
                for uid in cores.snapshot.cluster.pods.on_node(node.name):
                    pod = known.get(uid)
                    blocked = blocked or self._blocked(pod, is_pending=uid in pending)
                    if pod is not None and not stays(pod) and pod.metadata.deletion_timestamp is None:
                        pods.append(pod)
            yield Unit(name, tuple(nodes), tuple(sorted(pods, key=lambda pod: pod.key)), blocked)

    def _blocked(self, pod: Pod | None, *, is_pending: bool) -> str:
        if is_pending:
            return AWAITED
        if pod is None:
            return UNKNOWN
        if stays(pod) or pod.metadata.deletion_timestamp is not None:
            return ""
        if not any(owner.controller for owner in pod.metadata.owner_references):
            return ALONE
        if not self.moves_groups and group_of(pod) is not None:
            return OF_GROUP
        return MANY_BUDGETS if len(self.budgets.about(pod)) > 1 else ""


def _cordoned(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, unschedulable=True))


def _group_key(pod: Pod) -> str:
    ref = group_of(pod)
    return "" if ref is None else ref.key


def _on(pod: Pod, node: str) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=node))


def _has_claims(pod: Pod) -> bool:
    """Whether claims are reserved for the pod, or made for it."""
    return bool(pod.spec.resource_claims) or any(volume.ephemeral is not None for volume in pod.spec.volumes)
