"""The cheapest nodes that make all pods fit, found by deciding the pods on one set of added nodes after another.

A set is a number of nodes of each group. First the largest set is tried: the pods that fit there are to fit on the
answer, too. Then a good set is searched for, as an upper bound: the fewest nodes of each group alone, and fewer of each
group of the best of these. Then all cheaper sets come in order of the price that they, or any larger set, have at least
(A*): a set with too few resources in sum is not tried, and the first one on which the pods fit is the cheapest, by
proof. If the allowed steps are used up before, the best set found is the answer.

No pod preempts another in a trial: a pod that finds room only by that counts as one that does not fit.
"""

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from services.snapshot.commit_checks import ProfileFilters
from shared.errors import UserError
from shared.model.objects import Node
from shared.model.resources import PODS, allocatable, filter_requests
from tools.whatif.answer import Answer, NodeGroup, NodesNeeded
from tools.whatif.capacity import NEVER, ROUND
from tools.whatif.cores import Cores
from tools.whatif.engine import Asked, Engine, copy_of
from tools.whatif.manifests import read_node

Counts = tuple[int, ...]

MAX_GROUPS = 16
MAX_OF_GROUP = 1000
"""Nodes that one group may add."""
MAX_STEPS = 10_000
MAX_EXPANDED = 100_000
"""Sets that are looked at, tried or not."""
SUMMED = ("cpu", "memory", "ephemeral-storage", PODS)
"""Resources of which too little in sum rules a set out."""


@dataclass(slots=True)
class Trials:
    """Decides all pods on one set of added nodes after another. Every set is tried once."""

    engine: Engine
    groups: Sequence[NodeGroup]
    templates: Sequence[Node]
    steps: int
    cores: Cores = field(init=False)
    asked: list[Asked] = field(init=False)
    required: list[Asked] = field(default_factory=list)
    tried: dict[Counts, bool] = field(default_factory=dict)
    there: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.asked = [_never_preempting(each) for each in self.engine.asked()]
        self.cores = self.engine.cores(ROUND)
        self.engine.change(self.cores)

    @property
    def spent(self) -> bool:
        return len(self.tried) >= self.steps

    def price(self, counts: Counts) -> float:
        return sum(group.price * count for group, count in zip(self.groups, counts, strict=True))

    def require(self, counts: Counts) -> bool:
        """The pods that fit on this set must fit on the others. Whether these are all that a node could help."""
        self.decide(counts)
        self.required = [each for each in self.asked if self.cores.node_of(each.pod.uid)]
        self.tried[counts] = True
        infos = map(self.cores.queued, (each.pod.uid for each in self.asked))
        return all(info is None or info.gating_plugin is not None for info in infos)

    def fits(self, counts: Counts) -> bool:
        known = self.tried.get(counts)
        if known is None:
            self.decide(counts)
            known = self.tried[counts] = all(self.cores.node_of(each.pod.uid) for each in self.required)
        return known

    def clear(self) -> None:
        self.cores.remove_pods((each.pod.uid for each in self.asked), with_claims=False)
        self.cores.settle()

    def decide(self, counts: Counts) -> None:
        """Leaves the pods where they went."""
        cores = self.cores
        self.clear()
        wanted = {node.name: (node, like) for node, like in self._nodes(counts)}
        for name in sorted(self.there - wanted.keys()):
            cores.remove_node(name)
        for name in sorted(wanted.keys() - self.there):
            node, like = wanted[name]
            cores.add_nodes([node])
            cores.place(self.engine.daemons(like, node))
        self.there = set(wanted)
        cores.submit((each.pod, each.since) for each in self.asked)
        cores.settle()

    def _nodes(self, counts: Counts) -> Iterator[tuple[Node, str]]:
        for group, template, count in zip(self.groups, self.templates, counts, strict=True):
            for i in range(count):
                yield copy_of(template, f"{group.name}-{i + 1}"), group.like


def cheapest(engine: Engine) -> Answer:
    groups = engine.question.node_groups
    _check(groups, engine.question.steps)
    trials = Trials(engine, groups, [_template(engine, group) for group in groups], engine.question.steps)
    needed = _search(trials)
    trials.decide(tuple(needed.counts[group.name] for group in groups))
    told = engine.told(trials.cores, trials.asked)
    used = replace(needed, counts={name: count for name, count in needed.counts.items() if count})
    return replace(told, needed=used)


class Bound:
    """What sets have at least to cost, by the resources that the required pods need in sum.

    `lacking`: what no node that is there has free; empty if a profile does not filter by resources.
    """

    def __init__(self, trials: Trials) -> None:
        """Removes the pods from the nodes where a trial left them."""
        cores, filters = trials.cores, ProfileFilters.of(trials.engine.config)
        needs: Counter[str] = Counter()
        for each in trials.required:
            of = filters[each.pod.spec.scheduler_name]
            if not of.resources:
                needs.clear()
                break
            needs.update({**filter_requests(each.pod), PODS: 1})
        trials.clear()
        free: Counter[str] = Counter()
        for node in cores.snapshot.cluster.nodes:
            free.update(free_room(cores, node))
        self.lacking = {name: needs[name] - free[name] for name in SUMMED if needs[name] > free[name]}
        self._offers = [allocatable(template) for template in trials.templates]
        self._trials = trials

    def refuses(self, counts: Counts) -> bool:
        return any(self._left(name, counts) > 0 for name in self.lacking)

    def least_price(self, counts: Counts) -> float:
        """Of this set, and of every set that has at least these nodes and enough resources."""
        return self._trials.price(counts) + max((self._price_of(name, counts) for name in self.lacking), default=0.0)

    def _left(self, name: str, counts: Counts) -> int:
        return self.lacking[name] - sum(o.get(name, 0) * n for o, n in zip(self._offers, counts, strict=True))

    def _price_of(self, name: str, counts: Counts) -> float:
        """The least price of what is left of a resource; a little less, as divisions round."""
        left, groups = self._left(name, counts), self._trials.groups
        if left <= 0:
            return 0.0
        offers = [(offer.get(name, 0), group.price) for offer, group in zip(self._offers, groups, strict=True)]
        return min((left / amount * price for amount, price in offers if amount), default=0.0) * (1 - 1e-9)


