"""Texts are counted in another process, once each; failures are reported."""

import subprocess
import sys
from pathlib import Path

import pytest
import trio

from capd.adapters.tokens import counted_texts, counting_process
from capd.adapters.tokens.counted_texts import CountedTexts, NotCountedError
from capd.adapters.tokens.counting_process import read, written
from capd.adapters.tokens.token_counts import count

TEXTS = [b"hello world", b"", "naïve\n".encode(), b"\xff"]


async def test_each_text_has_the_count_of_the_tokenizer() -> None:
    counts = await CountedTexts().counted([*TEXTS, TEXTS[0]])

    assert counts == {text: count(text) for text in TEXTS}


async def test_a_text_that_was_counted_is_not_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = CountedTexts()
    first = await counted.counted(TEXTS)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))

    again = await counted.counted(reversed(TEXTS))

    assert again == first


def test_the_process_ends_without_the_daemon_that_it_counts_for() -> None:
    somebody_else = "1"
    argv = [sys.executable, "-E", "-P", "-m", counting_process.__name__, somebody_else]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        # What it counts has no end here.
        got = process.wait(60)

    assert got == counting_process.FAILED


async def test_what_was_asked_for_the_longest_ago_is_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_texts, "MOST_KNOWN", 2)
    counted = CountedTexts()
    await counted.counted([b"a", b"b"])
    await counted.counted([b"a", b"c"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))

    known = await counted.counted([b"a", b"c"])

    assert known == {b"a": 1, b"c": 1}
    with pytest.raises(NotCountedError, match="No such file"):
        await counted.counted([b"b"])


async def test_a_process_that_fails_is_a_reason_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'reinstall capd' >&2\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(NotCountedError) as caught:
        await CountedTexts().counted([b"a"])

    assert str(caught.value) == "Tokens are not counted: reinstall capd"


async def test_a_process_that_counts_half_of_it_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 1\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(NotCountedError, match="ended with 0"):
        await CountedTexts().counted([b"a", b"b"])


async def test_two_who_ask_at_once_have_a_text_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho run >> {journal}\nexec {sys.executable} "$@"\n')
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    counted = CountedTexts()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(counted.counted, [b"a"])
        nursery.start_soon(counted.counted, [b"a"])

    assert journal.read_text() == "run\n"


async def test_what_one_text_fails_with_leaves_the_others_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_texts, "MOST_BYTES", 4)
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\ncat > {tmp_path}/in\ngrep -q evil {tmp_path}/in && exit 9\n"
        f'exec {sys.executable} "$@" < {tmp_path}/in\n'
    )
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(NotCountedError, match="ended with 9") as caught:
        await CountedTexts().counted([b"a", b"evil", b"b"])

    assert caught.value.counts == {b"a": 1, b"b": 1}


def test_counts_are_read_as_lines() -> None:
    framed = written([b"ab", b""])

    assert (framed, read(b"3\n0\n")) == (b"\0\0\0\2ab\0\0\0\0", [3, 0])
