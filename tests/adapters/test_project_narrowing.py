"""No value in a project's settings file can widen what its sessions may do."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capd.adapters.configuration import Configuration
from capd.adapters.live_settings import Effective, LiveSettings
from capd.core.settings.known_keys import ANY, KnownKey, known_keys
from capd.core.settings.project_keys import FILE_NAME, PROJECT_KEYS
from capd.core.tools.tool_filter import is_named

KEYS = [*known_keys(Configuration)]
TOOLS = [(s, t) for s in ("git", "shell") for t in ("log", "push", "rm")]
MODES = ("stable", "auto", "dynamic", "pass-through")

Path_ = tuple[str, ...]


def met(folder: Path, user: dict[str, Any], project: dict[str, Any] | str) -> LiveSettings:
    """Return a user's settings with a project whose file has been read."""
    config, root = folder / "config", folder / "project"
    config.mkdir(exist_ok=True)
    root.mkdir(exist_ok=True)
    (config / "config.toml").write_text(tomlkit.dumps(user))
    text = project if isinstance(project, str) else tomlkit.dumps(project)
    (root / FILE_NAME).write_text(text)
    live = LiveSettings(config, {}, None)
    live.load()
    file = live._project_file(str(root))
    file.load()
    live._projects[str(root)] = file
    live._of_projects[str(root)] = live._of_file(file)
    return live


def put(path: Path_, value: Any) -> dict[str, Any]:
    """Return a file that sets one key."""
    *above, last = path
    tables = {last: value}
    for step in reversed(above):
        tables = {step: tables}
    return tables


def values_of(key: KnownKey) -> list[Any]:
    """Return valid values of a key, including the limits of its range."""
    schema = msgspec.json.schema(key.type)
    schemas = [schema, *schema.get("anyOf", [])]
    found: list[Any] = []
    for each in schemas:
        found += each.get("enum", [])
        low, high = each.get("minimum", 0), each.get("maximum", 10**6)
        match each.get("type"):
            case "boolean":
                found += [True, False]
            case "integer":
                found += [low, low + 1, high]
            case "number":
                found += [max(low, 0.01), 0.5, float(high)]
            case "string":
                found += ["", "x", "*"] if "enum" not in each else []
            case "array":
                inner = each.get("items", {}).get("enum", ["*", "git:*", "shell:rm"])
                found += [[], list(inner), [inner[0]]]
            case "object":
                found += [{}, {"*": 10**6}]
    assert found, key.name
    return found


def is_narrower(one: Effective, whole: Effective) -> bool:
    """Tell whether sessions with `one` may do no more than with `whole`."""
    mine, users = one.configuration, whole.configuration
    kept_back = {"surface", "sessions", "routing", "curation"}
    for table in Configuration.__struct_fields__:
        if table not in kept_back and getattr(mine, table) != getattr(users, table):
            return False
    numbers = [
        (mine.sessions.capabilities, users.sessions.capabilities),
        (mine.sessions.tools, users.sessions.tools),
        (mine.surface.pass_through, users.surface.pass_through),
        (mine.curation.k, users.curation.k),
        (mine.curation.new_per_turn, users.curation.new_per_turn),
        (mine.curation.kind == "off", users.curation.kind == "off"),
        (MODES.index(mine.surface.mode), MODES.index(users.surface.mode)),
        *(
            (getattr(mine.routing, f), getattr(users.routing, f))
            for f in ("enabled", "files", "session", "project")
        ),
    ]
    same = (
        (mine.surface.pins, users.surface.pins),
        (mine.surface.check_arguments, users.surface.check_arguments),
        (mine.surface.unchecked_servers, users.surface.unchecked_servers),
    )
    return all(a <= b for a, b in numbers) and all(a == b for a, b in same)


def permitted_tools(live: LiveSettings, project: str) -> set[tuple[str, str]]:
    policy = live.rules(project).policy(["zed"], project)
    return {(s, t) for s, t in TOOLS if policy.restriction(s, t) is None}


def pinned_tools(live: LiveSettings, project: str) -> set[tuple[str, str]]:
    rules = live.rules(project)

    def among(patterns: tuple[str, ...], s: str, t: str) -> bool:
        return any(is_named(p, s, t, f"{s}__{t}") for p in patterns)

    return {
        (s, t)
        for s, t in TOOLS
        if among(rules.pins, s, t) and (rules.kept_pins is None or among(rules.kept_pins, s, t))
    }


