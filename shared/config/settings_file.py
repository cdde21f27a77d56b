"""Read a settings file, YAML or JSON: one map, from names of settings to values.

Paths start from the folder of the file. It should name the files of secrets (`token_file`); it may hold secrets where
not everybody can read it.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from stat import S_IMODE, S_IROTH

from shared.config import values
from shared.config.document import DocumentFault, JsonMap, parse_document
from shared.config.problems import shown
from shared.config.sources import SOURCES, Layer, Source, SourceKind

SCHEDULER_FIELDS = frozenset({"apiVersion", "kind", "profiles"})
PLAIN = {source.field: source for source in SOURCES}
NAMED = {source.file_field: source for source in SOURCES if source.secret}


def read_settings_file(path: str, origin: str) -> Layer:
    """The values, and a line for each thing that is wrong. `origin`: the flag or variable that names the file."""
    layer = Layer(SourceKind.FILE)
    try:
        text = Path(path).read_bytes()
        mode = S_IMODE(Path(path).stat().st_mode)
        document = parse_document(text)
    except OSError as error:
        layer.refuse(origin, f"takes a file that can be read ({error.strerror}), not {path!r}")
        return layer
    except DocumentFault as fault:
        layer.refuse(path, str(fault))
        return layer
    layer.problems += [f"{path}: {line}" for line in document.repeated]
    if isinstance(document.value, JsonMap):
        layer.problems += [f"{path}: {key}: is given twice" for key in document.value.repeated]
    if isinstance(document.value, dict):
        _File(path, mode, layer).read(document.value)
    elif document.value is not None:
        layer.refuse(path, f"must be a map of settings, like `round_size: 256`, not {shown(document.value)}")
    return layer


class _File:
    def __init__(self, path: str, mode: int, layer: Layer) -> None:
        self._path = path
        self._mode = mode
        self._layer = layer

    def read(self, given: Mapping[str, object]) -> None:
        if given.keys() & SCHEDULER_FIELDS:
            self._layer.refuse(self._path, "is a scheduler configuration, which --config takes, not settings")
            return
        set_here = {key: value for key, value in given.items() if value not in (None, "")}
        for key in given:
            source = PLAIN.get(key) or NAMED.get(key)
            if source is None:
                self._layer.refuse(self._origin(key), _unknown(key))
            elif key in NAMED and source.field in set_here and key in set_here:
                self._layer.refuse(self._origin(key), f"cannot be combined with {source.field}")
            elif key in set_here:
                self._read(key, set_here[key], source)

    def _read(self, key: str, value: object, source: Source) -> None:
        text, origin = self._text(key, value, source), self._origin(key)
        if text is None:
            return
        if key in NAMED:
            text = self._layer.secret(self._beside(text), origin)
        elif source.secret and self._mode & S_IROTH and (source.field == "token" or values.holds_password(text)):
            why = f"holds a secret, and everybody may read the file (mode {self._mode:04o})"
            self._layer.refuse(origin, f"{why}; remove that permission (chmod o-r), or set {source.file_field}")
            return
        if text:
            self._layer.take(source, self._beside(text) if source.read is values.file else text, origin)

    def _text(self, key: str, value: object, source: Source) -> str | None:
        """The value as a variable would have it; None where its type is wrong."""
        if isinstance(value, str):
            return value
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and source.is_number and key == source.field:
            return str(value)
        what = "a number" if source.is_number else "a string, in quotes if it looks like something else"
        self._layer.refuse(self._origin(key), f"takes {what}, not {'***' if source.secret else shown(value)}")
        return None

    def _beside(self, path: str) -> str:
        return str(Path(self._path).parent / path)

    def _origin(self, key: str) -> str:
        return f"{self._path}: {key}"


def _unknown(key: str) -> str:
    """With what was meant: the setting of this flag, or one with a similar name."""
    known = [*PLAIN, *NAMED]
    meant = [source.field for source in SOURCES if source.flag == f"--{key}"]
    meant += difflib.get_close_matches(key.replace("-", "_"), known, n=1)
    hint = f" (did you mean {meant[0]}?)" if meant else ""
    return f"unknown setting{hint}; allowed are {', '.join(sorted(known))}"
