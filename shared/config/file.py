"""The scheduler's configuration file, as plain data."""

from pathlib import Path

import msgspec

from shared.errors import InvalidConfig


def read_config(path: str | None) -> object | None:
    """What the YAML or JSON file says, None where none is named; InvalidConfig names the file and what is wrong."""
    if path is None:
        return None
    try:
        read: object = msgspec.yaml.decode(Path(path).read_bytes())
    except OSError as cause:
        raise InvalidConfig(path, f"cannot be read: {cause.strerror}") from cause
    except msgspec.DecodeError as cause:
        raise InvalidConfig(path, f"is not YAML: {' '.join(str(cause).split())}") from cause
    return read
