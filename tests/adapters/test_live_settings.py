"""The settings in force: merged layers, last good states, and a project's file."""

import errno
import os
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pytest
import trio
import trio.testing

from capd.adapters.configuration import Configuration, ServersTable, SessionsTable, SurfaceTable
from capd.adapters.last_good_file import age_of
from capd.adapters.live_settings import LiveSettings
from capd.adapters.parsing.parser import Parser
from capd.adapters.timed_reads import NoAnswerError, TimedReads
from capd.core.sessions.policy import PolicyRules
from capd.core.settings.partial_writes import STABLE_SECONDS
from hung_reads import HungReads

T = TypeVar("T")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def settings(
    folder: Path,
    reads: TimedReads | None = None,
    *,
    clock: Callable[[], float] = lambda: 0.0,
    still_for: float = 60.0,
    **environment: str,
) -> LiveSettings:
    """Return settings of files that have stood still; with 0, of files that are being saved."""
    (folder / "config").mkdir(exist_ok=True)
    found = LiveSettings(
        folder / "config",
        environment,
        folder / "state",
        reads,
        clock=clock,
        age=lambda _: still_for,
    )
    found.load()
    return found


def write(folder: Path, text: str) -> None:
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config" / "config.toml").write_text(text)


async def test_a_nearer_layer_sets_its_keys_and_resets_no_other(
    tmp_path: Path, project: Path
) -> None:
    write(tmp_path, '[servers]\nlinger = 5\n[surface]\nmode = "dynamic"\npins = ["git:*"]\n')
    (project / ".capd.toml").write_text('[surface]\nmode = "stable"\n[sessions]\ntools = 3\n')
    live = settings(tmp_path, CAPD_TOOLS="2")

    await live.load_project(str(project))

    effective = live.of(str(project))
    assert effective.configuration == Configuration(
        ServersTable(5.0), SessionsTable(tools=2), surface=SurfaceTable("stable", ("git:*",))
    )
    assert effective.merged.origins == {
        ("servers", "linger"): f"{tmp_path}/config/config.toml",
        ("surface", "pins"): f"{tmp_path}/config/config.toml",
        ("surface", "mode"): f"{project}/.capd.toml",
        ("sessions", "tools"): "CAPD_TOOLS",
    }
    assert live.current == Configuration(
        ServersTable(5.0), SessionsTable(tools=2), surface=SurfaceTable("dynamic", ("git:*",))
    )


async def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, "\ufeff[servers]\nlinger = 5\n")

    live = settings(tmp_path)

    assert (live.current, live.problems) == (Configuration(ServersTable(5.0)), [])


async def test_a_bad_file_keeps_the_last_good_state_and_says_why(tmp_path: Path) -> None:
    write(tmp_path, "[servers]\nlinger = 5\n")
    live = settings(tmp_path)

    write(tmp_path, '[servers]\nlinger = 7\n[sessions]\ntools = "many"\n')
    changed = await live.reload()

    assert (changed, live.current) == (False, Configuration(ServersTable(5.0)))
    wrong = "line 4, `sessions.tools`: Expected `int`, got `str`"
    assert live.problems == [
        f"{tmp_path}/config/config.toml is not used: {wrong} (its last good state stays in use)"
    ]


def test_a_bad_file_keeps_the_last_good_state_over_a_restart(tmp_path: Path) -> None:
    write(tmp_path, '[policy]\ndeny = ["shell:*"]\n')
    settings(tmp_path)
    write(tmp_path, "[policy\n")

    again = settings(tmp_path)

    assert again.current.policy.deny == ("shell:*",)
    assert len(again.problems) == 1
    assert (tmp_path / "state/good/config.toml").stat().st_mode & 0o777 == 0o600


def test_a_file_that_was_removed_is_no_last_good_state(tmp_path: Path) -> None:
    write(tmp_path, "[servers]\nlinger = 5\n")
    settings(tmp_path)
    (tmp_path / "config/config.toml").unlink()
    settings(tmp_path)
    write(tmp_path, "[servers\n")

    again = settings(tmp_path)

    assert again.current == Configuration()


async def test_a_project_adds_to_what_is_forbidden_and_takes_nothing_away(
    tmp_path: Path, project: Path
) -> None:
    write(tmp_path, '[policy]\ndeny = ["shell:*"]\n')
    (project / ".capd.toml").write_text('[policy]\ndeny = ["git:push"]\nallow = ["*"]\n')
    live = settings(tmp_path)

    await live.load_project(str(project))

    rules = live.rules(str(project))
    place = f"[policy] of {project}/.capd.toml"
    assert rules.everyone == PolicyRules("[policy]", deny=("shell:*",))
    assert rules.projects == ((str(project), PolicyRules(place, ("*",), ("git:push",))),)
    assert live.rules("/elsewhere").projects == ()


