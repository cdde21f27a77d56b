"""Credentials from an exec plugin: the `exec` of a user in a kubeconfig.

The program gets no standard input, because there is no terminal, and is killed at its deadline.
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
MAX_OUTPUT = 1 << 20
"""Bytes of output; certificates are a few thousand."""
MAX_ERROR = 300
"""Characters of a failed plugin's standard error."""
KILL_PATIENCE = 5.0
"""Seconds for a killed program: a child of it may hold its output open, which hides the end."""
EXTENSION = "client.authentication.k8s.io/exec"
"""The cluster extension that is passed to the plugin."""


@dataclass(frozen=True, slots=True)
class ExecCredential:
    """`expires`: Unix time; None: valid until refused."""

    token: str | None
    certificate: bytes
    key: bytes
    expires: float | None


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _Credential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


async def run_plugin(spec: Mapping[str, Any], cluster: Mapping[str, Any], folder: Path) -> ExecCredential:
    """`folder`: of the kubeconfig, where relative paths start. Raises UserError, without secrets."""
    command = str(spec.get("command") or "")
    version = str(spec.get("apiVersion") or "")
    what = f"exec {command or 'without a command'}"
    if version not in API_VERSIONS or not command:
        raise UserError(f"{what}: apiVersion {version!r}: must be one of {', '.join(API_VERSIONS)}, with a command")
    if spec.get("interactiveMode") == "Always":
        raise UserError(f"{what}: interactiveMode Always is not supported: there is no terminal")
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
            start_new_session=True,  # a process group, so that its children can be killed too
        )
    except OSError as cause:
        advice = f"; {one_line(str(hint))}" if hint else ""
        raise UserError(f"{what}: cannot be run: {cause.strerror}{advice}") from cause
    assert process.stdout is not None and process.stderr is not None
    try:
        output, error_output = await asyncio.gather(_drain(process.stdout), _drain(process.stderr))
        code = await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_PATIENCE):
                await process.wait()
        raise
    if code != 0:
        said = one_line(error_output.decode(errors="replace"))[:MAX_ERROR]
        raise UserError(f"{what}: ended with exit code {code}{f': {said}' if said else ''}")
    return output


async def _drain(stream: asyncio.StreamReader) -> bytes:
    """Read to the end, so that the writer does not block; drop what is beyond the limit."""
    kept = bytearray()
    while part := await stream.read(1 << 16):
        kept += part[: MAX_OUTPUT - len(kept)]
    return bytes(kept)


def _read(output: bytes, version: str, what: str) -> ExecCredential:
    try:
        answer = msgspec.json.decode(output, type=_Credential)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise UserError(f"{what}: its output is not an ExecCredential") from None  # the cause may quote it
    if answer.kind != "ExecCredential" or answer.api_version != version or answer.status is None:
        raise UserError(f"{what}: its output is not an ExecCredential of {version} with a status")
    status = answer.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise UserError(f"{what}: it returned only one of certificate and key")
    if not (status.token or status.client_certificate_data):
        raise UserError(f"{what}: it returned neither a token nor a certificate")
    until = status.expiration_timestamp
    return ExecCredential(
        token=status.token or None,
        certificate=status.client_certificate_data.encode(),
        key=status.client_key_data.encode(),
        expires=None if until is None else (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp(),
    )
