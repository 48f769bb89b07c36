"""Finds near ties between siblings, such as `database-postgres` and `database-sqlite`.

Siblings are capabilities whose names share their first part. The winner and its plausible siblings
are suggested together, and none is switched on, unless something shows that the winner is meant:
the message names it, or the project's files or earlier use in the project favour it and no sibling.

There are two sorts of families:

- *Alternatives* do the same at different places (`messaging-slack`, `messaging-discord`): at least
  a tenth of each member's phrases have the member's name. Whoever means one names it. So a message
  names a member only with a word of the member's name, title or servers, or with a word that hardly
  any other capability of the catalog uses ("guild"). For example, "order" names no database,
  although phrases about an orders table contain it.
- The members of other families do different things (`memory-read`, `memory-write`), which a message
  shows without a name. There, a word also names a member if a fair share of its phrases has the
  word, and no text of its siblings does.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from capd.core.lazy_patterns import lazy_pattern
from capd.core.lexical import LONGEST, STOP_WORDS, stem, words
from capd_protos.types import CapabilityId, CapabilitySpec, Score

SHARE = 0.06
"""The least share of a capability's phrases that must have a word, so that the word names the
capability. Chosen, as was `LEAST`, with `bench/routing/near_ties.jsonl` (docs/design/routing.md,
"Near ties")."""
SPEAKING = ("files", "learnt")
"""What may decide between siblings besides the message: the project's files, and what routing has
learnt in the project."""
NAMED = 0.1
"""The members of a family are alternatives if at least this share of each member's phrases has the
member's name.

