"""SchedulingGates keeps a pod out of the queue until all its gates are gone."""

from collections.abc import Sequence

from flotilla.events import Action, Registration, Resource
from flotilla.results import SUCCESS, Status, unresolvable
from shared.framework.plugin import PodParts, PreEnqueuePlugin
from shared.model.objects import Pod
from shared.plugins.hints.anypod import after_own_update


class SchedulingGates(PreEnqueuePlugin):
    name = "SchedulingGates"
    reads_of_pod = PodParts.TEMPLATE

    def events(self) -> Sequence[Registration]:
        return (Registration(Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, after_own_update),)

    def pre_enqueue(self, pod: Pod) -> Status:
        gates = pod.spec.scheduling_gates
        if not gates:
            return SUCCESS
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gate.name for gate in gates)}]")
