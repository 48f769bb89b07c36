"""The file of tool edits refuses what the daemon would leave out."""

from pathlib import Path

import pytest

from capd.core.taps import edit_tables
from capd_client import tool_edits
from capd_client.toml_files import EditError
from capd_client.tool_edits import Changes, ToolEdits


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (Changes(name="log"), "git:git_log is called log already"),
        (Changes(title="x" * 201), "the title has 201 characters"),
        (Changes(description="x" * 4001), "the description has 4001 characters"),
        (Changes(descriptions={"path": "x" * 4001}), "the description has 4001 characters"),
    ],
)
def test_what_the_daemon_would_leave_out_is_refused(
    tmp_path: Path, changes: Changes, reason: str
) -> None:
    edits = ToolEdits(str(tmp_path))
    file = edits.change("starter", "git", "git:git_log", Changes(name="log"))
    before = file.read_bytes()

    with pytest.raises(EditError, match=reason):
        edits.change("starter", "git", "git:git_show", changes)

    assert file.read_bytes() == before


def test_a_tool_keeps_its_name_and_one_of_another_server_may_have_it(tmp_path: Path) -> None:
    edits = ToolEdits(str(tmp_path))
    edits.change("starter", "git", "git:git_log", Changes(name="log"))

    edits.change("starter", "git", "git:git_log", Changes(name="log", title="x" * 200))
    file = edits.change("starter", "git", "svn:svn_log", Changes(name="log"))

    assert file.read_text().count('name = "log"') == 2


def test_the_limits_are_those_of_the_daemon() -> None:
    ours = tool_edits.LONGEST_TITLE, tool_edits.LONGEST_DESCRIPTION

    assert ours == (edit_tables.LONGEST_TITLE, edit_tables.LONGEST_DESCRIPTION)
