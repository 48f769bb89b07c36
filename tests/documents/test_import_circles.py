"""No module imports, over others, itself.

import-linter holds the order of the packages; within a package nothing else does. Imports for the
type checker alone and those in functions count as well: a reader follows them like any other.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("daemon/capd", "clients/capd_client", "protos/capd_protos")


def modules(folder: Path) -> dict[str, Path]:
    """Return the files of a package by the name that they are imported by."""
    found: dict[str, Path] = {}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(module: str, file: Path, known: Mapping[str, Path]) -> set[str]:
    """Return which of the known modules a file names in an import, wherever that stands."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [node.module])]) if node.level else node.module
            # `from package import module` is an import of the module.
            inner = {f"{base}.{alias.name}" for alias in node.names}
            names |= (inner & known.keys()) or {base or ""}
    return (names & known.keys()) - {module}


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the modules that reach each other, a list for each circle (Tarjan)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> Iterator[str]:
        index[module] = lowest[module] = len(index)
        open_.append(module)
        for other in sorted(graph[module]):
            if other not in index:
                yield other
                lowest[module] = min(lowest[module], lowest[other])
            elif other in open_:
                lowest[module] = min(lowest[module], index[other])
        if lowest[module] == index[module]:
            at = open_.index(module)
            circle = open_[at:]
            del open_[at:]
            if len(circle) > 1:
                found.append(sorted(circle))

    for start in sorted(graph):
        # Without recursion: a chain of imports is longer than Python's stack may be.
        visits = [] if start in index else [visit(start)]
        while visits:
            below = next(visits[-1], None)
            if below is None:
                visits.pop()
            else:
                visits.append(visit(below))
    return sorted(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_has_an_import_circle(package: str) -> None:
    known = modules(ROOT / package)

    found = circles({name: imported(name, file, known) for name, file in known.items()})

    assert found == []


def test_a_circle_is_found_and_a_chain_is_none() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str](), "f": {"a"}}

    assert circles(graph) == [["a", "b", "c"]]


def test_every_way_to_import_is_seen(tmp_path: Path) -> None:
    known = {f"p.{name}": tmp_path / f"{name}.py" for name in "abcdef"}
    file = tmp_path / "a.py"
    file.write_text(
        "import p.b\nfrom p import c\nfrom p.d import x\n"
        "def f():\n    from . import e\n"
        "if TYPE_CHECKING:\n    from .f import y\n"
    )

    found = imported("p.a", file, known)

    assert found == {"p.b", "p.c", "p.d", "p.e", "p.f"}
