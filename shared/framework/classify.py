"""Which class a pod belongs to: pods that a profile's plugins cannot tell apart share one.

The pods of one workload differ in name and uid only, so a pod is first looked up by its template, as bytes; only a
template that was never seen is read by the plugins. Plugins that read more than the template are asked about every pod.
All steps give the same id in every process.
"""

import hashlib
from collections import OrderedDict
from typing import Protocol

import msgspec

from shared.framework.podreads import template_text
from shared.model.load import PodLoad, load_of
from shared.model.objects import Pod


class Classified(msgspec.Struct, frozen=True):
    """`load` is shared by all pods of equal template."""

    class_id: str
    load: PodLoad


class Signing(Protocol):
    """What a profile's plugins read of a pod: of its template, and beyond that."""

    name: str

    def template_signature(self, pod: Pod) -> tuple[object, ...]: ...

    def whole_signature(self, pod: Pod) -> tuple[bytes, ...]: ...


class Classifier:
    """For one profile. Remembers the `most` templates last seen."""

    def __init__(self, profile: Signing, most: int = 1 << 14) -> None:
        self._profile = profile
        self._most = most
        self._known: OrderedDict[bytes, Classified] = OrderedDict()

    def classify(self, pod: Pod) -> Classified:
        of_template = self._of_template(pod)
        beyond = self._profile.whole_signature(pod)
        if not beyond:
            return of_template
        return Classified(_digest((of_template.class_id, beyond)), of_template.load)

    def _of_template(self, pod: Pod) -> Classified:
        text = template_text(pod)
        found = self._known.get(text)
        if found is None:
            read = self._profile.name, self._profile.template_signature(pod)
            found = self._known[text] = Classified(_digest(read), load_of(pod))
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(text)
        return found


def _digest(parts: tuple[object, ...]) -> str:
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=12).hexdigest()
