"""Classes of pods: pods that no plugin of a profile can tell apart share one, with the same id in every process."""

import hashlib
from collections.abc import Callable, Hashable

import msgspec
from msgspec.structs import replace

from flotilla.plugin import Plugin, PluginError
from shared.devices.pod_claims import may_claim
from shared.errors import FlotillaError, InvalidObject
from shared.model.objects import ObjectMeta, OwnerReference, Pod

PLAIN = "tuple, str, bytes, int, bool and None"


class PluginFailed(FlotillaError):
    """A plugin raised, or returned something invalid; names the plugin."""

    def __init__(self, plugin: str, method: str, reason: str) -> None:
        self.plugin = plugin
        super().__init__(f'running "{plugin}" plugin: {method}: {reason}')


class named:
    """Name the plugin in any exception but those whose text stands as it is: an invalid object, and a PluginError.

    A class, because it is entered a hundred times for a new pod class, and a generator costs three times as much.
    """

    __slots__ = ("_method", "_plugin")

    def __init__(self, plugin: Plugin, method: str) -> None:
        self._plugin = plugin
        self._method = method

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, cause: BaseException | None, trace: object) -> None:
        if cause is None:
            return
        if isinstance(cause, Exception) and not isinstance(cause, InvalidObject | PluginError | PluginFailed):
            raise PluginFailed(self._plugin.name, self._method, repr(cause)) from cause


class about:
    """Name the pod in an error about what plugins were shown of it."""

    __slots__ = ("_pod",)

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, InvalidObject):
            raise InvalidObject(cause.kind, self._pod.key, cause.field, cause.reason) from cause


def template_of(pod: Pod) -> Pod:
    """The pod with only what pods of one template have in common, and its identity if claims may belong to it."""
    meta = pod.metadata
    name, uid = (meta.name, meta.uid) if is_personal(pod) or may_claim(pod) else ("", "")
    template = ObjectMeta(
        name=name,
        namespace=meta.namespace,
        uid=uid,
        labels=meta.labels,
        deletion_timestamp=meta.deletion_timestamp,
        owner_references=_controllers(meta),
    )
    return replace(pod, metadata=template)


def signed(plugin: Plugin, pod: Pod, shown: Pod) -> bytes:
    """Ask the plugin for the signature of `shown`, which is what it gets to see of the pod, and encode it."""
    with named(plugin, "signature"), about(pod):
        return msgspec.msgpack.encode(plain(plugin.signature(shown)))


def key_of(plugin: Plugin, ask: Callable[[], Hashable]) -> Hashable:
    """Ask the plugin for the key under which its answers are kept."""
    with named(plugin, "cache_key"):
        return plain(ask())


def plain(key: Hashable) -> Hashable:
    """Raise TypeError if the key is not made of plain values, which always compare and hash."""
    if isinstance(key, tuple):
        for part in key:
            plain(part)
    elif key is not None and not isinstance(key, str | bytes | int):
        raise TypeError(f"must be made of {PLAIN}, has a {type(key).__name__}")
    return key


def is_personal(pod: Pod) -> bool:
    """Whether the pod's name belongs to its template: claims are named after it, or it is nominated to a node."""
    if pod.status.nominated_node_name:
        return True
    return bool(pod.spec.volumes) and any(volume.ephemeral is not None for volume in pod.spec.volumes)


def _controllers(meta: ObjectMeta) -> list[OwnerReference]:
    return [owner for owner in meta.owner_references if owner.controller][:1]


def digest(parts: tuple[object, ...]) -> str:
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=12).hexdigest()
