"""Classes of pods: pods that a profile's plugins cannot tell apart share one, with the same id in every process."""

import hashlib
from typing import Protocol

import msgspec

from shared.model.objects import Pod


class Signing(Protocol):
    """What a profile's plugins read of a pod: of its template, and beyond that."""

    name: str

    def template_signature(self, pod: Pod) -> tuple[object, ...]: ...

    def whole_signature(self, pod: Pod) -> tuple[bytes, ...]: ...


def class_of_template(profile: Signing, pod: Pod) -> str:
    """The class of all pods of this template, for plugins that read no more than it."""
    return _digest((profile.name, profile.template_signature(pod)))


def class_of_pod(profile: Signing, template_class: str, pod: Pod) -> str:
    """The class of the pod, given that of its template."""
    beyond = profile.whole_signature(pod)
    return _digest((template_class, beyond)) if beyond else template_class


def _digest(parts: tuple[object, ...]) -> str:
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=12).hexdigest()
