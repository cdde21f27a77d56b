"""Takes devices out of a recording: classes and claims select them by expressions, in which people may say anything.

The pods that claim devices go as well; a replay counts the rounds that decided them as not compared.
"""

from msgspec.structs import replace

from shared.messages.recording import PodsShown, RecordedPod, RoundDecided, SearchDecided
from shared.messages.state import Change, Delta, ObjectRemoved, ObjectUpserted, State
from shared.model.devices import DEVICE_CLASS_PREFIX, DeviceClass
from shared.model.objects import ClusterObject, ObjectKind, kind_of, pod_from_msgpack
from tools.recording.file import Entry

KINDS = frozenset({ObjectKind.DEVICE_CLASS, ObjectKind.RESOURCE_CLAIM, ObjectKind.RESOURCE_SLICE})
WHY = "its pods claim devices, which an anonymized recording does not have"


class WithoutDevices:
    """`of` takes the entries in their order."""

    def __init__(self) -> None:
        self._extended: set[str] = set()
        """Resources that devices provide."""
        self._uids: set[str] = set()
        """Pods that claim devices."""

    def of(self, entry: Entry) -> Entry:
        match entry:
            case State(objects=objects):
                return replace(entry, objects=[each for each in objects if not self._is_of_devices(each)])
            case Delta(changes=changes):
                left = [each for each in changes if not self._changes_devices(each)]
                return entry if len(left) == len(changes) else replace(entry, changes=left)
            case PodsShown(pods=pods):
                return replace(entry, pods=[each for each in pods if not self._claims_devices(each)])
            case RoundDecided() | SearchDecided():
                return self._decided(entry)
            case _:
                return entry

    def _is_of_devices(self, obj: ClusterObject) -> bool:
        if isinstance(obj, DeviceClass) and obj.spec.extended_resource_name:
            self._extended.add(obj.spec.extended_resource_name)
        return kind_of(obj) in KINDS

    def _changes_devices(self, change: Change) -> bool:
        if isinstance(change, ObjectUpserted):
            return self._is_of_devices(change.object)
        return isinstance(change, ObjectRemoved) and change.kind in KINDS

    def _claims_devices(self, shown: RecordedPod) -> bool:
        spec = pod_from_msgpack(shown.queued.pod).spec
        containers = (*spec.init_containers, *spec.containers)
        resources = (resource for each in containers for resource in each.resources.requests)
        if spec.resource_claims or shown.queued.claims is not None or any(map(self._is_device, resources)):
            self._uids.add(shown.uid)
        return shown.uid in self._uids

    def _is_device(self, resource: str) -> bool:
        return resource in self._extended or resource.startswith(DEVICE_CLASS_PREFIX)

    def _decided(self, entry: RoundDecided | SearchDecided) -> Entry:
        """Classes with a pod that claims devices are not compared."""
        of = {pod.of for pod in entry.pods if pod.uid in self._uids or pod.devices is not None}
        if not of:
            return entry
        classes = [replace(each, incomparable=WHY) if i in of else each for i, each in enumerate(entry.classes)]
        return replace(entry, classes=classes, pods=[replace(each, devices=None) for each in entry.pods])
