"""Finds signs in a message's wording that it needs no tool, whatever it is about.

A message may contain the word for a tool and want none: "why is git called git", "our wiki is a
mess", "the upgrade is postponed". The signs do not depend on any capability. They are evidence for
"none", with calibrated weights like all other evidence. The sign `request` is evidence for a tool,
so its weight is negative.

Four signs (`settled`, `complaint`, `reported`, `statement`) count a second time, as `bare_...`, if
the message asks for nothing: "the build is broken, find out why" complains, but wants something.
"""

import re

from capd.core.lazy_patterns import lazy_pattern

SIGNS = (
    "about_a_word",
    "general_question",
    "invention",
    "machine_output",
    "unspecific",
    "refusal",
    "settled",
    "complaint",
    "reported",
    "statement",
    "request",
    "bare_settled",
    "bare_complaint",
    "bare_reported",
    "bare_statement",
)
"""The names of the values that `signs` returns, in order."""

_ABOUT_A_WORD = lazy_pattern(
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
_GENERAL_QUESTION = lazy_pattern(
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
_INVENTION = lazy_pattern(
    r"""\b(?:poem|haiku|limerick|sonnet|song|lyrics|fairy\s?tale|short\s+story|bedtime\s+story|novel|
    joke|pun|riddle|rap|slogan|motto|tagline|toast|speech|essay|metaphor|analogy|trivia|quiz|
    story\s+(?:about|of|where)|pretend|imagine|role-?play)s?\b""",
    re.IGNORECASE | re.VERBOSE,
)
# Beginnings of machine output: a log level, an exception, a compiler's or a shell's prefix.
_OUTPUT_LINE = lazy_pattern(
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
_MACHINE_WORD = lazy_pattern(
    r"""^(?:[\w.@-]*(?:/[\w.@-]*){2,}.*|.*::.*|\w+=\S+|.*[\w)\]]:\d+(?::\d+)?\W*|0x[0-9a-f]+\W*|
    [\w-]+@\^?\d+(?:\.\d+)+\W*|\(?\w+(?:\.\w+)+\(.*|[{}()\[\];<>|]+|\d+(?:[.:]\d+){2,}\W*|.*[{};]|E[A-Z]{5,}\W*)$""",
    re.IGNORECASE | re.VERBOSE,
)
# Signs that a request is about something of the user's: possession, pointing, numbers, names.
_SPECIFIC = lazy_pattern(
    r"""\b(?:my|our|us|we|this|these|that|those|the|it|its|here|today|yesterday|tomorrow|last|next|
    latest|current|recent|all|every|each|me)\b|\d|[\w-]+\.[a-z]{2,4}\b|[/#@_]|["'`“]\w""",
    re.IGNORECASE | re.VERBOSE,
)
_ENOUGH_SPECIFICS = 3
LONGEST_READ = 2000
"""Only this many characters are searched for the signs from `refusal` on, because the time for some
patterns grows faster than the text."""

_REFUSAL = lazy_pattern(
    r"""\b(?:
        (?:do\s?n[o']?t|do\s+not|never)\s+(?!know|forget|think|see|have|want\s+to|understand|remember)\w+
      | no\s+need | never\s?mind | nvm | forget\s+(?:it|about|that) | ignore | skip
      | leave\s+(?:it|that|this) | not\s+now | stop\s+\w+ing | no\s+more
      | without\s+(?:using|opening|touching) | nobody\s+(?:should|needs)
      | not\s+(?:to\s+be\s+)?(?:changed|touched|edited)
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_SETTLED = lazy_pattern(
    r"""\b(?:
        no\s+(?:further\s+)?(?:action|steps?|follow[-\s]?up) | nothing\s+(?:to\s+do|needed|else)
      | already\s+(?:\w+ed|done|sent|paid) | for\s+your\s+information | fyi | out\s+of\s+scope
      | postponed | on\s+hold
      | (?:is|are|was|been)\s+(?:completed?|resolved|closed|done|finished|handled|fixed)
      | taken\s+care | sorted\s+(?:it\s+|that\s+)?out | moving\s+on | myself
      | (?:handled|done)\s+by | works?\s+(?:again|fine|now) | fine\s+now | no\s+longer
      | thanks\s+anyway | good\s+to\s+know
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_COMPLAINT = lazy_pattern(
    r"""\b(?:hates?|ugh|annoy\w*|scares?|rant|wtf|mess|crap|slow|broken|down|terrible|horrible|
    noise|noisy|awful|weird|expensive|stupid|boring|overrated|beautiful|lovely|cool|great|crazy|bad|
    ugly|pain|crime|joke|nightmare|unusable|worst|best|full\s+of|lol|haha|phew|everyone|everybody)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_REPORTED = lazy_pattern(
    r"""\b(?:says?|said|told\s+(?:me|us|him|her|them)|thinks?|heard|according\s+to|knows?|
    they\s+say|claims?|asked\s+me|likes?|forbids?|talk(?:s|ed|ing)?\s+about|reminds?)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_STATEMENT = lazy_pattern(
    r"""^\W*(?:(?:ok|so|well|btw|oh|and|remark|comment|note)\W+)*\w+\s+(?:\w+\s+){0,4}?
    (?:is|are|was|were|has|have|had|looks?|says?|got|went|came|\w{3,}ed)\b""",
    re.IGNORECASE | re.VERBOSE,
)
# The verbs that begin a sentence which asks for something.
_VERBS = (
    "add|append|ask|book|build|call|cancel|change|check|clean|click|clone|close|"
    "collect|commit|compare|compute|convert|copy|count|create|cut|delete|deploy|dig|"
    "do|download|draft|draw|drop|dump|edit|email|export|extract|fetch|fill|filter|"
    "find|fix|generate|get|give|grab|import|install|invite|invoice|list|load|log|look|"
    "make|merge|message|move|navigate|open|ping|place|plot|post|press|print|publish|"
    "pull|push|put|query|read|record|refund|remember|remove|rename|render|replace|"
    "reply|restart|run|save|scan|schedule|scrape|screenshot|scroll|search|sell|send|"
    "set|show|sort|split|start|stop|store|summarise|summarize|switch|tag|take|tell|"
    "test|track|translate|turn|type|undo|update|upload|verify|view|write|"
).rstrip("|")

_REQUEST = lazy_pattern(
    r"""(?:^|[.,;:!?\n]\s*|\b(?:and|then|so|but|please|pls|ok|okay|hey|hi|now|just|also|you|u)\s+)
    (?:"""
    + _VERBS
    + r""")\b
    | \?
    | \b(?:needs?|want|(?:can|could|would)\s+(?:you|u|we)|how\s+(?:many|much|long|old)|what'?s
      |i'?d\s+like|let'?s|help|should|must|have\s+to|is\s+there)\b""",
    re.IGNORECASE | re.VERBOSE,
)


def signs(text: str) -> tuple[float, ...]:
    """Return how strong each of `SIGNS` is in a message, from 0 to 1.

    A sign, for example a complaint, says that the message needs no tool. Only `request` says that
    it needs one.
    """
    tokens = text.split()
    machine = sum(1 for token in tokens if _MACHINE_WORD.match(token)) / max(1, len(tokens))
    output = 1.0 if _OUTPUT_LINE.search(text) else min(1.0, machine * 2)
    specifics = min(_ENOUGH_SPECIFICS, len(_SPECIFIC.findall(text)))
    read = text[:LONGEST_READ].replace("’", "'")
    refusal, settled, complaint, reported, statement, request = (
        pattern.search(read) is not None
        for pattern in (_REFUSAL, _SETTLED, _COMPLAINT, _REPORTED, _STATEMENT, _REQUEST)
    )
    return (
        float(_ABOUT_A_WORD.search(text) is not None),
        float(_GENERAL_QUESTION.search(text) is not None),
        float(_INVENTION.search(text) is not None),
        output,
        1.0 - specifics / _ENOUGH_SPECIFICS,
        *map(float, (refusal, settled, complaint, reported, statement, request)),
        *(float(sign and not request) for sign in (settled, complaint, reported, statement)),
    )
