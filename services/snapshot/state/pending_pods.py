"""What the pods that wait are and ask for, by the watch: a commit that says otherwise is refused.

Most pods are one of many of a kind. So only the parts of a pod that its load comes from are looked at, as bytes, and
what they mean is computed once for all pods in which they are the same.
"""

from collections.abc import Iterator, Mapping

import msgspec

from shared.errors import FlotillaError, InvariantBroken
from shared.messages.state import Decision, Nominate
from shared.messages.watch import PodChange
from shared.model.load import PodLoad, is_read_by_others, load_of
from shared.model.objects import Pod, Volume, dec_hook, encode_msgpack
from shared.model.resources import filter_requests

NOTHING = msgspec.Raw(b"")
OTHERWISE = "it requests something else"


class _Spec(msgspec.Struct, rename="camel", gc=False):
    """The fields that requests, ports, terms, claims and priority come from."""

    scheduler_name: msgspec.Raw = NOTHING
    priority: msgspec.Raw = NOTHING
    preemption_policy: msgspec.Raw = NOTHING
    containers: msgspec.Raw = NOTHING
    init_containers: msgspec.Raw = NOTHING
    affinity: msgspec.Raw = NOTHING
    overhead: msgspec.Raw = NOTHING
    resources: msgspec.Raw = NOTHING
    host_network: msgspec.Raw = NOTHING
    volumes: list[Volume] = []

    def parts(self) -> Iterator[bytes]:
        for part in msgspec.structs.astuple(self)[:-1]:
            yield bytes(part)
        # Each pod has a volume with its service account's token, under a name of its own, which no other pod meets.
        for volume in self.volumes:
            if is_read_by_others(volume):
                yield encode_msgpack(volume)


class _Status(msgspec.Struct, gc=False):
    """Conditions are left out: they change, and count only for pods that are being deleted."""

    containers: msgspec.Raw = msgspec.field(default=NOTHING, name="containerStatuses")
    init_containers: msgspec.Raw = msgspec.field(default=NOTHING, name="initContainerStatuses")
    resources: msgspec.Raw = NOTHING
    allocated: msgspec.Raw = msgspec.field(default=NOTHING, name="allocatedResources")


class _Body(msgspec.Struct, gc=False):
    """Labels are left out: those of one StatefulSet's pods differ, and a commit may be of before a change of them."""

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_BODY = msgspec.msgpack.Decoder(_Body, dec_hook=dec_hook)
_POD = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)


class _Kind(msgspec.Struct, gc=False):
    """Of pods with the same parts. `asks`: what must be free for them. `never`: they preempt nobody."""

    parts: bytes
    load: PodLoad
    asks: Mapping[str, int]
    scheduler: str
    never: bool
    pods: int = 0


class Pending:
    def __init__(self) -> None:
        self._pods: dict[str, _Kind] = {}
        self._kinds: dict[bytes, _Kind] = {}
        self._judged: dict[tuple[int, int], str] = {}
        """What is wrong with loads of the present commit, by the load and the kind of the pod."""

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def kinds(self) -> int:
        return len(self._kinds)

    def see(self, change: PodChange) -> None:
        """The pod waits. One that cannot be read is not known; so is one that is on a node or gone, by `forget`."""
        try:
            kind = self._kind_of(change)
        except (msgspec.MsgspecError, FlotillaError, ValueError):
            self.forget(change.uid)
            return
        before = self._pods.get(change.uid)
        if kind is not before:
            kind.pods += 1
            self._pods[change.uid] = kind
            if before is not None:
                self._drop(before)

    def forget(self, uid: str) -> None:
        kind = self._pods.pop(uid, None)
        if kind is not None:
            self._drop(kind)

    def begin_commit(self) -> None:
        """Loads are those of another commit from here on."""
        self._judged.clear()

    def knows(self, uid: str) -> bool:
        return uid in self._pods

    def asks(self, uid: str) -> Mapping[str, int] | None:
        """What must be free for a known pod; None for others."""
        kind = self._pods.get(uid)
        return None if kind is None else kind.asks

    def wrong(self, wanted: Decision | Nominate, load: PodLoad) -> str:
        """What a commit says otherwise of a known pod than the watch; empty if nothing."""
        kind = self._pods[wanted.uid]
        by = (id(load), id(kind))
        found = self._judged.get(by)
        if found is None:
            found = self._judged[by] = _difference(load, kind.load)
        if found:
            return found
        if wanted.profile != kind.scheduler:
            return f"its scheduler is {kind.scheduler}"
        if (load.requests if wanted.asks is None else wanted.asks) != kind.asks:
            return OTHERWISE
        if isinstance(wanted, Nominate) and kind.never and not wanted.never:
            return "its preemptionPolicy is Never"
        return ""

    def validate(self) -> None:
        counted: dict[bytes, int] = {}
        for kind in self._pods.values():
            counted[kind.parts] = counted.get(kind.parts, 0) + 1
        if counted != {parts: kind.pods for parts, kind in self._kinds.items()}:
            raise InvariantBroken("kinds of pending pods are not counted right")

    # Inside

    def _kind_of(self, change: PodChange) -> _Kind:
        body = _BODY.decode(change.body)
        status, spec = body.status, body.spec
        names_claims = any(volume.ephemeral is not None for volume in spec.volumes)
        parts = b"\0".join(
            (
                change.namespace.encode(),
                change.name.encode() if names_claims else b"",
                *spec.parts(),
                bytes(status.containers),
                bytes(status.init_containers),
                bytes(status.resources),
                bytes(status.allocated),
            )
        )
        kind = self._kinds.get(parts)
        if kind is None:
            pod = _POD.decode(change.body)
            never = pod.spec.preemption_policy == "Never"
            kind = _Kind(parts, load_of(pod), filter_requests(pod), pod.spec.scheduler_name, never)
            self._kinds[parts] = kind
        return kind

    def _drop(self, kind: _Kind) -> None:
        kind.pods -= 1
        if not kind.pods:
            del self._kinds[kind.parts]


def _difference(said: PodLoad, known: PodLoad) -> str:
    """Labels may change at any time, and deletion be asked for: then what was decided is as good as before."""
    if said == known:
        return ""
    if said.priority != known.priority:
        return f"its priority is {known.priority}"
    if said.requests != known.requests:
        return OTHERWISE
    changed = msgspec.structs.replace(
        said, labels=known.labels, terminating=known.terminating, preempted=known.preempted
    )
    return "" if changed == known else "its ports, volumes or affinity are others"
