"""A file with settings, in YAML or JSON: one map, from names of settings to values.

Paths in it start from the folder that it is in. What is secret is better named than written there (`token_file`); it
may be written where not everybody can read the file.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from stat import S_IMODE, S_IROTH

from shared.config import values
from shared.config.document import DocumentFault, JsonMap, parse_document
from shared.config.problems import shown
from shared.config.source import Kind, Layer, Source

SCHEDULER_FIELDS = frozenset({"apiVersion", "kind", "profiles"})


def read_settings_file(path: str, origin: str, sources: Sequence[Source]) -> Layer:
    """What it gives, and a line for each thing that is wrong. `origin`: the flag or variable that names the file."""
    layer = Layer(Kind.FILE)
    try:
        text = Path(path).read_bytes()
        mode = S_IMODE(Path(path).stat().st_mode)
    except OSError as error:
        layer.refuse(origin, f"takes a file that can be read ({error.strerror}), not {path!r}")
        return layer
    try:
        document = parse_document(text)
    except DocumentFault as fault:
        layer.refuse(path, str(fault))
        return layer
    layer.problems += [f"{path}: {line}" for line in document.repeated]
    if isinstance(document.value, JsonMap):
        layer.problems += [f"{path}: {key}: stands there twice" for key in document.value.repeated]
    if isinstance(document.value, dict):
        _File(path, mode, layer, sources).read(document.value)
    elif document.value is not None:
        layer.refuse(path, f"must be a map of settings, like `round_size: 256`, not {shown(document.value)}")
    return layer


class _File:
    """One file, while its map is gone through."""

    def __init__(self, path: str, mode: int, layer: Layer, sources: Sequence[Source]) -> None:
        self._path = path
        self._mode = mode
        self._layer = layer
        self._plain = {source.field: source for source in sources}
        self._named = {source.file_field: source for source in sources if source.secret}

    def read(self, given: Mapping[str, object]) -> None:
        if given.keys() & SCHEDULER_FIELDS:
            self._layer.refuse(self._path, "is a scheduler configuration, which --config takes, and no settings")
            return
        set_here = {key: value for key, value in given.items() if value not in (None, "")}
        for key in given:
            source = self._plain.get(key) or self._named.get(key)
            if source is None:
                self._layer.refuse(self._origin(key), self._unknown(key))
            elif key in self._named and source.field in set_here and key in set_here:
                self._layer.refuse(self._origin(key), f"stands beside {source.field}; only one of them may")
            elif key in set_here:
                self._read(key, set_here[key], source)

    def _read(self, key: str, value: object, source: Source) -> None:
        text = self._text(key, value, source)
        if text is None:
            return
        if key in self._named:
            text = self._layer.secret(self._beside(text), self._origin(key))
        elif source.secret and self._mode & S_IROTH and (source.field == "token" or values.holds_password(text)):
            why = f"holds a secret, and everybody may read the file (mode {self._mode:04o})"
            self._layer.refuse(self._origin(key), f"{why}; take that away (chmod o-r), or say {source.file_field}")
            return
        if text:
            self._layer.take(source, self._beside(text) if source.read is values.file else text, self._origin(key))

    def _unknown(self, key: str) -> str:
        """With what was meant: the setting of this flag, or one whose name is near."""
        known = [*self._plain, *self._named]
        meant = [source.field for source in self._plain.values() if source.flag == f"--{key}"]
        meant += difflib.get_close_matches(key.replace("-", "_"), known, n=1)
        hint = f" (did you mean {meant[0]}?)" if meant else ""
        return f"unknown setting{hint}; allowed are {', '.join(sorted(known))}"

    def _text(self, key: str, value: object, source: Source) -> str | None:
        """As a variable would have it; none where a value of this type can be no setting."""
        if isinstance(value, str):
            return value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and source.is_number and key == source.field:
            return str(value)
        what = "a number" if source.is_number else "a text, in quotes if it looks like something else"
        self._layer.refuse(self._origin(key), f"takes {what}, not {'***' if source.secret else shown(value)}")
        return None

    def _beside(self, path: str) -> str:
        return str(Path(self._path).parent / path)

    def _origin(self, key: str) -> str:
        return f"{self._path}: {key}"
