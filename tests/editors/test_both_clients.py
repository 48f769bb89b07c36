"""Claude Code and opencode at once, on one project and one daemon."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from . import test_claude, test_opencode
from .lab import MESSAGE, SUBJECTS, Dialogue, Lab, following

pytestmark = pytest.mark.clients


def test_two_clients_on_one_project_share_one_server_process(
    claude: Path, opencode: Path, start_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = start_lab(following(tmp_path / "harbour"))
    lab.add_claude(claude)
    lab.add_opencode(opencode)
    lab.set_mode("dynamic")
    # What is proved is what two clients share, not how fast this machine is at this moment.
    lab.env["CAPD_HOOK_BUDGET"] = "4"
    lab.start_warm()
    lab.install("claude")
    lab.install("opencode")
    with contextlib.closing(Dialogue(lab, *test_claude.DIALOGUE)) as dialogue:
        dialogue.say(test_claude.user_says(MESSAGE))
        assert dialogue.hear("result")["result"] == "three commits"
        (server,) = lab.home.servers()
        lab.model.go_on(test_opencode.script(lab.project))
        before = len(lab.home.log())

        lab.run("opencode", "run", MESSAGE)

        assert [each["pid"] for each in lab.home.servers()] == [server["pid"]]
        last = lab.model.bodies()[-1]
        assert all(subject in test_opencode.results(last) for subject in SUBJECTS), last["messages"]
        assert "server_started" not in lab.home.log()[before:]
