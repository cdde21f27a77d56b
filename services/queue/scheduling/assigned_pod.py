"""A pod on a node, as far as queueing hints and events need it."""

import msgspec
from msgspec.structs import replace

from shared.model.objects import GroupRef, ObjectMeta, Pod, PodSpec, PodStatus, Volume

NO_LABELS: dict[str, str] = {}
NO_VOLUMES: list[Volume] = []
NO_SPEC = PodSpec()
NO_STATUS = PodStatus()


class DecodedParts(msgspec.Struct, frozen=True, gc=False):
    """What pods that are alike share. `spec`: without node and volumes. `claims`: of volumes, by `namespace/name`."""

    namespace: str
    labels: dict[str, str] = NO_LABELS
    spec: PodSpec = NO_SPEC
    volumes: list[Volume] = NO_VOLUMES
    status: PodStatus = NO_STATUS
    group: GroupRef | None = None
    claims: frozenset[str] = frozenset()


class AssignedPod(msgspec.Struct, frozen=True, gc=False):
    """A process may hold half a million of them, most of which share their parts."""

    uid: str
    name: str
    node: str
    parts: DecodedParts

    def pod(self) -> Pod:
        parts = self.parts
        return Pod(
            metadata=ObjectMeta(name=self.name, namespace=parts.namespace, uid=self.uid, labels=parts.labels),
            spec=replace(parts.spec, node_name=self.node, volumes=parts.volumes),
            status=parts.status,
        )

    def is_same(self, other: "AssignedPod | None") -> bool:
        """Whether nothing that hints and events need differs."""
        if other is None or self.node != other.node or self.name != other.name:
            return False
        return self.parts is other.parts or self.parts == other.parts
