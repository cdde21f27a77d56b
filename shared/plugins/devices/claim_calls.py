"""Calls of the API server about resource claims, as PreBind and the release of a claim make them."""

from collections.abc import Generator, Mapping
from typing import Any, TypeVar

import msgspec

from flotilla.results import ApiAnswer, ApiCall, Pause
from shared.errors import ClusterError
from shared.model.codec import encode_json
from shared.model.devices import EXTENDED_RESOURCE_CLAIM, RESOURCE_VERSIONS

FINALIZER = "resource.kubernetes.io/delete-protection"
CONFLICT = 409
NOT_FOUND = 404

Object = dict[str, Any]
"""As the API server returns it: what is written back must have all fields."""

T = TypeVar("T")
Steps = Generator[ApiCall | Pause, ApiAnswer, T]


class NotDone(ClusterError):
    """The API server refuses what was decided, or does not answer."""


class Gone(NotDone):
    """The claim does not exist any more."""


class Conflict(ClusterError):
    """The object has changed since it was read."""


class Claims:
    def __init__(self) -> None:
        self.written: dict[str, Object] = {}
        """The pod's claims, as written or found last, by key."""
        self._version = RESOURCE_VERSIONS[0]

    def path(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"/apis/resource.k8s.io/{self._version}/namespaces/{namespace}/resourceclaims/{name}"

    def status_path(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        return f"/apis/resource.k8s.io/{self._version}/namespaces/{namespace}/resourceclaims/{name}/status"

    def read(self, key: str) -> Steps[Object]:
        """Read a claim, in the newest version that the server has."""
        answer = yield ApiCall("GET", self.path(key), {})
        if answer.status == NOT_FOUND and not self.written:
            for self._version in RESOURCE_VERSIONS[1:]:
                older = yield ApiCall("GET", self.path(key), {})
                if older.status != NOT_FOUND:
                    answer = older
                    break
            else:
                self._version = RESOURCE_VERSIONS[0]
        if answer.status == NOT_FOUND:
            raise Gone(f"get claim {key}: {answer.message}")
        return decoded(answer, f"get claim {key}")

    def delete(self, key: str, claim: Object) -> Steps[None]:
        """Delete a claim in the version that was read."""
        if FINALIZER in (claim["metadata"].get("finalizers") or ()):
            unprotect(claim)
            claim = yield from put(self.path(key), claim, f"remove finalizer from claim {key}")
        metadata = claim["metadata"]
        preconditions = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        answer = yield ApiCall("DELETE", self.path(key), {"preconditions": preconditions})
        if not answer.ok and answer.status != NOT_FOUND:
            raise NotDone(f"delete claim {key}: {answer.message}")


def plain(part: msgspec.Struct) -> Object:
    """As the API server is sent it."""
    return msgspec.json.decode(encode_json(part), type=Object)


def is_special_claim_of(pod_uid: str, metadata: Object) -> bool:
    if (metadata.get("annotations") or {}).get(EXTENDED_RESOURCE_CLAIM) != "true":
        return False
    return any(each.get("uid") == pod_uid for each in metadata.get("ownerReferences") or ())


def unprotect(claim: Object) -> None:
    metadata = claim["metadata"]
    metadata["finalizers"] = [each for each in metadata.get("finalizers") or () if each != FINALIZER]


def decoded(answer: ApiAnswer, what: str) -> Object:
    if not answer.ok:
        raise NotDone(f"{what}: {answer.message}")
    found = msgspec.json.decode(answer.body, type=Object)
    if not isinstance(found.get("metadata"), dict):
        raise NotDone(f"{what}: not an object with metadata")
    return found


def put(path: str, body: Object, what: str) -> Steps[Object]:
    """With the version that was read, so that the server refuses it if there is a newer one."""
    answer = yield ApiCall("PUT", path, body)
    if answer.status == CONFLICT:
        raise Conflict(f"{what}: {answer.message}")
    return decoded(answer, what)


def consumers(claim: Object) -> list[Object]:
    return claim.get("status", {}).get("reservedFor") or []


def device_names(allocation: Mapping[str, Any]) -> list[str]:
    results = allocation.get("devices", {}).get("results") or ()
    return ["/".join(each.get(field, "") for field in ("driver", "pool", "device")) for each in results]


def devices_in(allocation: Mapping[str, Any]) -> list[Object]:
    """What was allocated, without what the server or a later reservation adds."""
    results = allocation.get("devices", {}).get("results") or ()
    return [{field: value for field, value in each.items() if field != "shareID"} for each in results]
