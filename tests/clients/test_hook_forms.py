"""What each client's prompt hook reads and prints, on samples from the clients."""

import json
from typing import Any

import pytest

from capd_client.hooks import CLIENTS, NOTHING, Prompt

Json = dict[str, Any]

CLAUDE: Json = {
    "session_id": "c-1",
    "prompt_id": "p-1",
    "transcript_path": "/home/u/.claude/projects/x/c-1.jsonl",
    "cwd": "/src/boat",
    "permission_mode": "default",
    "hook_event_name": "UserPromptSubmit",
    "prompt": "what changed?",
}
CODEX: Json = {
    "session_id": "019a",
    "turn_id": "019b",
    "transcript_path": None,
    "cwd": "/src/boat",
    "hook_event_name": "UserPromptSubmit",
    "model": "gpt-5.5",
    "permission_mode": "default",
    "prompt": "what changed?",
}
GEMINI: Json = {
    "session_id": "g-1",
    "transcript_path": "/home/u/.gemini/tmp/x/chats/s.json",
    "cwd": "/src/boat",
    "hook_event_name": "BeforeAgent",
    "timestamp": "2026-11-22T10:00:00.000Z",
    "prompt": "<hook_context>be brief</hook_context>\n\nwhat changed?",
}
QWEN: Json = {
    "session_id": "q-1",
    "transcript_path": "",
    "cwd": "/src/boat",
    "hook_event_name": "UserPromptSubmit",
    "timestamp": "2026-11-22T10:00:00.000Z",
    "prompt": "what changed?\n--- Content of @log.txt ---\n0 boats",
    "submitted_prompt": "what changed?",
    "prompt_id": "q-1########0",
}
COPILOT: Json = {
    "sessionId": "o-1",
    "timestamp": 1795341600000,
    "cwd": "/src/boat",
    "prompt": "what changed?",
}
CODE: Json = {
    "timestamp": "2026-11-22T10:00:00.000Z",
    "cwd": "/src/boat",
    "sessionId": "v-1",
    "hookEventName": "UserPromptSubmit",
    "transcript_path": "/home/u/.config/Code/x.json",
    "prompt": "what changed?",
}
CURSOR: Json = {
    "conversation_id": "u-1",
    "generation_id": "u-2",
    "hook_event_name": "beforeSubmitPrompt",
    "cursor_version": "2.4.0",
    "workspace_roots": ["/src/boat", "/src/harbour"],
    "user_email": "ada@example.org",
    "model": "default",
    "transcript_path": None,
    "prompt": "what changed?",
    "attachments": [{"type": "file", "file_path": "/src/boat/log.txt"}],
}
WINDSURF: Json = {
    "agent_action_name": "pre_user_prompt",
    "trajectory_id": "w-1",
    "execution_id": "w-2",
    "timestamp": "2026-11-22T10:00:00Z",
    "tool_info": {"user_prompt": "what changed?"},
}
GOOSE: Json = {
    "event": "UserPromptSubmit",
    "session_id": "20261122_1",
    "matcher_context": "what changed?",
    "message": "what changed?",
}
CLINE: Json = {
    "clineVersion": "4.1.0",
    "hookName": "UserPromptSubmit",
    "timestamp": "1795341600000",
    "taskId": "1795341600001",
    "sessionContext": {"rootSessionId": "s-1"},
    "workspaceRoots": ["/src/boat"],
    "userPromptSubmit": {"prompt": "what changed?", "attachments": []},
}
CLINE_TASK: Json = {
    "hookName": "TaskStart",
    "taskId": "1795341600001",
    "workspaceRoots": [],
    "taskStart": {"taskMetadata": {"taskId": "1795341600001", "initialTask": "what changed?"}},
}
WORDS, FOLDER = "what changed?", "/src/boat"
READ = {
    "claude": (CLAUDE, Prompt(WORDS, "claude", "c-1", FOLDER, "p-1")),
    "codex": (CODEX, Prompt(WORDS, "codex", "019a", FOLDER, "019b")),
    "gemini": (GEMINI, Prompt(WORDS, "gemini", "g-1", FOLDER)),
    "qwen": (QWEN, Prompt(WORDS, "qwen", "q-1", FOLDER, "q-1########0")),
    "copilot": (COPILOT, Prompt(WORDS, "copilot", "o-1", FOLDER)),
    "code": (CODE, Prompt(WORDS, "code", "v-1", FOLDER)),
    "cursor": (CURSOR, Prompt(WORDS, "cursor", "u-1", FOLDER, "u-2")),
    "windsurf": (WINDSURF, Prompt(WORDS, "windsurf", "w-1", "", "w-2")),
    "goose": (GOOSE, Prompt(WORDS, "goose", "20261122_1")),
    "cline": (CLINE, Prompt(WORDS, "cline", "s-1", FOLDER)),
}
EVENTS = ("hook_event_name", "hookEventName", "agent_action_name", "event", "hookName")


