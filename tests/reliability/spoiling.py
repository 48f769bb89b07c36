"""Ways to damage a file: cut, overwrite, empty, or change its content."""

import json
import random
import re
import tomllib
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import tomlkit

ROUNDS = 500
NASTY: tuple[Any, ...] = (
    *(
        "",
        "\0",
        "~nosuchuser/x",
        "../" * 40 + "etc/passwd",
        "x" * 5000,
        "\u202e",
        "\ud7ff",
        "[",
        "/",
    ),
    *(0, -1, 1, 2**53, -(2**62), 1e308, -1e308, 0.5, True, False),
    *([], [[]], {}, {"": ""}, ["x"] * 50),
)
NASTY_NAMES = ("", "\0", "~nosuchuser/x", "/", "x" * 3000, "name", "a/b")
NOT_IN_TOML: tuple[Any, ...] = (None, float("nan"), float("inf"), 2**64 - 1)


def spoiled(whole: bytes, rng: random.Random, form: str = "") -> bytes:
    """Return what is left of a file; `form` is how it is written, where its inside is known."""
    kind = rng.randrange(10 if form else 6)
    if kind == 0:
        return whole[: rng.randrange(len(whole))]
    if kind == 1:
        at, length = rng.randrange(len(whole)), rng.randrange(1, 4000)
        return whole[:at] + rng.randbytes(length) + whole[at + length :]
    if kind == 2:
        return rng.choice([b"", b"\0" * len(whole), rng.randbytes(rng.randrange(1, 20_000))])
    if kind == 3:
        at = rng.randrange(len(whole))
        return whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :]
    if kind == 4:
        at = rng.randrange(len(whole))
        return (
            whole[:at]
            + rng.choice([b"[" * 50_000, b"\xff", b"\x93" * 9000, b"\n" * 9])
            + whole[at:]
        )
    if kind == 5:
        start, end = sorted((rng.randrange(len(whole)), rng.randrange(len(whole))))
        return whole[:start] + whole[end:]
    if kind == 9 and form != "msgpack":
        return _wrong_text(whole.decode(), rng).encode()
    return _wrong_inside(whole, rng, form)


def _wrong_text(text: str, rng: random.Random) -> str:
    """Say something twice, or with a number or a depth that no reader has room for."""
    kind = rng.randrange(3)
    if kind == 0:
        places = [found.span() for found in _MEMBER.finditer(text)]
        start, end = rng.choice(places) if places else (0, len(text))
        return text[:end] + text[start:end] + text[end:]
    values = [found.span() for found in _VALUE.finditer(text)]
    start, end = rng.choice(values) if values else (0, 0)
    value = rng.choice(["9" * 5000, "-" + "9" * 400 + ".5", "1e999999"])
    if kind == 1:
        opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ("{a=", "}")])
        value = opening * 5000 + "1" + closing * 5000
    return text[:start] + value + text[end:]


_MEMBER = re.compile(r'"[^"]*":(?:"[^"]*"|[-0-9.e+]+|true|false|null),|^[^\n]*\n', re.MULTILINE)
_VALUE = re.compile(r'(?<=[:=] )[^\n,}\]]+|(?<=":)[^,}\]]+')

READ: dict[str, Callable[[bytes], Any]] = {
    "msgpack": msgspec.msgpack.decode,
    "json": msgspec.json.decode,
    "toml": lambda whole: tomllib.loads(whole.decode()),
}
WRITE: dict[str, Callable[[Any], bytes]] = {
    "msgpack": msgspec.msgpack.encode,
    "json": lambda document: json.dumps(document).encode(),
    "toml": lambda document: tomlkit.dumps(document).encode(),
}


def _wrong_inside(whole: bytes, rng: random.Random, form: str) -> bytes:
    document = READ[form](whole)
    nasty = NASTY if form == "toml" else NASTY + NOT_IN_TOML
    for _ in range(rng.randrange(1, 4)):
        _spoil(document, rng, nasty)
    try:
        return WRITE[form](document)
    except (ValueError, TypeError):
        # What this form cannot say: a mixed list in TOML, a number over 64 bits.
        return whole[: len(whole) // 2]


def _spoil(node: Any, rng: random.Random, nasty: tuple[Any, ...]) -> None:
    """Change one thing somewhere below `node`."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    if not keys:
        return
    key = rng.choice(keys)
    below = node[key]
    if isinstance(below, dict | list) and below and rng.random() < 0.8:
        _spoil(below, rng, nasty)
    elif isinstance(node, dict) and rng.random() < 0.2:
        node[str(rng.choice(NASTY_NAMES))] = node.pop(key)
    elif isinstance(node, dict) and rng.random() < 0.2:
        del node[key]
    else:
        node[key] = deepcopy(rng.choice(nasty))
