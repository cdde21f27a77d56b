"""Reads PodGroups of scheduling.k8s.io, in whichever version of the API the server has."""

import math
from collections.abc import Callable

import msgspec

from shared.bounded import BoundedDict
from shared.errors import FlotillaError
from shared.kube.client import KubeClient
from shared.model.objects import ObjectKind, PodGroup, object_from
from shared.model.workloads import GROUP_VERSIONS

KNOWN_SECONDS = 1.0
"""For so long a group that was read counts as it was: its priority and disruption mode never change."""
MAX_KNOWN = 1024
"""Groups that are remembered."""


class GroupReader:
    def __init__(self, client: KubeClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._version = GROUP_VERSIONS[0]
        """The one that had a group last."""
        self._known: BoundedDict[tuple[str, str], tuple[float, PodGroup | None]] = BoundedDict(MAX_KNOWN)

    async def find(self, namespace: str, name: str) -> tuple[str, bytes] | None:
        """The version that has the group, and the group as JSON; None if there is none. Raises ClusterError."""
        for version in dict.fromkeys((self._version, *GROUP_VERSIONS)):
            raw = await self._client.get(f"/apis/scheduling.k8s.io/{version}/namespaces/{namespace}/podgroups/{name}")
            if raw is not None:
                self._version = version
                return version, raw
        return None

    async def read(self, namespace: str, name: str) -> PodGroup | None:
        """None if there is none. Raises ClusterError, or InvalidObject if it cannot be read."""
        at, group = self._known.get((namespace, name), (-math.inf, None))
        now = self._clock()
        if at + KNOWN_SECONDS <= now:
            found = await self.find(namespace, name)
            group = None if found is None else _decoded(found[1], f"pod group {namespace}/{name}")
            self._known[namespace, name] = now, group
        return group


def _decoded(raw: bytes, what: str) -> PodGroup:
    try:
        group = object_from(ObjectKind.POD_GROUP, msgspec.json.decode(raw))
    except msgspec.DecodeError as cause:
        raise FlotillaError(f"{what}: {cause}") from cause
    assert isinstance(group, PodGroup)
    return group