def test_there_is_a_sample_of_every_client() -> None:
    assert set(READ) == set(CLIENTS)


@pytest.mark.parametrize("client", READ)
def test_the_words_of_the_user_are_found_with_whose_they_are(client: str) -> None:
    said, expected = READ[client]

    assert CLIENTS[client].read(said, {}) == expected


@pytest.mark.parametrize(
    ("named", "said", "env", "expected"),
    [
        pytest.param("claude", CURSOR, {}, READ["cursor"][1], id="Cursor, of Claude's settings"),
        pytest.param("claude", CODE, {}, READ["code"][1], id="VS Code, of Claude's settings"),
        pytest.param("copilot", CODE, {}, READ["code"][1], id="VS Code, of Copilot's folder"),
        pytest.param(
            "claude",
            {**CLAUDE, "session_id": "o-1"},
            {"COPILOT_AGENT_SESSION_ID": "o-1"},
            Prompt(WORDS, "copilot", "o-1", FOLDER),
            id="Copilot CLI, of Claude's settings",
        ),
        pytest.param(
            "code",
            {**CLAUDE, "session_id": "o-1"},
            {"COPILOT_AGENT_SESSION_ID": "o-1"},
            Prompt(WORDS, "copilot", "o-1", FOLDER),
            id="Copilot CLI, of VS Code's file in its folder",
        ),
        pytest.param(
            "code",
            {**CODE, "sessionId": "o-1"},
            {"COPILOT_AGENT_SESSION_ID": "o-1"},
            Prompt(WORDS, "copilot", "o-1", FOLDER),
            id="Copilot CLI, in the words of VS Code",
        ),
        pytest.param(
            "copilot",
            {**CODE, "sessionId": "o-1"},
            {"COPILOT_AGENT_SESSION_ID": "o-1"},
            Prompt(WORDS, "copilot", "o-1", FOLDER),
            id="Copilot CLI, of its own file in the words of VS Code",
        ),
        pytest.param(
            "code",
            CODE,
            {"COPILOT_AGENT_SESSION_ID": "o-1"},
            READ["code"][1],
            id="VS Code, started in a session of Copilot CLI",
        ),
        pytest.param(
            "claude",
            CLAUDE,
            {"CLAUDE_CODE_SESSION_ID": "c-1"},
            NOTHING,
            id="Claude Code, whose other hook speaks",
        ),
        pytest.param("cline", CLINE_TASK, {}, Prompt(WORDS, "cline", "1795341600001"), id="a task"),
        pytest.param(
            "goose",
            {**GOOSE, "message": None},
            {},
            READ["goose"][1],
            id="Goose without a message",
        ),
    ],
)
def test_who_runs_a_hook_is_told_by_what_it_says(
    named: str, said: Json, env: dict[str, str], expected: Prompt
) -> None:
    assert CLIENTS[named].read(said, env) == expected


