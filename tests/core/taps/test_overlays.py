"""What overlays add to other taps' capabilities, and what they cannot change."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.identity import server_identity
from capd.core.taps.catalog import Tap
from capd.core.taps.overlays import AddedWords, Overlay, folded, overlaid, read_overlay
from capd.core.taps.tap_format import CapabilityRead
from capd.core.taps.toml_folder import MOST_TRIGGERS
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Finding,
    ServerName,
    ServerSpec,
    Severity,
    TapName,
    ToolEdit,
    ToolName,
)

PATH = "overlays/mine"


def spec(tap: str, name: str, server: str = "", *scripts: str) -> CapabilitySpec:
    servers = (ServerSpec(ServerName(server), "stdio", TapName(tap)),) if server else ()
    return CapabilitySpec(
        CapabilityId(TapName(tap), CapabilityName(name)),
        "default",
        triggers=("show the history",),
        servers=servers,
        requires=scripts,
    )


def tap(*specs: CapabilitySpec, name: str = "t", unroutable: tuple[str, ...] = ()) -> Tap:
    good = [CapabilityRead(s.id.name, s, "", ()) for s in specs]
    bad = [CapabilityRead(CapabilityName(n), None, "no config.toml", ()) for n in unroutable]
    return Tap(TapName(name), f"/taps/{name}", "0" * 12, (*good, *bad), {})


def words(
    name: str, *triggers: str, description: str = "", parts: tuple[str, ...] = ()
) -> AddedWords:
    return AddedWords(CapabilityName(name), triggers, description, frozenset(parts))


def overlay(*of: AddedWords, tap: str | None = "t", least: int = 0, path: str = PATH) -> Overlay:
    return Overlay(path, TapName(tap) if tap else None, least, of, ())


def finding(file: str, line: int, reason: str, severity: Severity = "error") -> Finding:
    return Finding(f"{PATH}/{file}", line, reason, severity)


def read(words_file: str, head: str = 'tap = "t"\n') -> Overlay:
    return read_overlay(PATH, {"overlay.toml": head, "capabilities/git.toml": words_file})


def test_an_overlay_is_read() -> None:
    texts = {
        "overlay.toml": "least_in_common = 2\n",
        "capabilities/git.toml": (
            'description = " Reads history. "\nparts = ["git", "org/git"]\n'
            'triggers = ["what changed", " what changed ", "who did that"]\n'
        ),
        "capabilities/x.toml": 'triggers = ["a"]\nparts = ["x"]\n',
        "notes.toml": "not = [read",
    }

    got = read_overlay(PATH, texts)

    git = words(
        "git",
        "what changed",
        "who did that",
        description="Reads history.",
        parts=("git", "org/git"),
    )
    assert got == overlay(git, words("x", "a", parts=("x",)), tap=None, least=2)


@pytest.mark.parametrize(
    ("texts", "line", "reason"),
    [
        ({}, 0, "no overlay.toml: nothing says whose capabilities are meant"),
        (
            {"overlay.toml": "\ntap = = 3\n"},
            2,
            "overlay.toml: Invalid value (at line 2, column 7)",
        ),
        *(
            (
                {"overlay.toml": head},
                0,
                "either `tap`, a name, or `least_in_common`, a number from 1",
            )
            for head in (
                "",
                "tap = 3",
                'tap = ""',
                "least_in_common = 0",
                "least_in_common = true",
                'tap = "t"\nleast_in_common = 3',
            )
        ),
    ],
)
def test_an_overlay_that_does_not_say_whose_capabilities_it_means_is_for_none(
    texts: Mapping[str, str], line: int, reason: str
) -> None:
    got = read_overlay(PATH, {**texts, "capabilities/git.toml": 'triggers = ["a"]\n'})

    assert (got.tap, got.least_in_common, got.findings[0]) == (
        None,
        0,
        finding("overlay.toml", line, reason),
    )
    assert not got.is_for(tap(spec("t", "git")))


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (
            "\ntriggers = = 3\n",
            [(2, "capabilities/git.toml: Invalid value (at line 2, column 12)")],
        ),
        (
            '\ntriggers = "a"\n',
            [
                (2, "`triggers` is not a list"),
                (0, "neither `triggers` nor `description` nor `files` nor `tool`"),
            ],
        ),
        ("", [(0, "neither `triggers` nor `description` nor `files` nor `tool`")]),
        (
            "\ndescription = 3\n",
            [
                (2, "`description` is not text"),
                (0, "neither `triggers` nor `description` nor `files` nor `tool`"),
            ],
        ),
        (
            'triggers = ["a"]\nparts = "git"\n',
            [
                (2, "`parts` is not a list of texts"),
                (2, "`parts` names nothing, so no capability is meant"),
            ],
        ),
    ],
)
def test_words_that_cannot_be_used_are_left_out_with_line_and_reason(
    text: str, findings: list[tuple[int, str]]
) -> None:
    got = read(text)

    file = "capabilities/git.toml"
    assert (got.words, got.findings) == ((), tuple(finding(file, *each) for each in findings))


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('triggers = [\n"a",\n"",\n]\n', 3, "trigger '' is blank or not text: left out"),
        (
            'triggers = ["a"]\ndomains = ["x"]\n',
            2,
            "`domains` is not a key of an overlay: left out",
        ),
    ],
)
def test_the_good_part_of_words_is_kept(text: str, line: int, reason: str) -> None:
    got = read(text)

    assert got.words == (words("git", "a"),)
    assert got.findings == (finding("capabilities/git.toml", line, reason),)


def test_phrases_without_end_are_cut() -> None:
    got = read(f"triggers = {[f'phrase {n}' for n in range(MOST_TRIGGERS + 1)]}\n")

    reason = f"{MOST_TRIGGERS + 1} triggers: those after the first {MOST_TRIGGERS} are left out"
    assert len(got.words[0].triggers) == MOST_TRIGGERS
    assert got.findings == (finding("capabilities/git.toml", 1, reason),)


def test_an_overlay_that_finds_its_tap_by_content_needs_parts() -> None:
    got = read('triggers = ["a"]\n', head="least_in_common = 1\n")

    reason = "no `parts`, by which the tap is known: left out"
    assert (got.words, got.findings) == ((), (finding("capabilities/git.toml", 0, reason),))


def test_words_join_their_capability_apart_from_its_own() -> None:
    mine = spec("t", "git", "git")
    other = spec("t", "docker")

    got = overlaid(
        [tap(mine, other, unroutable=("voice",))],
        [overlay(words("git", "what changed", description="Reads history."))],
    )

    more = msgspec.structs.replace(
        mine, extra_triggers=("what changed",), extra_description="Reads history."
    )
    assert got.taps == (tap(more, other, unroutable=("voice",)),)
    assert got.findings == ()


def test_a_phrase_counts_once_and_the_first_description_counts() -> None:
    first = overlay(words("git", "Show the history!", "what changed", "What  changed?"))
    second = overlay(words("git", "what-changed", "who did that", description="One."))
    third = overlay(words("git", description="Two."))

    got = overlaid([tap(spec("t", "git"))], [first, second, third]).taps[0].capabilities[0]

    assert (got.extra_triggers, got.extra_description) == (("what changed", "who did that"), "One.")


@pytest.mark.parametrize(
    ("the_tap", "expected"),
    [
        pytest.param(tap(spec("any", "a", "s"), spec("any", "b", "", "o/t")), True, id="enough"),
        pytest.param(tap(spec("any", "a", "s"), spec("any", "b", "s")), False, id="another part"),
        pytest.param(tap(spec("any", "a", "s")), False, id="too few"),
        pytest.param(tap(spec("any", "a", "s"), spec("any", "c", "", "o/t")), False, id="a name"),
        pytest.param(tap(spec("any", "a", "s"), unroutable=("b",)), False, id="not routable"),
    ],
)
def test_a_tap_is_known_by_enough_capabilities_with_their_parts(
    the_tap: Tap, expected: bool
) -> None:
    public = overlay(
        words("a", "x", parts=("s",)), words("b", "y", parts=("o/t", "u")), tap=None, least=2
    )

    got = public.is_for(the_tap)

    assert got is expected


def test_within_its_tap_an_overlay_leaves_a_capability_of_other_parts_alone() -> None:
    public = overlay(
        words("a", "x", parts=("s",)), words("b", "y", parts=("s",)), tap=None, least=1
    )
    mine = spec("t", "b", "another")

    got = overlaid([tap(spec("t", "a", "s"), mine)], [public])

    assert got.taps[0].capabilities[1] == mine
    assert got.findings == (
        finding("capabilities/b.toml", 0, "t/b has none of s: it stays as it is", "warning"),
    )


def test_a_capability_or_a_tap_that_is_not_there_is_a_warning() -> None:
    taps = [tap(spec("t", "git"))]
    overlays = [overlay(words("gti", "a")), overlay(words("git", "a"), tap="gone")]

    got = overlaid(taps, overlays)

    assert got.taps == tuple(taps)
    assert got.findings == (
        finding("capabilities/gti.toml", 0, "t has no capability 'gti'", "warning"),
        finding("overlay.toml", 0, "no tap is named 'gone'", "warning"),
    )


def test_a_public_tap_that_is_not_installed_is_nothing_to_report() -> None:
    public = overlay(words("a", "x", parts=("s",)), tap=None, least=1)

    got = overlaid([tap(spec("t", "git"))], [public])

    assert got.findings == ()


_TOML_VALUES = st.sampled_from(
    ["true", "7", '"x"', "[]", '["x", "y"]', '[{ name = "x", command = "evil" }]', '{ k = "x" }']
)
_KEYS = st.sampled_from(
    [*CapabilitySpec.__struct_fields__, *ServerSpec.__struct_fields__, "mcp", "roles", "deps"]
)


@given(st.dictionaries(_KEYS, _TOML_VALUES, max_size=8))
def test_whatever_an_overlay_writes_it_changes_what_finds_a_capability_and_nothing_else(
    written: dict[str, str],
) -> None:
    before = tap(spec("t", "git", "git", "org/git"))
    hostile = read("".join(f"{key} = {value}\n" for key, value in written.items()))

    got = overlaid([before], [hostile]).taps[0]

    (after,) = got.capabilities
    plain = msgspec.structs.replace(after, extra_triggers=(), extra_description="", files=())
    assert (got.name, got.path, got.scripts) == (before.name, before.path, before.scripts)
    assert plain == before.capabilities[0]


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("What's  up, doc?", "what s up doc"),
        ("top-10_list", "top 10 list"),
        ("§ 5 BGB", "5 bgb"),
        ("ÄRGER", "ärger"),
    ],
)
def test_a_phrase_is_folded_to_its_words(phrase: str, expected: str) -> None:
    got = folded(phrase)

    assert got == expected


def test_files_that_an_overlay_names_join_those_of_the_tap() -> None:
    mine = msgspec.structs.replace(spec("t", "git"), files=(".git/",))
    texts = {
        "overlay.toml": 'tap = "t"\n',
        "capabilities/git.toml": 'files = [".git/", "*.patch"]\n',
    }

    got = overlaid([tap(mine)], [read_overlay(PATH, texts)])

    assert got.findings == ()
    assert got.taps[0].capabilities[0].files == (".git/", "*.patch")


def edited_by(path: str, name: str = "git", server: str = "s", **members: Any) -> AddedWords:
    edit = ToolEdit(ServerName(server), ToolName("log"), file=f"{path}/{name}.toml", **members)
    return _with(words(name), edit)


def _with(of: AddedWords, *edits: ToolEdit) -> AddedWords:
    return replace(of, edits=edits)


def named(got: Tap, at: int = 0) -> list[str]:
    return [edit.name for edit in got.capabilities[at].servers[0].edits]


def test_the_first_overlay_that_edits_a_tool_counts_and_the_other_is_a_warning() -> None:
    first = overlay(edited_by("a", description="One."), path="a")
    second = overlay(edited_by("b", description="Two."), path="b")

    got = overlaid([tap(spec("t", "git", "s"))], [first, second])

    [edit] = got.taps[0].capabilities[0].servers[0].edits
    reason = 'tool."s:log": a/git.toml edits this tool, and comes first: the edit changes nothing'
    assert edit.description == "One."
    assert got.findings == (Finding("b/git.toml", 0, reason, "warning"),)


def test_capabilities_with_equal_definitions_share_the_edits_of_their_server() -> None:
    both = tap(spec("t", "git", "s"), spec("t", "git-write", "other"))
    mine = overlay(_with(words("git"), ToolEdit(ServerName("s"), ToolName("log"), name="history")))

    got = overlaid([both], [mine]).taps[0]

    assert named(got, 0) == named(got, 1) == ["history"]
    assert [each.servers[0].edits[0].server for each in got.capabilities] == ["s", "other"]


def test_a_tap_has_no_say_in_the_tools_of_an_earlier_taps_server() -> None:
    own_edit = ToolEdit(ServerName("s"), ToolName("log"), name="trap", file="default.toml")
    theirs = spec("later", "git", "s")
    server = msgspec.structs.replace(theirs.servers[0], edits=(own_edit,))
    theirs = msgspec.structs.replace(theirs, servers=(server,))

    got = overlaid([tap(spec("t", "git", "s")), tap(theirs, name="later")], [])
    alone = overlaid([tap(theirs, name="later")], [])

    assert [named(each) for each in got.taps] == [[], []]
    assert "tap t has the same server, and comes first" in got.findings[0].reason
    assert named(alone.taps[0]) == ["trap"]
    assert alone.findings == ()


def test_an_edit_of_a_server_that_is_not_there_is_a_warning() -> None:
    got = overlaid([tap(spec("t", "git", "s"))], [overlay(edited_by(PATH, server="gone"))])

    assert named(got.taps[0]) == []
    assert [each.reason for each in got.findings] == [
        "tool.\"gone:log\": t/git has no server 'gone': the edit changes nothing"
    ]


def test_an_edit_is_no_part_of_a_servers_identity() -> None:
    before = spec("t", "git", "s").servers[0]
    after = msgspec.structs.replace(
        before, edits=(ToolEdit(before.name, ToolName("log"), name="history"),)
    )

    assert server_identity(before) == server_identity(after)
