"""`capd setup` finds editors, imports their servers, and can be repeated."""

import json
from pathlib import Path

import pytest

from .patients import Patient


@pytest.fixture
def ada(patient: Patient) -> Patient:
    """Return a user with opencode and one configured server, without a daemon."""
    patient.more["CAPD_NO_START"] = "1"
    patient.program("opencode", "exit 0")
    mine = {"type": "local", "command": ["npx", "-y", "notes-mcp@1.2.3"]}
    patient.file(".config/opencode/opencode.json", json.dumps({"mcp": {"notes": mine}}))
    return patient


def imported(patient: Patient) -> list[str]:
    return [path.name for path in (patient.home / ".config/capd/own/capabilities").glob("*")]


def has_capd(patient: Patient) -> bool:
    text = (patient.home / ".config/opencode/opencode.json").read_text()
    return "capd" in json.loads(text)["mcp"]


def test_everything_is_done_without_a_question_and_the_last_words_are_to_be_said(
    ada: Patient,
) -> None:
    said = ada.capd("setup", "--yes", "--no-service")

    assert said.code == 0, said
    assert has_capd(ada)
    assert imported(ada) == ["notes"]
    assert "Took over 1 server of theirs (notes)" in said.out
    assert said.out.endswith(
        "Done. Restart opencode, and say this in your editor:\n\n"
        "  what time is it in Tokyo right now?\n\n"
        "`capd why` says what it switched on, and why.\n"
    )


def test_typed_twice_it_changes_nothing_more(ada: Patient) -> None:
    ada.capd("setup", "--yes", "--no-service")
    before = ada.snapshot()

    again = ada.capd("setup", "--yes", "--no-service")

    assert again.code == 0
    assert "opencode has capd already" in again.out
    assert "Took over" not in again.out
    assert ada.snapshot() == before


def test_servers_stay_where_they_are_if_that_is_wanted(ada: Patient) -> None:
    said = ada.capd("setup", "--yes", "--no-service", "--no-import")

    assert said.code == 0
    assert has_capd(ada)
    assert imported(ada) == []


def test_where_there_is_nobody_to_ask_nothing_is_done(ada: Patient) -> None:
    before = ada.snapshot()

    said = ada.capd("setup")

    assert (said.code, said.err) == (
        1,
        "capd: there is nobody to ask\nGive --yes: capd setup --yes\n",
    )
    assert ada.snapshot() == before


def test_without_an_editor_the_turn_is_tried_in_the_terminal(patient: Patient) -> None:
    patient.more["CAPD_NO_START"] = "1"

    said = patient.capd("setup", "--yes", "--no-service")

    assert said.code == 0
    assert "No editor or agent was found here." in said.out
    assert '  capd turn "what time is it in Tokyo right now?"\n' in said.out


def test_without_uvx_and_npx_the_way_to_get_one_is_named(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient.more["CAPD_NO_START"] = "1"
    for program in ("uvx", "npx"):
        (patient.bin / program).unlink()
    patient.more["PATH"] = str(patient.bin)
    # capd's own folder of programs may have uvx: the extra.
    monkeypatch.setattr("sys.executable", str(Path(patient.folder, "none", "python")))

    said = patient.capd("setup", "--yes", "--no-service")

    assert "Most servers need uvx or npx, and neither is here." in said.out
    assert "'capd[uv]'" in said.out


def test_a_client_whose_file_is_broken_is_named_and_the_others_are_connected(
    ada: Patient,
) -> None:
    ada.program("cursor", "exit 0")
    broken = ada.file(".cursor/mcp.json", "{ broken")

    said = ada.capd("setup", "--yes", "--no-service")

    assert said.code == 0, said
    assert said.err.startswith(f"capd: {broken}, line 1: ")
    assert has_capd(ada)
    assert imported(ada) == ["notes"]
    assert "Done. Restart opencode, " in said.out
