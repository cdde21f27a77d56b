"""Which class a pod belongs to: pods that a profile's plugins cannot tell apart share one.

The pods of one workload differ in name and uid only, so a pod is first looked up by what it says, as bytes; only a
text that was never seen is read by the plugins. Both steps give the same id in every process.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable

import msgspec

from shared.cluster.load import PodLoad, load_of
from shared.model.objects import Pod

# Quantities are integers of their own kind; their digits will do where nobody is to read them.
_TEXT = msgspec.msgpack.Encoder(enc_hook=int.__repr__)


class Classified(msgspec.Struct, frozen=True):
    """`load` is shared by all pods of equal text."""

    class_id: str
    load: PodLoad


class Classifier:
    """For one profile; `signature` is what its plugins read of a pod. Remembers the `most` texts last seen."""

    def __init__(self, profile: str, signature: Callable[[Pod], Hashable], most: int = 1 << 14) -> None:
        self._profile = profile
        self._signature = signature
        self._most = most
        self._known: OrderedDict[bytes, Classified] = OrderedDict()

    def classify(self, pod: Pod) -> Classified:
        text = _text(pod)
        found = self._known.get(text)
        if found is None:
            read = msgspec.msgpack.encode((self._profile, self._signature(pod)))
            class_id = hashlib.blake2b(read, digest_size=12).hexdigest()
            found = self._known[text] = Classified(class_id, load_of(pod))
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(text)
        return found


def _text(pod: Pod) -> bytes:
    """All that a plugin may read of a pod that is not its identity; its name, too, if claims are called after it."""
    meta = pod.metadata
    owner = next((ref.uid for ref in meta.owner_references if ref.controller), "")
    personal = pod.status.nominated_node_name or any(volume.ephemeral is not None for volume in pod.spec.volumes)
    name = (meta.name, pod.uid) if personal else None
    return _TEXT.encode((meta.namespace, meta.labels, owner, meta.deletion_timestamp, pod.spec, pod.status, name))
