"""`capd skill`: prints a skill for agents that have a shell and no MCP."""

import click

SKILL = """\
---
name: capd
description: Use tools of MCP servers from the shell with the command capd. Use it when a task
  needs a service or program that no tool at hand reaches (issues, databases, pages, documents).
---

# Tools from the shell

`notes__find` stands for the name of any tool below.

Find what can do something. The answer has each tool's name, and in `definition` what it takes:

    capd search "find a note about milk" --limit 5 --json

Call a tool by its name, with its arguments as JSON. The result is on standard output:

    capd call notes__find '{"text": "milk"}'

Make many calls in one script. Each tool is an async function, `server.tool`. The value of the last
line is printed; so print little, and count and filter here:

    capd run - <<'END'
    import asyncio
    found = await asyncio.gather(*[notes.find(text=each) for each in ["milk", "tea"]])
    len(found)
    END

See why something was switched on, or was not:

    capd why --limit 3

Rules:

- An exit code other than 0 says that a call did not work; the reason is on standard error.
- "The outcome is unknown" means that the call may have run: look before you repeat it.
- "The user has to approve it": tell the user to run `capd approve` in a terminal, and call again.
- "No daemon runs": tell the user to run `capd daemon start`.
"""


@click.command()
def skill() -> None:
    """Print a skill that teaches an agent with a shell to use tools through `capd`.

    Put it where your agent reads skills: `capd skill > ~/.claude/skills/capd/SKILL.md`.
    """
    click.echo(SKILL, nl=False)


COMMANDS = {"skill": skill}
