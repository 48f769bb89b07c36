"""capability-index.yaml keeps a person's edits when it is written again."""

import fcntl
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from capd.adapters import index_file
from capd.adapters.index_file import IndexFile
from capd.adapters.index_text import Content, IndexFileError
from capd.core.index import document
from capd_protos.index import IndexEntry
from capd_protos.types import CapabilityId, CapabilityName, TapName


def values(name: str = "git", do: str = "Reads history", uses: int = 0) -> document.Values:
    entry = IndexEntry(
        CapabilityId(TapName("mine"), CapabilityName(name)),
        "read",
        do,
        ["show the log", 'say "this": now'],
        tools=2,
        tokens=90,
        uses=uses,
    )
    parts = document.Parts(f'capability {{"action":"enable","name":"{name}"}}', ["log", "show"])
    return document.with_digests(document.file_entry(entry, parts))


def content(**capabilities: document.Values) -> Content:
    return Content(
        [{"tap": "mine", "revision": "abc"}],
        {f"mine/{name}": each for name, each in capabilities.items()},
        {"capabilities": len(capabilities)},
    )


@pytest.fixture
def file(tmp_path: Path) -> IndexFile:
    return IndexFile(tmp_path / "data" / "capability-index.yaml")


def edited(file: IndexFile, before: str, after: str) -> str:
    text = file.path.read_text()
    assert before in text
    file.path.write_text(text.replace(before, after, 1))
    return file.path.read_text()


def read(file: IndexFile) -> Any:
    return yaml.safe_load(file.path.read_text())


def test_the_file_says_all_that_there_is(file: IndexFile) -> None:
    got = file.write(content(git=values()))

    assert got == index_file.WriteOutcome(1, is_same=False, kept=0)
    assert read(file) == {
        "schema": 1,
        "sources": [{"tap": "mine", "revision": "abc"}],
        "capabilities": {"mine/git": values()},
        "memories": [],
        "metrics": {"capabilities": 1},
    }
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_a_second_run_without_a_change_touches_nothing(file: IndexFile) -> None:
    file.write(content(git=values()))
    before = file.path.stat()

    got = file.write(content(git=values()))

    assert got == index_file.WriteOutcome(0, is_same=True, kept=0)
    assert file.path.stat() == before


def test_a_hand_edit_and_an_unknown_key_and_a_comment_survive_a_change(file: IndexFile) -> None:
    file.write(content(git=values(), web=values("web")))
    edited(file, 'do: "Reads history"', "do: My words  # mine")
    edited(file, "    priority: 0", "    priority: 7")
    edited(file, "    elements:", "    # A note.\n    my key: {a: [1, b]}\n    elements:")
    edited(file, "metrics:\n  cap", "own:\n  anything: |\n    of any\n    kind\nmetrics:\n  cap")

    got = file.write(content(git=values(do="Other"), web=values("web", do="Other")))

    assert got == index_file.WriteOutcome(2, is_same=False, kept=2)
    text = file.path.read_text()
    assert "    do: My words  # mine\n" in text
    assert "    # A note.\n    my key: {a: [1, b]}\n" in text
    assert read(file)["own"] == {"anything": "of any\nkind\n"}
    entries = read(file)["capabilities"]
    assert entries["mine/git"]["activation"]["priority"] == 7
    assert entries["mine/git"]["my key"] == {"a": [1, "b"]}
    assert entries["mine/web"]["do"] == "Other"
    assert file.overrides() == {"mine/git": document.Overrides({"do": "My words", "priority": 7})}


def test_what_did_not_change_stays_byte_for_byte(file: IndexFile) -> None:
    file.write(content(git=values(), web=values("web")))
    text = edited(file, 'do: "Reads history"', "do:   'Mine'   # odd   blanks")
    block = text[text.index("  mine/git:") : text.index("  mine/web:")]

    file.write(content(git=values(), web=values("web", do="Other")))

    assert block in file.path.read_text()


def test_a_fact_is_written_anew_and_a_word_is_given_back_by_taking_it_out(file: IndexFile) -> None:
    file.write(content(git=values()))
    edited(file, "      tokens: 90", "      tokens: 1")
    edited(file, '    do: "Reads history"\n', "")

    file.write(content(git=values(uses=3)))

    assert read(file)["capabilities"]["mine/git"] == values(uses=3)


