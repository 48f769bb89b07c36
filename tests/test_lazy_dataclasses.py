"""Lazily compiled dataclasses behave like the standard ones."""

import copy
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from capd import lazy_dataclasses

_DESCRIBED = """
import dataclasses, importlib, inspect, json, pkgutil, sys

if sys.argv[1] == "lazy":
    from capd import lazy_dataclasses
    lazy_dataclasses.install()
import capd

def described(cls):
    methods = {}
    for name in ("__init__", "__eq__", "__hash__", "__repr__", "__setattr__", "__getstate__"):
        method = vars(cls).get(name, "inherited")
        if getattr(method, "__name__", "") == name and "compile_and_call" in str(method.__code__):
            # Any call has it compiled, also one that fails.
            try:
                method()
            except (TypeError, AttributeError):
                pass
            method = vars(cls)[name]
        methods[name] = method if method in (None, "inherited") else "own"
    parameters = [
        [each.name, each.kind, each.default is not each.empty]
        for each in inspect.signature(cls.__init__).parameters.values()
    ]
    fields = [[each.name, each.init, each.repr, each.compare] for each in dataclasses.fields(cls)]
    slots = list(vars(cls).get("__slots__", ["none"]))
    frozen = cls.__dataclass_params__.frozen
    return [parameters, methods, fields, slots, list(cls.__match_args__), frozen]

found = {}
for module in pkgutil.walk_packages(capd.__path__, "capd."):
    if module.name == "capd.__main__" or module.name.startswith("capd.adapters.platform."):
        continue
    for cls in vars(importlib.import_module(module.name)).values():
        if isinstance(cls, type) and dataclasses.is_dataclass(cls):
            if cls.__module__.split(".")[0] == "capd":
                found[f"{cls.__module__}.{cls.__qualname__}"] = described(cls)
print(json.dumps(found))
"""


def _described(kind: str) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-c", _DESCRIBED, kind], capture_output=True, text=True, check=True
    )
    return dict(json.loads(ended.stdout))


def test_every_dataclass_of_capd_is_the_same_with_either_decorator() -> None:
    lazy = _described("lazy")

    standard = _described("standard")
    assert len(standard) > 250
    assert {name for name in standard if lazy.get(name) != standard[name]} == set()
    assert lazy.keys() == standard.keys()


def _classes(dataclass: Any) -> list[Any]:
    """Return classes with each of the things that a dataclass of capd may have."""

    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2
        others: list[int] = dataclasses.field(default_factory=list)
        hidden: int = dataclasses.field(default=0, repr=False, compare=False)
        named: str = dataclasses.field(default="", kw_only=True)

    @dataclass(frozen=True, slots=True)
    class Point3(Point):
        z: int = 3

    @dataclass(slots=True)
    class Counted:
        words: list[str]
        count: int = dataclasses.field(init=False)
        seen: set[str] = dataclasses.field(default_factory=set, init=False)
        most: int = dataclasses.field(default=9, init=False)

        def __post_init__(self) -> None:
            self.count = len(self.words)

    @dataclass(eq=False)
    class Identity:
        name: str = ""
        most: int = dataclasses.field(default=9, init=False)

    @dataclass(frozen=True)
    class Empty:
        pass

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Own:
        name: str

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "mine"

    return [Point, Point3, Counted, Identity, Empty, Own]


def _told(action: Callable[[], Any]) -> str:
    """Return what an action gives: the text of a value, or the type and text of an error."""
    try:
        return f"{action()!r}"
    except Exception as error:  # noqa: BLE001 - any is compared
        return f"{type(error).__name__}: {error}"


def _assigned(value: Any, name: str) -> Any:
    setattr(value, name, 5)
    return value


def _deleted(value: Any, name: str) -> Any:
    delattr(value, name)
    return value


def _within_itself(value: Any) -> Any:
    value.words.append(value)
    return value


def _hash_alike(one: Any, other: Any) -> bool:
    # Both are alive: otherwise they may have one address, and by that one hash.
    return hash(one) == hash(other)


_ACTIONS: dict[str, Callable[[Any, Any, Any, Any, Any, Any], Any]] = {
    "defaults": lambda point, *_: point(1),
    "by name": lambda point, *_: point(1, named="n", y=4, hidden=3),
    "a default of its own each time": lambda point, *_: point(1).others is point(1).others,
    "a missing argument": lambda point, *_: point(),
    "an unknown argument": lambda point, *_: point(1, w=2),
    "by position what is by name only": lambda point, *_: point(1, 2, [], 0, "n"),
    "equal": lambda point, *_: (point(1) == point(1), point(1) == point(1, hidden=4)),
    "unequal": lambda point, *_: (point(1) == point(2), point(1) != point(2), point(1) == 1),
    "a class below is another class": lambda point, below, *_: point(1) == below(1),
    "a class below": lambda _, below, *__: (below(1, z=4), below(1) == below(1, z=4)),
    "hashed": lambda point, *_: _hash_alike(point(1, 2, ()), point(1, 2, (), 9)),
    "not hashable": lambda *classes: hash(classes[2]([])),
    "hash of an identity": lambda *classes: _hash_alike(classes[3](), classes[3]()),
    "assigned": lambda point, *_: _assigned(point(1), "x"),
    "deleted": lambda point, *_: _deleted(point(1), "x"),
    "replaced": lambda point, *_: dataclasses.replace(point(1), y=7),
    "as a dictionary": lambda point, *_: dataclasses.asdict(point(1)),
    "copied": lambda point, *_: (copy.copy(point(1)), copy.deepcopy(point(1, others=[3]))),
    "not in the constructor": lambda *classes: classes[2](["a", "b"]),
    "assigned later": lambda *classes: _assigned(classes[2]([]), "count"),
    "without slots": lambda *classes: (classes[3]("n"), vars(classes[3]("n"))),
    "without fields": lambda *classes: (classes[4](), classes[4]() == classes[4]()),
    "methods of its own": lambda *classes: (
        classes[5](name="a"),
        classes[5](name="a") == 3,
        hash(classes[5](name="a")),
    ),
    "matched": lambda *classes: [each.__match_args__ for each in classes],
    "itself within": lambda *classes: _within_itself(classes[2]([])),
}


@pytest.mark.parametrize("action", _ACTIONS.values(), ids=_ACTIONS.keys())
def test_a_lazy_dataclass_does_what_the_standard_one_does(
    action: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "__name__", "capd.example")
    standard = _classes(dataclasses.dataclass)

    lazy = _classes(lazy_dataclasses.dataclass)

    for _ in range(2):
        # The second time with methods that are compiled.
        assert _told(lambda: action(*lazy)) == _told(lambda: action(*standard))


def test_a_class_of_another_package_gets_the_standard_decorator() -> None:
    class Theirs:
        pass

    Theirs.__module__ = "msgspec.example"
    made = lazy_dataclasses.dataclass(Theirs)

    assert made.__init__.__code__.co_name == "__init__"
