"""Launchers, the packages that they start, and clones that attack each of them."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

NPM_SERVER = "capd-canary-server"
MODULE = "canary_server"

_NODE_SERVER = """#!/usr/bin/env node
const lines = require("readline").createInterface({ input: process.stdin });
const where = JSON.stringify({ cwd: process.cwd(), args: process.argv.slice(2) });
const results = {
  initialize: (p) => ({
    protocolVersion: p.protocolVersion, capabilities: { tools: {} },
    serverInfo: { name: "canary", version: "1" },
  }),
  ping: () => ({}),
  "tools/list": () => ({ tools: [{ name: "where", inputSchema: { type: "object" } }] }),
  "tools/call": () => ({ content: [{ type: "text", text: where }] }),
};
lines.on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = results[method];
  const answer = result
    ? { result: result(params || {}) }
    : { error: { code: -32601, message: "unknown" } };
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, ...answer }) + "\\n");
});
"""

_PYTHON_SERVER = """
import json, os, sys


def main():
    where = json.dumps({"cwd": os.getcwd(), "args": sys.argv[1:]})
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if "id" not in message:
            continue
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}},
                      "serverInfo": {"name": "canary", "version": "1"}}
        elif method == "tools/list":
            result = {"tools": [{"name": "where", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": where}]}
        elif method == "ping":
            result = {}
        else:
            error = {"code": -32601, "message": "unknown"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
            continue
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


if __name__ == "__main__":
    main()
"""


class Packages:
    """The server, as a package of each registry; none is downloaded."""

    def __init__(self, folder: Path) -> None:
        source = folder / "npm"
        source.mkdir(parents=True)
        manifest = {"name": NPM_SERVER, "version": "1.0.0", "bin": {NPM_SERVER: "server.js"}}
        (source / "package.json").write_text(json.dumps(manifest))
        self.script = source / "server.js"
        self.script.write_text(_NODE_SERVER)
        self.script.chmod(0o755)
        self.common_script = folder / "server.cjs"
        self.common_script.write_text(_NODE_SERVER)
        npm = shutil.which("npm")
        if npm is not None:
            subprocess.run(
                [npm, "pack", "--silent"], cwd=source, check=True, stdout=subprocess.DEVNULL
            )
        self.tarball = f"file:{source / f'{NPM_SERVER}-1.0.0.tgz'}"
        self.python_script = folder / "server.py"
        self.python_script.write_text(_PYTHON_SERVER)
        self.wheel = folder / f"{MODULE}-1.0-py3-none-any.whl"
        info = f"{MODULE}-1.0.dist-info"
        tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        files = {
            f"{MODULE}/__init__.py": _PYTHON_SERVER,
            f"{MODULE}/__main__.py": f"from {MODULE} import main\nmain()\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1.0\n",
            f"{info}/WHEEL": tags,
            f"{info}/entry_points.txt": f"[console_scripts]\ncanary-server = {MODULE}:main\n",
        }
        files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            for name, text in files.items():
                wheel.writestr(name, text)
        self.site = folder / "site"
        with zipfile.ZipFile(self.wheel) as wheel:
            wheel.extractall(self.site)


@dataclass
class Clone:
    """A folder that somebody else wrote; whatever of it runs writes to the canary."""

    folder: Path
    canary: Path
    js: str = field(init=False)
    python: str = field(init=False)
    shell: str = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        out = json.dumps(str(self.canary))
        self.js = f'require("fs").appendFileSync({out}, "ran\\n");\n'
        self.python = f"open({out}, 'a').write('ran\\n')\n"
        self.shell = f"#!/bin/sh\necho ran >> '{self.canary}'\n"
        self.write("evil.cjs", self.js)

    def write(self, name: str, text: str, *, runs: bool = False) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if runs:
            path.chmod(0o755)
        return path

    @property
    def has_run(self) -> bool:
        return self.canary.exists()

    # What a clone may bring

    def npmrc(self) -> None:
        self.write(".npmrc", f"node-options=--require {self.folder}/evil.cjs\n")

    def npmrc_of_a_parent(self) -> None:
        """The session is in a folder of the clone; npm goes up to where the package is."""
        self.npmrc()
        self.write("package.json", "{}")
        self.folder = self.folder / "packages" / "app"
        self.folder.mkdir(parents=True)

    def script_shell(self) -> None:
        shell = self.write("shell.sh", self.shell + 'exec sh "$@"\n', runs=True)
        self.write(".npmrc", f"script-shell={shell}\n")

    def registry(self) -> None:
        self.write(".npmrc", "registry=http://127.0.0.1:9/\noffline=true\n")
        self.write("package.json", "{}")

    def node_modules(self) -> None:
        """A package of the same name and version."""
        manifest = {"name": NPM_SERVER, "version": "1.0.0", "bin": "server.js"}
        self.write(f"node_modules/{NPM_SERVER}/package.json", json.dumps(manifest))
        script = f"node_modules/{NPM_SERVER}/server.js"
        self.write(script, f"#!/usr/bin/env node\n{self.js}", runs=True)
        bin_folder = self.folder / "node_modules/.bin"
        bin_folder.mkdir()
        (bin_folder / NPM_SERVER).symlink_to(f"../{NPM_SERVER}/server.js")
        depends = {"name": "z", "dependencies": {NPM_SERVER: "1.0.0"}}
        self.write("package.json", json.dumps(depends))

    def own_bin(self) -> None:
        """The clone itself is a package with a program of the server's name."""
        manifest = {"name": NPM_SERVER, "version": "1.0.0", "bin": "evil.cjs"}
        self.write("package.json", json.dumps(manifest))
        self.write("evil.cjs", f"#!/usr/bin/env node\n{self.js}", runs=True)

    def pnpmfile(self) -> None:
        self.write(".pnpmfile.cjs", self.js)
        self.write("package.json", '{"name": "z"}')

    def pnpm_workspace(self) -> None:
        self.write("pnpm-workspace.yaml", "packages: ['.']\npnpmfile: evil.cjs\n")
        self.write("package.json", '{"name": "z"}')

    def package_manager(self) -> None:
        self.write("package.json", '{"name": "z", "packageManager": "pnpm@0.0.1-none"}')

    def yarnrc(self) -> None:
        self.write(".yarnrc", 'yarn-path "./evil.cjs"\n')

    def yarn_path(self) -> None:
        self.write(".yarnrc.yml", "yarnPath: ./evil.cjs\n")

    def yarn_plugin(self) -> None:
        self.write(".yarnrc.yml", "plugins:\n  - path: ./evil.cjs\n")
        self.write("package.json", '{"name": "z"}')

    def env_yarn(self) -> None:
        self.write(".env.yarn", f"NODE_OPTIONS=--require {self.folder}/evil.cjs\n")

    def bunfig(self) -> None:
        self.write("bunfig.toml", 'preload = ["./evil.cjs"]\n')

    def tsconfig(self) -> None:
        self.write("tsconfig.json", '{"compilerOptions": {"paths": {"*": ["./evil.cjs"]}}}')

    def dot_env(self) -> None:
        self.write(".env", f"NODE_OPTIONS=--require {self.folder}/evil.cjs\n")

    def deno_json(self) -> None:
        self.write("deno.json", '{"nodeModulesDir": "manual"}')
        self.node_modules()

    def uv_toml(self) -> None:
        self.write("uv.toml", 'index-url = "http://127.0.0.1:9/simple"\nno-index = true\n')

    def pyproject(self) -> None:
        """Its build backend is a file of the clone."""
        self.write(
            "pyproject.toml",
            '[project]\nname = "z"\nversion = "1"\n[build-system]\nrequires = []\n'
            'build-backend = "evil"\nbackend-path = ["."]\n',
        )
        self.write("evil.py", self.python)

    def python_version(self) -> None:
        python = self.write("py", f'{self.shell}exec "{sys.executable}" "$@"\n', runs=True)
        self.write(".python-version", f"{python}\n")

    def venv(self) -> None:
        self.write(".venv/pyvenv.cfg", "home = /usr/bin\nversion_info = 3.11.2\n")
        for name in ("python", "python3"):
            self.write(
                f".venv/bin/{name}", f'{self.shell}exec "{sys.executable}" "$@"\n', runs=True
            )

    def modules(self) -> None:
        for name in ("json", "sitecustomize", "usercustomize", "pip", "venv", MODULE):
            self.write(f"{name}.py", self.python)

    def pypackages(self) -> None:
        for version in ("3.10", "3.11", "3.12", "3.13", "3.14"):
            name = f"__pypackages__/{version}/lib/bin/canary-server"
            self.write(name, self.shell, runs=True)

    def tool_versions(self) -> None:
        """A version manager of the user's runs what the clone names, as asdf does with `path:`."""
        self.write(".tool-versions", f"tool path:{self.folder}\n")
        self.write("bin/tool", self.shell, runs=True)


Plant = Callable[[Clone], None]


@dataclass(frozen=True)
class Case:
    """One launcher, how a user would write it, and what a clone may do to it."""

    argv: Callable[[Packages], list[str]]
    plants: tuple[Plant, ...]
    needs: tuple[str, ...] = ()
    """Packages of npm or PyPI that bring it; none where the machine has it."""
    is_in_project: bool = False
    """Whether the server's working directory is the project all the same."""
    env: Callable[[Packages], Mapping[str, str]] = lambda _: {}


_NPM_PLANTS = (
    *(Clone.npmrc, Clone.npmrc_of_a_parent, Clone.script_shell, Clone.registry),
    *(Clone.node_modules, Clone.own_bin),
)
_PYTHON_PLANTS = (
    *(Clone.uv_toml, Clone.pyproject, Clone.python_version, Clone.venv, Clone.modules),
    Clone.dot_env,
)

# It would take what it resolved for another clone, and read nothing.
_ANEW = ["--config.dlx-cache-max-age=0"]
CASES: dict[str, Case] = {
    "npx": Case(
        lambda p: ["npx", "-y", f"--package={p.tarball}", NPM_SERVER, "."],
        _NPM_PLANTS, is_in_project=True,
    ),
    "npm exec": Case(
        lambda p: ["npm", "exec", "-y", f"--package={p.tarball}", "--", NPM_SERVER, "."],
        _NPM_PLANTS, is_in_project=True,
    ),
    "pnpm 9 dlx": Case(
        lambda p: ["pnpm", *_ANEW, f"--package={p.tarball}", "dlx", NPM_SERVER, "."],
        (*_NPM_PLANTS[:4], Clone.pnpmfile, Clone.pnpm_workspace, Clone.package_manager),
        needs=("npm:pnpm@9",),
    ),
    "pnpm 10 dlx": Case(
        lambda p: ["pnpm", *_ANEW, f"--package={p.tarball}", "dlx", NPM_SERVER, "."],
        (Clone.pnpmfile, Clone.pnpm_workspace, Clone.package_manager),
        needs=("npm:pnpm@10",),
    ),
    "yarn dlx": Case(
        lambda p: ["yarn", "dlx", "-q", "-p", f"{NPM_SERVER}@{p.tarball}", NPM_SERVER, "."],
        (Clone.yarn_path, Clone.yarn_plugin, Clone.env_yarn, Clone.npmrc, Clone.node_modules),
        needs=("npm:@yarnpkg/cli-dist@4",),
    ),
    "bunx": Case(
        lambda p: ["bunx", "--bun", "--package", p.tarball, NPM_SERVER, "."],
        (Clone.bunfig, Clone.tsconfig, Clone.dot_env, Clone.node_modules, Clone.npmrc),
        needs=("npm:bun@1",),
    ),
    "bun": Case(
        lambda p: ["bun", str(p.script), "."],
        (Clone.bunfig, Clone.tsconfig, Clone.dot_env),
        needs=("npm:bun@1",),
    ),
    "deno run": Case(
        lambda p: ["deno", "run", "-A", str(p.common_script), "."],
        (Clone.deno_json, Clone.node_modules, Clone.npmrc, Clone.dot_env),
        needs=("npm:deno@2",),
    ),
    "uvx": Case(
        lambda p: ["uvx", "--from", str(p.wheel), "canary-server", "."],
        _PYTHON_PLANTS, is_in_project=True,
    ),
    "uv run": Case(
        lambda p: ["uv", "run", "--with", str(p.wheel), "canary-server", "."],
        (*_PYTHON_PLANTS[:4], Clone.dot_env),
    ),
    "uv run python -m": Case(
        lambda p: ["uv", "run", "--with", str(p.wheel), "python", "-m", MODULE, "."],
        _PYTHON_PLANTS,
    ),
    "pipx run": Case(
        lambda p: ["pipx", "run", "--spec", str(p.wheel), "canary-server", "."],
        (Clone.pypackages, Clone.pyproject),
        needs=("pip:pipx",),
    ),
    "python -m": Case(
        lambda _: [sys.executable, "-m", MODULE, "."],
        (Clone.modules,), is_in_project=True, env=lambda p: {"PYTHONPATH": str(p.site)},
    ),
    "python FILE": Case(
        lambda p: [sys.executable, str(p.python_script), "."], _PYTHON_PLANTS, is_in_project=True
    ),
    "node FILE": Case(
        lambda p: ["node", str(p.script), "."],
        (Clone.npmrc, Clone.node_modules, Clone.dot_env), is_in_project=True,
    ),
    "a script that calls npx": Case(
        lambda p: [str(wrapper(p))], _NPM_PLANTS[:1],
    ),
    "a script for bun": Case(
        lambda p: [str(bun_script(p)), "."],
        (Clone.bunfig, Clone.tsconfig, Clone.dot_env),
        needs=("npm:bun@1",),
    ),
    "a script for uv": Case(
        lambda p: [str(uv_script(p)), "."], (Clone.uv_toml, Clone.python_version, Clone.venv)
    ),
    "sh -c": Case(
        lambda p: ["sh", "-c", f"npx -y --package={p.tarball} {NPM_SERVER}"], _NPM_PLANTS[:1]
    ),
    "env": Case(
        lambda p: ["env", "A=b", "npx", "-y", f"--package={p.tarball}", NPM_SERVER, "."],
        _NPM_PLANTS[:1], is_in_project=True,
    ),
    "npx that starts bun": Case(
        lambda p: ["npx", "-y", "bun@1", str(p.script), "."], (Clone.bunfig,)
    ),
}  # fmt: skip


def wrapper(packages: Packages) -> Path:
    """Return a script of the user's own."""
    script = packages.wheel.parent / "my-server"
    script.write_text(f"#!/bin/sh\nexec npx -y --package={packages.tarball} {NPM_SERVER}\n")
    script.chmod(0o755)
    return script


def bun_script(packages: Packages) -> Path:
    """Return a script of the user's own whose first line names bun."""
    script = packages.script.with_name("server-for-bun.js")
    _, _, text = packages.script.read_text().partition("\n")
    script.write_text(f"#!/usr/bin/env bun\n{text}")
    script.chmod(0o755)
    return script


def uv_script(packages: Packages) -> Path:
    """Return a script of the user's own whose first line names uv."""
    script = packages.wheel.parent / "server-for-uv"
    script.write_text(
        "#!/usr/bin/env -S uv run --script\n"
        f'# /// script\n# dependencies = ["{MODULE} @ file://{packages.wheel}"]\n# ///\n'
        f"{packages.python_script.read_text()}"
    )
    script.chmod(0o755)
    return script


class Programs:
    """Launchers that the machine does not have, installed by name into a folder of the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, str] = {}

    def path(self, needs: tuple[str, ...]) -> list[str]:
        """Return the folders of programs; raise where one cannot be had."""
        return [self._found.setdefault(need, self._installed(need)) for need in needs]

    def _installed(self, need: str) -> str:
        if need in self._found:
            return self._found[need]
        kind, _, package = need.partition(":")
        target = self._folder / package.replace("/", "_")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if kind == "npm":
            argv = ["npm", "install", "--prefix", str(target), "--no-audit", "--no-fund"]
            subprocess.run([*argv, package], check=True, **quiet)  # type: ignore[call-overload]
            return str(target / "node_modules/.bin")
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "-q", target], check=True, **quiet)  # type: ignore[call-overload]
        env = {**os.environ, "VIRTUAL_ENV": str(target)}
        subprocess.run([uv, "pip", "install", "-q", package], check=True, env=env, **quiet)  # type: ignore[call-overload]
        return str(target / "bin")
