"""Each client's prompt hook is added once, found by the client, and removed completely."""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from capd_client.hooks import CLIENTS
from capd_client.install.edits import FileEdit
from capd_client.install.known_clients import known_clients
from capd_client.install.prompt_hooks import hook_command, hook_edits, trusted_hash

from .installing import User

LAUNCHER = Path("/home/u/my tools/capd-mcp")
FILES = {
    "cline": [".cline/hooks/TaskStart", ".cline/hooks/UserPromptSubmit"],
    "cline-vscode": [".cline/hooks/TaskStart", ".cline/hooks/UserPromptSubmit"],
    "codex": [".codex/hooks.json", ".codex/config.toml"],
    "copilot": [".copilot/hooks/capd.json"],
    "cursor": [".cursor/hooks.json"],
    "gemini": [".gemini/settings.json"],
    "goose": [".agents/plugins/capd/plugin.json", ".agents/plugins/capd/hooks/hooks.json"],
    "qwen": [".qwen/settings.json"],
    "vscode": [".copilot/hooks/capd-vscode.json"],
    "vscode-insiders": [".copilot/hooks/capd-vscode.json"],
    "windsurf": [".codeium/windsurf/hooks.json"],
}
NESTED = (
    '{"hooks": {"%s": [{"matcher": "x", "hooks": [{"type": "command", "command": "mine"}]}]}}\n'
)
COMMENTED = """\
{
\t// mine
\t"theme": "dark",
\t"hooks": {
\t\t"BeforeAgent": [
\t\t\t{"hooks": []} // none yet
\t\t]
\t}
}
"""
FLAT = """\
{
  "version": 1,
  "hooks": {
    "beforeSubmitPrompt": [{"command": "mine"}]
  }
}
"""
SHARED = {
    "codex": (".codex/hooks.json", NESTED % "UserPromptSubmit"),
    "gemini": (".gemini/settings.json", COMMENTED),
    "qwen": (".qwen/settings.json", NESTED % "PreToolUse"),
    "cursor": (".cursor/hooks.json", FLAT.replace("\n", "\r\n")),
    "windsurf": (".codeium/windsurf/hooks.json", '{"hooks":{"pre_user_prompt":[]}}'),
}


def edits(client: str) -> dict[str, FileEdit]:
    made = hook_edits(client, {"HOME": "/home/u"}, LAUNCHER)
    return {edit.path.relative_to("/home/u").as_posix(): edit for edit in made}


WITH_A_HOOK = {name for names in FILES.values() for name in names if "hooks" in name} | {
    ".gemini/settings.json",
    ".qwen/settings.json",
}


@pytest.mark.parametrize("client", known_clients())
def test_each_client_gets_its_hook_where_it_looks_for_one(client: str) -> None:
    got = list(edits(client))

    assert got == FILES.get(client, [])


@pytest.mark.parametrize(
    ("client", "name", "event"),
    [
        ("codex", "codex", "UserPromptSubmit"),
        ("copilot", "copilot", "userPromptSubmitted"),
        ("cursor", "cursor", "beforeSubmitPrompt"),
        ("gemini", "gemini", "BeforeAgent"),
        ("goose", "goose", "UserPromptSubmit"),
        ("qwen", "qwen", "UserPromptSubmit"),
        ("vscode", "code", "UserPromptSubmit"),
        ("windsurf", "windsurf", "pre_user_prompt"),
    ],
)
def test_its_command_line_is_the_same_for_ever(client: str, name: str, event: str) -> None:
    (edit,) = [edit for path, edit in edits(client).items() if path in WITH_A_HOOK]

    (group,) = json.loads(edit.add(""))["hooks"][event]

    (hook,) = group.get("hooks", [group])
    command = hook.get("command", hook.get("bash"))
    assert command == f"'/home/u/my tools/capd-mcp' hook {name} {event}"
    assert name in CLIENTS


@pytest.mark.parametrize("client", SHARED)
def test_a_hook_of_the_users_own_stays_as_it_is(client: str) -> None:
    name, text = SHARED[client]
    edit = edits(client)[name]

    installed = edit.add(text)

    assert edit.add(installed) == installed != text
    assert edit.remove(installed, text) == text


