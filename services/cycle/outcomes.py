"""What the queue is told about a pod that has got no place."""

from services.cycle.events import Failed, Unschedulable
from shared.messages.queue import Outcome, Verdict


def outcome_of(effect: Unschedulable | Failed, has_nomination: bool) -> Outcome:
    """`has_nomination`: the pod was nominated to a node when it was handed out.

    It loses that where its attempt ends in an error, where nobody could have made way for it, and where nobody that
    goes would be of any help.
    """
    lost = "" if has_nomination else None
    match effect:
        case Failed(uid=uid, status=status):
            plugins = (status.plugin,) if status.plugin else ()
            return Outcome(uid, Verdict.FAILED, message=status.message, plugins=plugins, nominated=lost)
        case Unschedulable(uid=uid, unfit=unfit, preemption=found, number=number):
            nominated = lost if found is None or found.nominated == "" else found.nominated
            return Outcome(
                uid,
                Verdict.UNSCHEDULABLE,
                message=unfit.message,
                plugins=unfit.plugins,
                nominated=nominated,
                preemption=number,
            )
