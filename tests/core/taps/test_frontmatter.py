"""The frontmatter of a Markdown file: what is read, also from hostile files."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.taps.frontmatter import (
    LONGEST_HEAD,
    Field,
    FrontmatterError,
    Item,
    frontmatter,
)


def test_fields_have_their_texts_and_lines() -> None:
    text = (
        "\ufeff---\r\nname: git-flow\r\ndescription: >\n  Two\n  lines\n"
        "capabilities:\n  - git\n  - time\nversion: 1.0\n---\n\n# Body\n---\nmore\n"
    )

    read = frontmatter(text)

    assert read.fields == {
        "name": Field(2, (Item("git-flow", 2),)),
        "description": Field(3, (Item("Two lines\n", 3),)),
        "capabilities": Field(6, (Item("git", 7), Item("time", 8)), is_list=True),
        "version": Field(9, (Item("1.0", 9),)),
    }
    assert read.body == "# Body\n---\nmore"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("capabilities: [git, time]", Field(2, (Item("git", 2), Item("time", 2)), is_list=True)),
        (
            "capabilities: {a: b, c: {d: e}}",
            Field(
                2, is_odd=True, members={"a": Field(2, (Item("b", 2),)), "c": Field(2, is_odd=True)}
            ),
        ),
        ("capabilities: [git, [x]]", Field(2, (Item("git", 2),), is_list=True, is_odd=True)),
        ("capabilities:", Field(2, (Item("", 2),))),
        ('capabilities: "a\\ud800b"', Field(2, (Item("a?b", 2),))),
    ],
)
def test_a_value_is_text_or_a_list_of_texts(head: str, expected: Field) -> None:
    read = frontmatter(f"---\n{head}\n---\nbody")

    assert read.fields["capabilities"] == expected


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("# no head", 1, "does not begin with"),
        ("", 1, "does not begin with"),
        ("---\nname: x\n", 1, "closes the frontmatter"),
        ("---\n" + "x" * LONGEST_HEAD + "\n---\nbody", 1, "closes the frontmatter"),
        ("---\nname: x\nwrong: a: b\n---\nbody", 3, "mapping values are not allowed here"),
        ("---\n- a\n- b\n---\nbody", 2, "not a table"),
        ("---\nname: \x07\n---\nbody", 1, "special characters"),
        ("---\nname: " + "[" * 8000 + "\n---\nbody", 1, "cannot be read"),
        ('---\nname: "\\UFFFFFFFF"\n---\nbody', 1, "cannot be read"),
        ("---\nname: *gone\n---\nbody", 2, "undefined alias"),
    ],
)
def test_a_head_that_cannot_be_read_says_where_and_why(text: str, line: int, part: str) -> None:
    with pytest.raises(FrontmatterError) as caught:
        frontmatter(text)

    assert caught.value.line == line
    assert part in str(caught.value)


def test_a_head_that_would_double_with_each_line_costs_what_it_is_long() -> None:
    doubling = "".join(
        f"k{n}: &k{n} {{<<: [*k{n - 1}, *k{n - 1}]}}\n" if n else "k0: &k0 {a: b}\n"
        for n in range(200)
    )

    read = frontmatter(f"---\n{doubling}---\nbody")

    assert len(read.fields) == 200


@given(st.text(alphabet="-:\n []{}&*!|>'\"%@`#,?\\\u2028\x00aé0<~", max_size=200))
def test_whatever_a_head_holds_it_is_read_or_refused(head: str) -> None:
    text = f"---\n{head}\n---\nbody"

    with contextlib.suppress(FrontmatterError):
        assert frontmatter(text).body.endswith("body")
