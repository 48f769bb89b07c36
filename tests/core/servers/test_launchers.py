"""Which project files each launcher reads, and how it is kept from untrusted ones."""

import pytest

from capd.core.servers.launchers import (
    TABLE,
    FilesRead,
    Launch,
    all_names,
    launch,
    outside,
    program_name,
    reading,
    shim_names,
)

PROJECT = "/home/ada/clone"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("npx -y server@1", ".npmrc"),
        ("/usr/bin/npx -y @scope/server@1 .", "node_modules"),
        ("npm exec -- server", "package.json"),
        ("pnpm dlx server", ".pnpmfile.cjs"),
        ("pnpx server", "pnpm-workspace.yaml"),
        ("yarn dlx server", ".yarnrc.yml"),
        ("yarn run server", ".yarnrc"),
        ("yarn dlx server", ".env.yarn"),
        ("bunx server", "bunfig.toml"),
        ("bun /opt/server.ts", ".env.local"),
        ("bun /opt/server.ts", ".env.production.local"),
        ("bun /opt/server.ts", "tsconfig.json"),
        ("tsx /opt/server.ts", "tsconfig.json"),
        ("npx tsx /opt/server.ts", "tsconfig.json"),
        ("npx -y bun@1.2 /opt/server.ts", "bunfig.toml"),
        ("deno run -A npm:server", "deno.json"),
        ("uv run --with mcp mcp run /opt/server.py", "pyproject.toml"),
        ("uv run --project /opt/server server", ".venv"),
        ("pipx run server", "__pypackages__"),
        ("docker compose run server", "compose.override.yml"),
        ("docker-compose up", ".env"),
        ("podman compose run server", "docker-compose.override.yml"),
        ("cargo run --manifest-path /opt/server/Cargo.toml", ".cargo"),
        ("go run example.com/server@v1", "go.work"),
        ("mise exec -- server", "mise.toml"),
        ("asdf exec server", ".tool-versions"),
        ("direnv exec . server", ".envrc"),
        ("env A=b npx -y server", ".npmrc"),
        ("timeout 60 npx -y server", ".npmrc"),
        ("env -C /tmp npx -y server", ".npmrc"),
        ("make serve", "Makefile"),
        ("task serve", "taskfile.yml"),
        ("task serve", "Taskfile.dist.yaml"),
        ("rake serve", "rakefile.rb"),
        ("bundle exec server", "gems.rb"),
        ("Rscript -e mcptools::mcp_server()", ".Rprofile"),
        ("Rscript /opt/server.R", ".Renviron"),
        ("R --no-echo -e mcptools::mcp_server()", ".Rprofile"),
        ("node -e require('x')", "node_modules"),
        ("node -r dotenv/config /opt/server.js", "node_modules"),
        ("dnx server", "NuGet.config"),
        ("uvx --from deno deno run /opt/server.ts", "deno.json"),
    ],
)
def test_a_launcher_reads_its_own_files(line: str, name: str) -> None:
    assert name in reading(line.split()).names


@pytest.mark.parametrize(
    "line",
    [
        "uvx mcp-server-git --repository .",
        "uvx --from /opt/server.whl server .",
        "uv tool run mcp-server-git",
        "uv --directory /opt/server run server.py",
        "uv run --directory /opt/server server.py",
        "mcp-server-git --repository .",
        "/opt/server --npx",
        "python /opt/server.py .",
        "python3.12 -I -m server",
        "python -P -m server",
        "python -Im server",
        "node /opt/server.js .",
        "node --enable-source-maps /opt/server.js",
        "docker run -i --rm image",
        "bash /opt/server.sh",
        "java -jar /opt/server.jar",
        "Rscript --vanilla /opt/server.R",
    ],
)
def test_a_program_that_reads_nothing_where_it_runs_is_not_held(line: str) -> None:
    found = reading(line.split())

    assert (found.is_reading, found.project_file) == (False, "")
    assert launch(line.split(), found, ["package.json"], project=PROJECT) == Launch(
        tuple(line.split())
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("./server.sh", "./server.sh"),
        ("bin/server", "bin/server"),
        ("{{PROJECT}}/server.sh", "{{PROJECT}}/server.sh"),
        ("python server.py", "server.py"),
        ("python -u {{CWD}}/server.py", "{{CWD}}/server.py"),
        ("python -W ignore server.py", "server.py"),
        ("node dist/server.js", "dist/server.js"),
        ("node --import ./first.js /opt/server.js", "./first.js"),
        ("node --env-file=.env /opt/server.js", ".env"),
        ("sh run.sh", "run.sh"),
        ("bun server.ts", "server.ts"),
        ("deno run -A server.ts", "server.ts"),
        ("tsx server.ts", "server.ts"),
        ("tsx watch server.ts", "server.ts"),
        ("tsx watch --clear-screen=false /opt/server.ts", ""),
        ("npx -y tsx watch /opt/server.ts", ""),
        ("Rscript server.R", "server.R"),
        ("R -f server.R --vanilla", "server.R"),
        ("npx -y .", "."),
        ("npx -y ./packages/server", "./packages/server"),
        ("npx --prefix . server", "."),
        ("npx tsx src/server.ts", "src/server.ts"),
        ("uvx --from . server", "."),
        ("uvx ./server", "./server"),
        ("uv run server.py", "server.py"),
        ("uv --directory server run server.py", "server"),
        ("uv run --with mcp python server.py", "server.py"),
        ("pipx run ./server.py", "./server.py"),
        ("env A=b python server.py", "server.py"),
    ],
)
def test_a_file_of_the_project_is_named(line: str, named: str) -> None:
    assert reading(line.split()).project_file == named


