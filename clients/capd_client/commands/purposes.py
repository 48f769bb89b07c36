"""`capd --help`: every command, in groups by purpose, on one screen."""

from collections.abc import Collection, Iterator

import click

PURPOSES: dict[str, dict[str, str]] = {
    "Look": {
        "status": "all of it on one page",
        "top": "the same, live",
        "sessions": "who is connected",
        "servers": "what runs, and for whom",
        "caps": "what is installed",
        "tools": "what a session sees",
        "why": "why it is on, or not",
        "events": "what happens, as it does",
        "logs": "what the daemon says",
        "metrics": "counts, for Prometheus",
    },
    "Find": {
        "discover": "capabilities for a text",
        "search": "tools for a task",
        "find": "servers in the registry",
    },
    "Use": {
        "turn": "hand over a message",
        "call": "call a tool",
        "run": "many calls, in a script",
        "enable": "switch a capability on",
        "disable": "switch it off",
        "routing": "on or off, in a session",
        "approve": "calls that wait for you",
    },
    "Add": {
        "add": "a server of your own",
        "update": "to newer versions",
        "remove": "take it away again",
        "import": "servers of your editors",
        "tap": "folders of capabilities",
        "tool": "rename or hide tools",
        "secret": "tokens for servers",
        "login": "at a server by URL",
        "logout": "forget a login",
        "trust": "what a project starts",
        "memory": "what models are told",
        "index": "tools and capabilities",
        "learn": "from use and phrases",
        "config": "settings, and from where",
        "profile": "accounts, rules by place",
        "check": "taps, configuration",
        "reload": "read the taps again",
    },
    "Connect": {
        "setup": "all of it, step by step",
        "install": "capd in an editor",
        "uninstall": "out of it again",
        "acp": "an agent for an editor",
        "bridge": "containers, other hosts",
        "skill": "for agents with a shell",
        "plugin": "for Neovim and Emacs",
        "completion": "for your shell",
    },
    "Run": {
        "daemon": "service, or foreground",
        "restart": "stop it, start it again",
        "stop": "end it in good order",
        "doctor": "what is wrong, and fixes",
        "version": "of command and daemon",
        "help": "for a command",
        "eval": "measure routing, search",
    },
}
FOR_PROGRAMS = frozenset({"hook", "mcp"})
"""Commands that clients start and no person types."""

EXAMPLES = {
    "acp": "acp -- gemini --acp",
    "add": "add weather -- npx -y weather-mcp@1.2.3",
    "approve": "approve 3 --once",
    "bridge": "bridge list",
    "bridge list": "bridge list",
    "bridge revoke": "bridge revoke devbox",
    "bridge container": "bridge container devbox",
    "bridge ssh": "bridge ssh me@devbox",
    "call": """call git__git_log '{"repo_path": "/src/app"}'""",
    "caps": "caps",
    "check": "check ~/taps/mine",
    "completion": "completion fish",
    "config": "config show --origin",
    "config path": "config path --project .",
    "config schema": "config schema",
    "config show": "config show --all",
    "daemon": "daemon start",
    "daemon install": "daemon install --hardened",
    "daemon logs": "daemon logs --follow",
    "daemon restart": "daemon restart",
    "daemon run": "daemon run",
    "daemon start": "daemon start",
    "daemon stop": "daemon stop",
    "daemon uninstall": "daemon uninstall",
    "disable": "disable git",
    "discover": 'discover "what changed since yesterday?"',
    "doctor": "doctor",
    "enable": "enable git",
    "eval": "eval --help",
    "events": "events server. install.",
    "find": 'find "issues on github"',
    "help": "help call",
    "import": "import --dry-run",
    "index": "index --known",
    "install": "install claude",
    "setup": "setup --yes",
    "learn": 'learn "what is the weather" weather',
    "login": "login linear",
    "logout": "logout linear --account work",
    "logs": "logs --follow --level warning",
    "mcp": "mcp",
    "memory": "memory list",
    "memory add": 'memory add "Dates are ISO 8601." --tool git__git_log',
    "memory edit": "memory edit dates",
    "memory forget": "memory forget dates",
    "memory list": "memory list --tool git__git_log",
    "memory suggest": "memory suggest --accept 1",
    "metrics": "metrics",
    "plugin": "plugin nvim",
    "profile": "profile",
    "profile use": "profile use work",
    "reload": "reload",
    "remove": "remove weather",
    "restart": "restart",
    "routing": "routing off",
    "run": "run releases.py --input count=5",
    "search": 'search "read a pdf" --limit 10',
    "secret": "secret set GITHUB_TOKEN",
    "secret list": "secret list",
    "secret remove": "secret remove GITHUB_TOKEN",
    "secret set": "secret set GITHUB_TOKEN",
    "servers": "servers",
    "sessions": "sessions",
    "skill": "skill",
    "status": "status --tokens",
    "stop": "stop",
    "tap": "tap add ~/taps/mine",
    "tap add": "tap add https://example.org/team/tap.git --name team",
    "tap build": "tap build taps/mine",
    "tap export": "tap export ~/taps/shared",
    "tap list": "tap list",
    "tap remove": "tap remove team",
    "tap update": "tap update team",
    "tool": "tool list",
    "tool edit": "tool edit git:git_log --name history --preset max_count=20",
    "tool list": "tool list",
    "tool reset": "tool reset git:git_log",
    "tool show": "tool show git:git_log",
    "tools": "tools --session zed-1",
    "top": "top --every 2",
    "trust": "trust project .",
    "trust definitions": "trust definitions git --accept",
    "trust project": "trust project . --list",
    "turn": 'turn "what changed since yesterday?"',
    "uninstall": "uninstall claude",
    "update": "update --dry-run",
    "version": "version",
    "why": "why --limit 3",
}
"""Examples for each command's help, without the leading `capd`."""

_LAST = ("session", "is_yes", "yes", "as_json")
"""Options that many commands have; help lists them after a command's own, in this order."""

_HEADING, _NAME, _TEXT = 9, 11, 25


def lines(names: Collection[str]) -> Iterator[str]:
    """Yield help lines for the commands `names`, two commands a line."""
    known = {name for group in PURPOSES.values() for name in group}
    others = dict.fromkeys(sorted(set(names) - known - FOR_PROGRAMS), "")
    for heading, group in {**PURPOSES, "More": others}.items():
        cells = [f"{name:{_NAME}}{text:{_TEXT}}" for name, text in group.items() if name in names]
        for at in range(0, len(cells), 2):
            start = heading if at == 0 else ""
            yield f"{start:{_HEADING}}{''.join(cells[at : at + 2])}".rstrip()


def complete_help(command: click.Command, path: str) -> None:
    """Add to the help of `command` (`capd PATH`) and its subcommands, in place.

    They get their example, a summary that click does not cut, and the usual order of options.
    """
    if path in EXAMPLES and not command.epilog:
        command.epilog = f"\b\nExample:\n  capd {EXAMPLES[path]}"
    if command.help:
        # In a list of commands, click would otherwise cut a summary and end it with dots.
        first = command.help.partition("\n\n")[0]
        command.short_help = " ".join(first.split()).rstrip(".")
    command.params.sort(key=lambda each: _LAST.index(each.name) + 1 if each.name in _LAST else 0)
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            complete_help(each, f"{path} {name}")


def text_of(name: str) -> str:
    """Return the few words that `capd --help` has for the command `name`; empty for none."""
    return next((group[name] for group in PURPOSES.values() if name in group), "")
