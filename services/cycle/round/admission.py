"""Admission: finds the class of each pod that the queue hands out.

The pods of a workload differ in name, uid and version only. So the body of a pod is split and not decoded: without
these three it is the key, as bytes, under which the class of such pods is known. Only the first one is decoded. The
node that a pod is nominated to is left out, too: apart from that node, it is judged as the others are.

Pods of a workload with resource claims also differ in the names of their claims, if they do not share them. These names
are left out of the key, and plugins' signatures do not see them; the content of the claims, which the queue sends, is
part of it. The same goes for volume claims, if the queue sends their content.

Pods of a Job or a StatefulSet differ in labels that say which of its pods each is. These labels are left out as well,
until something selects pods by them: workers say with each answer what does, and pods that do come by here.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import msgspec
from msgspec.structs import replace as replace_fields

from flotilla.plugin import PodParts
from flotilla.results import Status, error
from services.cycle.extenders import Extenders
from services.cycle.round.body_parts import (
    NOMINATED,
    nominated_node,
    without_made_claims,
    without_named_claims,
    without_volume_claims,
)
from services.cycle.round.group_tree import is_tree_of
from shared.bounded import BoundedDict
from shared.devices.claim_texts import with_names
from shared.devices.pod_claims import may_claim
from shared.errors import FlotillaError, InvalidObject
from shared.framework.profile import Framework
from shared.framework.signatures import PluginFailed, digest, is_personal
from shared.messages.queue import Gang, QueuedClaims, QueuedPod, QueuedVolumes
from shared.messages.rounds import NominatedPod
from shared.model.individual_labels import INDIVIDUAL_LABELS, NONE, read_by_pod
from shared.model.load import PodLoad, claim_names, load_of
from shared.model.objects import DEFAULT_NAMESPACE, OwnerReference, Pod, encode_msgpack, pod_from_msgpack
from shared.model.resources import filter_requests
from shared.plugins.devices.group_claims import may_have_claims_of_group, outline_of
from shared.plugins.volumes.own_claims import without_claims

MAX_TEMPLATES = 1 << 14
MAX_TEMPLATE_BYTES = 64 << 20
"""Of bodies that are keys of templates; a template holds no more than its body."""
_EMPTY_MAP = msgspec.Raw(b"\x80")
_Key = tuple[str | bytes | None, ...]


class _Metadata(msgspec.Struct, rename="camel", gc=False):
    """All fields, so that a pod of a known template can be decoded whenever it is needed."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: msgspec.Raw = _EMPTY_MAP
    annotations: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = []
    resource_version: str = ""


