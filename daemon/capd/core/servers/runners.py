"""How to install the programs that commonly start servers, such as `npx` and `uvx`."""

_NODE = "it comes with Node.js (package `nodejs` or `npm`, or https://nodejs.org)"
_UV = "it comes with uv: pip install uv, or https://docs.astral.sh/uv"
_BUN = "it comes with Bun: https://bun.sh"
_ADVICE = {
    "npx": _NODE,
    "npm": _NODE,
    "node": _NODE,
    "pnpm": "it comes with pnpm: npm install -g pnpm",
    "pnpx": "it comes with pnpm: npm install -g pnpm",
    "yarn": "it comes with Yarn: npm install -g yarn",
    "bun": _BUN,
    "bunx": _BUN,
    "deno": "it comes with Deno: https://deno.com",
    "uv": _UV,
    "uvx": _UV,
    "pipx": "install the package `pipx`, or use uvx",
    "python": "install the package `python3`, or write python3",
    "docker": "it comes with Docker: https://docs.docker.com/engine/install",
    "podman": "install the package `podman`",
    "cargo": "it comes with Rust: https://rustup.rs",
    "go": "it comes with Go: https://go.dev/doc/install",
    "dotnet": "it comes with .NET: https://dotnet.microsoft.com/download",
    "dnx": "it comes with .NET 10: https://dotnet.microsoft.com/download",
    "java": "install a Java runtime, such as the package `default-jre`",
}


_ONE_WORD = (
    "it is one word with spaces: leave out the quotes around it; in a definition, `command` has its"
    " first word and `args` the others"
)


def advice(command: str) -> str:
    """Return what to do if `command` is not on the PATH, as a clause for a person."""
    if len(command.split()) > 1:
        return _ONE_WORD
    return _ADVICE.get(command, "install it, or give its full path")


def path_advice(command: str) -> str:
    """Return what to do if `command`, a path, is not a program, as a clause for a person."""
    return _ONE_WORD if len(command.split()) > 1 else "correct the command's path"