In the public tap every member of four families has .12 or more. Each other family has a member with
.07 or less."""
LEAST, OF_ALTERNATIVES = 0.03, 0.01
"""The lowest score of a plausible sibling. The second value is for members of alternatives."""
EXCLUSIVE = 4.0
"""How many times rarer a word must be in the phrases of any other capability to name an
alternative."""

_RUN = lazy_pattern(r"[^\W_]+")
# In an ASCII text without a match, `words` finds every word that `_whole` finds.
_MORE_AS_A_WHOLE = lazy_pattern(r"[A-Z][A-Z]|'")
_LEAST_CAPITALS = 2
_ONCE = 1.5
"""A word must be in more phrases than this: a single phrase may have it by chance."""


class _Families:
    """The families of siblings in a catalog, and the words by which messages name each member.

    Siblings are capabilities whose names share their first part, such as `database-postgres` and
    `database-sqlite`.
    """

    def __init__(self, capabilities: Sequence[CapabilitySpec]) -> None:
        families: dict[str, list[CapabilitySpec]] = {}
        for each in capabilities:
            family, dash, _ = each.id.name.partition("-")
            if dash:
                families.setdefault(family, []).append(each)
        self.of: dict[CapabilityId, frozenset[CapabilityId]] = {}
        """The siblings of each capability, itself included; all siblings share one set object."""
        self.marks: dict[CapabilityId, frozenset[str]] = {}
        self.alternatives: set[CapabilityId] = set()
        together = [members for members in families.values() if len(members) > 1]
        usage = _Usage(capabilities) if together else None
        for members in together:
            assert usage is not None
            self._add(members, usage)

    def _add(self, members: Sequence[CapabilitySpec], usage: "_Usage") -> None:
        names = {each.id: _names(each) for each in members}
        common = Counter(word for each in names.values() for word in each)
        own = {id_: frozenset(w for w in name if common[w] == 1) for id_, name in names.items()}
        are_alternatives = all(
            usage.share_with_any(each.id, own[each.id]) >= NAMED for each in members
        )
        if are_alternatives:
            self.alternatives.update(each.id for each in members)
        texts = {each.id: usage.words_of(each.id) for each in members}
        having = Counter(word for each in texts.values() for word in each)
        family = frozenset(each.id for each in members)
        for each in members:
            typical = usage.typical(each.id)
            if are_alternatives:
                marks = {word for word in typical if usage.is_own(each.id, word)}
            else:
                marks = {word for word in typical if having[word] == 1}
            self.of[each.id] = family
            self.marks[each.id] = own[each.id] | {word for word in marks if not word.isdigit()}


class Siblings:
    """Finds messages that may mean either of two siblings.

    Siblings are capabilities whose names share their first part, such as `database-postgres` and
    `database-sqlite`; together they are a family. The families are found with the first message
    that needs them, or by `prepare`. For ten thousand capabilities, finding them takes a quarter of
    the time of everything else that routing prepares.
    """

    def __init__(self, capabilities: Sequence[CapabilitySpec]) -> None:
        self._capabilities = capabilities

    def prepare(self) -> None:
        """Find the families if they are not known yet. Ten thousand capabilities take 0.7 s."""
        _ = self._families

    @cached_property
    def _families(self) -> _Families:
        return _Families(self._capabilities)

    def unclear(
        self,
        text: str,
        ranked: Sequence[Score],
        favoured: Mapping[str, Collection[CapabilityId]],
    ) -> tuple[CapabilityId, ...]:
        """Return the best capability and its plausible siblings, best first, if any may be meant.

        Siblings are capabilities whose names share their first part. The result is empty if the
        best one is clearly meant: the message names it, or something in `SPEAKING` favours it and
        none of these siblings. It is also empty if no sibling is plausible. `ranked` has the scores
        of capabilities, best first. `favoured` has the capabilities that each prior, and what was
        learnt, make more likely.
        """
        if not ranked:
            return ()
        winner = ranked[0].id
        least = OF_ALTERNATIVES if winner in self._families.alternatives else LEAST
        siblings = self._siblings_in(ranked)
        rivals = tuple(each.id for each in siblings if each.score >= least)
        if not rivals or self._is_named(_words_of(text), winner, rivals, favoured):
            return ()
        return (winner, *rivals)

    def left_open(
        self,
        text: str,
        ranked: Sequence[Score],
        favoured: Mapping[str, Collection[CapabilityId]],
    ) -> tuple[CapabilityId, ...]:
        """Return the best capability and all of its alternatives, best first, if none is named.

        Alternatives do the same at different places, such as `messaging-slack` and
        `messaging-discord`. A person who names none of them may mean any, whatever their scores
        are. The result is empty if the best capability has no alternatives, or if something in
        `SPEAKING` favours it alone.
        """
        if not ranked or ranked[0].id not in self._families.alternatives:
            return ()
        best = ranked[0].id
        others = tuple(each.id for each in self._siblings_in(ranked))
        said = _words_of(text)
        if not others or any(self._is_named(said, id_, (), {}) for id_ in others):
            return ()
        return () if self._is_named(said, best, others, favoured) else (best, *others)

    def _siblings_in(self, ranked: Sequence[Score]) -> list[Score]:
        """Return the scores of the first capability's siblings, in the order of `ranked`.

        Siblings are capabilities whose names share their first part.
        """
        family = self._families.of.get(ranked[0].id, frozenset())
        return [each for each in ranked[1:] if each.id in family]

    def _is_named(
        self,
        said: frozenset[str],
        one: CapabilityId,
        others: Collection[CapabilityId],
        favoured: Mapping[str, Collection[CapabilityId]],
    ) -> bool:
        """Tell whether the message names `one`, or something favours it and none of `others`.

        Only what is in `SPEAKING` counts. `said` are the words of the message.
        """
        if not self._families.marks[one].isdisjoint(said):
            return True
        for evidence in SPEAKING:
            here = favoured.get(evidence, ())
            if one in here and not any(each in here for each in others):
                return True
        return False


class _Usage:
    """How many phrases of each capability of a catalog contain each word."""

    def __init__(self, capabilities: Sequence[CapabilitySpec]) -> None:
        known: dict[str, str] = {}

        def said(text: str) -> tuple[str, ...]:
            # Tuples of shared words: sets would take 60 MB for 50,000 phrases.
            return tuple([known.setdefault(word, word) for word in _words_of(text)])

        self._phrases = {
            each.id: [said(text) for text in (*each.triggers, *each.extra_triggers)]
            for each in capabilities
        }
        self._described = {
            each.id: said(f"{each.description} {each.extra_description}") for each in capabilities
        }
        self._shares: dict[CapabilityId, dict[str, float]] = {}
        self._largest: dict[str, list[tuple[float, CapabilityId]]] = {}
        """The two largest shares of each word, and whose they are."""
        for id_, phrases in self._phrases.items():
            counted = Counter(word for phrase in phrases for word in phrase)
            self._shares[id_] = {word: count / len(phrases) for word, count in counted.items()}
            for word, share in self._shares[id_].items():
                best = self._largest.setdefault(word, [])
                if not best or share > best[0][0]:
                    best.insert(0, (share, id_))
                elif len(best) == 1 or share > best[1][0]:
                    best.insert(1, (share, id_))
                del best[2:]

    def words_of(self, id_: CapabilityId) -> frozenset[str]:
        """Return every word of a capability's texts."""
        return frozenset(self._described[id_]).union(*self._phrases[id_])

    def typical(self, id_: CapabilityId) -> set[str]:
        """Return the words that occur in a share of at least `SHARE` of a capability's phrases."""
        return {word for word, share in self._shares[id_].items() if share >= SHARE}

    def is_own(self, id_: CapabilityId, word: str) -> bool:
        """Tell whether a message with this word names the capability.

        At least two of the capability's phrases must have the word. The share of its phrases with
        the word must be at least `EXCLUSIVE` times that of any other capability.
        """
        share = self._shares[id_][word]
        others = max((each for each, whose in self._largest[word] if whose != id_), default=0.0)
        return share * len(self._phrases[id_]) > _ONCE and others * EXCLUSIVE <= share

    def share_with_any(self, id_: CapabilityId, some: frozenset[str]) -> float:
        """Return the share of a capability's phrases that have at least one word of `some`."""
        phrases = self._phrases[id_]
        return sum(not some.isdisjoint(each) for each in phrases) / max(1, len(phrases))


def _names(capability: CapabilitySpec) -> frozenset[str]:
    """Return the words of a capability's name, title and servers, with none split into parts.

    "WhatsApp" is one word: half of it names nothing. Stop words in a capability's name ("us", "in")
    count only in messages that write them in capitals.
    """
    servers = " ".join(server.name for server in capability.servers)
    name = str(capability.id.name)
    small = (run.upper() for run in _RUN.findall(name) if run in STOP_WORDS)
    return frozenset((*_whole(f"{name} {capability.title} {servers}"), *small))


def _words_of(text: str) -> frozenset[str]:
    """Return the words of a text. The parts of an identifier count, and so does the whole."""
    if text.isascii() and len(text) <= LONGEST and not _MORE_AS_A_WHOLE.search(text):
        return frozenset(words(text))
    return frozenset((*words(text), *_whole(text)))


def _whole(text: str) -> Iterable[str]:
    for run in _RUN.findall(text):
        small = run.lower()
        if small not in STOP_WORDS:
            yield stem(small)
        elif run.isupper() and len(run) >= _LEAST_CAPITALS:
            yield run
