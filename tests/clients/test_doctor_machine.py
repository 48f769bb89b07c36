"""`capd doctor` on the machine: service, files, locks and sandboxing features."""

import fcntl
import os
from pathlib import Path

import pytest

from capd_client.doctor.daemon import check_degraded
from capd_client.doctor.files import check_configuration, check_locks
from capd_client.doctor.sandbox import (
    Abilities,
    check_default_level,
    check_sandbox,
    look,
    userns_refusal,
)
from capd_client.doctor.service import check_service
from capd_client.doctor.storage import check_storage
from capd_client.service.systemd import Systemd

from .patients import Patient, levels

NOT_LINGERING = Path("/nowhere")


def installed(patient: Patient) -> Path:
    """Write the units as `capd daemon install` leaves them."""
    systemd = Systemd(patient.env)
    systemd.folder.mkdir(parents=True)
    for name, text in systemd.units().items():
        (systemd.folder / name).write_text(text)
    for name, target in (("capd.service", "default"), ("capd.socket", "sockets")):
        wants = systemd.folder / f"{target}.target.wants"
        wants.mkdir()
        (wants / name).symlink_to(systemd.folder / name)
    return systemd.folder


# The service


def test_units_as_they_were_installed_are_well(patient: Patient) -> None:
    installed(patient)

    found = list(check_service(patient.seen(), NOT_LINGERING))

    assert levels(found) == [("service", "ok")]


def test_without_units_there_is_a_note_where_systemd_is(patient: Patient) -> None:
    nothing = list(check_service(patient.seen(), NOT_LINGERING))
    patient.program("systemctl", "exit 0")

    [found] = check_service(patient.seen(), NOT_LINGERING)

    assert nothing == []
    assert found.level == "note"
    assert "`capd daemon install`" in found.what


def test_a_unit_of_another_version_is_stale(patient: Patient) -> None:
    unit = installed(patient) / "capd.socket"
    unit.write_text("[Socket]\nListenStream=/elsewhere\n")

    [found] = check_service(patient.seen(), NOT_LINGERING)

    assert (found.level, found.fix) == ("warning", "capd daemon install")
    assert found.what == f"{unit} is not as this capd writes it"


def test_a_unit_whose_program_is_gone_is_an_error(patient: Patient) -> None:
    unit = installed(patient) / "capd.service"
    unit.write_text("[Service]\nExecStart=/gone/100%%/capd daemon run\n")

    [found] = check_service(patient.seen(), NOT_LINGERING)

    assert found.level == "error"
    assert found.what.startswith("capd.service starts /gone/100%/capd, which is not there")


def test_half_a_service_is_an_error(patient: Patient) -> None:
    (installed(patient) / "capd.socket").unlink()

    [found] = check_service(patient.seen(), NOT_LINGERING)

    assert (found.level, found.fix) == ("error", "capd daemon install")


def test_units_that_are_not_enabled_are_told(patient: Patient) -> None:
    (installed(patient) / "default.target.wants" / "capd.service").unlink()

    [found] = check_service(patient.seen(), NOT_LINGERING)

    assert found.level == "warning"
    assert found.what == "not enabled: capd.service"
    assert found.fix == "systemctl --user enable --now capd.service"


@pytest.mark.parametrize("lingers", [True, False])
def test_a_service_that_ends_at_logout_is_a_note(
    patient: Patient, tmp_path: Path, lingers: bool
) -> None:
    installed(patient)
    patient.more["USER"] = "ada"
    lingering = tmp_path / "linger"
    lingering.mkdir()
    if lingers:
        (lingering / "ada").touch()

    found = list(check_service(patient.seen(), lingering))

    assert levels(found)[1:] == ([] if lingers else [("service", "note")])
    assert lingers or "loginctl enable-linger ada" in found[1].what


# Files


@pytest.mark.parametrize("name", ["config.toml", "clients.toml"])
def test_configuration_that_is_no_toml_is_told_without_a_daemon(
    patient: Patient, name: str
) -> None:
    file = patient.file(f".config/capd/{name}", "[servers\n")

    [found] = check_configuration(patient.seen())

    assert (found.level, found.what) == ("warning", f"{file} cannot be used")
    assert "line 1" in found.why


def test_configuration_that_can_be_read_is_well(patient: Patient) -> None:
    patient.file(".config/capd/config.toml", "[servers]\nlinger = 3\n")

    assert list(check_configuration(patient.seen())) == []


def test_a_daemon_says_itself_what_is_wrong_with_its_configuration(patient: Patient) -> None:
    patient.file(".config/capd/config.toml", "[servers\n")
    problem = "/x/config.toml is not used: line 1"

    seen = patient.served(daemon={"degraded": [problem]})
    found = [*check_configuration(seen), *check_degraded(seen)]

    assert [(each.level, each.why, each.fix) for each in found] == [
        ("warning", problem, "correct that line, then `capd restart`")
    ]


@pytest.mark.parametrize(("mode", "expected"), [(0o600, 0), (0o640, 1)])
def test_secrets_that_others_may_read_are_told(patient: Patient, mode: int, expected: int) -> None:
    file = patient.file(".config/capd/secrets.env", "A=b")
    file.chmod(mode)

    found = list(check_configuration(patient.seen()))

    assert [each.fix for each in found] == [f"chmod 600 {file}"] * expected


