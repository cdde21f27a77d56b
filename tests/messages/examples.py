"""An example of every struct in which no field is at its default."""

from typing import Any, TypeVar

import msgspec
import msgspec.inspect as inspect

from shared.model.quantity import Quantity, QuantityText, parse_quantity

S = TypeVar("S", bound=msgspec.Struct)


CHOSEN = {
    ("NodeSelectorRequirement", "key"): "metadata.name",
    ("NodeSelectorRequirement", "operator"): "In",
    ("Toleration", "operator"): "Equal",
}
"""Where a struct does not take just anything."""


def example(struct: type[S]) -> S:
    made = _made(inspect.type_info(struct))
    assert isinstance(made, struct)
    return made


def _made(type_: inspect.Type) -> Any:
    match type_:
        case inspect.StructType():
            return type_.cls(**{field.name: _filled(type_.cls.__name__, field) for field in type_.fields})
        case inspect.UnionType():
            chosen = [each for each in type_.types if not isinstance(each, inspect.NoneType)]
            return _made(chosen[0])
        case inspect.ListType():
            return [_made(each) for each in _each_of(type_.item_type)]
        case inspect.VarTupleType():
            return tuple(_made(each) for each in _each_of(type_.item_type))
        case inspect.TupleType():
            return tuple(_made(each) for each in type_.item_types)
        case inspect.SetType() | inspect.FrozenSetType():
            return frozenset({_made(type_.item_type)})
        case inspect.DictType():
            return {_made(type_.key_type): _made(type_.value_type)}
        case inspect.EnumType():
            return list(type_.cls)[-1]
        case inspect.LiteralType():
            return type_.values[-1]
        case inspect.CustomType() if type_.cls is Quantity:
            return parse_quantity("1500m")
        case inspect.CustomType() if type_.cls is QuantityText:
            return QuantityText("1500m")
    return _SIMPLE[type(type_)]


_SIMPLE: dict[type[inspect.Type], object] = {
    inspect.IntType: 1 << 40,
    inspect.FloatType: 1.5,
    inspect.StrType: "text",
    inspect.BoolType: True,
    inspect.BytesType: b"bytes",
    inspect.RawType: msgspec.Raw(b"\x81\xa1a\x01"),
    inspect.AnyType: "anything",
    inspect.NoneType: None,
}


def _each_of(type_: inspect.Type) -> tuple[inspect.Type, ...]:
    """Of a union in a list, each once."""
    return type_.types if isinstance(type_, inspect.UnionType) else (type_,)


def _filled(struct: str, field: inspect.Field) -> Any:
    """What is made up, unless that is the default."""
    made = CHOSEN.get((struct, field.name)) or _made(field.type)
    return not made if isinstance(made, bool) and made == field.default else made
