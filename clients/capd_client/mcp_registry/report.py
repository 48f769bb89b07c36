"""Texts that a person reads before a server of a registry is added or updated."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_LONGEST_DESCRIPTION = 100


def entry_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines that say what an entry is, who published it, and how it runs."""
    yield f"{entry['name']} {entry['version']}: {_line(entry.get('description'))}"
    where = f" ({entry['repository']})" if entry.get("repository") else ""
    yield f"  published by: {entry['namespace']}{where}"
    integrity = (entry.get("artifact") or {}).get("integrity")
    yield f"  runs: {entry['kind']} {entry['identifier']}"
    if integrity:
        yield f"  checked: {integrity}"
    if entry.get("others"):
        yield f"  also as: {', '.join(entry['others'])} (--kind)"
    for note in entry.get("notes") or ():
        yield f"  note: {note}"
    for each in entry.get("inputs") or ():
        yield f"  {input_line(each)}"


def input_line(each: Mapping[str, Any]) -> str:
    """Return the line that describes an input: its name, default, choices and meaning."""
    need = "needs" if each.get("is_required") and not each.get("default") else "takes"
    words = [str(each["name"])]
    if each.get("is_secret"):
        words.append("(secret)")
    if each.get("default"):
        words.append(f"[{each['default']}]")
    if each.get("choices"):
        words.append(f"one of {', '.join(map(str, each['choices']))}")
    if each.get("description"):
        words.append(f"- {_line(each['description'])}")
    return f"{need}: {' '.join(words)}"


def start_line(command: Sequence[str], url: str) -> str:
    """Return the line that says how a server will be started: by `command`, or over `url`."""
    return f"  connects to: {url}" if url else f"  starts: {shlex.join(command)}"


def inspection_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines on a server's tools, their cost in tokens, and anything suspicious."""
    tools = found.get("tools") or []
    tokens = sum(int(each.get("tokens") or 0) for each in tools)
    how = f", listed in the sandbox: {found['sandbox']}" if found.get("sandbox") else ""
    yield f"{len(tools)} tools, {tokens} tokens when listed whole{how}"
    for each in tools:
        yield f"  {each['name']} ({each['tokens']}): {_line(each.get('description'))}"
    findings = found.get("findings") or []
    if findings:
        yield f"{len(findings)} findings of the definition check; look at them before you agree:"
    for each in findings:
        yield f"  {each['tool']}: {each['code']}: {each['seen']} ({each['source']})"
    for each in found.get("collisions") or ():
        yield f"collides: {each['phrase']!r} with {each['theirs']!r} of {each['capability']}"


def change_lines(changes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield lines that say how tool definitions differ from those of the installed version."""
    if not changes:
        yield "  its tools are defined as before"
    for each in changes:
        if each["kind"] == "unknown":
            yield "  its tools before are not known, so they cannot be compared"
            continue
        yield f"  {each['kind']}: {each['tool']}"
        for line in str(each.get("difference") or "").splitlines():
            yield f"    {line}"


def _line(text: object) -> str:
    plain = " ".join(str(text or "").split())
    return plain if len(plain) <= _LONGEST_DESCRIPTION else f"{plain[: _LONGEST_DESCRIPTION - 1]}…"