async def test_what_a_project_may_not_set_is_left_out_and_said(
    tmp_path: Path, project: Path
) -> None:
    text = '[sandbox]\nlevel = "off"\n[sessions]\ncapabilities = 9\n[surface]\nmode = "stable"\n'
    (project / ".capd.toml").write_text(text)
    live = settings(tmp_path)

    await live.load_project(str(project))

    assert live.of(str(project)).configuration == Configuration(surface=SurfaceTable("stable"))
    why = "it could weaken the sandbox; only your own config.toml may set it"
    assert live.project_problems == {
        str(project): [
            f"line 1: `sandbox` is left out: {why}",
            "`sessions.capabilities` = 9 is left out: yours is 4, and lower",
        ]
    }


async def test_a_bad_file_of_a_project_is_said_and_costs_nobody_else(
    tmp_path: Path, project: Path
) -> None:
    (project / ".capd.toml").write_text('domain = "devops"\n')
    live = settings(tmp_path)
    await live.load_project(str(project))

    (project / ".capd.toml").write_text("domain = 3\n")
    await live.reload()

    assert live.domain("zed", str(project)) == "devops"
    assert live.problems == []
    wrong = "line 1, `domain`: Expected `str`, got `int`"
    assert live.project_problems == {
        str(project): [
            f"{project}/.capd.toml is not used: {wrong} (its last good state stays in use)"
        ]
    }


async def test_a_pipe_in_place_of_a_projects_file_is_not_waited_for(
    tmp_path: Path, project: Path
) -> None:
    os.mkfifo(project / ".capd.toml")
    live = settings(tmp_path)

    await live.load_project(str(project))

    assert "it is not a file" in live.project_problems[str(project)][0]


async def test_the_users_word_on_a_project_goes_before_the_projects_own(
    tmp_path: Path, project: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for each in (project, other):
        (each / ".capd.toml").write_text('domain = "own"\n')
    text = f'[clients.zed]\ndomain = "client"\n[projects."{project}"]\ndomain = "users"\n'
    write(tmp_path, text)
    live = settings(tmp_path)

    await live.load_project(str(project))
    await live.load_project(str(other))

    assert live.domain("zed", str(project)) == "users"
    assert live.domain("zed", str(other)) == "client"
    assert live.domain("emacs", str(other)) == "own"
    assert live.domain("zed", "/elsewhere") == "client"


async def test_what_only_a_restart_changes_is_said_until_it_is_as_before(tmp_path: Path) -> None:
    live = settings(tmp_path)

    write(tmp_path, '[embedder]\nplacement = "daemon"\n[servers]\nlinger = 3\n')
    changed = await live.reload()
    said = live.needs_restart
    write(tmp_path, "")
    await live.reload()

    assert (changed, said, live.needs_restart) == (True, ["embedder.placement"], [])


async def test_a_table_of_names_that_only_a_restart_changes_is_said_as_a_whole(
    tmp_path: Path,
) -> None:
    live = settings(tmp_path)

    write(tmp_path, '[sandbox.servers."fs*"]\nlevel = "strict"\nnetwork = true\n')
    await live.reload()

    assert live.needs_restart == ["sandbox.servers"]


@pytest.mark.parametrize("folder", ["home", "my[1]"])
async def test_the_users_table_of_clients_keeps_its_last_good_state(
    tmp_path: Path, folder: str
) -> None:
    home = tmp_path / folder
    (home / "config").mkdir(parents=True)
    clients = home / "config" / "clients.toml"
    clients.write_text('[mine]\nmode = "stable"\n')
    live = settings(home)

    clients.write_text("[mine\n")
    await live.reload()

    assert live.table["mine"].mode == "stable"
    assert len(live.problems) == 1


@pytest.fixture
def reads() -> Iterator[HungReads]:
    made = HungReads()
    yield made
    made.answer()


async def test_a_project_that_does_not_answer_is_met_without_its_file_and_said(
    tmp_path: Path, project: Path, reads: HungReads
) -> None:
    (project / ".capd.toml").write_text("[sessions]\ntools = 3\n")
    live = settings(tmp_path, reads)
    reads.hung.add(str(project))

    await live.load_project(str(project))

    why = f"{project} did not answer within 0.01 s"
    assert live.of(str(project)) == live.effective
    assert live.project_problems == {
        str(project): [f"{project}/.capd.toml is not used: {why} (the defaults are)"]
    }


async def test_a_project_that_stops_answering_holds_up_neither_a_reload_nor_another_project(
    tmp_path: Path, project: Path, reads: HungReads
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for each, most in ((project, 3), (other, 4)):
        (each / ".capd.toml").write_text(f"[sessions]\ntools = {most}\n")
    live = settings(tmp_path, reads)
    await live.load_project(str(project))
    reads.hung.add(str(project))

    write(tmp_path, "[servers]\nlinger = 5\n")
    has_changed = await live.reload()
    await live.load_project(str(other))

    assert (has_changed, live.current) == (True, Configuration(ServersTable(5.0)))
    tools = [live.of(str(each)).configuration.sessions.tools for each in (project, other)]
    assert tools == [3, 4]


async def test_a_project_that_answers_again_is_read(
    tmp_path: Path, project: Path, reads: HungReads
) -> None:
    (project / ".capd.toml").write_text("[sessions]\ntools = 3\n")
    live = settings(tmp_path, reads)
    reads.hung.add(str(project))
    await live.load_project(str(project))

    reads.answer()
    await live.reload()

    assert live.of(str(project)).configuration.sessions.tools == 3
    assert live.project_problems == {}


async def test_two_sessions_of_a_slow_project_begin_and_the_second_reads_nothing_in_time(
    tmp_path: Path, project: Path
) -> None:
    (project / ".capd.toml").write_text("[sessions]\ntools = 3\n")

    class OneAnswer(TimedReads):
        """Answers the first caller once there is a second one, and never the second."""

        def __init__(self) -> None:
            super().__init__()
            self.is_first = True
            self.has_second, self.has_answered = trio.Event(), trio.Event()

        async def of(self, place: str, read: Callable[[], T]) -> T:
            if self.is_first:
                self.is_first = False
                await self.has_second.wait()
                return read()
            self.has_second.set()
            await self.has_answered.wait()
            raise NoAnswerError(place)

    reads = OneAnswer()
    live = settings(tmp_path, reads)

    async def first() -> None:
        await live.load_project(str(project))
        reads.has_answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(live.load_project, str(project))

    assert live.of(str(project)).configuration.sessions.tools == 3
    assert live.project_problems == {}


async def test_a_project_that_could_not_be_read_for_now_is_read_again_without_a_change(
    tmp_path: Path, project: Path
) -> None:
    (project / ".capd.toml").write_text('[policy]\ndeny = ["git:push"]\n')
    failures = [OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))]

    def environment() -> Mapping[str, str]:
        if failures:
            raise failures.pop()
        return os.environ

    parser = Parser(environment=environment)
    live = LiveSettings(tmp_path / "config", {}, None, reader=parser, age=lambda _: 60.0)
    try:
        await live.load_project(str(project))
        reason = f"{project}/.capd.toml is not used: the process that reads it cannot be started"
        [[problem]] = live.project_problems.values()
        assert problem.startswith(reason)
        assert list(live.silent) == [str(project)]

        await live.reload()
    finally:
        parser.close()

    assert (live.project_problems, live.silent) == ({}, {})
    assert [each.deny for each in live.of(str(project)).rules] == [("git:push",)]


