"""SchedulingGates keeps a pod out of the queue until all its gates are gone."""

from shared.framework.plugin import PreEnqueuePlugin
from shared.framework.status import SUCCESS, Status, unresolvable
from shared.model.objects import Pod


class SchedulingGates(PreEnqueuePlugin):
    name = "SchedulingGates"

    def pre_enqueue(self, pod: Pod) -> Status:
        gates = pod.spec.scheduling_gates
        if not gates:
            return SUCCESS
        return unresolvable(f"waiting for scheduling gates: [{' '.join(gate.name for gate in gates)}]")
