"""Every key of the configuration, derived from its structs.

In a table whose keys are names, such as `[clients.NAME]`, `*` stands for them.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from capd_protos.naming import near_names

Path = tuple[str, ...]
ANY = "*"


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key of the configuration, with its type, its default and its table."""

    path: Path
    table: type[msgspec.Struct]
    """The struct that contains the key."""
    field: str
    type: Any
    default: Any

    @property
    def name(self) -> str:
        """The key as a person writes it, with its tables."""
        return ".".join("NAME" if part == ANY else part for part in self.path)


def known_keys(model: type[msgspec.Struct], above: Path = ()) -> Iterator[KnownKey]:
    """Yield every key of `model` and of its tables, in order; `above` is the path of `model`."""
    for field in msgspec.structs.fields(model):
        path = (*above, field.encode_name)
        table = table_of(field.type)
        named = table_of(_values_of(field.type))
        if table is not None:
            yield from known_keys(table, path)
        elif named is not None:
            yield from known_keys(named, (*path, ANY))
        else:
            yield KnownKey(path, model, field.name, field.type, default_of(field))


def unknown_keys(
    tables: Mapping[str, Any], model: type[msgspec.Struct], above: Path = ()
) -> Iterator[tuple[Path, str]]:
    """Yield each key of `tables` that `model` lacks, with the most similar key that it has.

    The second value is empty if none is similar. `above` is the path of `tables`.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(model)}
    for key, value in tables.items():
        path = (*above, key)
        if key not in fields:
            near = near_names(key, fields)
            yield path, near[0] if near else ""
            continue
        table = table_of(fields[key].type)
        named = table_of(_values_of(fields[key].type))
        if not isinstance(value, Mapping):
            continue
        if table is not None:
            yield from unknown_keys(value, table, path)
        elif named is not None:
            for name, inner in value.items():
                if isinstance(inner, Mapping):
                    yield from unknown_keys(inner, named, (*path, name))


def table_of(type_: Any) -> type[msgspec.Struct] | None:
    """Return the struct in `type_`, the type of a key; None if the type is no struct."""
    type_ = _bare(type_)
    return type_ if isinstance(type_, type) and issubclass(type_, msgspec.Struct) else None


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default of a key of the configuration."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _values_of(type_: Any) -> Any:
    type_ = _bare(type_)
    arguments = get_args(type_)
    return arguments[1] if get_origin(type_) is dict and len(arguments) == 2 else None  # noqa: PLR2004 - of key and value


def _bare(type_: Any) -> Any:
    """Return the type of a key without its bounds (`Annotated`) and without `None`."""
    if get_origin(type_) is Annotated:
        return _bare(get_args(type_)[0])
    if get_origin(type_) in {Union, types.UnionType}:
        inner = [each for each in get_args(type_) if each is not types.NoneType]
        return _bare(inner[0]) if len(inner) == 1 else type_
    return type_