def test_what_a_text_for_a_shell_starts_is_seen() -> None:
    assert ".npmrc" in reading(["sh", "-c", "cd /opt && exec npx -y server"]).names
    assert ".npmrc" in reading(["bash", "-lc", 'TOKEN=$(pass show x) npx -y "server"']).names
    assert reading(["sh", "-c", "./server.sh"]).is_always
    # As `capd import` writes a server with a folder of its own.
    into = ["sh", "-c", 'cd "$0" && exec "$@"', "/opt/server", "python", "server.py"]
    assert (reading(into).is_always, reading(into).project_file) == (True, "")
    assert ".npmrc" in reading(["/opt/run"], script="#!/bin/sh\nexec npx -y server\n").names
    plain = "#!/bin/sh\n# npx is not used, make sure of it\necho go\nexec /opt/server\n"
    assert not reading(["/opt/run"], script=plain).is_reading


@pytest.mark.parametrize(
    ("interpreter", "name"),
    [
        (("/usr/bin/env", "bun"), "bunfig.toml"),
        (("/usr/bin/env", "uv", "run", "--script"), "uv.toml"),
        (("/usr/bin/env", "A=b", "deno", "run", "-A"), "deno.json"),
        (("/usr/bin/env", "-i", "bun"), "bunfig.toml"),
        (("/usr/bin/env", "npx", "tsx"), "tsconfig.json"),
        (("/opt/bun",), "bunfig.toml"),
        (("/usr/bin/env", "node", "--import", "tsx"), "node_modules"),
    ],
)
def test_the_interpreter_of_a_script_reads_its_own_files(
    interpreter: tuple[str, ...], name: str
) -> None:
    argv = ["/opt/server", "."]

    found = reading(argv, interpreter=interpreter)

    assert name in found.names
    assert launch(argv, found, [name], project=PROJECT).is_elsewhere


def test_arguments_of_a_script_still_mean_the_project_where_its_interpreter_is_held() -> None:
    argv = ["server", ".", "--root=./src"]

    found = reading(argv, interpreter=("/usr/bin/env", "bun"))

    held = launch(argv, found, ["bunfig.toml"], project=PROJECT)
    assert held.argv == ("server", PROJECT, f"--root={PROJECT}/src")


@pytest.mark.parametrize(
    "interpreter",
    [(), ("/usr/bin/python3",), ("/usr/bin/env", "node"), ("/usr/bin/env", "ruby"), ("/bin/sh",)],
)
def test_an_interpreter_that_reads_only_its_script_is_not_held(
    interpreter: tuple[str, ...],
) -> None:
    assert reading(["server", "."], interpreter=interpreter) == FilesRead()


def test_python_is_not_let_search_the_folder_for_modules() -> None:
    argv = ["python3", "-u", "-m", "server", "."]
    found = reading(argv)

    held = launch(argv, found, ["json.py"], project=PROJECT, has_safe_path=True)
    older = launch(argv, found, ["json.py"], project=PROJECT)

    assert found.reads_modules
    assert (held.argv, held.is_elsewhere) == (("python3", "-P", "-u", "-m", "server", "."), False)
    assert (older.argv, older.is_elsewhere) == (
        ("python3", "-u", "-m", "server", PROJECT),
        True,
    )


