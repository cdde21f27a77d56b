"""What a recording keeps of the cluster: what Flotilla's own plugins read, and nothing else.

The structs of `shared/model` have the fields that a scheduler reads: no environment, no commands, no arguments. Of a
pod's metadata, annotations go as well: people keep anything in them, and none of these plugins decides by them. A
plugin of a package may, and then decides otherwise in a replay. Of other objects, the copy that kubectl keeps goes.
"""

import msgspec

from shared.messages.recording import PodsShown, RecordedPod
from shared.messages.state import Change, Delta, ObjectUpserted, State
from shared.model.base import LAST_APPLIED
from shared.model.objects import ClusterObject, encode_msgpack, pod_from_msgpack
from tools.recording.file import Entry


def kept(entry: Entry) -> Entry:
    """The entry as it is written."""
    match entry:
        case PodsShown(pods=pods):
            return msgspec.structs.replace(entry, pods=[_kept_pod(each) for each in pods])
        case State(objects=objects):
            return msgspec.structs.replace(entry, objects=[_kept_object(each) for each in objects])
        case Delta(changes=changes) if any(isinstance(each, ObjectUpserted) for each in changes):
            return msgspec.structs.replace(entry, changes=[_kept_change(each) for each in changes])
        case _:
            return entry


def _kept_pod(shown: RecordedPod) -> RecordedPod:
    pod = pod_from_msgpack(shown.queued.pod)
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations={}))
    return RecordedPod(shown.uid, msgspec.structs.replace(shown.queued, pod=msgspec.Raw(encode_msgpack(pod))))


def _kept_change(change: Change) -> Change:
    return ObjectUpserted(_kept_object(change.object)) if isinstance(change, ObjectUpserted) else change


def _kept_object(obj: ClusterObject) -> ClusterObject:
    annotations = obj.metadata.annotations
    if LAST_APPLIED not in annotations:
        return obj
    metadata = msgspec.structs.replace(
        obj.metadata, annotations={key: value for key, value in annotations.items() if key != LAST_APPLIED}
    )
    return msgspec.structs.replace(obj, metadata=metadata)
