"""`secrets.env`: valid lines, the reasons for refusals, and when it is read again."""

import os
from pathlib import Path

import pytest

from capd.adapters.secrets.secrets_file import SecretsFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secrets.env"


def written(path: Path, text: str | bytes, mode: int = 0o600) -> SecretsFile:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return SecretsFile(path)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        pytest.param("A=one\nB=two\n", {"A": "one", "B": "two"}, id="plain"),
        pytest.param("export A=one\r\nB='t w o'\r\n", {"A": "one", "B": "t w o"}, id="quoted"),
        pytest.param("# words\n\nA=one # more words\n", {"A": "one"}, id="comments"),
        pytest.param("A=$HOME\nB=${A}\n", {"A": "$HOME", "B": "${A}"}, id="no interpolation"),
        pytest.param("A=\nB=''\nC\nD=x\n", {"D": "x"}, id="empty is missing"),
        pytest.param("A=one\nA=two\n", {"A": "two"}, id="the last counts"),
        pytest.param('A="x\ny"\nB=z', {"A": "x\ny", "B": "z"}, id="several lines"),
        pytest.param("\ufeffA=one\n", {"A": "one"}, id="byte order mark"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_a_file_is_read_as_dotenv_files_are(path: Path, text: str, values: dict[str, str]) -> None:
    file = written(path, text)

    assert (dict(file.values()), file.problem) == (values, "")


@pytest.mark.parametrize(
    ("text", "values", "problem"),
    [
        pytest.param(
            "A=one\n\nB='open hunter2\nC=x\n",
            {"A": "one", "C": "x"},
            "not KEY=value, and left out: line 3",
            id="open quote",
        ),
        pytest.param(
            "1A=hunter2\nB=two\na-b=hunter2\n",
            {"B": "two"},
            "not KEY=value, and left out: line 1, 3",
            id="no names",
        ),
        pytest.param(b"A=\xff\n", {}, "is not used: byte 2 is not UTF-8", id="not UTF-8"),
    ],
)
def test_what_is_wrong_in_it_is_told_by_its_line_and_never_with_a_value(
    path: Path, text: str | bytes, values: dict[str, str], problem: str
) -> None:
    file = written(path, text)

    assert dict(file.values()) == values
    assert problem in file.problem
    assert "hunter2" not in file.problem + repr(file)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_could_read_or_write_is_refused(path: Path, mode: int) -> None:
    file = written(path, "A=one\n", mode)

    assert dict(file.values()) == {}
    assert file.problem == (
        f"{path} is not used: its mode is {mode:04o}, so that others may read it: chmod 600"
    )


def test_a_file_that_is_made_private_is_read_at_once(path: Path) -> None:
    file = written(path, "A=one\n", 0o644)
    file.values()
    path.chmod(0o600)

    assert (dict(file.values()), file.problem) == ({"A": "one"}, "")


def test_a_pipe_or_a_folder_of_its_name_holds_nobody_up(path: Path) -> None:
    os.mkfifo(path, 0o600)
    file = SecretsFile(path)

    assert (dict(file.values()), file.problem) == (
        {},
        f"{path} is not used: it is no regular file",
    )


def test_a_link_to_a_private_file_is_followed(path: Path, tmp_path: Path) -> None:
    written(tmp_path / "real.env", "A=one\n")
    path.symlink_to(tmp_path / "real.env")

    assert dict(SecretsFile(path).values()) == {"A": "one"}


def test_it_is_read_again_when_it_has_changed_and_only_then(path: Path) -> None:
    file = written(path, "A=one\n")
    first = file.values()
    again = file.values()
    written(path, "A=two and longer\n")

    assert again is first
    assert dict(file.values()) == {"A": "two and longer"}
    path.unlink()
    assert (dict(file.values()), file.problem) == ({}, "")