def test_a_lock_that_somebody_has_without_answering_is_told(patient: Patient) -> None:
    lock = Path(f"{patient.socket}.lock")
    lock.parent.mkdir()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = list(check_locks(patient.seen(down="no daemon")))
        while_it_answers = list(check_locks(patient.served()))
    after = list(check_locks(patient.seen(down="no daemon")))

    assert levels(found) == [("lock", "error")]
    assert found[0].fix.endswith(f"kill -9 {os.getpid()}")
    assert (while_it_answers, after) == ([], [])


def test_a_lock_is_looked_up_by_its_place_and_not_by_who_waits(
    patient: Patient, tmp_path: Path
) -> None:
    lock = Path(f"{patient.socket}.lock")
    lock.parent.mkdir()
    lock.touch()
    inode, device = lock.stat().st_ino, lock.stat().st_dev
    place = f"{os.major(device):02x}:{os.minor(device):02x}:{inode}"
    locks = tmp_path / "locks"
    locks.write_text(
        f"1: POSIX  ADVISORY  WRITE 11 00:00:1 0 EOF\n"
        f"1: -> FLOCK  ADVISORY  WRITE 12 {place} 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE 13 {place} 0 EOF\n"
    )

    [found] = check_locks(patient.seen(down="no daemon"), locks)

    assert found.what.startswith("process 13 has ")


# Storage


@pytest.mark.parametrize(
    ("folder", "what"), [(".config/capd", "configuration"), (".local/share/capd", "data")]
)
def test_a_folder_that_cannot_be_written_is_an_error(
    patient: Patient, monkeypatch: pytest.MonkeyPatch, folder: str, what: str
) -> None:
    locked = patient.home / folder
    locked.mkdir(parents=True)
    # Root may write everywhere, so the kernel's answer is played.
    monkeypatch.setattr(os, "access", lambda path, _: path != locked)

    first, *others = check_storage(patient.seen())

    assert (first.level, first.what) == (
        "error",
        f"the {what} folder cannot be written: {locked}",
    )
    assert {each.level for each in others} == {"ok"}


# The sandbox


def test_bubblewrap_is_tried_before_it_is_counted_on(patient: Patient) -> None:
    works = look(str(patient.bin))
    patient.program("bwrap", "echo 'setting up uid map: Permission denied' >&2; exit 1")
    fails = look(str(patient.bin))

    assert (works.bwrap, works.bwrap_trouble) == (str(patient.bin / "bwrap"), "")
    assert fails.bwrap_trouble == "setting up uid map: Permission denied"


@pytest.mark.parametrize(
    ("abilities", "level", "says", "fix"),
    [
        (Abilities("/b/bwrap", "", 7), "ok", "bubblewrap, Landlock 7", ""),
        (Abilities("/b/bwrap"), "ok", "servers can be confined: bubblewrap", ""),
        (Abilities(landlock=3), "note", "Landlock 3 alone", "install bubblewrap"),
        (Abilities(), "warning", "neither bubblewrap nor Landlock", "install bubblewrap"),
        (
            Abilities("/b/bwrap", "denied", 0, "user.max_user_namespaces is 0"),
            "warning",
            "cannot be confined",
            "as root: sysctl user.max_user_namespaces=10000",
        ),
        (
            Abilities("/b/bwrap", "no", 4, "kernel.apparmor_restrict_unprivileged_userns is 1"),
            "note",
            "Landlock 4 alone",
            "allow bwrap in an AppArmor profile",
        ),
        (Abilities("/b/bwrap", "denied"), "warning", "cannot be confined", "try `/b/bwrap "),
    ],
)
def test_the_level_that_can_be_had_is_told_with_the_way_to_a_better_one(
    patient: Patient, abilities: Abilities, level: str, says: str, fix: str
) -> None:
    [found] = check_sandbox(patient.seen(), abilities)

    assert found.level == level
    assert says in found.what
    assert found.fix.startswith(fix)
    assert bool(found.fix) is bool(fix)


SEEN = "they see capd's folders, with stored secrets"


@pytest.mark.parametrize(
    ("abilities", "level", "says"),
    [
        (Abilities(landlock=6, has_mounts=True), "ok", "see nothing of capd's, and are kept apart"),
        (
            Abilities(landlock=7, has_mounts=True, is_root=True),
            "note",
            "as root a program may",
        ),
        (Abilities(landlock=6), "note", f"everything: {SEEN}"),
        (Abilities(landlock=5, has_mounts=True), "note", "everything: they may signal each other"),
        (
            Abilities(landlock=5, has_mounts=True, is_root=True),
            "note",
            "everything: they may read and signal each other",
        ),
        (Abilities(), "note", f"{SEEN}, they may read and signal each other and the daemon"),
    ],
)
def test_what_holds_at_the_default_level_is_told(
    patient: Patient, abilities: Abilities, level: str, says: str
) -> None:
    [found] = check_default_level(patient.seen(), abilities)

    assert found.level == level
    assert says in found.what
    assert bool(found.fix) is ("everything" in says or SEEN in says)


@pytest.mark.parametrize(
    ("file", "value", "expected"),
    [
        ("user/max_user_namespaces", "0", "user.max_user_namespaces is 0"),
        ("user/max_user_namespaces", "10000", ""),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone is 0"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns is 1",
        ),
    ],
)
def test_the_setting_that_refuses_namespaces_is_named(
    tmp_path: Path, file: str, value: str, expected: str
) -> None:
    setting = tmp_path / file
    setting.parent.mkdir()
    setting.write_text(f"{value}\n")

    assert userns_refusal(tmp_path) == expected
