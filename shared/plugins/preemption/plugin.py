"""DefaultPreemption as a profile has it: its arguments, and which pods may preempt at all.

The search itself is spread over the shards: each tries its own nodes (`dryrun`), and the candidates of all shards
together are chosen from (`choice`). So there is nothing to be said about one pod in one place.
"""

from collections.abc import Collection, Hashable, Sequence

from flotilla.events import Action, Registration, Resource
from flotilla.results import SUCCESS, Code, PostFilterResult, Status
from shared.cluster.nodetable import NodeTable
from shared.config.args import DefaultPreemptionArgs
from shared.errors import InvariantBroken
from shared.framework.cyclestate import CycleState
from shared.framework.plugin import PodParts, PostFilterPlugin, PreEnqueuePlugin
from shared.model.kinds import ObjectKind
from shared.model.objects import Pod
from shared.plugins.hints.anypod import never

NEVER = "not eligible due to preemptionPolicy=Never."
VICTIMS_STILL_GO = "not eligible due to a terminating pod on the nominated node."


class DefaultPreemption(PreEnqueuePlugin, PostFilterPlugin):
    name = "DefaultPreemption"
    reads_of_pod = PodParts.TEMPLATE

    def __init__(self, args: DefaultPreemptionArgs | None = None) -> None:
        self._args = args or DefaultPreemptionArgs()

    def signature(self, pod: Pod) -> Hashable:
        return pod.spec.preemption_policy

    def reads_objects(self, state: CycleState) -> Collection[ObjectKind]:
        """Each search reads the budgets as they are."""
        return ()

    def events(self) -> Sequence[Registration]:
        """For the sake of its gate; what else has rejected the pod knows best when its victims have made room."""
        return (Registration(Resource.POD, Action.DELETE, never),)

    def pre_enqueue(self, pod: Pod) -> Status:
        """Whether its victims are just being told does not show in the pod: whoever tells them keeps it back."""
        return SUCCESS

    def post_filter(self, state: CycleState, statuses: dict[str, Status]) -> PostFilterResult:
        raise InvariantBroken(f"{self.name} is not asked about one pod in one place")

    def candidates_wanted(self, potential: int) -> int:
        """How many candidates are enough, where pods might make way on so many nodes."""
        share = potential * self._args.min_candidate_nodes_percentage // 100
        return min(potential, max(share, self._args.min_candidate_nodes_absolute))

    def ineligible(self, pod: Pod, table: NodeTable, own_status: Status | None) -> str:
        """Why the pod is not to preempt, as far as this table knows; empty if it may.

        `own_status`: that of the node that the pod is nominated to, if it is in this table.
        """
        if pod.spec.preemption_policy == "Never":
            return NEVER
        row = table.row_of(pod.status.nominated_node_name)
        if row is None or own_status is None or own_status.code is Code.UNRESOLVABLE:
            return ""
        loads = table.loads_at(row)
        return VICTIMS_STILL_GO if any(load.priority < pod.priority and load.preempted for load in loads) else ""
