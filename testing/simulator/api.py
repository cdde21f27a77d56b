"""The API's verbs on objects: a request goes in, a response or a watch comes out. Synchronous and free of I/O."""

from collections.abc import Collection, Sequence

import msgspec

from testing.simulator.admission import changed_event_causes, new_event_causes
from testing.simulator.cluster import SimulatedCluster, check_preconditions
from testing.simulator.discovery import describe
from testing.simulator.errors import (
    ApiError,
    bad_request,
    expired,
    invalid,
    invalid_value,
    method_not_allowed,
    not_found,
    too_large_resource_version,
    unsupported_media_type,
)
from testing.simulator.lists import INITIAL, MATCH, Pages, check_list, check_watch
from testing.simulator.metadata import metadata_of
from testing.simulator.patches import json_patch, merge_patch, strategic_patch
from testing.simulator.protobuf import PROTOBUF
from testing.simulator.requests import JSON, Request, Response, Target, as_object, error_response, resolve
from testing.simulator.resources import DISRUPTION_BUDGETS, NEW_EVENTS, ApiResource, Object, builtin
from testing.simulator.selectors import select
from testing.simulator.store import Bucket, Item, encode
from testing.simulator.subresources import (
    ACCESS_REVIEWS,
    OWN_ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    ReviewedUser,
    bind,
    evict,
    rescale,
    review,
    scale_of,
)
from testing.simulator.views import PrintedTable, View, shown_form, stored_form, stored_type, view_of
from testing.simulator.watch import Watch
from testing.simulator.workloads.ownership import orphan