def forbidding(rng: random.Random) -> tuple[str, set[str]]:
    """Return a configuration that denies something, and the denied pattern."""
    deny = rng.sample(["shell:*", "git:push", "fs:write", "web:*"], rng.randint(1, 4))
    lines = ", ".join(f'"{each}"' for each in deny)
    tables = [
        "[servers]\nlinger = 50\n",
        f"[policy]\ndeny = [{lines}]\n",
        "[sessions]\ntools = 12\n",
    ]
    rng.shuffle(tables)
    return "".join(tables), set(deny)


def test_a_save_in_place_never_drops_what_is_forbidden(tmp_path: Path) -> None:
    rng = random.Random(4)
    now = 0.0
    text, deny = forbidding(rng)
    write(tmp_path, text)
    live = settings(tmp_path, clock=lambda: now, still_for=0.0)

    for _ in range(200):
        text, after = forbidding(rng)
        at = rng.randint(0, len(text))
        # Now and then somebody saves what is no TOML, over what is empty at that moment.
        bad = ["[policy\n"] if rng.random() < 0.3 else []
        for part in ("", text[:at], *bad, text):
            write(tmp_path, part)
            now += rng.uniform(0.0, STABLE_SECONDS * 0.6)
            if rng.random() < 0.8 or part is text:
                live.load()
            held = set(live.current.policy.deny)
            assert held >= deny & after, (part, held)
        if live.wait:
            now += live.wait
            live.load()

        assert (set(live.current.policy.deny), live.problems) == (after, [])
        again = settings(tmp_path, still_for=0.0)
        assert set(again.current.policy.deny) == after
        deny = after


@pytest.mark.parametrize("damage", ["", "[policy\n", None])
def test_a_start_in_the_middle_of_a_save_has_what_was_forbidden(
    tmp_path: Path, damage: str | None
) -> None:
    write(tmp_path, '[policy]\ndeny = ["shell:*"]\n')
    settings(tmp_path)
    if damage is None:
        (tmp_path / "config/config.toml").unlink()
    else:
        write(tmp_path, damage)

    again = settings(tmp_path, still_for=0.0)

    assert again.current.policy.deny == ("shell:*",)
    assert len(again.problems) == 1


def test_what_was_taken_out_counts_after_it_has_stood_still(tmp_path: Path) -> None:
    now = 0.0
    write(tmp_path, '[policy]\ndeny = ["shell:*"]\n')
    live = settings(tmp_path, clock=lambda: now, still_for=0.0)
    write(tmp_path, "")
    live.load()
    before = (live.current.policy.deny, live.wait, len(live.problems))

    now += STABLE_SECONDS
    live.load()

    assert before == (("shell:*",), STABLE_SECONDS, 1)
    assert (live.current.policy.deny, live.wait, live.problems) == ((), 0.0, [])


def test_the_age_of_a_file_is_since_its_last_change(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    os.utime(file, (0, 0))

    assert age_of(file) < 3600.0
    assert age_of(tmp_path / "none" / "config.toml") < 3600.0