USERS: list[dict[str, Any]] = [
    {},
    {
        "surface": {"mode": "dynamic", "pins": ["git:log"], "pass_through": 0.05},
        "sessions": {"capabilities": 2, "tools": 8},
        "curation": {"kind": "top-k", "k": 4, "new_per_turn": 1},
        "routing": {"files": False},
        "policy": {"deny": ["shell:*"]},
        "clients": {"zed": {"domain": "devops"}},
    },
    {"surface": {"mode": "pass-through"}, "curation": {"kind": "off"}, "policy": {"allow": ["*"]}},
]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
@pytest.mark.parametrize("user", USERS, ids=["defaults", "narrow", "wide"])
def test_no_value_of_any_key_widens(tmp_path: Path, key: KnownKey, user: dict[str, Any]) -> None:
    path = tuple("*" if step == ANY else step for step in key.path)
    for value in [each for each in values_of(key) if each is not None]:
        live = met(tmp_path, user, put(path, value))
        project = str(tmp_path / "project")

        found = live.of(project)

        assert is_narrower(found, live.effective), (path, value)
        assert permitted_tools(live, project) <= permitted_tools(live, "/elsewhere")
        assert pinned_tools(live, project) <= pinned_tools(live, "/elsewhere")
        if key.path not in PROJECT_KEYS:
            assert found.configuration == live.current
            assert found.notes or live.project_problems, (path, value)


def test_every_key_that_a_project_may_set_is_one_that_there_is() -> None:
    known = {key.path for key in KEYS} | {("domain",)}

    assert set(PROJECT_KEYS) - known == set()


@pytest.mark.parametrize("theirs", ["devops", "web", ""])
def test_its_domain_takes_the_place_of_none_of_the_users(tmp_path: Path, theirs: str) -> None:
    live = met(tmp_path, USERS[1], {"domain": theirs})
    project = str(tmp_path / "project")

    assert live.domain("zed", project) == "devops"
    assert live.domain("emacs", project) == theirs


def test_its_pins_choose_among_the_users(tmp_path: Path) -> None:
    project = str(tmp_path / "project")

    live = met(tmp_path, {"surface": {"pins": ["git:*"]}}, {"surface": {"pins": ["*:log", "*:rm"]}})

    assert pinned_tools(live, project) == {("git", "log"), ("git", "rm")}
    assert live.of(project).notes == ()


def test_its_pins_are_said_to_have_no_effect_where_the_user_has_none(tmp_path: Path) -> None:
    project = str(tmp_path / "project")

    live = met(tmp_path, {}, {"surface": {"pins": ["*"]}})

    assert pinned_tools(live, project) == set()
    assert live.project_problems[project] == [
        "`surface.pins` has no effect: it chooses among your own pins, and you have none"
    ]


def _strategy(key: KnownKey) -> st.SearchStrategy[Any]:
    return st.sampled_from([each for each in values_of(key) if each is not None])


@st.composite
def tables(draw: st.DrawFn, keys: list[KnownKey]) -> dict[str, Any]:
    """Draw a file in which some keys have valid values."""
    found: dict[str, Any] = {}
    for key in draw(st.lists(st.sampled_from(keys), max_size=8, unique_by=lambda k: k.path)):
        inner = found
        for step in key.path[:-1]:
            inner = inner.setdefault("*" if step == ANY else step, {})
        inner[key.path[-1]] = draw(_strategy(key))
    return found


SETTABLE = [key for key in KEYS if key.path in PROJECT_KEYS]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(user=tables(KEYS), project=st.one_of(tables(KEYS), tables(SETTABLE)))
def test_no_file_widens_what_any_user_has(
    tmp_path: Path, user: dict[str, Any], project: dict[str, Any]
) -> None:
    live = met(tmp_path, user, project)
    root = str(tmp_path / "project")

    assert is_narrower(live.of(root), live.effective)
    assert permitted_tools(live, root) <= permitted_tools(live, "/elsewhere")
    assert pinned_tools(live, root) <= pinned_tools(live, "/elsewhere")
