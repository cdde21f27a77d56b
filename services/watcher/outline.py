"""Outline: the little of an object that can be told without reading it whole, or even though it cannot be read."""

from typing import Any

import msgspec

from shared.model.objects import DEFAULT_NAMESPACE, DEFAULT_SCHEDULER

FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""


class Spec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scheduler_name: str = DEFAULT_SCHEDULER
    node_name: str = ""


class Condition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""
    conditions: list[Condition] = []


class Outline(msgspec.Struct, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def namespace(self) -> str:
        """As pods have it."""
        return self.metadata.namespace or DEFAULT_NAMESPACE

    @property
    def pod_uid(self) -> str:
        """As decoding a pod fills it."""
        return self.metadata.uid or f"{self.namespace}/{self.metadata.name}"

    @property
    def finished(self) -> bool:
        return self.status.phase in FINISHED_PHASES

    @property
    def said_unscheduled(self) -> bool:
        """Its PodScheduled condition is there and False."""
        return any(c.type == "PodScheduled" and c.status == "False" for c in self.status.conditions)


_DECODER = msgspec.json.Decoder(Outline)


def outline(raw: bytes) -> Outline | None:
    """None where not even the name can be told."""
    found: Outline | None
    try:
        found = _DECODER.decode(raw)
    except (msgspec.DecodeError, ValueError):
        found = _pick(raw)
    return found if found is not None and found.metadata.name else None


def _pick(raw: bytes) -> Outline | None:
    """What is as it should be, from an object of which something is not."""
    try:
        plain = msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    metadata, spec, status = (_part(plain, part) for part in ("metadata", "spec", "status"))
    return Outline(
        Metadata(
            _text(metadata, "name"),
            _text(metadata, "namespace"),
            _text(metadata, "uid"),
            resource_version=_text(metadata, "resourceVersion"),
        ),
        Spec(_text(spec, "schedulerName", DEFAULT_SCHEDULER), _text(spec, "nodeName")),
        Status(_text(status, "phase")),
    )


def _part(plain: Any, name: str) -> dict[str, Any]:
    part = plain.get(name) if isinstance(plain, dict) else None
    return part if isinstance(part, dict) else {}


def _text(part: dict[str, Any], name: str, default: str = "") -> str:
    value = part.get(name)
    return value if isinstance(value, str) else default
