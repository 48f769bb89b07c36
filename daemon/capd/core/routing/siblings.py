"""Capabilities that a message cannot tell apart: `database-postgres` and `database-sqlite`.

Siblings are capabilities whose names share their first part. If the winner has a plausible sibling,
the message does not name the winner, and neither the project's files nor earlier use there favour
only the winner, then both are suggested and none is switched on.

A message names a capability with a word of its name, its title or its servers that no sibling's
name has, or with a word that a fair share of its phrases has and none of its siblings' texts.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from capd.core.lexical import words
from capd_protos.types import CapabilityId, CapabilitySpec, Score

SHARE = 0.06
"""Of a capability's phrases that a word must be in to name it. With `LEAST` from
`bench/routing/near_ties.jsonl` (docs/routing.md, "Near ties")."""
SPEAKING = ("files", "learnt")
"""Evidence of the project that decides between siblings: its files, and what was wanted there."""
NAMED = 0.15
"""Share of each member's phrases that have the rest of its name, from which the members are
*alternatives*: they do the same at different places (`messaging-slack`, `messaging-discord`), and
somebody who means one names it, so a low score hardly puts one of them out of question. The members
of other families do different things (`git`, `git-write`), which a message shows without a name."""
LEAST, OF_ALTERNATIVES = 0.03, 0.01
"""Score from which a sibling is not out of question. At 0 for alternatives one more near tie in
ninety was left open, and four right activations in a hundred were lost elsewhere."""


class Siblings:
    """The families of siblings in a catalog, and the words that name each member."""

    def __init__(self, capabilities: Sequence[CapabilitySpec]) -> None:
        families: dict[str, list[CapabilitySpec]] = {}
        for each in capabilities:
            family, dash, _ = each.id.name.partition("-")
            if dash:
                families.setdefault(family, []).append(each)
        self._of: dict[CapabilityId, frozenset[CapabilityId]] = {}
        """The family of each member, itself included; all of a family share one set."""
        self._marks: dict[CapabilityId, frozenset[str]] = {}
        self._alternatives: set[CapabilityId] = set()
        for members in families.values():
            if len(members) > 1:
                self._add(members)

    def _add(self, members: Sequence[CapabilitySpec]) -> None:
        phrases = {
            each.id: [frozenset(words(text)) for text in (*each.triggers, *each.extra_triggers)]
            for each in members
        }
        texts = {
            each.id: frozenset(words(f"{each.description} {each.extra_description}")).union(
                *phrases[each.id]
            )
            for each in members
        }
        if all(_named_share(each, phrases[each.id]) >= NAMED for each in members):
            self._alternatives.update(each.id for each in members)
        family = frozenset(each.id for each in members)
        # How many members have a word: the others have it where more than one does.
        having = Counter(word for each in members for word in texts[each.id])
        names = {each.id: frozenset(words(each.id.name)) for each in members}
        naming = Counter(word for each in members for word in names[each.id])
        for each in members:
            servers = " ".join(server.name for server in each.servers)
            own_name = frozenset(words(f"{each.id.name} {each.title} {servers}"))
            counted = Counter(word for phrase in phrases[each.id] for word in phrase)
            least = SHARE * len(phrases[each.id])
            self._of[each.id] = family
            typical = {word for word, number in counted.items() if number >= least}
            of_others = {word for word in own_name if naming[word] > (word in names[each.id])}
            self._marks[each.id] = frozenset(
                {word for word in typical if having[word] == 1} | (own_name - of_others)
            )

    def unclear(
        self,
        text: str,
        ranked: Sequence[Score],
        favoured: Mapping[str, Collection[CapabilityId]],
    ) -> tuple[CapabilityId, ...]:
        """Return the winner and its siblings, best first, if the message is ambiguous.

        Empty if the winner is clear. `favoured` are the capabilities that each prior favours.
        """
        if not ranked:
            return ()
        winner = ranked[0].id
        siblings = self._of.get(winner, frozenset())
        least = OF_ALTERNATIVES if winner in self._alternatives else LEAST
        rivals = tuple(
            each.id
            for each in ranked
            if each.id != winner and each.id in siblings and each.score >= least
        )
        if not rivals or not self._marks[winner].isdisjoint(words(text)):
            return ()
        for evidence in SPEAKING:
            here = favoured.get(evidence, ())
            if winner in here and not any(each in here for each in rivals):
                return ()
        return (winner, *rivals)


def _named_share(capability: CapabilitySpec, phrases: Sequence[frozenset[str]]) -> float:
    """Return the share of phrases that have a word of the name's second part."""
    own = frozenset(words(capability.id.name.partition("-")[2]))
    return sum(not own.isdisjoint(each) for each in phrases) / max(1, len(phrases))
