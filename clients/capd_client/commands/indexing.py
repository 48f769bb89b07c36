"""`capd index`: asks every server for its tools, and writes the index of capabilities."""

import sys
from typing import Any

import click

from capd_client import tables
from capd_client.commands.shared import (
    ask,
    fail,
    json_option,
    print_json,
    session_option,
    this_places,
)
from capd_client.terminal import many

_TIMEOUT = 3700.0
"""Seconds that `--with-model` may take: the same limit as without it."""


@click.command()
@click.option("--known", is_flag=True, help="Use saved tool lists; ask no server.")
@click.option("--with-model", is_flag=True, help="Let a client's own model write better words.")
@click.option("--yes", is_flag=True, help="With --with-model: accept every proposal.")
@session_option
@json_option
def index(*, known: bool, with_model: bool, yes: bool, session: str, as_json: bool) -> None:
    """Ask every server once for its tools, and write capability-index.yaml."""
    if with_model:
        _with_model(session, takes_all=yes, as_json=as_json)
        return
    if yes:
        raise click.UsageError("--yes accepts what a model proposes, so it needs --with-model")
    from capd_client.indexing import run_index  # noqa: PLC0415 - threads, which few commands need

    result = run_index(
        this_places().socket, session, show_progress=not as_json, asks_servers=not known
    )
    servers = result.get("servers") or []
    failed = [str(each.get("name")) for each in servers if each.get("error")]
    if as_json:
        print_json(result)
    else:
        if not known:
            tools = sum(int(each.get("tools", 0)) for each in servers)
            click.echo(f"{many(len(servers), 'server')} asked, {many(tools, 'tool')} known")
        if result.get("index"):
            _say_written(result["index"])
    if failed:
        asked = many(len(servers), "server")
        fail(f"{len(failed)} of {asked} did not answer: {', '.join(failed)}")


def _say_written(written: dict[str, Any]) -> None:
    what = "as it was" if written.get("unchanged") else f"{written.get('changed', 0)} written anew"
    own = (
        f", {written['set_by_user']} values of your own kept" if written.get("set_by_user") else ""
    )
    tables.say(f"{written.get('path')}: {written.get('capabilities', 0)} capabilities, {what}{own}")


def _with_model(session: str, *, takes_all: bool, as_json: bool) -> None:
    from capd_client.control import Control  # noqa: PLC0415

    with Control(this_places().socket, timeout=_TIMEOUT) as control:
        found = control.call("index_propose", {"session": session})
    proposals = found.get("proposals") or []
    if as_json and not takes_all:
        print_json(found)
        return
    accepted: list[dict[str, Any]] = []
    for each in proposals:
        if not as_json:
            for line in difference(each):
                tables.say(line)
        if takes_all or (sys.stdin.isatty() and click.confirm("Take it?", default=False)):
            accepted.append({"name": each["name"], **each["after"]})
    if accepted:
        result = ask("index_accept", words=accepted)
        if as_json:
            print_json(result)
            return
        tables.say(f"{(result.get('index') or {}).get('path')}: {len(accepted)} changed")
    elif as_json:
        print_json(found)
    else:
        asked = found.get("asked", 0)
        click.echo(f"{asked} capabilities asked about, {len(proposals)} proposed, none taken")
        if proposals and not sys.stdin.isatty():
            click.echo("Take all with --yes.")


def difference(proposal: dict[str, Any]) -> list[str]:
    """Return a diff, as lines, between the present and the proposed words for a capability."""
    before, after = proposal.get("before") or {}, proposal.get("after") or {}
    lines = [str(proposal.get("name"))]
    for key in ("verb", "do", "use_when"):
        if before.get(key) != after.get(key):
            lines += [f"- {key}: {_words(before.get(key))}", f"+ {key}: {_words(after.get(key))}"]
    return lines


def _words(value: object) -> str:
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)


COMMANDS = {"index": index}
