"""PreBind: asks the API server to bind a pod's volumes, and waits until controllers have bound and provisioned them.

A volume that is there is kept for its claim; for one that is to be made, the claim is told the node. Controllers do the
rest. Everything is looked at before it is changed, so that doing it twice does no harm, and changed only if nobody else
has changed it meanwhile.
"""

from collections.abc import Generator
from typing import Any

import msgspec

from flotilla.results import SUCCESS, ApiAnswer, ApiCall, Pause, PreBindSteps, error
from shared.cluster.volumes import VolumeDecision
from shared.errors import ClusterError
from shared.model.objects import Pod
from shared.model.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE
from shared.plugins.volumes.volumebinding.paths import claim_path, look_at, volume_path
from shared.plugins.volumes.volumebinding.waiting import NeverBound, Waiting

FIRST_PAUSE = 0.25
"""Seconds until it is first looked at whether all is bound; each pause is half as long again as the one before."""
LONGEST_PAUSE = 5.0

Object = dict[str, Any]
"""As the API server tells it: what is written back must have all that others have put there."""

Acting = Generator[ApiCall | Pause, ApiAnswer, None]


class NotDone(ClusterError):
    """The API server does not do what was decided."""


def bind_volumes(pod: Pod, node: str, decision: VolumeDecision, patience: float) -> PreBindSteps:
    """`patience`: seconds that all of it may take."""
    try:
        for claim, volume in decision.bindings:
            yield from _keep(claim, volume, decision.uids.get(claim, ""))
        for claim in decision.provisions:
            yield from _select_node(claim, node, decision.uids.get(claim, ""))
    except NotDone as cause:
        return error(str(cause))
    waiting, pause = Waiting(pod, node, decision), FIRST_PAUSE
    while True:
        now = yield Pause(pause, patience)
        try:
            if (yield from waiting.look()):
                return SUCCESS
        except NeverBound as cause:
            return error(f"binding volumes: {cause}")
        if max(now.elapsed, waiting.elapsed) >= patience:
            return error("binding volumes: context deadline exceeded")
        pause = min(1.5 * pause, LONGEST_PAUSE)


def _keep(claim_key: str, volume_name: str, uid: str) -> Acting:
    """Keeps a volume for a claim."""
    claim = yield from _get(claim_path(claim_key))
    bound_to = claim["spec"].get("volumeName", "")
    if not _is_same(claim, uid) or bound_to not in ("", volume_name):
        raise _changed_claim(claim_key)
    if bound_to and BIND_COMPLETED in _annotations(claim):
        return
    volume = yield from _get(volume_path(volume_name))
    kept_for, reference = volume["spec"].get("claimRef"), _reference(claim)
    if kept_for is None:
        _annotations(volume).setdefault(BOUND_BY_CONTROLLER, "yes")
    elif (kept_for.get("namespace"), kept_for.get("name")) != (reference["namespace"], reference["name"]):
        raise _changed_volume(volume_name)
    elif kept_for.get("uid"):
        if kept_for["uid"] != reference["uid"]:
            raise _changed_volume(volume_name)
        return
    volume["spec"]["claimRef"] = reference
    yield from _put(volume_path(volume_name), volume)


def _select_node(claim_key: str, node: str, uid: str) -> Acting:
    """Tells the claim which node its volume is to be made for."""
    claim = yield from _get(claim_path(claim_key))
    selected = _annotations(claim).get(SELECTED_NODE)
    if not _is_same(claim, uid) or selected not in (None, node):
        raise _changed_claim(claim_key)
    if selected is not None:
        return
    if claim["spec"].get("volumeName"):
        raise _changed_claim(claim_key)
    _annotations(claim)[SELECTED_NODE] = node
    yield from _put(claim_path(claim_key), claim)


def _get(path: str) -> Generator[ApiCall | Pause, ApiAnswer, Object]:
    answer = yield look_at(path)
    if not answer.ok:
        raise NotDone(answer.message)
    found = msgspec.json.decode(answer.body, type=Object)
    if not (isinstance(found.get("metadata"), dict) and isinstance(found.get("spec"), dict)):
        raise NotDone(f"{path}: not an object with metadata and spec")
    return found


def _put(path: str, body: Object) -> Acting:
    """With the version that was read, so that the server refuses it if there is a newer one."""
    answer = yield ApiCall("PUT", path, body)
    if not answer.ok:
        raise NotDone(answer.message)


def _annotations(obj: Object) -> dict[str, str]:
    annotations: dict[str, str] = obj["metadata"].setdefault("annotations", {})
    return annotations


def _is_same(claim: Object, uid: str) -> bool:
    """Whether it is the claim that was decided about, and not another one of that name."""
    return not uid or claim["metadata"].get("uid") == uid


def _reference(claim: Object) -> dict[str, str]:
    metadata = claim["metadata"]
    fields = {field: metadata.get(field, "") for field in ("namespace", "name", "uid", "resourceVersion")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **fields}


def _changed_claim(key: str) -> NotDone:
    return _changed("persistentvolumeclaims", key.partition("/")[2])


def _changed_volume(name: str) -> NotDone:
    return _changed("persistentvolumes", name)


def _changed(resource: str, name: str) -> NotDone:
    """In the API server's words for a conflicting write."""
    return NotDone(
        f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
