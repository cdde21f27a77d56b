"""DefaultPreemption: evicts pods of lower priority for one that fits no node.

The search is spread over the shards: each tries its own nodes (`shared/framework/dry_run.py`), and the cycle chooses
among the candidates of all shards.
"""

import math
from collections.abc import Callable, Hashable, Sequence

import msgspec

from flotilla.events import Action, Registration, Resource
from flotilla.objects import Pod
from flotilla.plugin import ClassState, PostFilterPlugin, PreEnqueuePlugin
from flotilla.results import SUCCESS, Code, PostFilterResult, Status
from shared.cluster.eviction_units import priority_of
from shared.cluster.nodetable import NodeTable
from shared.config.args import DefaultPreemptionArgs
from shared.errors import InvariantBroken
from shared.messages.preemption import Candidate, Victim
from shared.plugins.base import InTreePlugin, never

Cost = Callable[[Sequence[Victim]], float]

LOWEST_PRIORITY = -(1 << 31)
NEVER = "not eligible due to preemptionPolicy=Never."
VICTIMS_STILL_GO = "not eligible due to a terminating pod on the nominated node."


class DefaultPreemption(InTreePlugin, PreEnqueuePlugin, PostFilterPlugin):
    """Each search reads the budgets as they are, so no class rests on them.

    The registration is only for its gate: the plugins that rejected the pod wait for its victims to be gone.
    """

    name = "DefaultPreemption"
    registrations = (Registration(Resource.POD, Action.DELETE, never),)

    def __init__(self, args: DefaultPreemptionArgs | None = None) -> None:
        self._args = args or DefaultPreemptionArgs()

    def signature(self, pod: Pod) -> Hashable:
        return pod.spec.preemption_policy

    def pre_enqueue(self, pod: Pod) -> Status:
        """Pending evictions do not show in the pod; the queue holds it back for them."""
        return SUCCESS

    def post_filter(self, state: ClassState, statuses: dict[str, Status]) -> PostFilterResult:
        raise InvariantBroken(f"{self.name} is not asked about one pod in one place")

    def candidates_wanted(self, potential: int) -> int:
        """How many candidates to look for, given the number of nodes where preemption might help."""
        share = potential * self._args.min_candidate_nodes_percentage // 100
        return min(potential, max(share, self._args.min_candidate_nodes_absolute))

    def ineligible(self, pod: Pod, table: NodeTable, own_status: Status | None) -> str:
        """Why the pod may not preempt, as far as this table knows; empty if it may.

        `own_status`: that of the node that the pod is nominated to, if it is in this table.
        """
        if pod.spec.preemption_policy == "Never":
            return NEVER
        row = table.row_of(pod.status.nominated_node_name)
        if row is None or own_status is None or own_status.code is Code.UNRESOLVABLE:
            return ""
        groups, preempted = table.objects.pod_groups, (load for load in table.loads_at(row) if load.preempted)
        return VICTIMS_STILL_GO if any(priority_of(load, groups) < pod.priority for load in preempted) else ""


# Which candidate costs least


def best_of(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The best ones, all equally good; by node name."""
    left = list(candidates)
    for cost in _COSTS:
        if len(left) < 2:
            break
        costs = [cost(candidate.victims) for candidate in left]
        lowest = min(costs)
        left = [candidate for candidate, of_it in zip(left, costs, strict=True) if of_it == lowest]
    return sorted(left, key=lambda candidate: candidate.node)


def _violations(victims: Sequence[Victim]) -> float:
    return sum(victim.violates for victim in victims)


def _highest_priority(victims: Sequence[Victim]) -> float:
    return max(victim.priority for victim in victims)


def _sum_of_priorities(victims: Sequence[Victim]) -> float:
    """Counted from the lowest possible priority, so that no victim makes a candidate cheaper."""
    return sum(victim.priority - LOWEST_PRIORITY for victim in victims)


def _latest_start(victims: Sequence[Victim]) -> float:
    """Of the most important victims, the start of the one that runs longest: the later, the better."""
    highest = _highest_priority(victims)
    return -min(
        math.inf if victim.started is None else victim.started for victim in victims if victim.priority == highest
    )


_COSTS: tuple[Cost, ...] = (_violations, _highest_priority, _sum_of_priorities, len, _latest_start)


# The answers of PostFilter plugins in several shards as one


def is_final(status: Status) -> bool:
    """Whether no further plugin is asked: this one helped, failed, or says that nothing helps."""
    return status.ok or status.code in (Code.ERROR, Code.UNRESOLVABLE)


def of_all_shards(results: Sequence[PostFilterResult]) -> PostFilterResult:
    """One plugin's answers in several shards as one.

    A final answer holds for all; the first nominated node by name; and claims to be given back in any shard.
    """
    for code in (Code.ERROR, Code.UNRESOLVABLE):
        for result in results:
            if result.status.code is code:
                return result
    helped = [result for result in results if result.status.ok]
    if helped:
        return min(helped, key=lambda result: result.nominated_node)
    for giving in ([each for each in results if each.deallocate], [each for each in results if each.delete]):
        if giving:
            deallocate = tuple(sorted({key for result in giving for key in result.deallocate}))
            return msgspec.structs.replace(giving[0], deallocate=deallocate)
    reasons = dict.fromkeys(reason for result in results for reason in result.status.reasons)
    return PostFilterResult(Status(Code.UNSCHEDULABLE, tuple(reasons)))
