"""Bodies in protobuf are read as kubectl meant them, or refused with a reason."""

import json
from base64 import b64decode
from pathlib import Path
from random import Random
from typing import Any

import pytest

from testing.simulator.errors import ApiError
from testing.simulator.protobuf import MARKER, PROTOBUF, decode
from tests.simulator.support import PODS, Desk, pod

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "kubectl-v1.36.3.json").read_text())
"""What kubectl v1.36.3 sent for each command, and the object that it shows for it with --dry-run=client -o json."""


def without_status(obj: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key != "status"}


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case["command"].split(" -")[0])
def test_what_kubectl_sends_is_what_it_shows(case: dict[str, Any]) -> None:
    body = b64decode(case["body"])
    assert without_status(decode(body)) == case["object"]
    desk = Desk()
    status, answer = desk.call("POST", case["path"], body, PROTOBUF)
    assert status == 201, answer
    assert answer["metadata"]["name"] == case["object"]["metadata"]["name"]


def test_an_eviction_and_its_options() -> None:
    desk = Desk()
    desk.post(PODS, pod("p"))
    # policy/v1 Eviction of the pod p with deleteOptions {gracePeriodSeconds: 0}
    eviction = message(1, message(1, b"policy/v1") + message(2, b"Eviction"))
    eviction += message(2, message(1, message(1, b"p")) + message(2, b"\x08\x00"))
    assert decode(MARKER + eviction)["deleteOptions"] == {"gracePeriodSeconds": 0}
    status, answer = desk.call("POST", f"{PODS}/p/eviction", MARKER + eviction, PROTOBUF)
    assert status == 201, answer
    assert desk.call("GET", f"{PODS}/p")[0] == 404


def message(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{}", "it does not begin with b'k8s\\x00'"),
        (MARKER, "  is only read as JSON"),
        (MARKER + message(1, message(1, b"v1") + message(2, b"Node")), "v1 Node is only read as JSON"),
        (
            MARKER + message(1, message(2, b"Namespace")) + message(2, message(9, b"")),
            "field 9 of Namespace is only read as JSON",
        ),
        (
            MARKER + message(1, message(2, b"Namespace")) + message(2, b"\x08\x01"),
            "Namespace.metadata has wire type 0",
        ),
        (MARKER + b"\x0a\x7f", "field 1 is cut off"),
        (MARKER + b"\xff" * 12, "a number is cut off or too large"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(body: bytes, why: str) -> None:
    status, answer = Desk().call("POST", "/api/v1/namespaces", body, PROTOBUF)
    assert (status, answer["reason"]) == (400, "BadRequest")
    assert why in answer["message"]
    assert answer["message"].endswith("; send application/json")


@pytest.mark.parametrize("seed", range(5))
def test_damaged_bodies_are_read_or_refused(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    for case in RECORDED:
        body = bytearray(b64decode(case["body"]))
        for _ in range(random.randint(1, 4)):
            body[random.randrange(len(MARKER), len(body))] = random.randrange(256)
        del body[random.randrange(len(body) // 2, len(body)) :]
        try:
            assert isinstance(decode(bytes(body)), dict)
        except ApiError as error:
            assert error.code == 400
