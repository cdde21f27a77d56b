"""The scheduler's configuration file on disk."""

from pathlib import Path
from typing import NamedTuple

from shared.errors import InvalidConfig


class ConfigSource(NamedTuple):
    """What a file holds, and its name for errors."""

    name: str
    text: bytes


def read_config(path: str | None) -> ConfigSource | None:
    """What stands in the file, None where none is named; InvalidConfig names a file that cannot be read.

    `load_config` makes a configuration of it.
    """
    if path is None:
        return None
    try:
        return ConfigSource(path, Path(path).read_bytes())
    except OSError as cause:
        raise InvalidConfig(path, f"cannot be read: {cause.strerror}") from cause
