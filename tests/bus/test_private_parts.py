"""nats-py is pinned exactly, because its client's private parts are used: these."""

import ast
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from shared.bus import client

ROOT = Path(__file__).parents[2]
USED = {
    "Client": {
        "_connect_to_server",
        "_current_server",
        "_flush_queue",
        "_flusher_task",
        "_parse_header_lines",
        "_pending",
        "_pending_data_size",
        "_ping_interval_task",
        "_process_connect_init",
        "_process_err",
        "_process_headers",
        "_process_info",
        "_process_op_err",
        "_reading_task",
        "_send_ping",
        "_server_pool",
        "_status",
        "_transport",
    },
    "TcpTransport": {"_io_writer"},
}
OURS = {"_insists", "_tls", "_forget_servers_but", "_will_write", "_write"}


def test_the_private_names_of_nats_py_that_we_use_exist() -> None:
    """A name that is not in the library's code any more would be set or overridden in vain."""
    source = inspect.getsource(client)
    names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    names |= {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.AsyncFunctionDef)}
    private = {name for name in names if re.match(r"_[a-z]", name)} - OURS
    assert private == set[str]().union(*USED.values())
    for owner in (Client, TcpTransport):
        text = inspect.getsource(owner)
        assert {name for name in USED[owner.__name__] if not re.search(rf"\b{name}\b", text)} == set()


def test_nats_py_is_pinned_exactly() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (ours,) = (each for each in dependencies if each.startswith("nats-py"))
    assert ours == f"nats-py=={version('nats-py')}"
