"""Recomputes the content of volume claims (`QueuedVolumes.content`) from objects with pseudonyms."""

from msgspec.structs import replace

from shared.cluster.objects import ClusterObjects
from shared.messages.queue import QueuedVolumes
from shared.messages.recording import PodsShown, RecordedPod
from shared.messages.state import Delta, ObjectRemoved, ObjectUpserted, State
from shared.model.objects import pod_from_msgpack
from shared.plugins.volumes.own_claims import content_of_pod
from tools.recording.file import Entry


class ClaimContents:
    """`of` takes the entries with pseudonyms, in their order."""

    def __init__(self) -> None:
        self._objects = ClusterObjects()

    def of(self, entry: Entry) -> Entry:
        match entry:
            case State(objects=objects):
                self._objects = ClusterObjects()
                for each in objects:
                    self._objects.upsert(each)
            case Delta(changes=changes):
                for change in changes:
                    if isinstance(change, ObjectUpserted):
                        self._objects.upsert(change.object)
                    elif isinstance(change, ObjectRemoved):
                        self._objects.remove(change.kind, change.key)
            case PodsShown(pods=pods):
                return replace(entry, pods=[self._recomputed(each) for each in pods])
        return entry

    def _recomputed(self, pod: RecordedPod) -> RecordedPod:
        """Judged by the names of its claims if they are not known any more."""
        volumes = pod.queued.volumes
        if volumes is None:
            return pod
        content = content_of_pod(pod_from_msgpack(pod.queued.pod), self._objects)
        volumes = None if content is None else QueuedVolumes(volumes.claims, content)
        return replace(pod, queued=replace(pod.queued, volumes=volumes))
