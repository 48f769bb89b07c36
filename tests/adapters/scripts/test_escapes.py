"""Scripts that try to escape or to exceed their limits end with one error each."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capd.adapters.scripts.process import MOST_PRINTED_BYTES, Interpreter
from capd.adapters.scripts.steps import Damaged, Ended, Resume, Start, Stepped, Waiting
from capd.core.scripts.run import Answer
from capd.core.scripts.stubs import checking_stubs, prelude, tool_functions
from capd_protos.types import WireName

DEFINITION = json.dumps({"name": "get", "inputSchema": {"properties": {"n": {}}}}).encode()
FUNCTIONS = tool_functions([("web", "get", WireName("web__get"), DEFINITION)])
SECRET = "the secret of this file"

ERRORS = [
    # Files.
    "open('{file}').read()",
    "open('/proc/self/environ').read()",
    "open('/tmp/capd-escaped', 'w').write('x')",
    "from pathlib import Path\nPath('{file}').read_text()",
    "from pathlib import Path\nlist(Path('/').iterdir())",
    "from pathlib import Path\nPath('/tmp/capd-escaped').write_text('x')",
    "import os\nos.listdir('/')",
    "import os\nos.stat('{file}')",
    "import os\nos.remove('{file}')",
    "import os\nos.mkdir('/tmp/capd-escaped')",
    "import io\nio.open('{file}').read()",
    # Network.
    "import socket\nsocket.create_connection(('127.0.0.1', 1))",
    "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1')",
    "import http.client\nhttp.client.HTTPConnection('127.0.0.1')",
    "import ssl\nssl.create_default_context()",
    "import asyncio\nawait asyncio.open_connection('127.0.0.1', 1)",
    # Processes.
    "import subprocess\nsubprocess.run(['id'])",
    "import os\nos.system('id')",
    "import os\nos.fork()",
    "import os\nos.kill(1, 9)",
    "import os\nos.execv('/bin/sh', ['sh'])",
    "import signal\nsignal.alarm(1)",
    "import multiprocessing\nmultiprocessing.Process()",
    "import asyncio\nawait asyncio.create_subprocess_exec('id')",
    "import threading\nthreading.Thread()",
    # Imports.
    "import ctypes\nctypes.CDLL(None)",
    "import importlib\nimportlib.import_module('os')",
    "__import__('subprocess')",
    "import pydantic_monty",
    "import capd",
    "import sys\nsys.modules['os']",
    "import builtins\nbuiltins.open",
    "exec('import socket')",
    "eval('open(\"{file}\").read()')",
    "compile('1', 'x', 'exec')",
    "import marshal\nmarshal.loads(b'')",
    "import pickle\npickle.loads(b'cos\\nsystem\\n(S\"id\"\\ntR.')",
    # Introspection and frames.
    "().__class__.__bases__[0].__subclasses__()",
    "''.__class__.__mro__[1].__subclasses__()",
    "(lambda: 0).__globals__",
    "(lambda: 0).__code__.co_consts",
    "web.get.__func__.__globals__['__builtins__']",
    "type('X', (object,), {{}})().__init__.__globals__",
    "import inspect\ninspect.currentframe()",
    "import sys\nsys._getframe()",
    "(x for x in ()).gi_frame.f_globals",
    "async def f(): pass\nf().cr_frame.f_globals",
    "try:\n    1/0\nexcept Exception as e:\n    e.__traceback__.tb_frame.f_globals",
    "'{{0.__class__.__init__.__globals__}}'.format(web)",
    "'{{0.get.__globals__}}'.format(web)",
    "import gc\ngc.get_objects()",
    "dir()",
    "vars()",
    "import os\nos.environ['HOME']",
    # Numbers, memory, recursion, patterns, formats.
    "9 ** 9 ** 9",
    "x = 10 ** 4000000\nstr(x)",
    "'a' * (1 << 40)",
    "[0] * (1 << 40)",
    "x = []\nwhile True:\n    x.append('a' * 100000)",
    "b'a' * (1 << 36)",
    "def f(): return f()\nf()",
    "x = []\nfor _ in range(100000):\n    x = [x]\nx",
    "eval('(' * 100000 + ')' * 100000)",
    'f"{{1:>1000000000}}"',
    "'%1000000000d' % 1",
    "'{{:>1000000000}}'.format(1)",
    "list(range(1 << 40))",
    "sum(range(1 << 60))",
    # Endless, and floods.
    "while True: pass",
    "while True: print('x' * 1000)",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "import time\ntime.sleep(1000)",
    "import asyncio\nawait asyncio.gather(*[web.get(n=n) for n in range(100000)])",
    "await web.get(n='x' * (2 << 20))",
    "import json\njson.loads('[' * 100000)",
    "'x' * 30_000_000",
    "[[n] for n in range(300_000)]",
]
"""Each ends in an error."""

HARMLESS = [
    "import re\nre.match('(a+)+$', 'a' * 64 + 'b') is None",
    "import sys\nsys.version_info[0]",
    "'{{0}}'.format(web)[:6]",
]
"""Each ends, and says nothing of what is outside."""


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    interpreter = Interpreter()
    yield interpreter
    interpreter.close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    return file


def started(interpreter: Interpreter, code: str, *, checks_types: bool = False) -> Stepped:
    stubs = checking_stubs(FUNCTIONS)
    step = Start("a", code, b"{}", prelude(FUNCTIONS), stubs, checks_types=checks_types)
    return interpreter.run(step)


@pytest.mark.parametrize("code", ERRORS)
def test_an_attempt_to_get_out_ends_in_an_error(
    interpreter: Interpreter, secret: Path, code: str
) -> None:
    stepped = started(interpreter, code.format(file=secret))

    assert isinstance(stepped, Ended)
    assert stepped.error
    assert not stepped.value
    assert SECRET not in stepped.error
    assert len(stepped.printed) <= MOST_PRINTED_BYTES
    assert secret.read_text() == SECRET
    assert not Path("/tmp/capd-escaped").exists()
    # Whatever became of that one, the next script is run.
    after = started(interpreter, "1 + 1")
    assert isinstance(after, Ended)
    assert after.value == b"2"


@pytest.mark.parametrize("code", HARMLESS)
def test_what_is_let_through_says_nothing_of_the_outside(
    interpreter: Interpreter, secret: Path, code: str
) -> None:
    stepped = started(interpreter, code.format(file=secret))

    assert isinstance(stepped, Ended)
    assert stepped.error == ""
    assert stepped.value in {b"true", b"3", b'"<_web "'}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:0],
        lambda data: b"garbage" * (len(data) // 7),
        lambda data: data[: len(data) // 2],
        lambda data: data + data,
        lambda data: bytes(reversed(data)),
        lambda data: data[:-64] + bytes(64),
    ],
)
def test_a_snapshot_that_was_changed_is_an_error_and_nothing_else(
    interpreter: Interpreter, change: Callable[[bytes], bytes]
) -> None:
    waiting = started(interpreter, "await web.get(n=1)\n'done'")
    assert isinstance(waiting, Waiting)

    stepped = interpreter.run(
        Resume("other", change(waiting.snapshot), {waiting.calls[0].id: Answer("value", b"1")})
    )

    # A byte that no one reads may be another; nothing but the script itself comes of it.
    assert isinstance(stepped, Damaged | Ended)
    assert isinstance(stepped, Damaged) or stepped.value == b'"done"'
    assert isinstance(started(interpreter, "1"), Ended)
