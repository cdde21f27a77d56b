"""The part of the API server that serves resource claims: finalizers, the status sub-resource, its validation."""

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from shared.model.devices import ResourceClaim
from shared.model.objects import ObjectKind, decode_object, encode_json
from testing.simulation.apiserver import TERMINATING, Answer, ApiServer, Refusal, status

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
ALL = "/apis/resource.k8s.io/v1/resourceclaims"
_CLAIM = re.compile(rf"{CLAIMS}(?:/([^/]+)(/status)?)?")


def answer(server: ApiServer, method: str, folder: str, body: bytes | None, given: Any) -> Answer | None:
    """The answer to a call about claims; None for other paths. Raises Refusal."""
    if folder == ALL and method == "GET":
        listed = [msgspec.Raw(shown(server, each)) for each in claims(server).values()]
        return 200, msgspec.json.encode({"metadata": {"resourceVersion": str(server.version)}, "items": listed})
    match = _CLAIM.fullmatch(folder)
    if match is None:
        return None
    name, is_status = match[1] or "", bool(match[2])
    if method == "POST" and not name:
        made = create_claim(server, decode_object(ObjectKind.RESOURCE_CLAIM, body or b"{}"))
        _keep_metadata(server, made, given["metadata"])
        return 201, shown(server, made)
    claim = claims(server).get(name)
    if claim is None:
        raise Refusal(404, f'resourceclaims.resource.k8s.io "{name}" not found')
    if method == "DELETE":
        _check(claim, (given or {}).get("preconditions", {}))
        delete_claim(server, claim)
        return status(200, "")
    if method == "PUT":
        _check(claim, given["metadata"])
        new = decode_object(ObjectKind.RESOURCE_CLAIM, body or b"{}")
        assert isinstance(new, ResourceClaim)
        if is_status:
            _check_status(claim, new)
            server.put_object(replace(claim, status=new.status))
        else:
            _keep_metadata(server, claim, given["metadata"])
            put_finalizers(server, claim, given["metadata"].get("finalizers") or ())
    elif method == "PATCH":
        _check(claim, given["metadata"])
        server.annotations.setdefault(claim.uid, {}).update(given["metadata"].get("annotations") or {})
        server.put_object(claim)
    elif method != "GET":
        raise Refusal(405, f"{method} of a claim is not simulated")
    claim = claims(server).get(name, claim)
    return 200, shown(server, claim)


def claims(server: ApiServer) -> dict[str, ResourceClaim]:
    """By name."""
    return {each.name: each for each in server.objects.values() if isinstance(each, ResourceClaim)}


def shown(server: ApiServer, claim: ResourceClaim) -> bytes:
    """With its finalizers and annotations, which the scheduler's model of a claim lacks."""
    plain = msgspec.json.decode(encode_json(claim))
    if finalizers := server.finalizers.get(claim.uid):
        plain["metadata"]["finalizers"] = list(finalizers)
    if annotations := server.annotations.get(claim.uid):
        plain["metadata"]["annotations"] = {**plain["metadata"].get("annotations", {}), **annotations}
    return msgspec.json.encode(plain)


def _keep_metadata(server: ApiServer, claim: ResourceClaim, given: Any) -> None:
    server.finalizers[claim.uid] = tuple(given.get("finalizers") or ())
    server.annotations[claim.uid] = dict(given.get("annotations") or {})


def create_claim(server: ApiServer, claim: Any) -> ResourceClaim:
    if claim.name in claims(server):
        raise Refusal(409, f'resourceclaims.resource.k8s.io "{claim.name}" already exists')
    uid = claim.metadata.uid or f"{claim.name}/{server.version}"
    server.put_object(replace(claim, metadata=replace(claim.metadata, uid=uid)))
    return claims(server)[claim.name]


def delete_claim(server: ApiServer, claim: ResourceClaim) -> None:
    """A claim with finalizers goes once they are removed."""
    if not server.finalizers.get(claim.uid):
        server.delete_object(ObjectKind.RESOURCE_CLAIM, claim.key)
    elif claim.metadata.deletion_timestamp is None:
        server.put_object(replace(claim, metadata=replace(claim.metadata, deletion_timestamp=TERMINATING)))


def put_finalizers(server: ApiServer, claim: ResourceClaim, finalizers: Any) -> None:
    server.finalizers[claim.uid] = tuple(finalizers)
    if claim.metadata.deletion_timestamp is not None and not finalizers:
        server.delete_object(ObjectKind.RESOURCE_CLAIM, claim.key)
    else:
        server.put_object(claim)


def _check(claim: ResourceClaim, asked: Any) -> None:
    """Preconditions, or the metadata of an object to write."""
    if asked.get("uid", claim.uid) != claim.uid:
        raise Refusal(409, f"Precondition failed: UID in precondition: {asked['uid']}, UID in object meta: {claim.uid}")
    if asked.get("resourceVersion", "") not in ("", claim.metadata.resource_version):
        raise Refusal(409, "the object has been modified; please apply your changes to the latest version")


def _check_status(claim: ResourceClaim, new: ResourceClaim) -> None:
    before, after = claim.status, new.status
    if before.allocation is not None and after.allocation not in (None, before.allocation):
        raise Refusal(422, "status.allocation: Invalid value: field is immutable")
    if after.reserved_for and after.allocation is None:
        raise Refusal(422, "status.reservedFor: Forbidden: may not be specified when `allocation` is not set")
    known = {each.uid for each in before.reserved_for}
    if claim.metadata.deletion_timestamp is not None and any(each.uid not in known for each in after.reserved_for):
        raise Refusal(422, "status.reservedFor: Forbidden: the claim is being deleted")
