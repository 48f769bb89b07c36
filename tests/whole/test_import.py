"""Servers imported from a client's configuration work through a running daemon."""

import json
import sys
from pathlib import Path

from whole_daemon import PLAIN_SERVER, Home, wait_for

ECHO_ENV = """\
import os, sys
sys.argv[0] = {server!r}
assert os.environ["NOTES_TOKEN"] == "canary-notes-token", "no token"
exec(compile(open({server!r}).read(), {server!r}, "exec"))
"""


def test_an_imported_server_is_started_with_its_secret_and_called(home: Home) -> None:
    program = home.folder / "with_token.py"
    program.write_text(ECHO_ENV.format(server=str(PLAIN_SERVER)))
    user = home.folder / "user"
    user.mkdir()
    home.env |= {"HOME": str(user), "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    entry = {
        "command": sys.executable,
        "args": ["-I", str(program), home.tag],
        "env": {"NOTES_TOKEN": "canary-notes-token"},
    }
    (user / ".claude.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
    home.start()
    with home.shim("one") as editor:
        imported = home.capd("import", "--yes")

        enabled = home.capd("enable", "notes", "--session", "one")
        answer = editor.call("notes__echo", {"text": "mine"})

        assert (imported.returncode, imported.stderr) == (0, "")
        assert (enabled.returncode, enabled.stderr) == (0, "")
        assert answer["content"][0]["text"].endswith(" mine")
        assert "canary" not in imported.stdout + home.log()
        home.capd("remove", "notes")
        home.capd("disable", "notes", "--session", "one")
        wait_for(lambda: home.servers() == [])
    kept = [path for path in Path(home.folder).rglob("*") if path.is_file() and path != program]
    assert {path for path in kept if b"canary" in path.read_bytes()} == {
        user / ".claude.json",
        home.folder / "config" / "secrets.env",
    }