def test_many_changes_move_no_comment_and_no_word(file: IndexFile) -> None:
    file.write(content(git=values()))
    edited(file, "    elements:", "    # Above.\n    elements:  # Beside.")

    for count in range(1, 6):
        file.write(content(git=values(uses=count)))

    text = file.path.read_text()
    assert text.count("\n    # Above.\n    elements:  # Beside.\n") == 1


def test_what_is_gone_goes_unless_a_person_wrote_on_it(file: IndexFile) -> None:
    file.write(content(git=values(), web=values("web"), api=values("api")))
    edited(file, 'do: "Reads history"', "do: Mine")

    file.write(content(api=values("api")))

    assert list(read(file)["capabilities"]) == ["mine/api", "mine/git"]


@pytest.mark.parametrize(
    "text",
    [
        "capabilities: {mine/git: {do: Mine, x: 1}}\n",
        "x: 1\n",
        "---\ncapabilities:\n    mine/git:\n        do: Mine\n        x: 1\n",
        '"capabilities":\n  mine/git: {do: Mine, x: 1}\n',
        "{capabilities: {mine/git: {do: Mine}}, x: 1}\n",
        "capabilities:\n  mine/git: &a\n    do: Mine\n    x: 1\nother: *a\n",
    ],
)
def test_another_layout_is_understood_as_well(file: IndexFile, text: str) -> None:
    file.path.parent.mkdir()
    file.path.write_text(text)
    mine = yaml.safe_load(text)

    file.write(content(git=values(), web=values("web")))

    got = read(file)
    entry = got["capabilities"]["mine/git"]
    if "capabilities" in mine:
        assert entry["do"] == "Mine"
        assert {k: entry.get(k) for k in ("x",)} == {"x": mine["capabilities"]["mine/git"].get("x")}
    assert got.get("x") == mine.get("x")
    assert got["capabilities"]["mine/web"] == values("web")


@pytest.mark.parametrize("text", ["a: [", "- a\n", "\x00", "a: b: c", "!!python/object:os.x {}"])
def test_what_cannot_be_read_is_never_written_over(file: IndexFile, text: str) -> None:
    file.path.parent.mkdir()
    file.path.write_text(text)

    with pytest.raises(IndexFileError, match="correct it, or move it away"):
        file.write(content(git=values()))

    assert file.path.read_text() == text


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_a_text_that_is_nested_without_end_is_refused(file: IndexFile, opening: str) -> None:
    """The parser of C has no bound on its depth, or its own one, and ends the whole process."""
    file.path.parent.mkdir()
    file.path.write_text(opening * 50_000)

    with pytest.raises(
        IndexFileError, match=r"nested more than 100 levels deep|exceeded maximum nesting depth"
    ):
        file.overrides()


def test_who_comes_while_another_writes_is_told(
    file: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "LOCKED_FOR", 0.0)
    file.write(content(git=values()))
    with file.path.with_name(".capability-index.yaml.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(IndexFileError, match="is being written by another program"):
            file.write(content(git=values(do="Other")))


def test_writers_at_once_leave_one_whole_file(
    file: IndexFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine seven writes take longer than a writer waits.
    monkeypatch.setattr(index_file, "LOCKED_FOR", math.inf)
    others = [IndexFile(file.path) for _ in range(8)]
    threads = [
        threading.Thread(target=each.write, args=(content(git=values(uses=at)),))
        for at, each in enumerate(others)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert read(file)["capabilities"]["mine/git"]["metrics"]["uses"] in range(8)
    assert [each.name for each in file.path.parent.glob(".capability-index.yaml.*")] == [
        ".capability-index.yaml.lock"
    ]


def test_accepted_words_are_as_good_as_written_by_hand(file: IndexFile) -> None:
    file.write(content(git=values(), web=values("web")))

    got = file.revise({"mine/git": {"do": "Better"}, "mine/none": {"do": "x"}})

    file.write(content(git=values(do="Other"), web=values("web")))
    assert got == 1
    assert read(file)["capabilities"]["mine/git"]["do"] == "Better"


def test_odd_names_and_texts_come_back_as_they_are(file: IndexFile) -> None:
    odd = {name: values(name, do=f"{name}: # \u2028 x") for name in ("a b", "ё: y", "'q\"", "- x")}

    file.write(Content([], {f"mine/{name}": each for name, each in odd.items()}, {}))
    again = file.write(Content([], {f"mine/{name}": each for name, each in odd.items()}, {}))

    assert read(file)["capabilities"] == {f"mine/{name}": each for name, each in odd.items()}
    assert again.is_same
