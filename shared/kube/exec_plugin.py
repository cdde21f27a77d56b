"""Credentials that a program gives: the `exec` of a user in a kubeconfig.

The program is told nothing on its standard input, for nobody is there to answer it, and is ended when its time is over.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from shared.errors import UserError
from shared.kube.errors import one_line

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
MOST_OUTPUT = 1 << 20
"""Bytes of an answer; certificates are a few thousand."""
MOST_COMPLAINT = 300
"""Characters of what a program that fails says."""
ENDING_PATIENCE = 5.0
"""Seconds for a program that was killed: what it has left running may hold its output open, and the end is not told."""
EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster that is meant for the program."""


@dataclass(frozen=True, slots=True)
class ExecCredential:
    """What the program gave. `expires`: Unix time; without it, it holds until it is refused."""

    token: str | None
    certificate: bytes
    key: bytes
    expires: float | None


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


async def run_plugin(spec: Mapping[str, Any], cluster: Mapping[str, Any], folder: Path) -> ExecCredential:
    """`folder`: where the kubeconfig is, from which a relative path goes. Raises UserError, without secrets."""
    command = str(spec.get("command") or "")
    version = str(spec.get("apiVersion") or "")
    what = f"exec {command or 'without a command'}"
    if version not in API_VERSIONS or not command:
        raise UserError(f"{what}: apiVersion {version!r}: must be one of {', '.join(API_VERSIONS)}, with a command")
    if spec.get("interactiveMode") == "Always":
        raise UserError(f"{what}: it wants to ask somebody, and nobody is there")
    if "/" in command:
        command = os.path.normpath(folder / command)
    arguments = [str(argument) for argument in spec.get("args") or ()]
    output = await _run([command, *arguments], _environment(spec, version, cluster), what, spec.get("installHint"))
    return _read(output, version, what)


def _environment(spec: Mapping[str, Any], version: str, cluster: Mapping[str, Any]) -> dict[str, str]:
    asked: dict[str, Any] = {"interactive": False}
    if spec.get("provideClusterInfo"):
        asked["cluster"] = _cluster_info(cluster)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": asked}
    added = {str(each["name"]): str(each["value"]) for each in spec.get("env") or ()}
    return {**os.environ, **added, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}


def _cluster_info(cluster: Mapping[str, Any]) -> dict[str, Any]:
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    info = {name: cluster[name] for name in names if cluster.get(name)}
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == EXTENSION:
            info["config"] = extension.get("extension")
    return info


async def _run(argv: list[str], environment: dict[str, str], what: str, hint: object) -> bytes:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,  # so that it can be ended together with what it has started
        )
    except OSError as cause:
        told = f"; {one_line(str(hint))}" if hint else ""
        raise UserError(f"{what}: cannot be run: {cause.strerror}{told}") from cause
    assert process.stdout is not None and process.stderr is not None
    try:
        output, complaint = await asyncio.gather(_drain(process.stdout), _drain(process.stderr))
        code = await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_PATIENCE):
                await process.wait()
        raise
    if code != 0:
        said = one_line(complaint.decode(errors="replace"))[:MOST_COMPLAINT]
        raise UserError(f"{what}: ended with exit code {code}{f': {said}' if said else ''}")
    return output


async def _drain(stream: asyncio.StreamReader) -> bytes:
    """To its end, so that the writer is not held up; more than there may be is left out."""
    kept = bytearray()
    while part := await stream.read(1 << 16):
        kept += part[: MOST_OUTPUT - len(kept)]
    return bytes(kept)


def _read(output: bytes, version: str, what: str) -> ExecCredential:
    try:
        answer = msgspec.json.decode(output, type=_Answer)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise UserError(f"{what}: its answer is no ExecCredential") from None  # the cause may quote it
    if answer.kind != "ExecCredential" or answer.api_version != version or answer.status is None:
        raise UserError(f"{what}: its answer is no ExecCredential of {version} with a status")
    status = answer.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise UserError(f"{what}: it gives a certificate or a key, and not both")
    if not (status.token or status.client_certificate_data):
        raise UserError(f"{what}: it gives neither a token nor a certificate")
    until = status.expiration_timestamp
    return ExecCredential(
        token=status.token or None,
        certificate=status.client_certificate_data.encode(),
        key=status.client_key_data.encode(),
        expires=None if until is None else (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp(),
    )
