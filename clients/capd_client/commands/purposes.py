"""`capd --help`: every command in the group of what it is for, on one screen."""

from collections.abc import Collection, Iterator

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
        "search": "tools for a text",
    },
    "Use": {
        "turn": "hand over a message",
        "call": "call a tool",
        "enable": "switch a capability on",
        "disable": "switch it off",
        "routing": "on or off, in a session",
    },
    "Add": {
        "add": "a server of your own",
        "remove": "take it away again",
        "import": "servers of your editors",
        "tap": "folders of capabilities",
        "secret": "tokens for servers",
        "login": "at a server by URL",
        "trust": "what a project starts",
        "memory": "what models are told",
        "index": "tools and capabilities",
        "learn": "a phrase of your own",
        "config": "settings, and from where",
        "check": "what is wrong in taps",
        "reload": "read the taps again",
    },
    "Connect": {
        "install": "capd in an editor",
        "uninstall": "out of it again",
        "acp": "an agent for an editor",
        "plugin": "for Neovim and Emacs",
        "completion": "for your shell",
    },
    "Run": {
        "daemon": "service, or foreground",
        "restart": "stop it, start it again",
        "stop": "end it in good order",
        "doctor": "what is wrong, and fixes",
        "version": "of command and daemon",
        "eval": "measure routing, search",
    },
}
FOR_PROGRAMS = frozenset({"hook", "mcp"})
"""What clients start, and nobody types."""

_HEADING, _NAME, _TEXT = 9, 11, 25


def lines(names: Collection[str]) -> Iterator[str]:
    """Yield the lines that tell of `names`, two of them a line."""
    known = {name for group in PURPOSES.values() for name in group}
    others = dict.fromkeys(sorted(set(names) - known - FOR_PROGRAMS), "")
    for heading, group in {**PURPOSES, "More": others}.items():
        cells = [f"{name:{_NAME}}{text:{_TEXT}}" for name, text in group.items() if name in names]
        for at in range(0, len(cells), 2):
            start = heading if at == 0 else ""
            yield f"{start:{_HEADING}}{''.join(cells[at : at + 2])}".rstrip()


def text_of(name: str) -> str:
    """Return what is said of a command in few words; empty where nothing is."""
    return next((group[name] for group in PURPOSES.values() if name in group), "")
