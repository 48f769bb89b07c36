"""Describes a capability in a few words that are taken from its tap, without a model.

A trigger phrase is a sentence that a user might write when they need the capability.

verb       the known verb with which most of its trigger phrases begin
do         the first sentence of its description
use_when   its shortest trigger phrases, two at most
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capd.core.index.token_costs import one_line
from capd.core.lazy_patterns import lazy_pattern
from capd_protos.types import CapabilitySpec

ANY_VERB = "use"
"""The verb if no text of the capability begins with a known one."""
LONGEST_VERB = 24
MOST_PHRASES = 2
LONGEST_DO = 160
LONGEST_PHRASE = 60
_LEAST_WORDS = 2
_WORD = lazy_pattern(r"[a-z]+")
_SENTENCE_END = lazy_pattern(r"(?<=[.!?。！？])\s|(?<=[。！？])|[;:]\s|\s[-–—]\s")
_VERBS = frozenset(
    """
    add analyze annotate answer apply archive ask assess audit automate back benchmark book browse
    build calculate calendar call check choose clean click clone close collect commit compare
    compile compose compress compute configure connect contact convert copy crawl create debug
    delegate delete deploy describe design detect diagnose diff discover download draft draw edit
    embed estimate evaluate examine execute explain explore export extract fetch fill filter find
    fix forecast format generate get group import improve index inspect install integrate
    investigate invoice join label launch learn lint list listen load locate log mail
    maintain make manage map measure merge message migrate model modify monitor move navigate
    notify open optimize order organize parse patch pay plan play plot post predict prepare print
    process profile program prototype publish pull push query rank read rebase recall record
    refactor release remember remind remove rename render replay report request research reserve
    resize resolve restart restore resume retrieve review revert rewrite roll route run save scale
    scan schedule scrape search send set share ship show sketch solve sort split start stop store
    stream style submit subscribe summarize sync tail test think trace track train transcribe
    transform translate troubleshoot tune update upgrade upload validate verify view visit
    visualize watch write
    """.split()  # noqa: SIM905 - two hundred quoted words are not read by anybody
)


@dataclass(frozen=True, slots=True)
class Words:
    """The words by which the index describes a capability: a verb, what it does, when to use it."""

    verb: str
    do: str
    use_when: tuple[str, ...]


def extract_words(capability: CapabilitySpec, tools: Sequence[str] = ()) -> Words:
    """Return the verb and texts by which the index describes a capability.

    `tools` are the names of the tools that its servers list.
    """
    triggers = [one_line(each) for each in (*capability.triggers, *capability.extra_triggers)]
    about = [capability.description, capability.extra_description]
    about += [server.description for server in capability.servers] + [capability.title]
    described = next((text for each in about if (text := one_line(each))), "")
    verb = _verb(triggers, [described, *tools])
    do = _first_sentence(described) or (triggers[0] if triggers else _named(capability))
    return Words(verb, do[:LONGEST_DO], tuple(_phrases(triggers)))


def _verb(triggers: Iterable[str], beside: Iterable[str]) -> str:
    for texts in (triggers, beside):
        counted = Counter(verb for text in texts if (verb := _first_verb(text)))
        if counted:
            # The most common verb; of several that are equally common, the first one.
            return counted.most_common(1)[0][0]
    return ANY_VERB


def _first_verb(text: str) -> str:
    """Return the verb with which a text begins, in its plain form; empty if there is none."""
    found = _WORD.search(text.lower())
    if found is None or text[: found.start()].strip("\"'([ "):
        return ""
    word = found[0]
    plain = [word, word.removesuffix("s"), word.removesuffix("es"), _without_ies(word)]
    return next((each for each in plain if each in _VERBS), "")


def _without_ies(word: str) -> str:
    return word.removesuffix("ies") + "y" if word.endswith("ies") else word


def _first_sentence(text: str) -> str:
    first = _SENTENCE_END.split(text, maxsplit=1)[0].strip().rstrip(".;:。")
    opened, _, inside = first.rpartition("(")
    # If the sentence ended inside brackets, the text from the open bracket on is left out.
    return opened.strip() if opened and ")" not in inside else first


def _phrases(triggers: Sequence[str]) -> list[str]:
    usual = [each for each in triggers if len(each.split()) >= _LEAST_WORDS]
    fitting = [each for each in usual or triggers if len(each) <= LONGEST_PHRASE]
    return sorted(dict.fromkeys(fitting), key=len)[:MOST_PHRASES]


def _named(capability: CapabilitySpec) -> str:
    return one_line(capability.id.name.replace("-", " ").replace("_", " "))
