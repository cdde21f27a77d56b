"""Fencing of resource claims: ensures that no call of an earlier attempt can allocate a claim any more.

A binder allocates a claim only at the version that its order names. So the claim is given another version, by an
annotation; no call that names the old one succeeds after that, however late.
"""

from collections.abc import AsyncIterator
from typing import TypeVar
from urllib.parse import quote

import msgspec

from shared.errors import ClusterError
from shared.kube.client import STRATEGIC_MERGE_PATCH, KubeClient
from shared.kube.errors import Refused
from shared.kube.outcome import ApiResponse
from shared.model.devices import FENCED, RESOURCE_VERSIONS

PAGE = 500
"""Claims in one answer."""
NOT_FOUND = 404
OTHER_UID = (409, 422)
"""Answers to a patch with another uid than the claim has; they may have other causes."""


T = TypeVar("T")


class _Metadata(msgspec.Struct, gc=False):
    name: str
    namespace: str
    uid: str
    version: str = msgspec.field(name="resourceVersion")


class _Status(msgspec.Struct, gc=False):
    allocation: dict[str, object] | None = None


class ObservedClaim(msgspec.Struct, gc=False):
    """A claim as the API server has it."""

    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def version(self) -> str:
        return self.metadata.version

    @property
    def is_allocated(self) -> bool:
        return self.status.allocation is not None


class _ListMetadata(msgspec.Struct):
    following: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct):
    metadata: _ListMetadata
    items: list[ObservedClaim] | None = None


async def touch_claim(client: KubeClient, key: str, uid: str, mark: str) -> ObservedClaim | None:
    """Give the claim another version, and return it; None if it is gone. Empty `uid`: whatever uid it has.

    `mark` must be new, for a patch that changes nothing leaves the version as it is. Raises ClusterError if the server
    does not answer or refuses.
    """
    metadata: dict[str, object] = {"annotations": {FENCED: mark}}
    if uid:
        metadata["uid"] = uid
    body = msgspec.json.encode({"metadata": metadata})
    for path in _paths(key):
        answer = await client.call("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)
        if answer.ok:
            return _read(answer, ObservedClaim, path)
        if answer.status in OTHER_UID and uid and await _has_other_uid(client, path, uid):
            return None
        if answer.status != NOT_FOUND:
            raise Refused(client.server, f"PATCH {path}", answer.status, answer.message)
    return None


async def list_claims(client: KubeClient) -> AsyncIterator[ObservedClaim]:
    """All claims as of now; none if the server does not have the API."""
    for version in RESOURCE_VERSIONS:
        path, following = f"/apis/resource.k8s.io/{version}/resourceclaims?limit={PAGE}", ""
        while True:
            answer = await client.call("GET", path + (f"&continue={quote(following, safe='')}" if following else ""))
            if answer.status == NOT_FOUND:
                break
            if not answer.ok:
                raise Refused(client.server, f"GET {path}", answer.status, answer.message)
            page = _read(answer, _Page, path)
            for claim in page.items or ():
                yield claim
            following = page.metadata.following
            if not following:
                return


async def _has_other_uid(client: KubeClient, path: str, uid: str) -> bool:
    raw = await client.get(path)
    return raw is None or msgspec.json.decode(raw, type=ObservedClaim).uid != uid


def _paths(key: str) -> list[str]:
    namespace, _, name = key.partition("/")
    return [f"/apis/resource.k8s.io/{each}/namespaces/{namespace}/resourceclaims/{name}" for each in RESOURCE_VERSIONS]


def _read(answer: ApiResponse, as_: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(answer.body, type=as_)
    except msgspec.DecodeError as cause:
        raise ClusterError(f"{path}: {cause}") from cause
