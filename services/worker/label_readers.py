"""Which individual labels select pods: by these, pods of one controller differ for others."""

from shared.cluster.nodetable import NodeTable
from shared.cluster.objects import ClusterObjects
from shared.model.individual_labels import INDIVIDUAL_LABELS, NONE, read_by_selector
from shared.model.objects import ObjectKind


class LabelReaders:
    """Looks through services and stateful sets again only when these have changed."""

    def __init__(self) -> None:
        self._known: tuple[ClusterObjects, int, int] | None = None
        self._by_objects = NONE

    def read(self, table: NodeTable) -> list[str]:
        """The individual labels by which placed pods' terms, services and stateful sets select."""
        objects = table.objects
        now = objects, objects.generation(ObjectKind.SERVICE), objects.generation(ObjectKind.STATEFUL_SET)
        known = self._known
        if known is None or known[0] is not objects or known[1:] != now[1:]:
            self._known, self._by_objects = now, _read_by(objects)
        return sorted(self._by_objects.union(+table.terms.individual_labels))


def _read_by(objects: ClusterObjects) -> frozenset[str]:
    read = NONE
    for service in objects.services.values():
        read |= INDIVIDUAL_LABELS.intersection(service.spec.selector)
    for stateful_set in objects.stateful_sets.values():
        read |= read_by_selector(stateful_set.spec.selector)
    return read