@pytest.mark.parametrize(
    "prompt",
    [
        "<hook_context>never closed",
        "see <hook_context>this</hook_context>",
        "<hook_contexts>a</hook_contexts>",
    ],
)
def test_a_users_own_tags_are_left_to_gemini(prompt: str) -> None:
    assert CLIENTS["gemini"].read({**GEMINI, "prompt": prompt}, {}).text == prompt


@pytest.mark.parametrize("client", READ)
def test_another_event_has_no_words_of_the_user(client: str) -> None:
    said = {**READ[client][0]}
    (key,) = [key for key in EVENTS if key in said] or ["hook_event_name"]

    assert CLIENTS[client].read({**said, key: "PreToolUse"}, {}) == NOTHING


ODD: list[Any] = [None, True, 7, 0.5, "", "\ud83d", [], [[]], [7], {}, {"user_prompt": 7}, {"": {}}]


@pytest.mark.parametrize("client", READ)
def test_whatever_is_missing_or_of_another_type_is_a_text_or_none(client: str) -> None:
    sample = READ[client][0]
    odd = [{**sample, key: value} for key in sample for value in ODD]
    less = [{each: sample[each] for each in sample if each != key} for key in sample]

    prompts = [CLIENTS[client].read(said, {}) for said in [{}, *odd, *less]]

    assert {type(value) for prompt in prompts for value in prompt} == {str}
    assert all(prompt.client in CLIENTS for prompt in prompts if prompt.text)
    assert json.dumps(prompts, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("client", "printed"),
    [
        *[
            (
                client,
                {"hookSpecificOutput": {"hookEventName": event, "additionalContext": "git is on"}},
            )
            for client, event in [
                ("claude", "UserPromptSubmit"),
                ("codex", "UserPromptSubmit"),
                ("qwen", "UserPromptSubmit"),
                ("code", "UserPromptSubmit"),
                ("gemini", "BeforeAgent"),
            ]
        ],
        ("copilot", {"additionalContext": "git is on"}),
        ("cline", {"cancel": False, "contextModification": "git is on"}),
        ("cursor", None),
        ("windsurf", None),
        ("goose", None),
    ],
)
def test_the_model_is_told_in_the_clients_own_form(client: str, printed: Json | None) -> None:
    answer = CLIENTS[client].write("git is on", "")

    assert (json.loads(answer) if answer else None) == printed


@pytest.mark.parametrize("client", ["claude", "code", "codex", "gemini", "qwen"])
def test_the_user_sees_what_comes_on_where_the_client_has_a_place_for_it(client: str) -> None:
    both = json.loads(CLIENTS[client].write("for the model", "capd switches git on"))
    alone = json.loads(CLIENTS[client].write("", "capd switches git on"))

    assert both["systemMessage"] == "capd switches git on"
    assert both["hookSpecificOutput"]["additionalContext"] == "for the model"
    assert alone == {"systemMessage": "capd switches git on"}


@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_without_anything_to_say_a_hook_prints_nothing(client: str) -> None:
    assert CLIENTS[client].write("", "") == ""


@pytest.mark.parametrize("client", ["cline", "copilot"])
def test_a_client_without_such_a_place_is_given_the_models_words_alone(client: str) -> None:
    assert CLIENTS[client].write("words", "line") == CLIENTS[client].write("words", "")
    assert CLIENTS[client].write("", "line") == ""


@pytest.mark.parametrize("program", ["copilot", "code", "claude"])
def test_the_prompt_of_a_sub_agent_of_copilot_is_no_users(program: str) -> None:
    # As Copilot CLI 1.0.102 hands it over, to whichever hook of capd it runs.
    agent = {"agentId": "9ac3", "agentType": "harbour-master", "parentAgentId": "b6e1"}
    event = {"sessionId": "9ac3", "cwd": "/src", "prompt": "read the log", **agent}

    assert CLIENTS[program].read(event, {}) == NOTHING
