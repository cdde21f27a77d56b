"""A Lease object: read, and replaced if unchanged, so that of several writers one succeeds.

Fields that others wrote, such as labels, are kept.
"""

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from shared.errors import ClusterError
from shared.kube.client import KubeClient
from shared.kube.election import Record
from shared.kube.errors import Refused
from shared.kube.events_and_conditions import micro_time
from shared.kube.outcome import ApiResponse

RELEASED_SECONDS = 1
"""The API server refuses 0 in a released Lease."""

SETTLED = "flotilla.io/settled"
"""The annotation of a leader that has stopped and left nothing of its term in progress. Taking the Lease removes it, so
it is believed once, and only if it names the last term.
"""

NETWORK = "flotilla.io/nats"
"""The annotation that names the leader's NATS: `TERM IDENTITY`. It counts only in that term, because services of the
last release keep it unchanged.
"""

SERVED = "flotilla.io/schedulers"
"""The annotation with all schedulers that leaders of this and earlier terms have served, comma-separated."""
MAX_SERVED = 256
"""The oldest names are dropped first."""

_OURS = (SETTLED, NETWORK)
_CONFLICT, _NOT_FOUND = 409, 404


class Lease:
    """Not for concurrent use."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        holder: str,
        seconds: float,
        schedulers: Iterable[str] = (),
    ) -> None:
        """`seconds`: how long others leave the Lease alone after each write. `schedulers`: those that it serves."""
        self.where = f"Lease {namespace}/{name}"
        self._client = client
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._namespace = namespace
        self._name = name
        self._holder = holder
        self._seconds = max(1, math.ceil(seconds))
        self._found: dict[str, Any] | None = None
        self._schedulers = tuple(schedulers)
        self.served: tuple[str, ...] = self._schedulers
        """All schedulers that this and earlier leaders have served, as far as the Lease was read."""

    @property
    def version(self) -> str:
        """The resourceVersion last read or written; empty if there is no Lease."""
        return str((self._found or {}).get("metadata", {}).get("resourceVersion") or "")

    async def look(self, patience: float) -> Record | None:
        """None if it does not exist. ClusterError without an answer, or if the object is no Lease."""
        answer = await self._client.call("GET", f"{self._folder}/{self._name}", timeout=patience)
        if answer.status == _NOT_FOUND:
            self._found = None
            return None
        if not answer.ok:
            raise self._refused("GET", answer)
        self._found = self._read(answer.body)
        return self._record(self._found)

    async def write(self, term: int, *, acquired: bool, patience: float, network: str = "") -> bool:
        """Replace the Lease last read or written; False, and nothing is written, if it has changed.

        After any other ClusterError it may be written, now or later. `network`: the identity of the holder's NATS.
        """
        now = micro_time(datetime.now(UTC).timestamp())
        spec: dict[str, Any] = {
            "holderIdentity": self._holder,
            "leaseTransitions": term,
            "leaseDurationSeconds": self._seconds,
            "renewTime": now,
        }
        marks = {NETWORK: f"{term} {network}"} if network else {}
        if self.served:
            marks[SERVED] = ",".join(self.served)
        return await self._write(spec | ({"acquireTime": now} if acquired else {}), patience, marks)

    async def release(self, newest: int, patience: float, *, settled: int = 0) -> bool:
        """Release the Lease if we hold it, in this term or an earlier one. `patience`: for each of two calls.

        `settled`: the term that left nothing in progress, marked in the Lease if it is the last one; 0 for none.
        """
        record = await self.look(patience)
        if record is None or record.holder != self._holder or record.term > newest:
            return False
        now = micro_time(datetime.now(UTC).timestamp())
        free = {"holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS, "renewTime": now}
        marks = {SETTLED: str(settled)} if settled and record.term == settled else {}
        return await self._write(free, patience, marks)

    # Internals

    async def _write(self, spec: dict[str, Any], patience: float, marks: dict[str, str]) -> bool:
        """`marks`: our annotations from now on; our other ones are removed."""
        if self._found is None:
            metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
            metadata |= {"annotations": marks} if marks else {}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
            method, path = "POST", self._folder
        else:
            lease = self._found | {"metadata": self._marked(marks), "spec": self._found["spec"] | spec}
            method, path = "PUT", f"{self._folder}/{self._name}"
        answer = await self._client.call(method, path, msgspec.json.encode(lease), timeout=patience)
        if answer.status == _CONFLICT or (answer.status == _NOT_FOUND and self._found is not None):
            return False
        if not answer.ok:
            raise self._refused(method, answer)
        self._found = self._read(answer.body)
        return True

    def _marked(self, marks: dict[str, str]) -> dict[str, Any]:
        """The metadata as read, with these marks as our annotations."""
        metadata: dict[str, Any] = dict((self._found or {})["metadata"])
        kept = {key: value for key, value in (metadata.pop("annotations", None) or {}).items() if key not in _OURS}
        return metadata | {"annotations": kept | marks} if kept or marks else metadata

    def _read(self, raw: bytes) -> dict[str, Any]:
        try:
            lease = msgspec.json.decode(raw, type=dict[str, Any])
            lease["spec"] = msgspec.convert(lease.get("spec") or {}, dict[str, Any])
            lease["metadata"] = msgspec.convert(lease.get("metadata") or {}, dict[str, Any])
        except (msgspec.DecodeError, msgspec.ValidationError) as cause:
            raise ClusterError(f"{self.where}: not a Lease: {cause}") from cause
        return lease

    def _record(self, lease: dict[str, Any]) -> Record:
        spec = lease["spec"]
        named = str((lease["metadata"].get("annotations") or {}).get(SERVED) or "").split(",")
        self.served = tuple(dict.fromkeys([*filter(None, named), *self._schedulers]))[-MAX_SERVED:]
        term, seconds = spec.get("leaseTransitions") or 0, spec.get("leaseDurationSeconds") or 0
        if not isinstance(term, int) or term < 0:
            raise ClusterError(f"{self.where}: spec.leaseTransitions: {term!r} is no term")
        if not isinstance(seconds, int):
            raise ClusterError(f"{self.where}: spec.leaseDurationSeconds: {seconds!r} is no duration")
        holder = str(spec.get("holderIdentity") or "")
        marks = lease["metadata"].get("annotations") or {}
        settled = not holder and term > 0 and marks.get(SETTLED) == str(term)
        named_in, _, network_named = str(marks.get(NETWORK) or "").partition(" ")
        network = network_named if named_in == str(term) else ""
        renewed, acquired = (str(spec.get(key) or "") for key in ("renewTime", "acquireTime"))
        return Record(holder, term, renewed, float(seconds), settled, network, acquired)

    def _refused(self, method: str, answer: ApiResponse) -> Refused:
        return Refused(self._client.server, f"{method} {self.where}", answer.status, answer.message)
