"""What of a change of a group matters: mostly conditions change, often those that the queue has asked for."""

from shared.model.composite_groups import CompositePodGroup
from shared.model.objects import PodGroup


def says_the_same(before: object, now: object) -> bool:
    """Whether both are versions of one group that say the same of its pods: only its status differs, if anything."""
    if before is None or now is None:
        return False
    match before, now:
        case PodGroup(), PodGroup():
            same = before.ref == now.ref and before.spec == now.spec
            return same and before.metadata.annotations == now.metadata.annotations
        case CompositePodGroup(), CompositePodGroup():
            return before.key == now.key and before.spec == now.spec
    return False
