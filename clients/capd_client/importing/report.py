"""The report on an import, for a person or a program; it contains no secret."""

from collections.abc import Iterator
from typing import Any

from capd_client.importing.definition import Origin
from capd_client.importing.plan import ImportPlan, PlannedServer

_INDENT = " " * 2


def lines(plan: ImportPlan, store: str) -> Iterator[str]:
    """Yield the report on `plan` as lines for a person.

    `store` is the name of the place where secrets are saved.
    """
    count = sum(len(each.origins) for each in plan.planned) + len(plan.left_out)
    yield f"{_number(count, 'server')} in {_number(plan.files, 'file')}"
    width = max((len(each.name) for each in plan.planned), default=0)
    for each in plan.planned:
        yield ""
        first, *more = _said_of(each, store)
        yield f"{_INDENT}{each.name:{width}}  {first}"
        for line in more:
            yield f"{_INDENT}{'':{width}}  {line}"
    if named := [each.name for each in plan.added if not each.from_tools]:
        yield ""
        yield f"Switched on by name alone, as their tools are not known yet: {', '.join(named)}"
    if plan.left_out:
        yield ""
        yield "Not imported:"
        for left in plan.left_out:
            yield f"{_INDENT}{left.origin.name}, of {left.origin}: {left.reason}"
    if plan.unreadable:
        yield ""
        yield "Not read:"
        for each_file in plan.unreadable:
            yield f"{_INDENT}{each_file}"


def document(plan: ImportPlan, *, is_done: bool) -> dict[str, Any]:
    """Return the report on `plan` as `capd import --json` prints it.

    `is_done` says whether the plan has been carried out.
    """
    return {
        "schema": 1,
        "done": is_done,
        "files": plan.files,
        "servers": [_document_of(each) for each in plan.planned],
        "left_out": [{**_origin(left.origin), "reason": left.reason} for left in plan.left_out],
        "unreadable": [
            {"client": each.client, "file": str(each.file), "reason": each.reason}
            for each in plan.unreadable
        ],
    }


def _said_of(planned: PlannedServer, store: str) -> Iterator[str]:
    server = planned.server
    if server is None:
        yield "there already"
    else:
        yield server.url or " ".join(map(_quoted, server.command))
    for origin in planned.origins:
        yield f"from {origin}" + (f" as {origin.name}" if origin.name != planned.name else "")
    for key in planned.secrets:
        yield f"{key}: into {store}"
    for key in planned.missing:
        yield f"{key}: has no value here (capd secret set {key})"
    if planned.from_tools:
        source = f"the tap {planned.tools_of}" if planned.tools_of else "its last list"
        yield f"triggers from its tools, as {source} has them: {'; '.join(planned.from_tools)}"
    if server is not None and planned.is_of_project:
        # A stranger may have written these. Secrets are not among them, only their keys.
        yield from (f"sets {key}={value}" for key, value in server.env.items())
        yield from (f"sends {key}: {value}" for key, value in server.headers.items())
    yield from (note for note in planned.notes if server is not None)


def _document_of(planned: PlannedServer) -> dict[str, Any]:
    server = planned.server
    return {
        "name": planned.name,
        "state": "there" if server is None else "added",
        "command": list(server.command) if server else [],
        "url": server.url if server else "",
        "env": dict(server.env) if server else {},
        "headers": dict(server.headers) if server else {},
        "from": [_origin(origin) for origin in planned.origins],
        "secrets": list(planned.secrets),
        "missing": planned.missing,
        "notes": planned.notes,
        "triggers": list(server.triggers) if server else [],
        "triggers_from_tools": planned.from_tools,
    }


def _origin(origin: Origin) -> dict[str, str]:
    return {"client": origin.client, "file": str(origin.file), "name": origin.name}


def _quoted(word: str) -> str:
    return f"'{word}'" if not word or " " in word else word


def _number(count: int, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")
