"""Dataclasses whose methods are compiled when they are first called.

`@dataclass` writes the source text of up to six methods for each class and compiles it. For the 280
dataclasses of a daemon that is a third of the time that its imports take, and most of these classes
have no instance before the first call is answered. `install` puts `dataclass` of this module in the
place of the standard one. Only classes of the package `capd` get it. Classes of other packages,
classes that extend a dataclass, and classes with options that capd does not use get the standard
decorator.

The resulting class behaves the same with either decorator: the standard one still makes its fields
and slots, and `tests/test_lazy_dataclasses.py` compares parameters, methods and fields of the
daemon's dataclasses. Only introspection shows differences. Before the first call
`inspect.signature` sees `(*args, **kwargs)`, and afterwards no annotations. A class without a
docstring stays without one, and `__dataclass_params__` says that it has no `init`, `repr` and `eq`.
"""

import dataclasses
import reprlib
from collections.abc import Callable
from typing import Any, NoReturn, cast

_OPTIONS = {"frozen", "slots", "eq", "kw_only"}
_STANDARD = dataclasses.dataclass


def install() -> None:
    """Make `from dataclasses import dataclass` import the decorator of this module."""
    dataclasses.dataclass = dataclass


def dataclass(cls: type | None = None, /, **options: bool) -> Any:
    """Do what `dataclasses.dataclass` does, but compile methods only when they are called."""
    if cls is None:
        return lambda cls: dataclass(cls, **options)
    is_ours = cls.__module__.partition(".")[0] == "capd"
    is_derived = dataclasses.is_dataclass(cls)
    if not is_ours or is_derived or not options.keys() <= _OPTIONS:
        return _STANDARD(cls, **options)
    return _lazy(cls, **options)


def _lazy(
    cls: type,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    kw_only: bool = False,
) -> type:
    own = vars(cls)
    has_init, has_repr, has_eq = ("__init__" in own, "__repr__" in own, "__eq__" in own)
    # A class that defines __eq__ alone has a __hash__ of None, which Python has put there.
    has_hash = "__hash__" in own and not (own["__hash__"] is None and has_eq)
    doc = cls.__doc__
    # For a class without a docstring, the standard decorator makes one from the signature, which
    # takes half of its time.
    cls.__doc__ = doc or cls.__name__
    made: Any = _STANDARD(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    made.__doc__ = doc
    made.__dataclass_params__.frozen = frozen
    if not has_init:
        _set_late(made, "__init__", _init_source)
    if not has_repr:
        made.__repr__ = _repr
    if frozen:
        made.__setattr__, made.__delattr__ = _refuse_assignment, _refuse_deletion
        if slots:
            # Without these two methods, copying and unpickling assign attributes, which is refused.
            made.__getstate__, made.__setstate__ = _state, _set_state
    if eq and not has_eq:
        _set_late(made, "__eq__", _eq_source)
    if eq and not has_hash:
        if frozen:
            _set_late(made, "__hash__", _hash_source)
        else:
            made.__hash__ = None
    return cast("type", made)


def _set_late(cls: type, name: str, source_of: "Callable[[type, dict[str, Any]], str]") -> None:
    """Give `cls` a method `name` that compiles the real one, replaces itself by it, and calls it.

    `source_of` returns the source of the real method.
    """

    def compile_and_call(*args: Any, **kwargs: Any) -> Any:
        # With underscores, so that no field has the same name.
        names: dict[str, Any] = {"_set_": object.__setattr__}
        exec(source_of(cls, names), names)  # noqa: S102 - of names that a class statement has
        method = names[name]
        method.__qualname__, method.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
        setattr(cls, name, method)
        return method(*args, **kwargs)

    compile_and_call.__name__ = name
    setattr(cls, name, compile_and_call)


def _init_source(cls: type, names: dict[str, Any]) -> str:
    """Return the source of `__init__`; the values that it refers to are put into `names`."""
    fields = dataclasses.fields(cls)
    is_frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    positional, by_name, lines = ["self"], list[str](), list[str]()
    for field in fields:
        name, value = field.name, field.name
        default = f"_default_{name}_"
        has_default = True
        if field.default is not dataclasses.MISSING:
            names[default] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            names[default] = field.default_factory
            value = (
                f"{default}() if {name} is {default} else {name}" if field.init else default + "()"
            )
        else:
            has_default = False
        if field.init:
            parameter = f"{name}={default}" if has_default else name
            (by_name if field.kw_only else positional).append(parameter)
        elif field.default_factory is dataclasses.MISSING:
            # The default is the class's attribute, except with slots.
            if not has_default or not _has_slots(cls):
                continue
            value = default
        lines.append(f'_set_(self, "{name}", {value})' if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    if by_name:
        positional.append("*")
    return f"def __init__({', '.join(positional + by_name)}):\n " + "\n ".join(lines or ["pass"])


def _has_slots(cls: type) -> bool:
    return "__slots__" in vars(cls)


def _eq_source(cls: type, names: dict[str, Any]) -> str:
    del names
    return (
        "def __eq__(self, other):\n"
        " if other.__class__ is not self.__class__: return NotImplemented\n"
        f" return {_tuple_of(cls, 'self')} == {_tuple_of(cls, 'other')}"
    )


def _hash_source(cls: type, names: dict[str, Any]) -> str:
    del names
    return f"def __hash__(self): return hash({_tuple_of(cls, 'self', is_hash=True)})"


def _tuple_of(cls: type, whose: str, *, is_hash: bool = False) -> str:
    counting = [
        field.name
        for field in dataclasses.fields(cls)
        if (field.hash if is_hash and field.hash is not None else field.compare)
    ]
    return "(" + "".join(f"{whose}.{name}," for name in counting) + ")"


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    parts = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(parts)})"


def _refuse_assignment(self: object, name: str, value: object) -> NoReturn:
    del self, value
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: object, name: str) -> NoReturn:
    del self
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
