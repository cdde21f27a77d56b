"""Message types are plain data: a client that only speaks the protocol needs neither NumPy nor the engine."""

import subprocess
import sys

WORDS = """
import importlib, pkgutil, sys
import shared.messages as messages
for module in pkgutil.walk_packages(messages.__path__, "shared.messages."):
    importlib.import_module(module.name)
print(*(name for name in sys.modules if name == "numpy" or name.startswith("shared.framework")))
"""


def test_messages_need_neither_numpy_nor_the_engine() -> None:
    done = subprocess.run([sys.executable, "-c", WORDS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
