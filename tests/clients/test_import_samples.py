"""Fifteen configurations of thirteen clients become one catalog; no secret leaves the store.

After a change that is meant: `CAPD_REGENERATE=1 pytest` on this file writes the golden files.
"""

import json
import os
import stat
from pathlib import Path

import pytest

from capd import check

from .importing import SAMPLES, SECRETS, Importer


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Importer:
    made = Importer(tmp_path)
    monkeypatch.chdir(made.project)
    return made


def golden(name: str, text: str) -> str:
    path = SAMPLES / name
    if os.environ.get("CAPD_REGENERATE"):
        path.write_text(text, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def found_secrets(folder: Path, *, beside: Path) -> list[tuple[str, str]]:
    """Return the files below `folder`, other than the store `beside`, that have a secret."""
    files = [path for path in folder.rglob("*") if path.is_file() and path != beside]
    return [(s, str(file)) for file in files for s in SECRETS if s.encode() in file.read_bytes()]


def test_what_is_found_is_told_as_it_is(user: Importer) -> None:
    before = {path: path.read_bytes() for path in user.folder.rglob("*") if path.is_file()}

    said = user.capd("import", "--project", "--dry-run")

    assert (said.code, said.err) == (0, "")
    assert user.neutral(said.out) == golden("said.txt", user.neutral(said.out))
    assert {path: path.read_bytes() for path in user.folder.rglob("*") if path.is_file()} == before


def test_all_become_one_catalog_without_duplicates(user: Importer) -> None:
    said = user.capd("import", "--project", "--yes")

    catalog = user.neutral(json.dumps(user.catalog(), indent=1) + "\n")
    assert (said.code, said.err) == (0, "")
    assert catalog == golden("catalog.json", catalog)


def test_no_secret_is_in_any_file_outside_the_store_or_in_what_is_said(user: Importer) -> None:
    said = user.capd("import", "--project", "--yes")
    again = user.capd("import", "--project", "--dry-run", "--json")

    store = user.config / "secrets.env"
    printed = said.out + said.err + again.out + again.err
    assert found_secrets(user.capd_home, beside=store) == []
    assert [secret for secret in SECRETS if secret in printed] == []
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert user.secrets() == {
        "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_SAMPLEsampleSAMPLEsampleSAMPLE000001",
        "GITHUB_2_GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_SAMPLEsampleSAMPLEsampleSAMPLE000002",
        "NOTES_TOKEN": "canary-notes-token",
        "DATABASE_PASSWORD": "canary-db-password",
        "API_SECRET": "canary-api-secret",
        "SEARCH_API_KEY": "canary-query-key",
        "KEPT_TOKEN": "canary-kept-in-a-file",
        "WORKSPACE_API_KEY": "canary-flag-value",
        "DEEP_KEY": "canary-env-file",
        "LINEAR_TOKEN": "canary-linear-token",
        "SLACK_BOT_TOKEN": "xoxb-1234567890-canaryslack",
        "ZAP_PATH": "ZjQ4YmQ5NTIt0wOTk5LTRhM2Et",
    }


def test_a_second_time_there_is_nothing_to_do(user: Importer) -> None:
    user.capd("import", "--project", "--yes")
    before = (user.catalog(), user.secrets())

    said = user.capd("import", "--project", "--yes", "--json")

    assert {each["state"] for each in json.loads(said.out)["servers"]} == {"there"}
    assert (user.catalog(), user.secrets()) == before


def test_what_is_written_passes_the_check(
    user: Importer, capsys: pytest.CaptureFixture[str]
) -> None:
    user.capd("import", "--project", "--yes")

    code = check.main([], user.config)

    said = capsys.readouterr().out
    assert (code, f"own: {len(user.catalog())} routable" in said) == (0, True)
    assert ": 0 errors" in f": {said.splitlines()[-1]}"