class _Body(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: msgspec.Raw = _EMPTY_MAP
    status: msgspec.Raw = _EMPTY_MAP


class _Identity(msgspec.Struct, frozen=True, gc=False):
    uid: str = ""


class _Identified(msgspec.Struct, gc=False):
    metadata: _Identity = _Identity()


_BODY = msgspec.msgpack.Decoder(_Body)
_LABELS = msgspec.msgpack.Decoder(dict[str, str])
_INDIVIDUAL = re.compile("|".join(map(re.escape, sorted(INDIVIDUAL_LABELS))).encode())
_SELECTING = frozenset({"ReplicaSet", "ReplicationController"})
"""Controllers whose selectors count for default spreading; workers do not report these."""


@dataclass(frozen=True, slots=True)
class Template:
    """What pods that differ in name, uid, version and nomination only have in common.

    `asks`: the requests that must be free for the pod, if its status makes them differ from its load. `goes_along`: the
    binder reads the pod, so it is part of the commit; `claims_go_along`: its claims and its group are, at least.
    `is_plain`: a placement decides nothing but the node, so nominated pods are judged by the class, too.
    """

    class_id: str
    load: PodLoad
    profile: str
    priority: int = 0
    never_preempts: bool = False
    asks: dict[str, int] | None = None
    goes_along: bool = False
    claims_go_along: bool = False
    is_plain: bool = False


@dataclass(slots=True)
class PodInfo:
    """A pod that the cycle decides. `class_id`: the template's, unless plugins or extenders read more of the pod.

    `gang`: the pod group that it is placed with, or not at all. `claims`: its resource claims, if it has any.
    `volumes`: its volume claims, if their names do not matter. `taken_at`: when it came from the queue. `apart`: the
    pod is nominated, and therefore a class of its own. `left_out`: labels that its class does not have; all of its
    labels are in `labels` then.
    """

    uid: str
    namespace: str
    name: str
    version: str
    body: msgspec.Raw
    template: Template
    class_id: str
    gang: Gang | None = None
    claims: QueuedClaims | None = None
    volumes: QueuedVolumes | None = None
    attempt: int = 1
    taken_at: float = 0.0
    nominated_node: str = ""
    apart: bool = False
    left_out: frozenset[str] = NONE
    labels: dict[str, str] | None = None
    _pod: Pod | None = field(default=None, compare=False, repr=False)

    @property
    def pod(self) -> Pod:
        """The pod, decoded when it is first needed."""
        if self._pod is None:
            self._pod = pod_from_msgpack(self.body)
        return self._pod

    @property
    def unnominated(self) -> Pod:
        """The pod as one that stands for its class, but for a nomination."""
        return self._as_member(_unnominated(self.pod) if self.nominated_node else self.pod)

    @property
    def of_class(self) -> Pod:
        """The pod as one that stands for its class."""
        return _without_labels(self._as_member(self.pod) if self.apart else self.unnominated, self.left_out)

    @property
    def class_of_template(self) -> str:
        """The class of all pods of its template, in gangs of its priority."""
        priority = self._priority_of_gang
        return self.template.class_id if priority is None else digest((self.template.class_id, priority))

    @property
    def _priority_of_gang(self) -> int | None:
        """Which nominations bind the pod, if not its own priority says so."""
        said = None if self.gang is None else self.gang.priority
        return None if said == self.template.priority else said

    def _as_member(self, pod: Pod) -> Pod:
        priority = self._priority_of_gang
        return pod if priority is None else replace_fields(pod, spec=replace_fields(pod.spec, priority=priority))

    @property
    def nominated(self) -> NominatedPod | None:
        """What workers are asked about a nominated pod that is judged by its class."""
        return None if self.apart or not self.nominated_node else NominatedPod(self.uid, self.nominated_node)

    def judge_apart(self) -> None:
        """Makes a nominated pod a class of its own."""
        if self.nominated is not None:
            self.class_id, self.apart = digest((self.class_id, self.uid, self.nominated_node)), True

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def own_volumes(self) -> bytes:
        """The content of its volume claims; empty if their names matter, or there are none."""
        return b"" if self.volumes is None else self.volumes.content

    @property
    def load(self) -> PodLoad:
        load = self.template.load
        if self.labels is not None:
            load = replace_fields(load, labels=self.labels)
        return load if self.volumes is None else replace_fields(load, claims=tuple(self.volumes.claims))

    @property
    def has_private_claims(self) -> bool:
        """Whether no other pod has one of its resource claims."""
        return self.claims is not None and self.claims.private

    def with_claim_names(self, text: str) -> str:
        """A text about the pod's class, with the names of the claims that are this pod's."""
        return text if self.claims is None else with_names(text, [claim.key for claim in self.claims.claims])

    @property
    def size(self) -> int:
        """Bytes that the pod takes in a commit."""
        if self.template.goes_along:
            return len(self.body)
        return len(encode_msgpack(outline_of(self.pod))) if self.template.claims_go_along else 0

    @property
    def sent(self) -> Pod | None:
        """What the commit has of the pod."""
        if self.template.goes_along:
            return self.pod
        return outline_of(self.pod) if self.template.claims_go_along else None


class _Templates(BoundedDict[_Key, Template]):
    """Bounded in the bytes of its keys, too; one that alone exceeds that is not kept. Only eviction removes."""

    _bytes = 0

    def __setitem__(self, key: _Key, template: Template) -> None:
        if key not in self:
            size = _size(key)
            if size > MAX_TEMPLATE_BYTES:
                return
            self._bytes += size
        super().__setitem__(key, template)
        while self._bytes > MAX_TEMPLATE_BYTES:
            self.popitem(last=False)

    def popitem(self, last: bool = True) -> tuple[_Key, Template]:
        key, template = super().popitem(last)
        self._bytes -= _size(key)
        return key, template


class Admission:
    def __init__(
        self, frameworks: Mapping[str, Framework], extenders: Extenders, *, keeps_labels: bool = False
    ) -> None:
        """`keeps_labels`: classes leave out none, as nobody says by which pods are selected."""
        self._frameworks = frameworks
        self._extenders = extenders
        self._reads_whole = {
            name: any(plugin.reads_of_pod is PodParts.WHOLE for plugin in framework.judging)
            for name, framework in frameworks.items()
        }
        self._templates = _Templates(MAX_TEMPLATES)
        self._leaves_out = not (keeps_labels or extenders) and all(
            framework.is_in_tree for framework in frameworks.values()
        )
        """Whether nothing but selectors reads labels."""
        self._read_labels = NONE
        """Individual labels by which something selects pods, or has."""

    def admit(self, queued: QueuedPod, now: float) -> tuple[PodInfo, Status | None]:
        """The pod, and why it cannot be scheduled at all, if it cannot. DecodeError: the body is no pod."""
        body = _BODY.decode(queued.pod)
        meta = body.metadata
        namespace = meta.namespace or DEFAULT_NAMESPACE
        info = PodInfo(
            uid=meta.uid or f"{namespace}/{meta.name}",
            namespace=namespace,
            name=meta.name,
            version=meta.resource_version,
            body=queued.pod.copy(),  # one pod must not keep its whole batch in memory
            template=_unknown(namespace),
            class_id="",
            gang=needed(queued.gang),
            claims=queued.claims,
            volumes=queued.volumes,
            attempt=queued.attempt,
            taken_at=now,
        )
        try:
            _check_tree(queued.gang)
            info.template = self._template_of(info, body)
            self._classify(info)
        except Exception as cause:
            return info, _unreadable(info, cause)
        return info, None

    def judge_by_name(self, pods: Iterable[PodInfo]) -> None:
        """The names of these pods' volume claims matter from now on."""
        for info in pods:
            if info.volumes is not None:
                info.volumes = None
                self._judge_again(info)

    def learn(self, read: Collection[str] | None) -> frozenset[str]:
        """Pods are selected by these individual labels (None: perhaps by any); returns those that were not known."""
        news = INDIVIDUAL_LABELS.difference(self._read_labels).intersection(INDIVIDUAL_LABELS if read is None else read)
        self._read_labels |= news
        return news

    def judge_by_labels(self, pods: Iterable[PodInfo]) -> None:
        """Gives pods whose class leaves out a label by which pods are selected another class."""
        if not self._read_labels:
            return
        for info in pods:
            if not self._read_labels.isdisjoint(info.left_out):
                self._judge_again(info)

    def _judge_again(self, info: PodInfo) -> None:
        info.body = info.body.copy()  # so that recorders get the pod again
        info.template = self._template_of(info, _BODY.decode(info.body))
        self._classify(info)

    def _leave_out(self, info: PodInfo, meta: _Metadata) -> bytes:
        """Notes which labels the pod's class has none of, and returns the others, encoded."""
        info.left_out, info.labels, encoded = NONE, None, bytes(meta.labels)
        if not (self._leaves_out and _INDIVIDUAL.search(encoded)):
            return encoded
        if any(owner.controller and owner.kind in _SELECTING for owner in meta.owner_references):
            return encoded
        labels = _LABELS.decode(encoded)
        left_out = INDIVIDUAL_LABELS.intersection(labels).difference(self._read_labels)
        if not left_out:
            return encoded
        info.left_out, info.labels = left_out, labels
        return msgspec.msgpack.encode(_others(labels, left_out))

    def _template_of(self, info: PodInfo, body: _Body) -> Template:
        meta = body.metadata
        labels = self._leave_out(info, meta)
        owner = next((ref.uid for ref in meta.owner_references if ref.controller), "")
        claims = info.claims
        spec, status = bytes(body.spec), bytes(body.status)
        if NOMINATED.encode() in status:
            info.nominated_node, status = nominated_node(status)
        content = None if claims is None else claims.content
        if claims is not None:
            status = without_made_claims(status)
            spec = without_named_claims(body.spec) if claims.private else spec
        of_volumes = None if info.volumes is None else info.volumes.content
        spec = spec if of_volumes is None else without_volume_claims(spec)
        key = info.namespace, labels, owner, meta.deletion_timestamp, spec, status, content, of_volumes
        template = self._templates.get(key)
        if template is not None:
            self._templates.move_to_end(key)
            return template
        pod = _without_labels(_unnominated(info.pod) if info.nominated_node else info.pod, info.left_out)
        if self.learn(read_by_pod(pod)) & info.left_out:
            return self._template_of(info, body)
        profile = pod.spec.scheduler_name
        info.template = replace(info.template, profile=profile)  # if the rest fails
        if profile not in self._frameworks:
            raise InvalidObject("Pod", info.key, "spec.schedulerName", f"there is no profile {profile!r}")
        if info.volumes is not None and not (info.gang is None and self._frameworks[profile].is_in_tree):
            info.volumes = None
            return self._template_of(info, body)
        if pod.spec.resource_claims and claims is None:
            raise UnknownClaims(f"Pod {info.key}: the queue has not sent its resource claims")
        pod = _unnamed(pod) if info.has_private_claims else pod
        if info.volumes is None:
            template = self._read(pod, content)
        else:
            template = self._read(without_claims(pod), content, info.volumes.content)
            template = replace(template, is_plain=False)
        if info.volumes is not None or not is_personal(pod):
            self._templates[key] = template
        return template

    def _classify(self, info: PodInfo) -> None:
        info.class_id, info.apart, profile = info.class_of_template, False, info.template.profile
        if self._reads_whole[profile]:
            info.class_id = self._frameworks[profile].class_of_pod(info.class_id, info.pod)
        is_judged = self._extenders and self._extenders.judge_pod(info.pod)
        if is_judged or not info.template.is_plain:
            info.judge_apart()
        if is_judged:
            info.class_id = self._extenders.class_of(info.class_id, info.pod)

    def _read(self, pod: Pod, *content: bytes | None) -> Template:
        """`content`: of the pod's resource claims, and of its volume claims if their names do not matter."""
        framework = self._frameworks[pod.spec.scheduler_name]
        load, status = load_of(pod), pod.status
        asks: dict[str, int] | None = None
        if status.container_statuses or status.init_container_statuses or status.resources:
            asks = filter_requests(pod)  # it is judged by its spec, and counts by its status
        return Template(
            class_id=framework.class_of_template(pod, *content),
            load=load,
            profile=framework.name,
            priority=pod.priority,
            never_preempts=pod.spec.preemption_policy == "Never",
            asks=None if asks == load.requests else asks,
            goes_along=framework.binding_reads_pod or self._extenders.binder_reads(pod),
            claims_go_along=may_have_claims_of_group(pod),
            is_plain=framework.is_in_tree and not (is_personal(pod) or may_claim(pod) or claim_names(pod)),
        )


@lru_cache(maxsize=256)
def _unknown(namespace: str) -> Template:
    """Of a pod that cannot be read so far."""
    return Template("", PodLoad(namespace), "")


class UnknownClaims(FlotillaError):
    """A queue of the last release does not say which claims a pod has."""


def _others(labels: Mapping[str, str], left_out: Collection[str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in left_out}


def _without_labels(pod: Pod, left_out: Collection[str]) -> Pod:
    if not left_out:
        return pod
    return replace_fields(pod, metadata=replace_fields(pod.metadata, labels=_others(pod.metadata.labels, left_out)))


def _unnominated(pod: Pod) -> Pod:
    return replace_fields(pod, status=replace_fields(pod.status, nominated_node_name=""))


def _unnamed(pod: Pod) -> Pod:
    uses = [
        replace_fields(use, resource_claim_name="") if use.resource_claim_name else use
        for use in pod.spec.resource_claims
    ]
    return replace_fields(pod, spec=replace_fields(pod.spec, resource_claims=uses))


def uid_of(body: msgspec.Raw) -> str:
    """Of a body that is no pod otherwise; empty if not even that can be read."""
    try:
        return msgspec.msgpack.decode(body, type=_Identified).metadata.uid
    except msgspec.DecodeError:
        return ""


def _size(key: _Key) -> int:
    return sum(len(part) for part in key if part is not None)


def needed(gang: Gang | None) -> Gang | None:
    """None if enough members are placed, so that no member depends on the others any more; unless a topology says
    where it must lie.
    """
    return gang if gang is not None and (gang.least > 0 or gang.topology or gang.groups) else None


def _check_tree(gang: Gang | None) -> None:
    if gang is not None and gang.groups and not is_tree_of(gang.groups, gang.group):
        raise FlotillaError(f"gang {gang.key}: the {len(gang.groups)} groups that it has are no tree of pod groups")


def _unreadable(info: PodInfo, cause: Exception) -> Status:
    if isinstance(cause, PluginFailed):
        return error(f"Pod {info.key}: {cause}").by(cause.plugin)
    return error(str(cause) if isinstance(cause, FlotillaError) else f"Pod {info.key}: {cause!r}")
