"""The wheel, the sdist and the editable install contain what a user needs."""

import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
TRY = (
    "import json, capd.main, capd_client.entry, capd_protos;"
    "from capd.adapters.tap_files import read_tap, starter_place;"
    "from capd.adapters.model.minilm import load_tokenizer;"
    "load_tokenizer();"
    "print(json.dumps([capd.__file__, len(read_tap(starter_place()).capabilities)]))"
)


def run(*command: object, cwd: Path = CHECKOUT) -> str:
    argv = [str(part) for part in command]
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from it, with the installed build tools."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ".")
    return folder


def only(paths: Sequence[Path]) -> Path:
    (path,) = paths
    return path


def test_the_wheel_holds_three_packages_their_data_and_the_starter_tap(dist: Path) -> None:
    with zipfile.ZipFile(only(list(dist.glob("*.whl")))) as wheel:
        names = set(wheel.namelist())
        entry_points = wheel.read("capd-0.1.0.dist-info/entry_points.txt").decode()

    assert {
        "capd/main.py",
        "capd/py.typed",
        "capd/adapters/model/minilm_vocab.txt",
        "capd/adapters/model/routing_adapter.bin",
        "capd/adapters/model/routing_profile.json",
        "capd/adapters/platform/guard.py",
        "capd/adapters/tokens/o200k_base.z",
        "capd/overlays/octomind/overlay.toml",
        "capd/overlays/octomind/capabilities/browser.toml",
        "capd/overlays/starter/overlay.toml",
        "capd/starter_tap/capabilities/git/config.toml",
        "capd_client/emacs/capd.el",
        "capd_client/nvim/lua/capd/init.lua",
        "capd_client/nvim/lua/codecompanion/_extensions/capd/init.lua",
        "capd_client/nvim/plugin/capd.lua",
        "capd_client/launch.py",
        "capd_client/shim/main.py",
        "capd_client/py.typed",
        "capd_protos/clients.toml",
        "capd_protos/socket.py",
        "capd_protos/py.typed",
        "capd-0.1.0.dist-info/licenses/LICENSE",
        "capd-0.1.0.dist-info/licenses/NOTICE",
    } <= names
    assert {name.split("/")[0] for name in names} == {
        "capd",
        "capd_client",
        "capd_protos",
        "capd-0.1.0.dist-info",
    }
    assert "capd = capd_client.entry:main" in entry_points


def test_the_sdist_holds_what_the_tests_and_the_service_need(dist: Path) -> None:
    with tarfile.open(only(list(dist.glob("*.tar.gz")))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}

    assert {
        "pyproject.toml",
        "Makefile",
        "LICENSE",
        "docs/protocol.md",
        "protos/golden/socket.jsonl",
        "systemd/capd.service",
        "taps/starter/capabilities/git/config.toml",
        "tests/test_packaging.py",
    } <= names


def test_an_installed_wheel_works_away_from_the_checkout(dist: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    wheel = only(list(dist.glob("*.whl")))
    run(sys.executable, "-m", "uv", "pip", "install", "--no-deps", "--target", site, wheel)

    code = f"import sys; sys.path.insert(0, {str(site)!r}); {TRY}"
    file, capabilities = json.loads(run(sys.executable, "-P", "-c", code, cwd=tmp_path))

    assert file == str(site / "capd" / "__init__.py")
    assert capabilities >= 8


def test_the_editable_install_is_the_checkout(tmp_path: Path) -> None:
    file, capabilities = json.loads(run(sys.executable, "-P", "-c", TRY, cwd=tmp_path))

    assert file == str(CHECKOUT / "daemon" / "capd" / "__init__.py")
    assert capabilities >= 8


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in (CHECKOUT / "systemd").glob("capd.*"):
        # The one thing that a checkout cannot have is the command in the user's home.
        text = unit.read_text().replace("%h/.local/bin/capd", sys.executable)
        (tmp_path / unit.name).write_text(text)
    try:
        verified = subprocess.run(
            ["systemd-analyze", "verify", "--user", *sorted(map(str, tmp_path.glob("capd.*")))],
            env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not installed")

    assert (verified.returncode, verified.stderr) == (0, "")
