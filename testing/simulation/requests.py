"""The API server's paths: what a request says, and what becomes of it. Nothing here waits."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote

import msgspec

from services.watcher.resources import RESOURCES
from shared.messages.watch import Kind
from shared.model.objects import ObjectKind, PodCondition, decode_object, encode_json, key_of
from testing.simulation.apiserver import ApiServer, Refusal

JSON_PATCH = "application/json-patch+json"
PATHS: dict[str, Kind] = {resource.path: kind for kind, resource in RESOURCES.items()}
_POD = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/]+)(/binding|/status)?")
_LEASES = re.compile(r"/apis/coordination\.k8s\.io/v1/namespaces/[^/]+/leases(?:/([^/]+))?")
_EVENTS = re.compile(r"/apis/events\.k8s\.io/v1/namespaces/[^/]+/events(/.*)?")
_OBJECT = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([^/]+)/([^/]+)")

SYSTEM = "/api/v1/namespaces/kube-system"
CLUSTER = "simulation"
"""The uid by which the cluster is known."""

Answer = tuple[int, bytes]


def status(code: int, message: str) -> Answer:
    return code, msgspec.json.encode({"kind": "Status", "apiVersion": "v1", "code": code, "message": message})


class Requests:
    def __init__(self, server: ApiServer, shown: Callable[[], int]) -> None:
        """`shown`: the version at which lists are."""
        self._server = server
        self._shown = shown

    def answer(self, method: str, path: str, body: bytes | None, content_type: str) -> Answer:
        try:
            return self._answer(method, path, body, content_type)
        except Refusal as refusal:
            return status(refusal.status, refusal.message)

    def _answer(self, method: str, path: str, body: bytes | None, content_type: str) -> Answer:
        folder, _, query = path.partition("?")
        folder = unquote(folder)
        given = msgspec.json.decode(body) if body else None
        if match := _POD.fullmatch(folder):
            return self._pod(method, match[2], match[3] or "", given, content_type)
        if match := _LEASES.fullmatch(folder):
            return self._lease(method, match[1], given)
        if _EVENTS.fullmatch(folder):
            return 201 if method == "POST" else 200, b"{}"
        if folder in PATHS and method == "GET":
            return self._list(PATHS[folder], parse_qs(query))
        if folder == SYSTEM and method == "GET":
            return 200, msgspec.json.encode({"metadata": {"name": "kube-system", "uid": CLUSTER}})
        return self._object(method, folder, body, given)

    # Pods

    def _pod(self, method: str, name: str, part: str, given: Any, content_type: str) -> Answer:
        server = self._server
        match method, part:
            case "GET", "":
                return 200, encode_json(server.found(name))
            case "POST", "/binding":
                asked = given["metadata"]
                version = asked.get("resourceVersion", "")
                server.bind(name, asked.get("uid", ""), given["target"]["name"], version)
                return status(201, "")
            case "PATCH", "/status" if content_type == JSON_PATCH:
                return self._json_patch(name, given)
            case "PATCH", "/status":
                return self._patch_status(name, given)
            case "DELETE", "":
                asked = (given or {}).get("preconditions", {})
                server.evict(server.found(name, asked.get("uid", ""), asked.get("resourceVersion", "")))
                return status(200, "")
        raise Refusal(405, f"{method} {part} is not simulated")

    def _patch_status(self, name: str, given: Any) -> Answer:
        asked, new = given.get("metadata", {}), given.get("status", {})
        pod = self._server.found(name, asked.get("uid", ""), asked.get("resourceVersion", ""))
        nominated = (new["nominatedNodeName"] or "") if "nominatedNodeName" in new else None
        for condition in new.get("conditions", ()) or [None]:
            read = None if condition is None else msgspec.convert(condition, PodCondition)
            pod = self._server.set_status(pod, read, nominated)
        return 200, encode_json(pod)

    def _json_patch(self, name: str, given: Any) -> Answer:
        """Only the one that takes a nomination back."""
        pod = self._server.found(name)
        there = {"/metadata/uid": pod.uid, "/status/nominatedNodeName": pod.status.nominated_node_name}
        for step in given:
            if step["op"] == "test" and there.get(step["path"]) != step["value"]:
                raise Refusal(422, f"the server rejected our request: testing path {step['path']}")
            if step["op"] == "remove":
                pod = self._server.set_status(pod, None, "")
        return 200, encode_json(pod)

    # Leases

    def _lease(self, method: str, name: str | None, given: Any) -> Answer:
        leases = self._server.leases
        key = name or given["metadata"]["name"]
        if method in ("GET", "PUT") and key not in leases:
            raise Refusal(404, f'leases "{key}" not found')
        if method == "POST" and key in leases:
            raise Refusal(409, f'leases "{key}" already exists')
        if method == "PUT" and given["metadata"].get("resourceVersion") != leases[key]["metadata"]["resourceVersion"]:
            raise Refusal(409, "the object has been modified; please apply your changes to the latest version")
        if method in ("PUT", "POST"):
            self._server.version += 1
            given["metadata"]["resourceVersion"] = str(self._server.version)
            leases[key] = given
        return 201 if method == "POST" else 200, msgspec.json.encode(leases[key])

    # Other objects

    def _list(self, kind: Kind, query: dict[str, list[str]]) -> Answer:
        version = self._shown()
        raws = [msgspec.Raw(raw) for raw in self._server.state_at(kind, version)]
        told = {"metadata": {"resourceVersion": str(version)}, "items": raws}
        return 200, msgspec.json.encode(told)

    def _object(self, method: str, folder: str, body: bytes | None, given: Any) -> Answer:
        """Read and replaced, as the binding of volumes does."""
        match = _OBJECT.fullmatch(folder)
        if match is not None and method == "GET" and match[3] == "nodes" and match[4] in self._server.nodes:
            return 200, encode_json(self._server.nodes[match[4]])
        path = "" if match is None else f"{match[1]}/{match[3]}"
        if match is None or path not in PATHS or PATHS[path] in (Kind.POD, Kind.NODE):
            raise Refusal(404, f"{method} {folder} is not simulated")
        kind = ObjectKind(PATHS[path].value)
        key = f"{match[2]}/{match[4]}" if match[2] else match[4]
        there = self._server.objects.get((kind, key))
        if there is None:
            raise Refusal(404, f'{match[3]} "{match[4]}" not found')
        if method == "PUT":
            new, asked = decode_object(kind, msgspec.Raw(body or b"{}")), given["metadata"].get("resourceVersion", "")
            if asked not in ("", there.metadata.resource_version):
                raise Refusal(409, "the object has been modified; please apply your changes to the latest version")
            if key_of(new) != key:
                raise Refusal(400, "the name of the object does not match the path")
            self._server.put_object(new)
            there = self._server.objects[kind, key]
        return 200, encode_json(there)
