"""Write the shim's constants from the table of clients.

Run `python clients/regenerate_clients.py` after a change of `capd_protos/clients.toml`; a test
compares.
"""

import json
import pathlib
import tomllib
from collections.abc import Mapping
from importlib.resources import files

TARGET = pathlib.Path(__file__).parent / "capd_client" / "shim" / "client_facts.py"


def generated() -> str:
    """Return the text of the module with the shim's constants."""
    table = tomllib.loads(files("capd_protos").joinpath("clients.toml").read_text(encoding="utf-8"))
    variables = sorted(each for line in table.values() for each in line.get("identity", ()))
    names = [each for line in table.values() for each in line.get("empty_list_for", ())]
    # The hook of VS Code is called by its program's name.
    limits = {
        "code" if name == "vscode" else name: each["hook_limit"]
        for line in table.values()
        for name, each in line.get("install", {}).items()
        if "hook_limit" in each
    }
    programs = {
        program: name
        for line in table.values()
        for name, each in line.get("install", {}).items()
        for program in (*each.get("programs", ()), *each.get("aliases", ()), name)
    }
    title = (
        '"""What the shim needs of `clients.toml`. Made by regenerate_clients.py: do not edit."""'
    )
    return f'''{title}

SESSION_VARIABLES = (
{_lines(variables)})
"""Variables with the id of the conversation that started the shim. Hooks send the same id."""

RELISTING_CLIENTS = (
{_lines(names)})
"""Clients that list again within a turn or before the next, by the name in their `clientInfo`."""

HOOK_LIMITS = {{
{_members(limits)}}}
"""Seconds that a client lets a prompt hook take, by the name that `capd hook` takes."""

PROGRAMS = {{
{_members(programs)}}}
"""Clients by the names of their programs and packages."""
'''


def _members(values: Mapping[str, object]) -> str:
    return "".join(
        f"    {json.dumps(name)}: {json.dumps(values[name])},\n" for name in sorted(values)
    )


def _lines(values: list[str]) -> str:
    return "".join(f"    {json.dumps(each)},\n" for each in dict.fromkeys(values))


if __name__ == "__main__":
    TARGET.write_text(generated(), encoding="utf-8")
