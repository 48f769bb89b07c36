"""Finds near ties between siblings, such as `database-postgres` and `database-sqlite`.

Siblings are capabilities whose names have the same first part. A decision is a near tie if the
winner has a plausible sibling, the message does not name the winner, and neither the project's
files nor earlier use in the project favour only the winner. Then all of them are suggested, and
none is switched on.

A message names a capability with a word of its name, its title or its servers that no sibling has
in its name. It also does with a word that at least the share `SHARE` of its triggers has, and no
text of a sibling.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from capd.core.lexical import words
from capd_protos.types import CapabilityId, CapabilitySpec, Score

SHARE = 0.06
"""The share of a capability's triggers that must contain a word for it to name the capability. This
value and `LEAST` were tuned with `bench/routing/near_ties.jsonl` (docs/routing.md, "Near ties")."""
SPEAKING = ("files", "learnt")
"""The priors that decide between siblings: the project's files, and what was wanted there."""
NAMED = 0.15
"""If at least this share of each sibling's triggers contains the second part of its name, the
siblings are *alternatives*: they do the same with different services (`messaging-slack`,
`messaging-discord`). A person who means one of them names it, so a sibling is plausible even with a
low score. Other siblings do different things (`git`, `git-write`), so that a message shows which is
meant without a name."""
LEAST, OF_ALTERNATIVES = 0.03, 0.01
"""The score from which a sibling, and an alternative, is plausible. With 0 for alternatives, one
more near tie in ninety was found, and four right activations in a hundred were lost."""


class Siblings:
    """The families of siblings in a catalog, and the words that name each member."""

    def __init__(self, capabilities: Sequence[CapabilitySpec]) -> None:
        families: dict[str, list[CapabilitySpec]] = {}
        for each in capabilities:
            family, dash, _ = each.id.name.partition("-")
            if dash:
                families.setdefault(family, []).append(each)
        self._of: dict[CapabilityId, frozenset[CapabilityId]] = {}
        """The siblings of each capability, itself included; all siblings share one set object."""
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
        # How many members have a word. If more than one has it, it names none of them.
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
        """Return the winner and its plausible siblings, best first, if the decision is a near tie.

        Return nothing if the winner is clear. `favoured` are the capabilities that each prior
        speaks for.
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
