"""flotilla health: its output and exit codes, as a container's health check uses them."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tools.cli.main import main

PATIENCE = 5.0


@contextmanager
def a_server(answer: bytes | None, family: socket.AddressFamily = socket.AF_INET) -> Iterator[tuple[int, list[bytes]]]:
    """Answer one request with these bytes, or never if None; yields the port and the request."""
    asked: list[bytes] = []
    with socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family) as listening:
        listening.settimeout(PATIENCE)
        over = threading.Event()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                asked.append(connection.recv(4096).partition(b"\r\n")[0])
                if answer is None:
                    over.wait(PATIENCE)
                else:
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1], asked
        finally:
            over.set()
            thread.join()


OK = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nok: standby, b leads\n"
UNREADY = b"HTTP/1.1 503 Service Unavailable\r\n\r\nservice: is starting\nnats: not connected yet\n"


def test_a_ready_service(capsys: pytest.CaptureFixture[str]) -> None:
    with a_server(OK) as (port, asked):
        assert main(("health", "--port", str(port))) == 0
    assert asked == [b"GET /readyz HTTP/1.0"]
    assert capsys.readouterr() == ("ok: standby, b leads\n", "")


def test_an_unready_service_says_why_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with a_server(UNREADY) as (port, asked):
        assert main(("health", f"http://localhost:{port}/", "--live")) == 1
    assert asked == [b"GET /livez HTTP/1.0"]
    assert capsys.readouterr().out == "not live (503): service: is starting; nats: not connected yet\n"


def test_a_url_may_name_the_path(capsys: pytest.CaptureFixture[str]) -> None:
    with a_server(OK) as (port, asked):
        assert main(("health", f"http://127.0.0.1:{port}/readyz/nats")) == 0
    assert asked == [b"GET /readyz/nats HTTP/1.0"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "no response in time"),
        (b"SSH-2.0\r\n\r\n", "the response is not HTTP; for TLS use https://127.0.0.1:{port}"),
    ],
)
def test_a_service_that_does_not_respond(answer: bytes | None, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with a_server(answer) as (port, _):
        assert main(("health", "--port", str(port), "--timeout", "1")) == 1
    assert capsys.readouterr().out == f"127.0.0.1:{port}: {said.format(port=port)}\n"


def test_a_service_that_is_not_running(capsys: pytest.CaptureFixture[str]) -> None:
    with a_server(OK) as (port, _):
        assert main(("health", "--port", str(port))) == 0
    assert main(("health", "--port", str(port))) == 1
    assert capsys.readouterr().out.splitlines()[1] == f"127.0.0.1:{port}: Connection refused"


@pytest.mark.parametrize(
    ("host", "family"), [("0.0.0.0", socket.AF_INET), ("127.0.0.1", socket.AF_INET), ("::", socket.AF_INET6)]
)
def test_the_address_comes_from_the_services_settings(
    host: str, family: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_server(OK, family) as (port, _):
        monkeypatch.setenv("FLOTILLA_HTTP_HOST", host)
        monkeypatch.setenv("FLOTILLA_HTTP_PORT", str(port))
        monkeypatch.setenv("FLOTILLA_HTTP_SCHEME", "http")
        assert main(("health",)) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "flotilla: unknown port of the service: use --port PORT, or set FLOTILLA_HTTP_PORT"),
        (["--port", "0"], "flotilla: --port: takes a whole number from 1 to 65535, not '0'"),
        (["ftp://u:p@h"], "flotilla: URL: takes a URL like http://HOST or https://HOST, not 'ftp://***@h'"),
    ],
)
def test_an_address_is_required(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FLOTILLA_HTTP_PORT", raising=False)
    assert main(("health", *arguments)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(complaint)


def test_health_imports_little() -> None:
    """So that it takes less than a tenth of a second, every few seconds in every container."""
    code = (
        "import sys\nfrom tools.cli.main import main\n"
        "assert main(['health', '--port', '1']) == 1\n"
        "heavy = {'asyncio', 'yaml', 'ssl', 'email', 'http', 'logging', 'multiprocessing', 'importlib.metadata'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FLOTILLA_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False, env=environment
    )
    assert done.stderr == ""
