"""Read a settings file, YAML or JSON: one map, from names of settings to values.

Paths start from the folder of the file. It should name the files of secrets (`token_file`); it may hold secrets where
not everybody can read it.
"""

from pathlib import Path
from stat import S_IMODE, S_IROTH

from shared.config import values
from shared.config.document import DocumentFault, JsonMap, parse_document
from shared.config.problems import shown
from shared.config.setting_sources import SOURCES, Layer, Source, SourceKind
from shared.config.spelling import did_you_mean

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
    given = document.value
    layer.problems += [f"{path}: {line}" for line in document.repeated]
    if isinstance(given, JsonMap):
        layer.problems += [f"{path}: {key}: is given twice" for key in given.repeated]
    if not isinstance(given, dict):
        if given is not None:
            layer.refuse(path, f"must be a map of settings, like `round_size: 256`, not {shown(given)}")
    elif given.keys() & SCHEDULER_FIELDS:
        layer.refuse(path, "is a scheduler configuration, which --config takes, not settings")
    else:
        set_here = {key: value for key, value in given.items() if value not in (None, "")}
        for key in given:
            source = PLAIN.get(key) or NAMED.get(key)
            if source is None:
                layer.refuse(f"{path}: {key}", _unknown(key))
            elif key in NAMED and source.field in set_here and key in set_here:
                layer.refuse(f"{path}: {key}", f"cannot be combined with {source.field}")
            elif key in set_here:
                _read_setting(layer, source, key, set_here[key], path, mode)
    return layer


def _read_setting(layer: Layer, source: Source, key: str, value: object, path: str, mode: int) -> None:
    origin, folder = f"{path}: {key}", Path(path).parent
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, str) and not (is_number and source.is_number and key == source.field):
        what = "a number" if source.is_number else "a string, in quotes if it looks like something else"
        layer.refuse(origin, f"takes {what}, not {'***' if source.secret else shown(value)}")
        return
    text = str(value)
    if key in NAMED:
        text = layer.secret(str(folder / text), origin)
    elif source.secret and mode & S_IROTH and (source.field == "token" or values.holds_password(text)):
        why = f"holds a secret, and everybody may read the file (mode {mode:04o})"
        layer.refuse(origin, f"{why}; remove that permission (chmod o-r), or set {source.file_field}")
        return
    if text:
        layer.take(source, str(folder / text) if source.read is values.file else text, origin)


def _unknown(key: str) -> str:
    """With what was meant: the setting of this flag, or one with a similar name."""
    known = [*PLAIN, *NAMED]
    meant = next((source.field for source in SOURCES if source.flag == f"--{key}"), "")
    hint = f" (did you mean {meant}?)" if meant else did_you_mean(key.replace("-", "_"), known)
    return f"unknown setting{hint}; allowed are {', '.join(sorted(known))}"