def test_behind_env_the_option_goes_to_python() -> None:
    argv = ["env", "A=b", "python3", "-m", "server"]

    held = launch(argv, reading(argv), ["json.py"], project=PROJECT, has_safe_path=True)

    assert held.argv == ("env", "A=b", "python3", "-P", "-m", "server")


def test_npm_runs_elsewhere_and_its_server_in_the_project() -> None:
    argv = ["npx", "-y", "server", "."]

    held = launch(argv, reading(argv), [".npmrc"], project=PROJECT, can_enter=True)

    assert held == Launch(
        tuple(argv), True, True,
        "npx reads .npmrc, and /home/ada/clone is not trusted (capd trust): npx ran outside of it,"
        " and the server inside",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("pnpm dlx server . ..", f"pnpm dlx server {PROJECT} /home/ada"),
        ("pnpm dlx server --root=./src", f"pnpm dlx server --root={PROJECT}/src"),
        ("bunx server ./a:/b x", f"bunx server {PROJECT}/a:/b x"),
        ("uv run --with server server .", f"uv run --with server server {PROJECT}"),
        ("pipx run server .", f"pipx run server {PROJECT}"),
        # What these start is in the folder itself.
        ("go run .", "go run ."),
        ("make -C . serve", "make -C . serve"),
    ],
)  # fmt: skip
def test_elsewhere_a_relative_place_still_means_the_project(line: str, held: str) -> None:
    argv = line.split()

    found = launch(argv, reading(argv), ["package.json"], project=PROJECT)

    assert (" ".join(found.argv), found.is_elsewhere) == (held, True)
    assert "capd trust" in found.reason


def test_nothing_is_held_where_no_file_is_there() -> None:
    for each in TABLE:
        argv = [each.programs[0], "run", "server"]
        found = reading(argv)
        if not found.project_file:
            assert launch(argv, found, [], project=PROJECT) == Launch(tuple(argv)), argv


def test_a_variable_that_loads_by_a_relative_path_is_held_always() -> None:
    argv = ["node", "/opt/server.js"]

    assert reading(argv, {"NODE_OPTIONS": "--require dotenv/config"}).is_always
    assert reading(["server"], {"PYTHONPATH": "src"}).is_always
    assert reading(["server"], {"PYTHONPATH": "/opt/lib:"}).is_always
    assert reading(["env", "NODE_PATH=lib", "node", "/opt/x.js"]).is_always
    assert reading(["server"], {"PYTHONPATH": "{{PROJECT}}/src"}).project_file
    assert not reading(argv, {"NODE_OPTIONS": "--max-old-space-size=4096"}).is_always
    assert not reading(["server"], {"PYTHONPATH": "/opt/lib", "TOKEN": "./x"}).is_always


def test_a_version_manager_reads_its_own_files() -> None:
    assert shim_names("/home/ada/.pyenv/shims") == {".python-version"}
    assert "package.json" in shim_names("/home/ada/.volta/bin")
    assert ".tool-versions" in shim_names("/home/ada/.asdf/shims")
    assert "mise.toml" in shim_names("/home/ada/.local/share/mise/shims")
    assert shim_names("/usr/bin") == frozenset()
    found = reading(["server"], shim_folder="/home/ada/.asdf/shims")
    assert (found.launcher, found.method, ".tool-versions" in found.names) == (
        "server", "elsewhere", True,
    )  # fmt: skip


def test_no_folder_of_the_project_is_searched_for_programs() -> None:
    path = f"./node_modules/.bin::{PROJECT}/.venv/bin:/usr/bin:{PROJECT}/../clone/bin:/bin"

    assert outside(path, PROJECT) == "/usr/bin:/bin"
    assert outside("a:/usr/bin", "") == "/usr/bin"


def test_programs_are_known_by_name_alone() -> None:
    named = {"/usr/bin/python3.12": "python", "python3": "python3", "npx.cmd": "npx", "7z": "7z"}
    assert {word: program_name(word) for word in named} == named


def test_every_word_of_nonsense_is_read_without_an_error() -> None:
    for program in [name for each in TABLE for name in each.programs]:
        for rest in ([], ["-"], ["--"], ["-c"], ["-m"], ["--package"], ["run"], ["=", ""]):
            assert isinstance(reading([program, *rest]), FilesRead)
    assert {".npmrc", ".tool-versions", "package.json"} <= all_names()
