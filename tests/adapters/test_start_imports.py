"""A daemon's start does not import modules that only later work needs."""

import subprocess
import sys

import pytest

_FIRST_MESSAGE = """
import pathlib
import trio
from capd.actors.registry.catalog_vectors import CatalogVectors, NotReadyError
from capd.core.routing.gates import PUBLISHED

async def route():
    try:
        await CatalogVectors(None, pathlib.Path("/none"), PUBLISHED).compared(["a message"])
    except NotReadyError:
        return

trio.run(route)
"""
"""The vectors are not loaded yet. numpy is imported by the thread that loads them; on the event
loop, the import would stop all calls for 60 ms."""


@pytest.mark.parametrize(
    ("code", "unneeded"),
    [
        (
            "import capd.adapters.parsing.process",
            {"capd.adapters.configuration", "numpy", "structlog", "trio"},
        ),
        (
            "from capd import __main__ as m; m._imported(['daemon', 'run']); import capd.children",
            {
                "anyio",
                "_ssl",
                "asyncio",
                "capd.actors.control.connection",
                "capd.actors.gateway.http",
                "capd.adapters.output_schemas",
                "capd.adapters.servers.http.remote_server",
                "capd.core.definitions.flags",
                "capd.core.results.compaction",
                "capd.core.routing.deciding",
                "capd.core.routing.manner",
                "capd.core.sessions.search_reply",
                "capd.evaluation",
                "difflib",
                "mcp",
                "multiprocessing",
                "numpy",
                "pygments",
                "rich",
                "sysconfig",
                "trio._dtls",
                "typing_extensions",
                "zipfile",
            },
        ),
        ("from capd.core.lexical import Bm25, Ngrams; Bm25([]); Ngrams([])", {"numpy"}),
        (_FIRST_MESSAGE, {"numpy"}),
    ],
    ids=["the parser process", "the daemon", "an index without texts", "the first message"],
)
def test_a_start_does_without_what_only_later_work_needs(code: str, unneeded: set[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert unneeded & set(ended.stdout.split()) == set()


def test_trio_imports_tls_when_it_is_asked_for() -> None:
    code = (
        "from capd import __main__; __main__._imported(['daemon', 'run']); import trio; "
        "print(trio.SSLStream.__name__, trio.NeedHandshakeError.__name__, "
        "trio.open_ssl_over_tcp_stream.__name__, hasattr(trio, 'NoSuchName'))"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )

    assert ended.stdout.split() == [
        "SSLStream",
        "NeedHandshakeError",
        "open_ssl_over_tcp_stream",
        "False",
    ]
