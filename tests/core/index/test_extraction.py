"""Words for the index, extracted from a tap's texts."""

import pytest

from capd.core.index.extraction import Words, extract_words
from capd_protos.types import CapabilityId, CapabilityName, CapabilitySpec, TapName


def capability(
    *triggers: str, description: str = "", name: str = "web-page", title: str = ""
) -> CapabilitySpec:
    id_ = CapabilityId(TapName("t"), CapabilityName(name))
    return CapabilitySpec(id_, "p", title, description, triggers)


TABLE = {
    "the verb that most phrases begin with": (
        capability("fetch a page", "read this page", "Read the url", description="Fetches."),
        Words("read", "Fetches", ("fetch a page", "Read the url")),
    ),
    "of verbs as common the first": (
        capability("search it now", "find it here"),
        Words("search", "search it now", ("find it here", "search it now")),
    ),
    "the description's verb in its plain form": (
        capability("what is 1+1", description="Evaluates expressions; all of them."),
        Words("evaluate", "Evaluates expressions", ("what is 1+1",)),
    ),
    "no verb at all": (
        capability("pages and such", title="Web"),
        Words("use", "Web", ("pages and such",)),
    ),
    "the first sentence": (
        capability("read it all", description="Reads pages. Then more.\nAnd more."),
        Words("read", "Reads pages", ("read it all",)),
    ),
    "brackets that are left open": (
        capability("run a thing", description="Runs (in a shell; anywhere) things"),
        Words("run", "Runs", ("run a thing",)),
    ),
    "no phrase longer than a line": (
        capability("read " + "x" * 80, "read a b"),
        Words("read", "read " + "x" * 80, ("read a b",)),
    ),
    "another language": (
        capability("查询数据库", "运行 SQL", description="查询数据库。然后更多。"),
        Words("use", "查询数据库", ("运行 SQL",)),
    ),
    "right to left, and pictures": (
        capability("ابحث في الملفات", "🔍 الملفات", description="🔍 بحث"),
        Words("use", "🔍 بحث", ("🔍 الملفات", "ابحث في الملفات")),
    ),
    "control characters": (
        capability("read\x1b[31m it", description="a\u202eb\nc"),
        Words("read", "a b c", ("read [31m it",)),
    ),
    "nothing said": (capability(name="my_web-page"), Words("use", "my web page", ())),
}


@pytest.mark.parametrize(("spec", "words"), TABLE.values(), ids=list(TABLE))
def test_the_words_are(spec: CapabilitySpec, words: Words) -> None:
    got = extract_words(spec)

    assert got == words


def test_tools_say_the_verb_where_nothing_else_does() -> None:
    got = extract_words(capability("pages please"), ["list_pages", "list_links", "get_page"])

    assert got.verb == "list"
