"""`capd secret` stores a value safely, reads it back, and never prints it."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from whole_daemon import PATIENCE, Home

VALUE = "hunter2-very-secret"


@pytest.fixture
def place(tmp_path: Path) -> Home:
    """A folder without a daemon, and with a keyring."""
    (tmp_path / "config").mkdir()
    made = Home(tmp_path)
    return with_keyring(made)


def with_keyring(home: Home, name: str = "FileKeyring") -> Home:
    tests = str(Path(__file__).parents[1])
    home.env |= {
        "PYTHON_KEYRING_BACKEND": f"file_keyring.{name}",
        "CAPD_TEST_KEYRING": str(home.folder / "ring.json"),
        "PYTHONPATH": tests,
    }
    return home


def ring(home: Home) -> dict[str, str]:
    file = home.folder / "ring.json"
    found: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return found


def file_of(home: Home) -> Path:
    return home.folder / "config" / "secrets.env"


def test_a_secret_from_standard_input_goes_into_the_keyring(place: Home) -> None:
    done = place.capd("secret", "set", "TOKEN", said=f"{VALUE}\n")

    assert (done.returncode, done.stdout, done.stderr) == (0, "TOKEN: kept in the keyring\n", "")
    assert ring(place) == {"capd TOKEN": VALUE}


def test_with_file_it_goes_into_a_file_that_only_its_owner_reads(place: Home) -> None:
    file_of(place).write_text("# mine\nA=1\nTOKEN=old\nB=2")
    file_of(place).chmod(0o600)

    done = place.capd("secret", "set", "--file", "TOKEN", said=VALUE)

    assert (done.returncode, done.stdout) == (0, f"TOKEN: kept in {file_of(place)}\n")
    assert file_of(place).read_text() == f"# mine\nA=1\nB=2\nTOKEN='{VALUE}'\n"
    assert stat.S_IMODE(file_of(place).stat().st_mode) == 0o600
    assert ring(place) == {}


@pytest.mark.parametrize(
    "value", ["a'b\\'c\\", "$HOME ${X}", 'say "x" # no', "two\nlines", "  spaces  ", "ü\u2028"]
)
def test_whatever_a_value_holds_is_what_is_read(place: Home, value: str) -> None:
    from capd.adapters.secrets.secrets_file import SecretsFile

    done = place.capd("secret", "set", "--file", "TOKEN", said=value)

    assert done.returncode == 0, done.stderr
    assert dict(SecretsFile(file_of(place)).values()) == {"TOKEN": value}


@pytest.mark.parametrize(
    ("key", "said", "problem"),
    [
        ("1A", VALUE, "'1A' is not a valid key: use letters, digits and _, as in GITHUB_TOKEN"),
        ("A", "", "the value is empty, and an empty one counts as missing"),
        ("A", f"{VALUE}\0", "the value has a NUL in it, which no environment takes"),
    ],
)
def test_what_could_never_be_used_is_refused(
    place: Home, key: str, said: str, problem: str
) -> None:
    done = place.capd("secret", "set", key, said=said)

    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"capd: {problem}\n")
    assert ring(place) == {}


def test_a_keyring_that_forgets_is_found_out(place: Home) -> None:
    with_keyring(place, "DeafKeyring")

    done = place.capd("secret", "set", "TOKEN", said=VALUE)

    assert done.returncode == 1
    assert done.stderr == (
        "capd: the keyring took TOKEN and does not give it back: keep it in a file with --file\n"
    )


def test_without_a_keyring_the_file_is_named(place: Home) -> None:
    place.env["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

    done = place.capd("secret", "set", "TOKEN", said=VALUE)

    assert done.returncode == 1
    assert done.stderr == (
        "capd: there is no keyring here that keeps secrets safely: keep it in a file with --file\n"
    )


def test_a_file_that_others_read_is_not_added_to(place: Home) -> None:
    file_of(place).write_text("A=1\n")
    file_of(place).chmod(0o644)

    done = place.capd("secret", "set", "--file", "TOKEN", said=VALUE)

    assert (done.returncode, file_of(place).read_text()) == (1, "A=1\n")
    assert "its mode is 0644, so that others may read it: chmod 600" in done.stderr


def test_remove_takes_it_from_wherever_it_is(place: Home) -> None:
    place.capd("secret", "set", "TOKEN", said=VALUE)
    place.capd("secret", "set", "--file", "OTHER", said=VALUE)
    place.capd("secret", "set", "--file", "TOKEN", said=VALUE)

    done = place.capd("secret", "remove", "TOKEN")
    again = place.capd("secret", "remove", "TOKEN")

    assert done.stdout == f"TOKEN: removed from the keyring and {file_of(place)}\n"
    assert (ring(place), file_of(place).read_text()) == ({}, f"OTHER='{VALUE}'\n")
    assert (again.returncode, again.stderr) == (
        1,
        f"capd: TOKEN is in neither the keyring nor {file_of(place)}\n",
    )


def test_the_list_needs_a_daemon(place: Home) -> None:
    done = place.capd("secret", "list")

    assert done.returncode == 3
    assert "no daemon" in done.stderr


def test_at_a_terminal_the_value_is_asked_for_and_not_shown(place: Home) -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-P", "-m", "capd_client.entry", "secret", "set", "TOKEN"]
    with subprocess.Popen(
        command, env=place.env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        shown = b""
        while b"TOKEN: " not in shown:
            shown += os.read(ours, 1024)

        os.write(ours, f"{VALUE}\n".encode())
        while b"keyring" not in shown:
            shown += os.read(ours, 1024)
        assert process.wait(PATIENCE) == 0

    os.close(ours)
    assert VALUE.encode() not in shown
    assert ring(place) == {"capd TOKEN": VALUE}