MALFORMED = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What handling a body raises whose fields have unexpected types."""
OF_CONTAINERS = frozenset({"log", "exec", "attach", "portforward"})
NO_CONTAINERS = "the simulator runs no containers: there are no logs, and nothing to execute in or to connect to"
CREATED = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
BODIES = (JSON, PROTOBUF)
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


class Api:
    def __init__(
        self,
        cluster: SimulatedCluster,
        max_pending_bytes: int,
        users: Sequence[ReviewedUser] = (),
        denied: Collection[str] = (),
    ) -> None:
        self.pages = Pages()
        self._cluster = cluster
        self._store = cluster.store
        self._max_pending_bytes = max_pending_bytes
        self._users = users
        self._denied = denied

    def handle(self, request: Request) -> Response | Watch:
        """Never raises for anything a client can send: a refusal is a response, too."""
        try:
            target = resolve(self._cluster.catalog, request.path)
            return describe(self._cluster.catalog, request) if target is None else self._dispatch(target, request)
        except ApiError as error:
            return error_response(error)
        except MALFORMED as error:
            if not request.body:
                raise
            refused = bad_request(f"the body of the request cannot be handled: {type(error).__name__}: {error}")
            return error_response(refused)
        finally:
            self._store.dry_run = False

    def _dispatch(self, target: Target, request: Request) -> Response | Watch:
        if request.method == "GET":
            if request.flag("watch") and not target.subresource:
                return self._watch(target, request)
            return self._get(target, request) if target.name else self._list(target, request)
        self._store.dry_run = request.dry_run
        match request.method:
            case "POST" if not target.name or target.subresource:
                return self._post(target, request)
            case "PUT" if target.name:
                return self._put(target, request)
            case "PATCH" if target.name:
                return self._patch(target, request)
            case "DELETE" if not target.subresource:
                return self._delete(target, request)
        raise method_not_allowed()

    # Reads

    def _view(self, resource: ApiResource, request: Request) -> View:
        if "as=Table" in request.accept and "v=v1;" in f"{request.accept};".replace(",", ";"):
            return PrintedTable(resource, request.query.get("includeObject", ""), self._cluster.clock)
        return view_of(resource)

    def _get(self, target: Target, request: Request) -> Response:
        item = self._cluster.find(target.resource, target.scope, target.name)
        match target.subresource:
            case "" | "status":
                return Response(200, self._view(target.resource, request).show(item))
            case "scale":
                return Response(200, encode(scale_of(item)))
            case subresource if subresource in OF_CONTAINERS:
                raise bad_request(NO_CONTAINERS)
        raise method_not_allowed()

    def _list(self, target: Target, request: Request) -> Response:
        resource = target.resource
        if resource.virtual:
            raise method_not_allowed()
        selection = select(resource, target.namespace, request.query)
        check_list(request.query)
        limit = request.number("limit") or 0
        now = self._cluster.clock()
        if token := request.query.get("continue"):
            page = self.pages.next(token, limit, now)
        else:
            items, version = self._state(target, request)
            if selection.fields or selection.labels:
                items = [item for item in items if selection.matches(item)]
            paged = limit and request.query.get("resourceVersion") != "0"
            page = self.pages.first(items, version, limit if paged else len(items), now)
        metadata: Object = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
            if not selection.fields and not selection.labels:
                metadata["remainingItemCount"] = page.remaining
        return Response(200, self._view(resource, request).listing(page.items, metadata))

    def _state(self, target: Target, request: Request) -> tuple[list[Item], int]:
        """The objects and the version they are of: the requested past version, or the current one."""
        bucket = self._store.bucket(target.resource)
        if request.as_of is not None:
            return _past(bucket, request.as_of, target.namespace), request.as_of
        asked = request.resource_version or 0
        if asked > self._store.version:
            raise too_large_resource_version(asked, self._store.version)
        if request.query.get(MATCH) != "Exact":
            return bucket.in_order(target.namespace), self._store.version
        then = bucket.at(asked, target.namespace)
        if then is None:
            raise expired("The resourceVersion for the provided list is too old.")
        return then, asked

    def _watch(self, target: Target, request: Request) -> Watch:
        resource, current = target.resource, self._store.version
        if resource.virtual:
            raise method_not_allowed()
        selection = select(resource, target.namespace, request.query, target.name or None)
        version = request.resource_version
        check_watch(request.query)
        bucket = self._store.bucket(resource)
        watch = Watch(bucket, resource, selection, self._view(resource, request), self._max_pending_bytes)
        initial = request.flag(INITIAL)
        if request.as_of is not None:
            past = _past(bucket, request.as_of, target.namespace)
            missed = bucket.since(request.as_of) or ()
            watch.start(past if initial else (), missed, request.as_of if initial else None)
        elif initial:
            if version is not None and version > current:
                raise too_large_resource_version(version, current)
            end = current if request.flag("allowWatchBookmarks") else None
            watch.start(bucket.in_order(target.namespace), initial_end=end)
        elif version:
            watch.resume(version, current)
        elif INITIAL in request.query:
            watch.start()
        else:
            watch.start(bucket.in_order(target.namespace))
        return watch

    # Writes

    def post_all(self, path: str, objects: Sequence[Object]) -> Response:
        """Post each object to this path, as in a request of its own, up to the first that is refused."""
        try:
            target = resolve(self._cluster.catalog, path)
            if target is None or target.name:
                raise method_not_allowed()
            for obj in objects:
                self._post_object(target, obj)
        except ApiError as error:
            return error_response(error)
        except MALFORMED as error:
            refused = bad_request(f"an object of the request cannot be handled: {type(error).__name__}: {error}")
            return error_response(refused)
        return Response(201, CREATED)

    def _post(self, target: Target, request: Request) -> Response:
        if target.subresource in OF_CONTAINERS:
            raise bad_request(NO_CONTAINERS)
        _check_type(request)
        return self._post_object(target, request.object())

    def _post_object(self, target: Target, obj: Object) -> Response:
        if target.resource in (TOKEN_REVIEWS, ACCESS_REVIEWS, OWN_ACCESS_REVIEWS):
            return Response(201, encode(review(self._users, self._denied, target.resource, obj)))
        if target.resource.virtual:
            bind(self._cluster, target.scope, (obj.get("metadata") or {}).get("name") or "", obj)
            return Response(201, CREATED)
        match target.subresource:
            case "":
                return self._create(target, obj)
            case "binding":
                bind(self._cluster, target.scope, target.name, obj)
            case "eviction":
                evict(self._cluster, target.scope, target.name, obj)
            case _:
                raise method_not_allowed()
        return Response(201, CREATED)

    def _create(self, target: Target, obj: Object) -> Response:
        resource = target.resource
        if resource.namespaced and target.namespace is None:
            raise method_not_allowed()
        if resource is NEW_EVENTS and (causes := [*new_event_causes(obj, target.scope)]):
            raise invalid(resource, metadata_of(obj).get("name") or "", causes)
        item = self._cluster.create(stored_type(resource), target.scope, stored_form(resource, obj))
        return Response(201, view_of(resource).show(item))

    def _put(self, target: Target, request: Request) -> Response:
        _check_type(request)
        item = self._cluster.find(target.resource, target.scope, target.name)
        obj = request.object()
        if target.resource in VERSION_REQUIRED and not metadata_of(obj).get("resourceVersion"):
            why = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(target.resource, target.name, [why])
        return self._update(target, item, obj)

    def _patch(self, target: Target, request: Request) -> Response:
        media, resource = request.content_type, target.resource
        if media not in PATCHES or (media == STRATEGIC_PATCH and not resource.strategic):
            raise unsupported_media_type(media, PATCHES)
        try:
            patch = msgspec.yaml.decode(request.body) if media == APPLY_PATCH else request.json()
        except msgspec.DecodeError as error:
            raise bad_request(f"error decoding YAML: {error}") from None
        item = self._store.bucket(resource).get(target.scope, target.name)
        if item is None:
            if media != APPLY_PATCH or target.subresource:
                raise not_found(resource, target.name)
            obj = as_object(patch)
            as_object(obj.setdefault("metadata", {}))["name"] = target.name
            return self._create(target, obj)
        obj = scale_of(item) if target.subresource == "scale" else item.decode()
        if resource.stored_as:
            obj = shown_form(resource, obj)
        if media == JSON_PATCH:
            obj = json_patch(obj, patch)
        elif media == MERGE_PATCH or not resource.strategic:
            obj = merge_patch(obj, as_object(patch))
        else:
            obj = strategic_patch(obj, patch)
        return self._update(target, item, as_object(obj))

    def _update(self, target: Target, item: Item, obj: Object) -> Response:
        resource = target.resource
        if target.subresource == "scale":
            return Response(200, encode(scale_of(rescale(self._cluster, resource, item, obj))))
        if target.subresource not in ("", "status", "finalize"):
            raise method_not_allowed()
        if resource is NEW_EVENTS and (causes := [*changed_event_causes(obj, shown_form(NEW_EVENTS, item.decode()))]):
            raise invalid(NEW_EVENTS, item.name, causes)
        stored = stored_form(resource, obj)
        written = self._cluster.update(stored_type(resource), item, stored, subresource=target.subresource)
        return Response(200, view_of(resource).show(written))

    def _delete(self, target: Target, request: Request) -> Response:
        """Delete an object, or every selected one of a collection."""
        options = request.object() if request.body else {}
        self._store.dry_run |= bool(options.get("dryRun"))
        grace = options.get("gracePeriodSeconds", request.number("gracePeriodSeconds"))
        if grace is not None and not isinstance(grace, int):
            raise bad_request(
                "json: cannot unmarshal into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
            )
        resource, stored = target.resource, stored_type(target.resource)
        if not target.name:
            if resource.virtual or (resource.namespaced and target.namespace is None):
                raise method_not_allowed()
            selection = select(resource, target.namespace, request.query)
            chosen = [
                item for item in self._store.bucket(resource).in_order(target.namespace) if selection.matches(item)
            ]
            last = [self._cluster.delete(stored, item, grace)[0] for item in chosen]
            return Response(200, view_of(resource).listing(last, {"resourceVersion": str(self._store.version)}))
        item = self._cluster.find(resource, target.scope, target.name)
        check_preconditions(resource, item, options.get("preconditions") or {})
        if options.get("propagationPolicy", request.query.get("propagationPolicy")) == "Orphan":
            orphan(self._cluster, item)
        left, gone = self._cluster.delete(stored, item, grace)
        if resource.returns_deleted or not gone:
            return Response(200, view_of(resource).show(left))
        details: Object = {"name": item.name, "kind": resource.plural, "uid": item.uid}
        if resource.group:
            details["group"] = resource.group
        success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
        return Response(200, encode(success))


def _past(bucket: Bucket, version: int, namespace: str | None) -> list[Item]:
    then = bucket.at(version, namespace)
    if then is None:
        raise expired(f"The state of version {version} is compacted.")
    return then


def _check_type(request: Request) -> None:
    if request.content_type not in (*BODIES, "", "*/*"):
        raise unsupported_media_type(request.content_type, BODIES)