@pytest.mark.parametrize("client", SHARED)
def test_where_the_file_was_changed_since_only_our_hook_goes(client: str) -> None:
    name, text = SHARED[client]
    edit = edits(client)[name]
    changed = edit.add(text).replace("mine", "theirs")

    assert edit.remove(changed, text) == text.replace("mine", "theirs")


@pytest.mark.parametrize("client", FILES)
def test_installed_and_uninstalled_leaves_nothing_behind(tmp_path: Path, client: str) -> None:
    user = User(tmp_path)
    user.capd("install", client)
    user.capd("install", client)
    installed = set(user.snapshot())

    done = user.capd("uninstall", client)

    assert (done.code, done.err) == (0, "")
    assert installed >= set(FILES[client])
    assert user.snapshot() == {}


@pytest.mark.parametrize("client", FILES)
def test_what_others_wrote_into_a_file_of_ours_stays(tmp_path: Path, client: str) -> None:
    user = User(tmp_path)
    user.capd("install", client)
    (name, *_) = FILES[client]
    path = user.home / name
    if name.endswith(".json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "theirs": 1}))
    else:
        path.write_text(path.read_text() + "echo theirs\n")

    user.capd("uninstall", client)

    left = path.read_text()
    assert "theirs" in left
    assert ("capd-mcp" in left) is (client.startswith("cline"))


TWINS = [
    ("vscode", "vscode-insiders"),
    ("vscode-insiders", "vscode"),
    ("cline", "cline-vscode"),
    ("cline-vscode", "cline"),
]


@pytest.mark.parametrize(("gone", "stays"), TWINS)
@pytest.mark.parametrize("order", [1, -1])
def test_a_hook_that_two_have_goes_with_the_second_of_them(
    tmp_path: Path, gone: str, stays: str, order: int
) -> None:
    user = User(tmp_path)
    user.capd("install", *[gone, stays][::order])
    before = user.snapshot()

    said = user.capd("uninstall", gone)

    hooks = {name: before[name] for name in FILES[gone]}
    assert (said.code, said.err) == (0, "")
    assert user.snapshot().items() >= hooks.items()
    assert len(user.snapshot()) == len(before) - 1
    assert all(f"{user.home / name}: stays, because " in said.out for name in hooks)
    assert user.capd("uninstall", gone).out.endswith(" does not have capd: no change\n")
    assert user.capd("uninstall", stays).code == 0
    assert user.snapshot() == {}


@pytest.mark.parametrize(("one", "other"), TWINS)
def test_a_hook_that_two_have_goes_where_all_lose_capd(
    tmp_path: Path, one: str, other: str
) -> None:
    user = User(tmp_path)
    user.capd("install", one, other)

    said = user.capd("uninstall", "--all")

    assert (said.code, user.snapshot()) == (0, {})
    assert user.capd("uninstall", "--all").out == "No client has capd: no change\n"


def test_a_script_of_cline_can_be_run(tmp_path: Path) -> None:
    user = User(tmp_path)

    user.capd("install", "cline")

    path = user.home / ".cline/hooks/UserPromptSubmit"
    assert path.stat().st_mode & 0o777 == 0o700
    command = hook_command(user.launcher, "cline", "UserPromptSubmit")
    assert path.read_text() == f"#!/bin/sh\nexec {command}\n"


def test_a_script_of_the_users_own_is_left_to_cline(tmp_path: Path) -> None:
    user = User(tmp_path)
    script = user.file(".cline/hooks/TaskStart", "#!/bin/sh\necho mine\n")

    user.capd("install", "cline")
    user.capd("uninstall", "cline")

    assert script.read_text() == "#!/bin/sh\necho mine\n"


# What Codex trusts


def states(user: User) -> Any:
    text = (user.home / ".codex/config.toml").read_text()
    return tomllib.loads(text).get("hooks", {}).get("state", {})


def test_nothing_is_trusted_that_nobody_asked_for(tmp_path: Path) -> None:
    user = User(tmp_path)

    said = user.capd("install", "codex").out

    assert "run codex, then /hooks" in said
    assert states(user) == {}


def test_who_asks_for_it_has_the_hook_trusted_and_no_other(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.file(".codex/hooks.json", NESTED % "UserPromptSubmit")
    user.file(".codex/config.toml", "# mine\nmodel = 'o5'\n")
    before = user.snapshot()

    done = user.capd("install", "codex", "--trust-hooks")

    hook = json.loads((user.home / ".codex/hooks.json").read_text())["hooks"]["UserPromptSubmit"][1]
    key = f"{user.home}/.codex/hooks.json:user_prompt_submit:1:0"
    assert states(user) == {key: {"trusted_hash": trusted_hash(hook["hooks"][0])}}
    assert "Codex CLI trusts capd's hook from its next start on" in done.out
    assert "unchanged" not in user.capd("install", "codex", "--trust-hooks").err
    user.capd("uninstall", "codex")
    assert user.snapshot() == before


def test_the_trust_goes_with_the_hook_where_the_file_was_changed_since(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.file(".codex/config.toml", "# mine\n")
    user.capd("install", "codex", "--trust-hooks")
    config = user.home / ".codex/config.toml"
    theirs = [
        f"{user.home}/.codex/hooks.json:{place}" for place in ("stop:0:0", "user_prompt_submit:1:0")
    ]
    others = [f'[hooks.state."{key}"]\ntrusted_hash = "sha256:1"\n' for key in theirs]
    config.write_text("\n".join([config.read_text(), *others]))

    user.capd("uninstall", "codex")

    assert list(states(user)) == theirs


@pytest.mark.parametrize("again", ["uninstall", "install"])
def test_the_trust_that_its_user_gave_in_codex_stands_in_no_ones_way(
    tmp_path: Path, again: str
) -> None:
    user = User(tmp_path)
    user.file(".codex/config.toml", "# mine\n")
    user.capd("install", "codex")
    config = user.home / ".codex/config.toml"
    (group,) = user.json(".codex/hooks.json")["hooks"]["UserPromptSubmit"]
    key = f"{user.home}/.codex/hooks.json:user_prompt_submit:0:0"
    digest = trusted_hash(group["hooks"][0])
    trusted = f'[hooks.state."{key}"]\ntrusted_hash = "{digest}"\n'
    config.write_text(f"{config.read_text()}\n{trusted}")

    done = user.capd(again, "codex", *(["--no-check"] if again == "install" else []))

    assert (done.code, done.err) == (0, "")
    assert states(user) == ({} if again == "uninstall" else {key: {"trusted_hash": digest}})
    user.capd("uninstall", "codex")
    assert user.snapshot() == {".codex/config.toml": b"# mine\n"}


def test_trust_that_is_asked_for_later_leaves_the_whole_of_capd_to_be_undone(
    tmp_path: Path,
) -> None:
    user = User(tmp_path)
    user.file(".codex/config.toml", "# mine\n")
    user.capd("install", "codex")
    config = user.home / ".codex/config.toml"
    theirs = '\n[projects."/src/boat"]\ntrust_level = "trusted"\n'
    config.write_text(config.read_text() + theirs)
    user.capd("install", "codex", "--trust-hooks")

    said = user.capd("uninstall", "codex")

    assert (said.code, said.err) == (0, "")
    assert f"{config}: as it was before" in said.out
    assert user.snapshot() == {".codex/config.toml": f"# mine\n{theirs}".encode()}


def test_trust_is_given_to_what_is_named_alone(tmp_path: Path) -> None:
    user = User(tmp_path)
    user.file(".codex/config.toml", "")

    done = user.capd("install", "--all", "--trust-hooks")

    assert done.code == 2
    assert "--trust-hooks is for a CLIENT that you name" in done.err
    assert user.snapshot() == {".codex/config.toml": b""}


@pytest.mark.parametrize("client", ["gemini", "qwen"])
def test_a_client_without_such_a_gate_says_so(tmp_path: Path, client: str) -> None:
    done = User(tmp_path).capd("install", client, "--trust-hooks")

    assert done.code == 1
    assert done.err == f"capd: {client} asks for no trust in hooks\nLeave --trust-hooks out.\n"


def test_the_hash_is_of_the_words_and_the_time() -> None:
    hook = {"type": "command", "command": shlex.quote("/bin/x") + " hook codex", "timeout": 5}

    got = trusted_hash(hook)

    assert got == trusted_hash({**hook})
    assert got != trusted_hash({**hook, "timeout": 6})
    assert got != trusted_hash({**hook, "command": "/bin/y hook codex"})