def free_room(cores: Cores, node: Node) -> dict[str, int]:
    cluster = cores.snapshot.cluster
    used = {**cluster.pods.use_of(node.name).requests, PODS: len(cluster.pods.on_node(node.name))}
    return {name: max(0, amount - used.get(name, 0)) for name, amount in allocatable(node).items()}


def _search(trials: Trials) -> NodesNeeded:
    groups = trials.groups
    nothing, everything = tuple(0 for _ in groups), tuple(group.max for group in groups)
    complete = trials.require(everything)
    bound = Bound(trials)
    best = _upper_bound(trials, bound, nothing, everything)
    heap = [(bound.least_price(nothing), nothing)]
    expanded = 0
    while heap:
        price, counts = heapq.heappop(heap)
        if price >= trials.price(best):
            break
        expanded += 1
        tried = counts in trials.tried or bound.refuses(counts)
        if expanded > MAX_EXPANDED or (trials.spent and not tried):
            return _needed(trials, best, proven=False, complete=complete)
        if not bound.refuses(counts) and trials.fits(counts):
            best = counts
            break
        trials.engine.check()
        last = max((i for i, count in enumerate(counts) if count), default=0)
        for i in range(last, len(groups)):
            if counts[i] < groups[i].max:
                more = (*counts[:i], counts[i] + 1, *counts[i + 1 :])
                heapq.heappush(heap, (bound.least_price(more), more))
    return _needed(trials, best, proven=True, complete=complete)


def _upper_bound(trials: Trials, bound: Bound, nothing: Counts, everything: Counts) -> Counts:
    """A set on which the required pods fit, found in half of the allowed steps at most."""
    limit = max(1, trials.steps // 2)
    found = [everything]
    if not bound.refuses(nothing) and trials.fits(nothing):
        return nothing
    for i, group in enumerate(trials.groups):
        alone = _fewest(trials, bound, i, group.max, nothing, limit)
        if alone is not None:
            found.append(alone)
    best = min(found, key=trials.price)
    for i in sorted(range(len(best)), key=lambda i: -trials.groups[i].price):
        if best[i]:
            best = _fewest(trials, bound, i, best[i], best, limit) or best
    return best


def _fewest(trials: Trials, bound: Bound, i: int, most: int, others: Counts, limit: int) -> Counts | None:
    """By halving, the fewest nodes of one group with which all pods fit; None if that was not found."""

    def with_count(count: int) -> Counts:
        return (*others[:i], count, *others[i + 1 :])

    low, high, found = 0, most, None
    while low <= high:
        middle = (low + high) // 2
        counts = with_count(middle)
        if bound.refuses(counts):
            low = middle + 1
            continue
        if len(trials.tried) >= limit and counts not in trials.tried:
            return found
        if trials.fits(counts):
            found, high = counts, middle - 1
        else:
            low = middle + 1
    return found


def _needed(trials: Trials, counts: Counts, *, proven: bool, complete: bool) -> NodesNeeded:
    by_name = {group.name: count for group, count in zip(trials.groups, counts, strict=True)}
    return NodesNeeded(by_name, trials.price(counts), complete, proven, len(trials.tried))


def _never_preempting(asked: Asked) -> Asked:
    pod = asked.pod
    return asked._replace(pod=replace(pod, spec=replace(pod.spec, preemption_policy=NEVER)))


def _template(engine: Engine, group: NodeGroup) -> Node:
    if bool(group.like) == (group.template is not None):
        raise UserError(f"node group {group.name}: expected either like or template")
    if group.template is None:
        if group.like not in engine.nodes:
            raise UserError(f"node group {group.name}: like: there is no node {group.like}")
        return engine.nodes[group.like]
    template = {**group.template, "metadata": {"name": group.name, **_map(group.template.get("metadata"))}}
    try:
        return read_node(template)
    except UserError as cause:
        raise UserError(f"node group {group.name}: template: {cause}") from None


def _map(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}


def _check(groups: Sequence[NodeGroup], steps: int) -> None:
    if not 1 <= len(groups) <= MAX_GROUPS:
        raise UserError(f"node_groups: takes 1 to {MAX_GROUPS}, not {len(groups)}")
    names = Counter(group.name for group in groups)
    for group in groups:
        if names[group.name] > 1:
            raise UserError(f"node group {group.name}: the name is given twice")
        if not 0 <= group.max <= MAX_OF_GROUP:
            raise UserError(f"node group {group.name}: max: takes 0 to {MAX_OF_GROUP}, not {group.max}")
        if not 0 <= group.price < float("inf"):
            raise UserError(f"node group {group.name}: price: takes a number from 0 on, not {group.price}")
    if not 1 <= steps <= MAX_STEPS:
        raise UserError(f"steps: takes 1 to {MAX_STEPS}, not {steps}")
