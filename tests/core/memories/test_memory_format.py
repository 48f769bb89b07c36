"""Memory files: what each defines, and its errors with their lines."""

from typing import Any

import pytest

from capd.core.memories.memory_format import (
    LARGEST_BYTES,
    MemoryFile,
    MemoryRead,
    read_memory,
    written_memory,
)
from capd_protos.types import Finding, MemorySpec, TapName

TAP = TapName("mine")
SCHEMA = b'{"properties":{"labels":{"const":"area:goal"}},"required":["labels"]}'
TOML = """kind = "corrective"
content = "There is no label area:goal: use goals."
confidence = 0.9
priority = 5
tool = "github:create_issue"
refuses = true
learned_from = "three calls that failed"

[arguments]
required = ["labels"]
properties.labels.const = "area:goal"
"""
MARKDOWN = """---
kind: corrective
confidence: 0.9
priority: 5
tool: github:create_issue
refuses: true
learned_from: three calls that failed
arguments: '{"required": ["labels"], "properties": {"labels": {"const": "area:goal"}}}'
---
There is no label area:goal: use goals.
"""


def read(content: str | bytes, path: str = "memories/labels.toml") -> MemoryRead:
    data = content.encode() if isinstance(content, str) else content
    return read_memory(TAP, MemoryFile(path, f"/t/{path}", data))


def wrong(content: str | bytes, path: str = "memories/labels.toml") -> tuple[int, str]:
    found = read(content, path)
    assert found.memory is None
    (finding,) = found.findings
    assert finding.reason.startswith("left out: ")
    return finding.line, finding.reason.removeprefix("left out: ")


def labels(suffix: str) -> MemorySpec:
    return MemorySpec(
        TAP,
        "labels",
        "corrective",
        "There is no label area:goal: use goals.",
        0.9,
        5.0,
        tool="github:create_issue",
        arguments=SCHEMA,
        refuses=True,
        learned_from="three calls that failed",
        file=f"/t/memories/labels{suffix}",
    )


def test_a_memory_is_read_from_toml() -> None:
    found = read(TOML)

    assert (found.memory, found.findings) == (labels(".toml"), ())


def test_a_memory_is_read_from_markdown_with_the_same_keys() -> None:
    found = read(MARKDOWN, "memories/labels.md")

    assert (found.memory, found.findings) == (labels(".md"), ())


def test_what_is_written_is_read_again_as_it_was() -> None:
    fields: dict[str, Any] = {
        "kind": "procedural",
        "content": "Say \"why\" first,\nthen 'what'. ''' é",
        "confidence": 0.5,
        "tool": "git:log",
        "arguments": {"required": ["a"], "properties": {"a": {"const": "'''"}}},
        "refuses": False,
        "learned_from": "",
    }

    found = read(written_memory(fields))

    assert found.memory == MemorySpec(
        TAP,
        "labels",
        "procedural",
        "Say \"why\" first,\nthen 'what'. ''' é",
        0.5,
        tool="git:log",
        arguments=b'{"properties":{"a":{"const":"\'\'\'"}},"required":["a"]}',
        file="/t/memories/labels.toml",
    )


def test_an_unknown_key_is_reported_with_the_one_that_is_near() -> None:
    found = read('kind = "declarative"\ncontent = "c"\ncapability = "git"\npriorty = 3\n')

    assert found.findings == (
        Finding(
            "memories/labels.toml",
            4,
            "nothing reads `priorty`. Did you mean `priority`?",
            "warning",
        ),
    )
    assert found.memory is not None


