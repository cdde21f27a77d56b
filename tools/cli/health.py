"""flotilla health: check whether a service is ready, for container health checks."""

import argparse
import os
import re
import socket
import time
from typing import NamedTuple
from urllib.parse import urlsplit

from shared.config import values
from shared.config.settings import serves_tls
from shared.config.sources import SETTINGS_FLAG, settings_from
from shared.errors import UserError
from tools.cli.arguments import at_least

DESCRIPTION = "Asks a service whether it is ready and prints its response in one line."
EXAMPLES = """\
examples:
  flotilla health                            the service at FLOTILLA_HTTP_HOST and FLOTILLA_HTTP_PORT
  flotilla health --port 8080 --live         whether it is live, ready or not
  flotilla health https://10.0.0.7:8080      a service on another machine

Exit code 0: ready; 1: not ready, or no response in time; 2: no address given.
"""
READY, LIVE = "/readyz", "/livez"
DEFAULT_TIMEOUT = 3
MAX_RESPONSE_BYTES = 64 << 10
MAX_LINE = 500
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Where to reach a service that listens on all addresses."""
STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})")


def add_arguments(command: argparse.ArgumentParser) -> None:
    where = command.add_mutually_exclusive_group()
    where.add_argument("url", metavar="URL", nargs="?", help="http://HOST:PORT, or with another path to ask")
    where.add_argument("--port", metavar="PORT", help="port on this machine (default: from the settings)")
    command.add_argument("--live", action="store_true", help=f"ask {LIVE} instead of {READY}")
    timeout_help = f"default {DEFAULT_TIMEOUT}"
    command.add_argument("--timeout", type=at_least(1), default=DEFAULT_TIMEOUT, metavar="SECONDS", help=timeout_help)
    command.add_argument(SETTINGS_FLAG, dest="settings", metavar="FILE", help="settings file of the service")


def run(options: argparse.Namespace) -> int:
    target = target_of(options)
    try:
        status, body = ask(target, options.timeout)
    except (OSError, ValueError) as error:
        why = "no response in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        print(f"{_address(target)}: {why}")
        return 1
    answer = "; ".join(line for line in body.splitlines() if line)[:MAX_LINE]
    print(answer if status == 200 else f"not {'live' if options.live else 'ready'} ({status}): {answer}")
    return 0 if status == 200 else 1


class Target(NamedTuple):
    host: str
    port: int
    path: str
    tls: bool


def target_of(options: argparse.Namespace) -> Target:
    path = LIVE if options.live else READY
    if options.url is not None:
        try:
            parts = urlsplit(values.url("http", "https")(options.url))
        except ValueError as error:
            raise UserError(f"URL: {error}, not {values.masked(options.url)!r}") from None
        tls = parts.scheme == "https"
        return Target(parts.hostname or "", parts.port or (443 if tls else 80), parts.path.rstrip("/") or path, tls)
    settings = settings_from(os.environ, {"settings": options.settings})
    if options.port is not None:
        try:
            port = values.whole_number(1, values.HIGHEST_PORT)(options.port)
        except ValueError as error:
            raise UserError(f"--port: {error}, not {options.port!r}") from None
        return Target("127.0.0.1", port, path, serves_tls(settings))
    if settings.http_port == 0:
        raise UserError("unknown port of the service: use --port PORT, or set FLOTILLA_HTTP_PORT for both")
    host = LOOPBACK.get(settings.http_host, settings.http_host)
    return Target(host, settings.http_port, path, serves_tls(settings))


def ask(target: Target, patience: float) -> tuple[int, str]:
    """GET: status and body. OSError if there is no response in time, ValueError if it is not HTTP."""
    deadline = time.monotonic() + patience
    answer = bytearray()
    with _connected(target, patience) as connection:
        connection.sendall(f"GET {target.path} HTTP/1.0\r\nHost: {_address(target)}\r\n\r\n".encode())
        while len(answer) < MAX_RESPONSE_BYTES:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
            chunk = connection.recv(MAX_RESPONSE_BYTES)
            if not chunk:
                break
            answer += chunk
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    status = STATUS_LINE.match(head)
    if status is None:
        port = f"https://{_address(target)}"
        raise ValueError("the response is not HTTP" + ("" if target.tls else f"; for TLS use {port}"))
    return int(status[1]), body.decode(errors="replace")


def _connected(target: Target, patience: float) -> socket.socket:
    """The certificate is not verified, as in a kubelet's probes: nothing secret is sent."""
    plain = socket.create_connection((target.host, target.port), patience)
    if not target.tls:
        return plain
    import ssl  # slow to import, and rarely needed

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return context.wrap_socket(plain, server_hostname=target.host)
    except BaseException:
        plain.close()
        raise


def _address(target: Target) -> str:
    return f"{f'[{target.host}]' if ':' in target.host else target.host}:{target.port}"
