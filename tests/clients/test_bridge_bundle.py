"""The program that a bridge copies to the far side is valid Python 3.8."""

import ast
import io
import zipfile

import pytest

from capd_client.bridge.bundle import bundle, far_side_program

OLDEST = (3, 8)
NEWER = frozenset(
    {
        *("removeprefix", "removesuffix", "is_relative_to", "with_stem", "readlink", "hardlink_to"),
        *("to_thread", "waitstatus_to_exitcode", "pidfd_open", "cache", "pairwise", "aclosing"),
        *("slots", "kw_only", "strict", "TaskGroup", "ExceptionGroup", "StrEnum", "batched"),
        *("process_group", "bit_count", "add_note", "walk"),
    }
)
"""Names of the standard library, as attributes or keywords, that came with Python 3.9 or later."""

GENERIC = frozenset({"dict", "list", "set", "tuple", "frozenset", "type", "deque", "Callable"})
NEVER_RUN = {f"capd_client/shim/{name}.py" for name in ("starting", "login_environment", "main")}
"""They start a daemon, which no shim over there does."""


def sources() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(bundle())) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return {**members, "far_side_program": far_side_program()}


def newer_names(source: bytes) -> set[str]:
    tree = ast.parse(source)
    used = {each.attr for each in ast.walk(tree) if isinstance(each, ast.Attribute)}
    used |= {each.arg for each in ast.walk(tree) if isinstance(each, ast.keyword) and each.arg}
    return used & NEWER


def evaluated_annotations(source: bytes) -> list[str]:
    """Return annotations that Python evaluates, and that only a newer one can: `A | B`, `dict[K]`.

    Those of variables in functions are never evaluated, and those that are strings are not, either.
    """
    tree = ast.parse(source)
    if any(isinstance(each, ast.ImportFrom) and each.module == "__future__" for each in tree.body):
        return []
    found: list[ast.expr | None] = []
    local: set[ast.AST] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef):
            arguments = each.args
            named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            found += [one.annotation for one in (*named, arguments.vararg, arguments.kwarg) if one]
            found.append(each.returns)
            local |= {inner for part in each.body for inner in ast.walk(part)}
        elif isinstance(each, ast.AnnAssign) and each not in local:
            found.append(each.annotation)
    return [ast.unparse(each) for each in found if each is not None and _is_newer(each)]


def _is_newer(annotation: ast.expr) -> bool:
    return any(
        isinstance(each, ast.BinOp)
        or (isinstance(each, ast.Subscript) and ast.unparse(each.value) in GENERIC)
        for each in ast.walk(annotation)
    )


@pytest.mark.parametrize("name", sources())
def test_the_far_side_has_no_annotation_that_an_old_python_cannot_evaluate(name: str) -> None:
    assert evaluated_annotations(sources()[name]) == []


def test_annotations_that_are_evaluated_are_noticed() -> None:
    source = (
        b"class A:\n    a: A | None = None\n    def b(self, c: dict[str, int]) -> list[int]: ..."
    )

    assert evaluated_annotations(source) == ["A | None", "dict[str, int]", "list[int]"]
    assert evaluated_annotations(b"from __future__ import annotations\n" + source) == []


@pytest.mark.parametrize("name", sources())
def test_the_far_side_is_in_the_grammar_of_the_oldest_python(name: str) -> None:
    ast.parse(sources()[name], name, feature_version=OLDEST)


@pytest.mark.parametrize("name", sorted({*sources()} - NEVER_RUN))
def test_the_far_side_uses_nothing_of_a_newer_standard_library(name: str) -> None:
    assert newer_names(sources()[name]) == set()


@pytest.mark.parametrize(
    "source",
    [
        b"match 1:\n    case _:\n        pass",
        b"with (open('a') as a, open('b') as b):\n    pass",
        b"try:\n    pass\nexcept* OSError:\n    pass",
    ],
)
def test_newer_grammar_is_noticed(source: bytes) -> None:
    with pytest.raises(SyntaxError):
        ast.parse(source, feature_version=OLDEST)
