"""Reads groups of scheduling.k8s.io: PodGroups in whichever version of the API the server has, and roots of trees."""

import math
from collections.abc import Callable

import msgspec

from shared.bounded import BoundedDict
from shared.errors import ClusterError, FlotillaError
from shared.kube.client import KubeClient
from shared.model.composite_groups import MAX_LEVELS, CompositePodGroup
from shared.model.objects import ClusterObject, ObjectKind, PodGroup, object_from
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
        self._composites: BoundedDict[tuple[str, str], tuple[float, CompositePodGroup | None]] = BoundedDict(MAX_KNOWN)

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

    async def path_as_watched(self, namespace: str, name: str) -> list[PodGroup | CompositePodGroup]:
        """Likewise, without what cannot be read, which queue and snapshot count as absent."""
        path: list[PodGroup | CompositePodGroup] = []
        try:
            await self._follow(namespace, name, path)
        except ClusterError:
            raise
        except FlotillaError:
            pass
        return path

    async def path(self, namespace: str, name: str) -> list[PodGroup | CompositePodGroup]:
        """A PodGroup and the composite groups above it. The priority and preemption policy of the last one count."""
        path: list[PodGroup | CompositePodGroup] = []
        await self._follow(namespace, name, path)
        return path

    async def _follow(self, namespace: str, name: str, path: list[PodGroup | CompositePodGroup]) -> None:
        found: PodGroup | CompositePodGroup | None = await self.read(namespace, name)
        while found is not None and len(path) <= MAX_LEVELS:
            path.append(found)
            found = await self._read_composite(*found.parent.split("/")) if found.parent else None

    async def _read_composite(self, namespace: str, name: str) -> CompositePodGroup | None:
        at, group = self._composites.get((namespace, name), (-math.inf, None))
        now = self._clock()
        if at + KNOWN_SECONDS <= now:
            path = f"/apis/scheduling.k8s.io/v1alpha3/namespaces/{namespace}/compositepodgroups/{name}"
            raw = await self._client.get(path)
            what = f"composite pod group {namespace}/{name}"
            found = None if raw is None else _object(ObjectKind.COMPOSITE_POD_GROUP, raw, what)
            group = found if isinstance(found, CompositePodGroup) else None
            self._composites[namespace, name] = now, group
        return group


def _decoded(raw: bytes, what: str) -> PodGroup:
    group = _object(ObjectKind.POD_GROUP, raw, what)
    assert isinstance(group, PodGroup)
    return group


def _object(kind: ObjectKind, raw: bytes, what: str) -> ClusterObject:
    try:
        return object_from(kind, msgspec.json.decode(raw))
    except msgspec.DecodeError as cause:
        raise FlotillaError(f"{what}: {cause}") from cause
