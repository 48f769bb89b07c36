"""Which overlay files are found, in which order, and that a bad one costs only itself."""

import os
from pathlib import Path

import pytest

from capd.adapters.overlay_files import read_overlays, shipped_overlays
from capd.adapters.tap_files import TapPlace, read_tap, starter_place
from capd.core.taps.overlays import Overlay, folded, overlaid
from capd_protos.types import Finding, TapName

SHIPPED = ["octomind", "starter"]
ROUTABLE = {"octomind": 71, "starter": 13}
FEWEST_PHRASES = 20
TRIGGERS = 'triggers = ["a phrase"]\n'


def write(folder: Path, head: str = 'tap = "t"\n', words: str = TRIGGERS) -> Path:
    (folder / "capabilities").mkdir(parents=True)
    (folder / "overlay.toml").write_text(head)
    (folder / "capabilities" / "git.toml").write_text(words)
    return folder


def names(overlays: list[Overlay]) -> list[str]:
    return [Path(overlay.path).name for overlay in overlays]


def test_without_a_list_the_shipped_ones_are_all(tmp_path: Path) -> None:
    got = read_overlays(tmp_path / "taps.toml")

    assert names(got) == SHIPPED


def test_the_users_come_first_those_of_the_list_before_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "overlays" / "b")
    write(tmp_path / "overlays" / "a")
    far = write(tmp_path / "elsewhere" / "far")
    write(tmp_path / "near")
    listed = tmp_path / "taps.toml"
    listed.write_text(f'[[overlays]]\npath = "{far}"\n[[overlays]]\npath = "near"\n')

    got = read_overlays(listed)

    assert names(got) == ["far", "near", "a", "b", *SHIPPED]


def test_the_shipped_ones_can_be_left_out(tmp_path: Path) -> None:
    listed = tmp_path / "taps.toml"
    listed.write_text("shipped_overlays = false\n")

    got = read_overlays(listed)

    assert got == []


@pytest.mark.parametrize(
    "data", [b"[[overlays]\n", b"\xff", b"overlays = 3\n", b"[[overlays]]\n", b"a = " + b"[" * 9999]
)
def test_a_list_that_cannot_be_used_is_a_finding_and_the_rest_is_read(
    tmp_path: Path, data: bytes
) -> None:
    listed = tmp_path / "taps.toml"
    listed.write_bytes(data)

    got = read_overlays(listed)

    assert names(got) == ["taps.toml", *SHIPPED]
    assert got[0].findings[0].reason.startswith("its overlays are not used: ")


def test_a_listed_folder_that_is_gone_is_a_finding(tmp_path: Path) -> None:
    listed = tmp_path / "taps.toml"
    listed.write_text('shipped_overlays = false\n[[overlays]]\npath = "gone"\n')

    (got,) = read_overlays(listed)

    reason = "no overlay.toml: nothing says whose capabilities are meant"
    assert got.findings == (Finding(f"{tmp_path}/gone/overlay.toml", 0, reason),)


def test_a_pipe_and_a_name_that_is_no_text_cost_their_own_file_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "overlays" / "mine")
    os.mkfifo(folder / "capabilities" / "pipe.toml")
    odd = os.fsdecode(os.fsencode(folder) + b"/capabilities/o\xffd.toml")
    Path(odd).write_bytes(b"\xff")

    got = read_overlays(tmp_path / "taps.toml")[0]

    assert [words.name for words in got.words] == ["git"]
    assert len(got.findings) == 1
    got.findings[0].path.encode()


def shipped(name: str) -> Overlay:
    overlays = {Path(o.path).name: o for o in read_overlays(Path("/nonexistent/taps.toml"))}
    return overlays[name]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_overlay_says_enough_of_every_capability(name: str) -> None:
    got = shipped(name)

    assert got.findings == ()
    assert len(got.words) == ROUTABLE[name]
    assert [w.name for w in got.words if len(w.triggers) < FEWEST_PHRASES] == []
    assert [w.name for w in got.words if not w.description] == []


@pytest.mark.parametrize("name", SHIPPED)
def test_no_phrase_of_a_shipped_overlay_is_said_of_two_capabilities(name: str) -> None:
    said: dict[str, list[str]] = {}
    for words in shipped(name).words:
        for trigger in words.triggers:
            said.setdefault(folded(trigger), []).append(words.name)

    twice = {phrase: of for phrase, of in said.items() if len(of) > 1}

    assert twice == {}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_phrases_say_what_is_wanted_more_often_than_the_capabilitys_name(name: str) -> None:
    named = {
        words.name: sum(
            f" {folded(words.name)} " in f" {folded(trigger)} " for trigger in words.triggers
        )
        / len(words.triggers)
        for words in shipped(name).words
    }

    assert {which: share for which, share in named.items() if share > 1 / 3} == {}


def test_the_starter_tap_gets_its_words_and_no_phrase_twice() -> None:
    tap = read_tap(starter_place())

    got = overlaid([tap], [shipped("starter")])

    assert got.findings == ()
    assert [c.id.name for c in got.taps[0].capabilities if not c.extra_description] == []
    added = sum(len(c.extra_triggers) for c in got.taps[0].capabilities)
    assert added == sum(len(words.triggers) for words in shipped("starter").words)


def test_the_public_tap_gets_its_words_under_any_name(shared_fixtures: Path) -> None:
    folder = shared_fixtures / "data" / "octomind-tap"
    tap = read_tap(TapPlace(TapName("whatever"), folder))

    got = overlaid([tap], read_overlays(Path("/nonexistent/taps.toml")))

    # The stored copy of the tap lacks the files that thirteen capabilities link to.
    found = [f for f in got.findings if "starter" not in f.path]
    assert [f for f in found if "has no capability" not in f.reason] == []
    capabilities = got.taps[0].capabilities
    # Thirteen of the stored copy link to files that it lacks.
    assert len(capabilities) == ROUTABLE["octomind"] - 13
    assert [c.id.name for c in capabilities if len(c.extra_triggers) < FEWEST_PHRASES] == []


def test_shipped_overlays_for_no_installed_tap_are_not_read(tmp_path: Path) -> None:
    taps = [read_tap(starter_place())]

    got = read_overlays(tmp_path / "taps.toml", taps=taps)

    assert names(got) == ["starter"]
    assert overlaid(taps, got) == overlaid(taps, read_overlays(tmp_path / "taps.toml"))


def test_a_shipped_overlay_for_a_tap_of_another_name_is_not_read(tmp_path: Path) -> None:
    starter = starter_place()
    taps = [read_tap(TapPlace(TapName("mine"), starter.path))]

    assert read_overlays(tmp_path / "taps.toml", taps=taps) == []


def test_a_shipped_overlay_for_any_tap_that_has_enough_of_it_is_read(
    shared_fixtures: Path, tmp_path: Path
) -> None:
    tap = read_tap(TapPlace(TapName("whatever"), shared_fixtures / "data" / "octomind-tap"))

    got = read_overlays(tmp_path / "taps.toml", taps=[tap])

    assert names(got) == SHIPPED


def test_the_shipped_overlays_are_in_the_checkout_or_in_the_wheel() -> None:
    got = sorted(folder.name for folder in shipped_overlays().iterdir())

    assert got == SHIPPED
