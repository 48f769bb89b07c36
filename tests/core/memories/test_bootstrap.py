"""Bootstrap files: which are read, how they are shown, and which do not fit."""

from datetime import date

from hypothesis import example, given, settings
from hypothesis import strategies as st

from capd.core.memories.bootstrap import Bootstrap, BootstrapFile, BootstrapRules, _unshown

TODAY = date(2026, 3, 1)


def test_the_files_come_in_their_order_and_then_the_notes_of_two_days() -> None:
    wanted = BootstrapRules().wanted(TODAY)

    assert wanted == [
        *("AGENTS.md", "USER.md", "HEARTBEAT.md", "MEMORY.md", "experiments/README.md"),
        *("memory/2026-03-01.md", "memory/2026-02-28.md"),
    ]


def test_no_file_is_told_twice_and_notes_may_be_none() -> None:
    wanted = BootstrapRules(files=("A.md", "B.md", "A.md"), notes="").wanted(TODAY)

    assert wanted == ["A.md", "B.md"]


def test_all_of_them_are_told_in_full() -> None:
    found = Bootstrap((BootstrapFile("A.md", "one\n"), BootstrapFile("B.md", "two")))

    text = found.shown(1000)

    assert text == (
        "Files of this project, to be known from the start:\n\n# A.md\n\none\n\n# B.md\n\ntwo"
    )


def test_what_has_no_room_is_named_and_a_smaller_file_behind_it_is_told() -> None:
    files = (BootstrapFile("A.md", "x" * 900), BootstrapFile("B.md", "two"))

    text = Bootstrap(files).shown(400)

    assert text == (
        "Files of this project, to be known from the start:\n\n# B.md\n\ntwo\n\nToo long to be "
        "shown here; read them, or use the prompt `bootstrap`: A.md (900 characters)."
    )


FILES = st.lists(st.tuples(st.sampled_from("ABCDEF"), st.text(max_size=300)), max_size=6)


@settings(deadline=None)
@example([("A", ""), ("B", "b" * 200)], 120)
@given(FILES, st.integers(0, 2000))
def test_no_more_is_told_than_there_is_room_for_and_no_file_in_part(
    files: list[tuple[str, str]], most: int
) -> None:
    found = Bootstrap(tuple(BootstrapFile(path, text) for path, text in files))

    text = found.shown(most)

    assert len(text) <= most
    # The names alone are told wherever they have room.
    if files and len(_unshown(found.files)) <= most:
        assert text
    if text:
        assert all(each.part in text or f"{each.path} (" in text for each in found.files)


def test_the_largest_come_first_in_a_warning() -> None:
    found = Bootstrap((BootstrapFile("A.md", "x"), BootstrapFile("B.md", "xyz")))

    assert (found.largest(), found.characters) == (["B.md (3)", "A.md (1)"], 4)
