"""How a message is put, whatever it is about: signs that no tool is needed.

A word can be mentioned by somebody who does not want the thing ("why is git called git", "a poem
about a database"), and every kind of lexical evidence is blind to that. The signs here know no
capability. They are evidence for "none", with calibrated weights like all other evidence.
"""

import re

SIGNS = ("about_a_word", "general_question", "invention", "machine_output", "unspecific")
"""The names of the values that `signs` returns, in order."""

_ABOUT_A_WORD = re.compile(
    r"""\b(?:
        (?:is|are|was|were|it'?s|so|being|been|get|got)\s+(?:actually\s+)?(?:called|named|nicknamed)
      | (?:call|calls|name|named)\s+(?:it|them|themselves|itself)
      | called\s+(?:that|a|an|the|it)?\s*\w+\s*\??$
      | (?:what|where)\s+(?:does|do|did)\s+.{1,60}\b(?:mean|stand\s+for|come\s+from)
      | stands?\s+for | named\s+after
      | (?:the\s+)?(?:word|name|term|acronym|abbreviation|phrase|logo|mascot|etymology)s?
        \s+(?:of|for|behind|come|came|is|mean|mascot|logo|"|')
      | (?:meaning|origin|origins|history|inventor|creator|founder|story)\s+(?:of|behind)
      | pronounced?  | pronunciation | spell(?:ed|ing)? | rhymes?\s+with | synonyms?
      | who\s+(?:invented|created|made|wrote|founded|started|owns|designed|came\s+up)
      | when\s+was\s+.{1,60}\b(?:invented|founded|created|released|written|born)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_GENERAL_QUESTION = re.compile(
    r"""^\W*(?:(?:hey|hi|so|and|but|ok|okay|please
      |quick\s+question|just\s+curious|out\s+of\s+curiosity)\b\W*)*
    (?:(?:can|could|would)\s+you\s+)?(?:please\s+)?(?:
        what(?:\s+is|\s+are|'s|s)\s+(?:a|an|the\s+(?:difference|point|purpose|advantage|benefit|meaning|idea|best\s+way))\b
      | what(?:'s|\s+is|\s+are)\s+\w+(?:\s+\w+)?\s*\??$
      | what\s+does\s+.{1,60}\s+do\s*\??$
      | (?:explain|describe)\b | tell\s+me\s+about\b | teach\s+me\b
      | how\s+(?:do|does|did|is|are)\s+(?!i\b|we\b|my\b|our\b|the\b|this\b|these\b)\w+
      | why\s+(?:do|does|did|is|are|would|should)\s+(?!my\b|our\b|the\b|this\b|these\b|it\b)\w+
      | (?:is|are|does|do)\s+(?!there\b|any\b|my\b|our\b|the\b|this\b|these\b|we\b|i\b|it\b)\w+
      | compare\b
    )
    | \bdifference\s+between\b | \bpros\s+and\s+cons\b | \bin\s+(?:simple|plain|layman'?s)\s+\w+
    | \bthe\s+concept\s+of\b | \bversus\b | \bvs\b""",
    re.IGNORECASE | re.VERBOSE,
)
_INVENTION = re.compile(
    r"""\b(?:poem|haiku|limerick|sonnet|song|lyrics|fairy\s?tale|short\s+story|bedtime\s+story|novel|
    joke|pun|riddle|rap|slogan|motto|tagline|toast|speech|essay|metaphor|analogy|trivia|quiz|
    story\s+(?:about|of|where)|pretend|imagine|role-?play)s?\b""",
    re.IGNORECASE | re.VERBOSE,
)
# Beginnings of machine output: a log level, an exception, a compiler's or a shell's prefix.
_OUTPUT_LINE = re.compile(
    r"""^\W*(?:
        (?:npm|yarn|pip|make|gcc|clang|cargo|docker|git|bash|sh|zsh|ld|kernel)\b[^\n]{0,12}(?::|\bERR!|\bWARN)
      | (?:error|warning|warn|fatal|fail(?:ed|ure)?|panic|exception|traceback|info|debug|note
        |caused\s+by)\b
        \s*(?:\[\w+\])?\s*[:(]
      | [\w.]*(?:Error|Exception)\b\s*:
      | E?[A-Z]{5,}\b\s*:
      | [-+]{3}\s | @@\s | \$\s | >\s | \#\d+\s | at\s+[\w.$]+\s*\(
    )""",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_MACHINE_WORD = re.compile(
    r"""^(?:[\w.@-]*(?:/[\w.@-]*){2,}.*|.*::.*|\w+=\S+|.*[\w)\]]:\d+(?::\d+)?\W*|0x[0-9a-f]+\W*|
    [\w-]+@\^?\d+(?:\.\d+)+\W*|\(?\w+(?:\.\w+)+\(.*|[{}()\[\];<>|]+|\d+(?:[.:]\d+){2,}\W*|.*[{};]|E[A-Z]{5,}\W*)$""",
    re.IGNORECASE | re.VERBOSE,
)
# Signs that a request is about something of the user's: possession, pointing, numbers, names.
_SPECIFIC = re.compile(
    r"""\b(?:my|our|us|we|this|these|that|those|the|it|its|here|today|yesterday|tomorrow|last|next|
    latest|current|recent|all|every|each|me)\b|\d|[\w-]+\.[a-z]{2,4}\b|[/#@_]|["'`“]\w""",
    re.IGNORECASE | re.VERBOSE,
)
_ENOUGH_SPECIFICS = 3


def signs(text: str) -> tuple[float, ...]:
    """Return how strong each of `SIGNS` is in `text`, from 0 to 1."""
    tokens = text.split()
    machine = sum(1 for token in tokens if _MACHINE_WORD.match(token)) / max(1, len(tokens))
    output = 1.0 if _OUTPUT_LINE.search(text) else min(1.0, machine * 2)
    specifics = min(_ENOUGH_SPECIFICS, len(_SPECIFIC.findall(text)))
    return (
        float(_ABOUT_A_WORD.search(text) is not None),
        float(_GENERAL_QUESTION.search(text) is not None),
        float(_INVENTION.search(text) is not None),
        output,
        1.0 - specifics / _ENOUGH_SPECIFICS,
    )
