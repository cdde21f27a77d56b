"""Create, update, patch and delete."""

from collections.abc import Sequence

import msgspec

from testing.simulator.admission import changed_event_causes, new_event_causes
from testing.simulator.cluster import SimulatedCluster, check_preconditions
from testing.simulator.errors import (
    bad_request,
    invalid,
    invalid_value,
    method_not_allowed,
    not_found,
    unsupported_media_type,
)
from testing.simulator.metadata import metadata_of
from testing.simulator.patches import json_patch, merge_patch, strategic_patch
from testing.simulator.requests import Request, Response, Target, as_object
from testing.simulator.resources import DISRUPTION_BUDGETS, NEW_EVENTS, ApiResource, Object, builtin
from testing.simulator.selectors import select
from testing.simulator.store import Item, encode
from testing.simulator.subresources import (
    ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    ReviewedUser,
    bind,
    evict,
    rescale,
    review,
    scale_of,
)
from testing.simulator.views import shown_form, stored_form, stored_type

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

VERSION_REQUIRED = frozenset(
    {
        builtin("leases", "coordination.k8s.io"),
        builtin("csinodes", "storage.k8s.io"),
        builtin("csidrivers", "storage.k8s.io"),
        DISRUPTION_BUDGETS,
    }
)
"""Types whose updates must carry a resource version."""
CREATED = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'


class Writer:
    def __init__(self, cluster: SimulatedCluster, users: Sequence[ReviewedUser]) -> None:
        self._cluster = cluster
        self._users = users

    def post(self, target: Target, request: Request) -> Response:
        _check_json(request)
        obj = request.object()
        if target.resource in (TOKEN_REVIEWS, ACCESS_REVIEWS):
            return Response(201, encode(review(self._users, target.resource, obj)))
        if target.resource.virtual:
            name = (obj.get("metadata") or {}).get("name") or ""
            return self._bind(target, name, obj, request)
        match target.subresource:
            case "":
                return self._create(target, obj, request)
            case "binding":
                return self._bind(target, target.name, obj, request)
            case "eviction":
                evict(self._cluster, target.scope, target.name, obj, dry_run=request.dry_run)
                return Response(201, CREATED)
        raise method_not_allowed()

    def _bind(self, target: Target, name: str, obj: Object, request: Request) -> Response:
        bind(self._cluster, target.scope, name, obj, dry_run=request.dry_run)
        return Response(201, CREATED)

    def _create(self, target: Target, obj: Object, request: Request) -> Response:
        resource = target.resource
        if resource.namespaced and target.namespace is None:
            raise method_not_allowed()
        if resource is NEW_EVENTS and (causes := [*new_event_causes(obj, target.scope)]):
            raise invalid(resource, metadata_of(obj).get("name") or "", causes)
        stored = stored_form(resource, obj)
        item = self._cluster.create(stored_type(resource), target.scope, stored, dry_run=request.dry_run)
        return Response(201, _shown(resource, item))

    def put(self, target: Target, request: Request) -> Response:
        _check_json(request)
        item = self._cluster.find(target.resource, target.scope, target.name)
        obj = request.object()
        if target.resource in VERSION_REQUIRED and not metadata_of(obj).get("resourceVersion"):
            why = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(target.resource, target.name, [why])
        return self._write(target, item, obj, request)

    def _write(self, target: Target, item: Item, obj: Object, request: Request) -> Response:
        resource, dry_run = target.resource, request.dry_run
        if target.subresource == "scale":
            written = rescale(self._cluster, resource, item, obj, dry_run=dry_run)
            return Response(200, encode(scale_of(written)))
        if target.subresource not in ("", "status", "finalize"):
            raise method_not_allowed()
        if resource is NEW_EVENTS and (causes := [*changed_event_causes(obj, shown_form(NEW_EVENTS, item.decode()))]):
            raise invalid(NEW_EVENTS, item.name, causes)
        stored = stored_form(resource, obj)
        written = self._cluster.update(
            stored_type(resource), item, stored, subresource=target.subresource, dry_run=dry_run
        )
        return Response(200, _shown(resource, written))

    def patch(self, target: Target, request: Request) -> Response:
        media = request.content_type
        if media not in PATCHES or (media == STRATEGIC_PATCH and not target.resource.strategic):
            raise unsupported_media_type(media, PATCHES)
        resource = target.resource
        try:
            patch = msgspec.yaml.decode(request.body) if media == APPLY_PATCH else request.json()
        except msgspec.DecodeError as error:
            raise bad_request(f"error decoding YAML: {error}") from None
        item = self._cluster.store.bucket(resource).get(target.scope, target.name)
        if item is None:
            if media != APPLY_PATCH or target.subresource:
                raise not_found(resource, target.name)
            obj = as_object(patch)
            as_object(obj.setdefault("metadata", {}))["name"] = target.name
            return self._create(target, obj, request)
        obj = scale_of(item) if target.subresource == "scale" else item.decode()
        if resource.stored_as:
            obj = shown_form(resource, obj)
        if media == JSON_PATCH:
            obj = json_patch(obj, patch)
        elif media == MERGE_PATCH or not resource.strategic:
            obj = merge_patch(obj, as_object(patch))
        else:
            obj = strategic_patch(obj, patch)
        return self._write(target, item, as_object(obj), request)

    def delete(self, target: Target, request: Request) -> Response:
        options = request.object() if request.body else {}
        dry_run = request.dry_run or bool(options.get("dryRun"))
        grace = options.get("gracePeriodSeconds", request.number("gracePeriodSeconds"))
        if grace is not None and not isinstance(grace, int):
            raise bad_request(
                "json: cannot unmarshal into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
            )
        if not target.name:
            return self._delete_collection(target, request, grace, dry_run=dry_run)
        item = self._cluster.find(target.resource, target.scope, target.name)
        check_preconditions(target.resource, item, options.get("preconditions") or {})
        left, gone = self._cluster.delete(stored_type(target.resource), item, grace, dry_run=dry_run)
        if target.resource.returns_deleted or not gone:
            return Response(200, _shown(target.resource, left))
        details: Object = {"name": item.name, "kind": target.resource.plural, "uid": item.uid}
        if target.resource.group:
            details["group"] = target.resource.group
        success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Response(200, encode(success))

    def _delete_collection(self, target: Target, request: Request, grace: int | None, *, dry_run: bool) -> Response:
        resource = target.resource
        if resource.virtual or (resource.namespaced and target.namespace is None):
            raise method_not_allowed()
        selection = select(resource, target.namespace, request.query)
        chosen = [i for i in self._cluster.store.bucket(resource).in_order(target.namespace) if selection.matches(i)]
        left = [self._cluster.delete(stored_type(resource), item, grace, dry_run=dry_run)[0] for item in chosen]
        head = encode({"resourceVersion": str(self._cluster.store.version)})
        shown = b",".join([_shown(resource, item) for item in left])
        kind, version = resource.kind.encode(), resource.api_version.encode()
        return Response(
            200, b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":[%b]}' % (kind, version, head, shown)
        )


def _check_json(request: Request) -> None:
    if request.content_type not in ("application/json", "", "*/*"):
        raise unsupported_media_type(request.content_type, ["application/json"])


def _shown(resource: ApiResource, item: Item) -> bytes:
    return encode(shown_form(resource, item.decode())) if resource.stored_as else item.raw
