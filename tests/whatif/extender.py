"""A scheduler extender with opinions on everything, asked without a network: by the cycle, and by what if."""

import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from services.cycle import service
from shared.config.document import ConfigSource
from shared.config.structs import ExtenderConfig
from shared.extenders.client import ExtenderClient
from shared.extenders.talk import Call, ExtenderFailed, Talk
from shared.framework.loading import load_scheduler_config

T = TypeVar("T")

CONFIG = json.dumps(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [
            {
                "urlPrefix": "http://extender/scheduler",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "preemptVerb": "preempt",
                "weight": 1,
                "nodeCacheCapable": True,
            }
        ],
    }
)


def reply(call: Call) -> bytes:
    """Depends on nothing but names."""
    body: dict[str, Any] = json.loads(call.body)
    pod = body["Pod"]["metadata"]["name"]
    if call.verb == "preempt":
        candidates = body["NodeNameToMetaVictims"]
        left = [name for name in sorted(candidates) if _opinion(pod, name) % 4] or sorted(candidates)[:1]
        return json.dumps({"NodeNameToMetaVictims": {name: candidates[name] for name in left}}).encode()
    names = body["NodeNames"]
    if call.verb == "filter":
        refused = {name: "the extender is against it" for name in names if not _opinion(pod, name) % 5}
        return json.dumps({"NodeNames": [n for n in names if n not in refused], "FailedNodes": refused}).encode()
    return json.dumps([{"Host": name, "Score": _opinion(name, pod) % 11} for name in names]).encode()


def _opinion(*of: str) -> int:
    return zlib.crc32(" ".join(of).encode())


def converse(extenders: Sequence[ExtenderConfig], talk: Talk[T]) -> T:
    try:
        calls = next(talk)
        while True:
            calls = talk.send([reply(call) for call in calls])
    except StopIteration as end:
        result: T = end.value
        return result


class _Client(ExtenderClient):
    async def _make(self, calls: Sequence[Call]) -> Sequence[bytes | ExtenderFailed]:
        return [reply(call) for call in calls]


@contextmanager
def asked_by_the_cycle() -> Iterator[None]:
    config = load_scheduler_config(ConfigSource("test", CONFIG.encode()))
    load: Callable[..., Any] = lambda *_: config  # noqa: E731
    with patch.object(service, "ExtenderClient", _Client), patch.object(service, "load_scheduler_config", load):
        yield
