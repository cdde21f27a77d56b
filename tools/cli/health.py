"""flotilla health: asks a service whether it is ready, as a health check of its container."""

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
from tools.cli.numbers import at_least

EXAMPLES = """\
examples:
  flotilla health                            the service that FLOTILLA_HTTP_HOST and FLOTILLA_HTTP_PORT are set for
  flotilla health --port 8080 --live         whether it turns at all, ready or not
  flotilla health https://10.0.0.7:8080      of another machine

Exit code 0: it is; 1: it is not, or does not answer in time; 2: it is not known whom to ask.
"""
READY, LIVE = "/readyz", "/livez"
DEFAULT_TIMEOUT = 3
LONGEST_ANSWER = 64 << 10
LONGEST_LINE = 500
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Who listens on all addresses is asked on this machine's own."""
STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})")


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "health",
        help="say whether a service is ready",
        description="Asks a service and prints its answer in a line: for health checks of containers.",
        epilog=EXAMPLES,
    )
    whom = command.add_mutually_exclusive_group()
    whom.add_argument("url", metavar="URL", nargs="?", help="http://HOST:PORT; with a path, this one is asked")
    whom.add_argument("--port", metavar="PORT", help="on this machine (default: what is set)")
    command.add_argument("--live", action="store_true", help=f"ask {LIVE} instead of {READY}")
    command.add_argument(
        "--timeout", type=at_least(1), default=DEFAULT_TIMEOUT, metavar="SECONDS", help=f"default {DEFAULT_TIMEOUT}"
    )
    command.add_argument(SETTINGS_FLAG, dest="settings", metavar="FILE", help="settings that say where it answers")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    whom = whom_to_ask(options)
    try:
        status, body = ask(whom, options.timeout)
    except (OSError, ValueError) as error:
        why = (
            "does not answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        )
        print(f"{_address(whom)}: {why}")
        return 1
    answer = "; ".join(line for line in body.splitlines() if line)[:LONGEST_LINE]
    print(answer if status == 200 else f"not {'live' if options.live else 'ready'} ({status}): {answer}")
    return 0 if status == 200 else 1


class Whom(NamedTuple):
    host: str
    port: int
    path: str
    tls: bool


def whom_to_ask(options: argparse.Namespace) -> Whom:
    path = LIVE if options.live else READY
    if options.url is not None:
        try:
            parts = urlsplit(values.url("http", "https")(options.url))
        except ValueError as error:
            raise UserError(f"URL: {error}, not {values.masked(options.url)!r}") from None
        tls = parts.scheme == "https"
        return Whom(parts.hostname or "", parts.port or (443 if tls else 80), parts.path.rstrip("/") or path, tls)
    settings = settings_from(os.environ, {"settings": options.settings})
    if options.port is not None:
        try:
            port = values.whole_number(1, values.HIGHEST_PORT)(options.port)
        except ValueError as error:
            raise UserError(f"--port: {error}, not {options.port!r}") from None
        return Whom("127.0.0.1", port, path, serves_tls(settings))
    if settings.http_port == 0:
        raise UserError(
            "it is not known where the service answers: say --port PORT, or set FLOTILLA_HTTP_PORT for both"
        )
    host = EVERYWHERE.get(settings.http_host, settings.http_host)
    return Whom(host, settings.http_port, path, serves_tls(settings))


def ask(whom: Whom, patience: float) -> tuple[int, str]:
    """Status and text of the answer to a GET; OSError where there is none in time, ValueError where it is no HTTP."""
    deadline = time.monotonic() + patience
    answer = bytearray()
    with _connected(whom, patience) as connection:
        connection.sendall(f"GET {whom.path} HTTP/1.0\r\nHost: {_address(whom)}\r\n\r\n".encode())
        while len(answer) < LONGEST_ANSWER:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            connection.settimeout(left)
            chunk = connection.recv(LONGEST_ANSWER)
            if not chunk:
                break
            answer += chunk
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    status = STATUS_LINE.match(head)
    if status is None:
        port = f"https://{_address(whom)}"
        raise ValueError("does not answer in HTTP" + ("" if whom.tls else f"; it may speak TLS: {port}"))
    return int(status[1]), body.decode(errors="replace")


def _connected(whom: Whom, patience: float) -> socket.socket:
    """The certificate is not verified, as with a kubelet's probes: nothing secret is sent."""
    plain = socket.create_connection((whom.host, whom.port), patience)
    if not whom.tls:
        return plain
    import ssl  # it takes long to be loaded, and on loopback it is not needed

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return context.wrap_socket(plain, server_hostname=whom.host)
    except BaseException:
        plain.close()
        raise


def _address(whom: Whom) -> str:
    return f"{f'[{whom.host}]' if ':' in whom.host else whom.host}:{whom.port}"
