"""The counts of an evaluation, checked by hand on a few decisions, and its input."""

from pathlib import Path

import pytest

from capd.evaluation import datasets
from capd.evaluation.datasets import BadDataError, Row, Selection, part_of
from capd.evaluation.route import Judged, Measure, known_rows, report
from capd_protos.types import CapabilityId, CapabilityName, Decision, Score, TapName


def id_of(name: str) -> CapabilityId:
    return CapabilityId(TapName("t"), CapabilityName(name))


TOP = tuple(Score(id_of(name), 0.1) for name in "abcde")
ON_A = Decision("activate", id=id_of("a"), top=TOP)
MAYBE = Decision("suggest", "below_threshold", top=TOP, suggested=(id_of("a"), id_of("b")))
NOT = Decision("abstain", "below_threshold", top=TOP)
NEVER = Decision("abstain", "too_short")


@pytest.mark.parametrize(
    ("row", "decision", "true"),
    [
        (Row("x", "a"), ON_A, {"correct", "found", "recall@1", "recall@3", "recall@5"}),
        (
            Row("x", "b", accept=("a",)),
            ON_A,
            {"correct", "found", "recall@1", "recall@3", "recall@5"},
        ),
        (Row("x", "b"), ON_A, {"wrong", "recall@3", "recall@5"}),
        (Row("x", "b"), MAYBE, {"abstention", "found", "recall@3", "recall@5"}),
        (Row("x", "d"), MAYBE, {"abstention", "recall@5"}),
        (Row("x", "a"), NEVER, {"abstention"}),
        (Row("x"), ON_A, {"false_activation"}),
        (Row("x"), MAYBE, {"false_suggestion"}),
        (Row("x"), NOT, set()),
    ],
)
def test_a_decision_counts_as(row: Row, decision: Decision, true: set[str]) -> None:
    got = Judged(row, decision).values()

    assert {name for name, value in got.items() if value} == true


def test_a_report_has_a_mean_with_its_interval_for_each_measure_and_means_for_each_kind() -> None:
    judged = [
        *[Judged(Row("x", "a", kind="plain"), ON_A)] * 3,
        Judged(Row("x", "b", kind="plain"), ON_A),
        Judged(Row("x", kind="chatter"), NOT),
    ]

    got = report(judged, "evidence", 5, 2, None)

    assert (got.wanted, got.unwanted, got.skipped) == (4, 1, 2)
    assert got.measures["correct"].mean == 0.75
    assert got.measures["correct"].low <= 0.75 <= got.measures["correct"].high
    assert got.measures["false_activation"] == Measure(0.0, 0.0, 0.0)
    assert got.kinds["chatter"] == {
        "messages": 1.0,
        "false_activation": 0.0,
        "false_suggestion": 0.0,
    }


def test_a_kind_may_have_messages_that_want_something_and_others_that_want_nothing() -> None:
    judged = [
        Judged(Row("x", "a", kind="in context"), ON_A),
        Judged(Row("x", "b", kind="in context"), ON_A),
        Judged(Row("x", kind="in context"), NOT),
    ]

    got = report(judged, "evidence", 5, 0, None).kinds["in context"]

    assert (got["messages"], got["correct"], got["false_activation"]) == (3.0, 0.5, 0.0)


def test_the_same_rows_give_the_same_intervals() -> None:
    judged = [Judged(Row("x", name), ON_A) for name in "aabab"]

    got = [report(judged, "evidence", 5, 0, None) for _ in range(2)]

    assert got[0] == got[1]


def test_a_label_that_the_catalogue_lacks_is_an_error_or_skipped() -> None:
    catalogue = datasets.catalogue(None)
    rows = [Row("x", "a"), Row("y")]

    with pytest.raises(BadDataError, match="'a'"):
        known_rows(rows, catalogue, skip_unknown=False)
    assert known_rows(rows, catalogue, skip_unknown=True) == [Row("y")]


def test_rows_are_chosen_by_split_set_and_side(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text":"one","label":"a","split":"tune"}\n\n{"text":"two","set":"s"}\n')

    got = [
        [row.text for row in selection.rows([file])]
        for selection in (
            Selection(),
            Selection(split="tune"),
            Selection(set="s"),
            Selection(part=part_of("one")),
        )
    ]

    assert got[:3] == [["one", "two"], ["one"], ["two"]]
    assert "one" in got[3]


def test_a_line_that_is_no_row_is_told_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text":"one"}\n{"label":"a"}\n')

    with pytest.raises(BadDataError, match=r"rows\.jsonl:2"):
        Selection().rows([file])


def test_a_catalogue_takes_triggers_from_the_rows_of_that_split(tmp_path: Path) -> None:
    names, rows = tmp_path / "names.jsonl", tmp_path / "rows.jsonl"
    names.write_text('{"name":"a","description":"An a."}\n{"name":"empty"}\n')
    rows.write_text(
        '{"text":"one","label":"a","split":"trigger"}\n{"text":"two","label":"b","split":"trigger"}'
        '\n{"text":"three","label":"b","split":"train"}\n'
    )

    got = datasets.catalogue(names, [rows])

    assert [(c.id.name, c.triggers, c.description) for c in got] == [
        ("a", ("one",), "An a."),
        ("b", ("two",), ""),
    ]


def overlaid_tap(folder: Path, head: str, words: str) -> tuple[Path, Path]:
    capability = folder / "mine/capabilities/a"
    capability.mkdir(parents=True)
    (capability / "config.toml").write_text('triggers = ["one", "two", "three"]\n')
    (capability / "default.toml").write_text('[[mcp.servers]]\nname = "x"\ncommand = "x"\n')
    overlay = folder / "overlay"
    (overlay / "capabilities").mkdir(parents=True)
    (overlay / "overlay.toml").write_text(head)
    (overlay / "capabilities/a.toml").write_text(words)
    return folder / "mine", overlay


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ('triggers = ["One!", "four"]\ndescription = "An a."\n', ("four",)),
        ('triggers = ["four"]\nparts = ["x"]\n', ("four",)),
        ('triggers = ["four"]\nparts = ["y"]\n', ()),
        ('triggers = ["four", ""]\nservers = []\n', ("four",)),
    ],
)
def test_an_overlay_is_measured_by_the_rules_that_the_daemon_has(
    tmp_path: Path, words: str, extra: tuple[str, ...]
) -> None:
    folder, overlay = overlaid_tap(tmp_path, 'tap = "mine"\n', words)

    (got,) = datasets.tap(folder, overlays=[overlay])

    assert got.extra_triggers == extra


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ('tap = "other"\n', "it says nothing of the tap mine"),
        ("least_in_common = 2\n", "no `parts`"),
        ("x =\n", "overlay.toml: "),
    ],
)
def test_an_overlay_for_another_tap_is_an_error(tmp_path: Path, head: str, reason: str) -> None:
    folder, overlay = overlaid_tap(tmp_path, head, 'triggers = ["four"]\n')

    with pytest.raises(BadDataError, match=reason):
        datasets.tap(folder, overlays=[overlay])