HEAD = 'kind = "corrective"\ncontent = "c"\n'


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("kind = 3\n", 1, "`kind` is not a text"),
        ("", 0, "`kind` is missing: one of corrective, procedural, declarative, episodic"),
        ('kind = "fact"\n', 1, "`kind` is 'fact': one of"),
        ("kind = \n", 1, "it is not TOML:"),
        ('kind = "episodic"\ncontent = "  "\ntool = "a:b"\n', 2, "it has no content"),
        (HEAD, 0, "it belongs to nothing"),
        (HEAD + 'tool = "a b"\n', 3, "`tool` is not a name"),
        (HEAD + 'tool = "a:b"\nconfidence = 1.5\n', 4, "`confidence` is not a number from 0 to 1"),
        (HEAD + 'tool = "a:b"\nconfidence = nan\n', 4, "`confidence` is not a number from 0 to 1"),
        (HEAD + 'tool = "a:b"\npriority = true\n', 4, "`priority` is not a number from 0 to 100"),
        (HEAD + 'tool = "a:b"\nrefuses = 1\n', 4, "`refuses` must be true or false"),
        (HEAD + 'tool = "a:b"\nrefuses = true\n', 4, "only a corrective memory of a tool with"),
        (HEAD + 'capability = "a"\narguments = {}\n', 4, "`arguments` are a tool's"),
        (HEAD + 'tool = "a:b"\narguments = {}\n', 4, "`arguments` is not a JSON Schema"),
        (HEAD + 'tool = "a:b"\narguments = "{"\n', 4, "`arguments` is not JSON"),
        (HEAD + 'tool = "a:b"\nlearned_from = 3\n', 4, "`learned_from` is not a text"),
        (b'kind = "corrective"\ncontent = "\xff"\n', 2, "it is not UTF-8"),
        (b"a\nb\0", 2, "it is binary"),
        (b"#" * (LARGEST_BYTES + 1), 0, "it is larger than 64 KiB"),
    ],
)
def test_a_file_that_is_no_memory_is_left_out_with_its_line(
    content: str | bytes, line: int, reason: str
) -> None:
    found = wrong(content)

    assert found[0] == line
    assert found[1].startswith(reason)


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("no head", 1, "it does not begin with a line `---`"),
        ("---\nkind: [a]\n---\nc", 2, "`kind` is not a text"),
        (
            "---\nkind: corrective\narguments:\n  required: [a]\n---\nc",
            3,
            "`arguments` is not a text",
        ),
        (
            "---\nkind: corrective\ncontent: c\n---\nc",
            3,
            "its content is the text below the front matter",
        ),
    ],
)
def test_the_same_goes_for_markdown(content: str, line: int, reason: str) -> None:
    found = wrong(content, "memories/labels.md")

    assert found[0] == line
    assert found[1].startswith(reason)


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "sk-proj-0123456789abcdefghij",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "postgres://me:hunter2@db/x",
        "password: Tr0ub4dor3xKqPz77",
        "Authorization: Bearer abcdef0123456789abcd",
        "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY0a",
        "\\u0067hp_0123456789abcdefghijABCDEFGHIJ012345",
    ],
)
def test_what_looks_like_a_secret_never_becomes_a_memory(secret: str) -> None:
    line, reason = wrong(f'kind = "corrective"\ntool = "a:b"\ncontent = "use {secret}"\n')

    assert (line, reason.partition(":")[0]) == (
        3,
        "it holds what looks like a secret, and what is in a memory is told to models",
    )
    assert secret not in reason


@pytest.mark.parametrize(
    "text",
    [
        "commit fbb7e77c1f0a4b2d9e8c7a6b5d4e3f2a1b0c9d8e is the one to revert to",
        "set the token in the keyring, never in a call",
        "the field api_key is required, and password too",
        "use https://example.org:8080/a/b/c and not http",
        "call mcp__server_with_a_very_long_name__tool_with_a_long_name first",
    ],
)
def test_ordinary_words_are_no_secret(text: str) -> None:
    found = read(f'kind = "corrective"\ntool = "a:b"\ncontent = "{text}"\n')

    assert found.findings == ()


@pytest.mark.parametrize("hidden", ["a\u202eb", "a\\u200bb", "\U000e0041"])
def test_what_no_person_sees_is_told_to_no_model(hidden: str) -> None:
    _, reason = wrong(f'kind = "corrective"\ntool = "a:b"\ncontent = "use {hidden}"\n')

    assert reason == "it contains invisible characters"
