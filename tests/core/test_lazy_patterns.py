"""Patterns that are compiled when first used are the same as those compiled at once."""

import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

import capd
from capd.core.lazy_patterns import LazyPattern, lazy_pattern

_NOT_IMPORTED = ("capd.__main__", "capd.adapters.platform.")


def _patterns() -> Iterator[tuple[str, LazyPattern]]:
    for module in pkgutil.walk_packages(capd.__path__, "capd."):
        if module.name.startswith(_NOT_IMPORTED):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            for at, each in enumerate(_within(value)):
                yield f"{module.name}.{name}.{at}", each


def _within(value: object) -> Iterator[LazyPattern]:
    """Yield the patterns in the value of a module's name: itself, or those of its members."""
    if isinstance(value, LazyPattern):
        yield value
    elif isinstance(value, Mapping):
        yield from _within(tuple(value.values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from _within(each)


def test_every_pattern_of_capd_can_be_compiled() -> None:
    found = dict(_patterns())

    assert len(found) > 150
    assert {name for name, each in found.items() if not each.pattern} == set()


def test_a_lazy_pattern_does_what_the_compiled_one_does() -> None:
    source, flags = r"(?P<word>[a-z]+)-(\d+)", re.IGNORECASE
    eager = re.compile(source, flags)

    late = lazy_pattern(source, flags)

    for _ in range(2):
        # The second time with attributes that are kept.
        assert late.findall("Ab-1 c-22") == eager.findall("Ab-1 c-22")
        assert late.sub(r"\2", "Ab-1 c-22") == eager.sub(r"\2", "Ab-1 c-22")
        assert (late.pattern, late.flags, late.groups) == (source, eager.flags, eager.groups)
        assert late.groupindex == eager.groupindex
    assert lazy_pattern(rb"\s+").split(b"a  b") == [b"a", b"b"]


def test_a_start_compiles_no_pattern_of_capd() -> None:
    code = (
        "from capd import __main__; __main__._imported(['daemon', 'run']); import capd.children\n"
        "import sys; from capd.core.lazy_patterns import LazyPattern\n"
        "print(*(f'{name}.{key}' for name, module in list(sys.modules.items())"
        " if name.startswith('capd') for key, value in vars(module).items()"
        " if isinstance(value, LazyPattern) and set(vars(value)) > {'_source', '_flags'}))"
    )

    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ended.stdout.split() == []
