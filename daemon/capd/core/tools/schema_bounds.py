"""Limits on a JSON Schema: a tool whose schema exceeds them is left out.

Clients compile and expand the schemas that capd passes on. This check finds schemas that refer to
other documents, refer to themselves without an end, or expand from a few lines into millions. It
only counts: it expands, fetches and matches nothing. A schema may refer to itself for a part of the
value, as for a tree of comments. The number of steps is bounded by the size of the document.

The bounds are far above ordinary servers: of 757 tools of 23 servers from npm and PyPI the largest
schema had 470 subschemas, 14 levels and 13 references, and expanded to 470. The standard suggests
lower limits (32 levels, 2,000 subschemas, 64 references), which are too close to these numbers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any
from urllib.parse import unquote

MOST_SUBSCHEMAS = 4000
MOST_LEVELS = 64
MOST_REFERENCES = 512
MOST_EXPANDED = 10_000
"""The most subschemas once every reference is replaced by its target."""

_MOST_PARTS = 32
_MOST_DOCUMENTS = 4
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
"""The keywords whose value is a reference to another schema."""
_ANCHORS = ("$anchor", "$dynamicAnchor")
_IDS = ("$id", "id")


class _About(Enum):
    """What the subschemas of a keyword apply to: the same value, a part of it, or nothing."""

    VALUE = auto()
    """To the same value as the schema, so that a cycle of such keywords never ends."""
    PART = auto()
    """To a part of the value, such as an item."""
    NOTHING = auto()
    """To nothing, unless a reference names them."""


_ONE: Mapping[str, _About] = {
    **dict.fromkeys(("not", "if", "then", "else"), _About.VALUE),
    "additionalItems": _About.PART,
    "additionalProperties": _About.PART,
    "contains": _About.PART,
    "contentSchema": _About.PART,
    "items": _About.PART,
    "propertyNames": _About.PART,
    "unevaluatedItems": _About.PART,
    "unevaluatedProperties": _About.PART,
}
_MANY: Mapping[str, _About] = {
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _About.VALUE),
    **dict.fromkeys(("items", "prefixItems"), _About.PART),
}
_NAMED: Mapping[str, _About] = {
    **dict.fromkeys(("dependentSchemas", "dependencies"), _About.VALUE),
    **dict.fromkeys(("properties", "patternProperties"), _About.PART),
    **dict.fromkeys(("$defs", "definitions"), _About.NOTHING),
}


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """Why a JSON Schema exceeds the limits (empty if it does not), and how many steps this took."""

    reason: str
    steps: int


def examined(schema: Mapping[str, Any]) -> SchemaCheck:
    """Return which limit a decoded JSON Schema exceeds, if any."""
    look = _Look(schema)
    try:
        look.collect()
        look.count()
    except _OverError as error:
        return SchemaCheck(str(error), look.steps)
    return SchemaCheck("", look.steps)


_Documents = tuple[Mapping[str, Any], ...]


class _OverError(Exception):
    """A JSON Schema exceeds a limit; the text says which, as the end of a sentence."""


@dataclass(slots=True, eq=False)
class _Node:
    """A subschema of a JSON Schema, with its children.

    The children that apply to the same value and those that apply to parts of it are separate.
    """

    schema: Mapping[str, Any]
    level: int
    documents: _Documents
    """The schemas that a reference `#` in this one may mean, the nearest first."""
    same: list["_Node"] = field(default_factory=list)
    parts: list["_Node"] = field(default_factory=list)
    expanded: int = 0
    is_open: bool = False


class _Look:
    """Examines one JSON Schema document, and counts its steps."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.steps = 0
        # By identity: a decoded document is a tree, so each object occurs once.
        self._nodes: dict[int, _Node] = {}
        self._anchors: dict[str, Mapping[str, Any]] = {}
        self._found: list[tuple[_Node, str]] = []
        self._references = 0
        self._root = self._node(document, 1, (document,))

    def collect(self) -> None:
        """Find every subschema, and link each to its children and to the targets of its references.

        Raises:
            _OverError: a bound is exceeded.
        """
        todo = [self._root]
        while todo:
            while todo:
                todo += self._joined(todo.pop())
            # Targets are looked up after all keywords, because an anchor may come after its
            # reference. A target may be in a place that no keyword makes a schema, and then it
            # and its children are new.
            found, self._found = self._found, []
            for node, reference in found:
                for target, documents in self._targets(node, reference):
                    if id(target) not in self._nodes:
                        todo.append(self._node(target, 1, documents))
                    node.same.append(self._nodes[id(target)])

    def count(self) -> None:
        """Count the subschemas that the document has once its references are expanded.

        First only the subschemas for the same value are counted, then all.

        Raises:
            _OverError: a bound is exceeded.
        """
        for node in self._nodes.values():
            self._expand(node, with_parts=False)
        for node in self._nodes.values():
            node.expanded = 0
        self._expand(self._root, with_parts=True)

    def _node(self, schema: Mapping[str, Any], level: int, documents: _Documents) -> _Node:
        if level > MOST_LEVELS:
            raise _OverError(f"nests schemas more than {MOST_LEVELS} deep")
        if len(self._nodes) == MOST_SUBSCHEMAS:
            raise _OverError(f"has more than {MOST_SUBSCHEMAS} subschemas")
        for key in _ANCHORS:
            anchor = schema.get(key)
            if isinstance(anchor, str) and self._anchors.setdefault(anchor, schema) is not schema:
                raise _OverError(f"has two anchors called {anchor[:100]!a}")
        node = _Node(schema, level, _documents(schema, documents))
        self._nodes[id(schema)] = node
        return node

    def _joined(self, node: _Node) -> list[_Node]:
        """Make the subschemas in the keywords of `node` its children; return them."""
        below: list[_Node] = []
        self.steps += len(node.schema)
        for keyword, value in node.schema.items():
            if keyword in REFERENCES and isinstance(value, str):
                self._referred(node, value)
            for about, schema in _subschemas(keyword, value):
                self.steps += 1
                if id(schema) in self._nodes:
                    child = self._nodes[id(schema)]
                else:
                    child = self._node(schema, node.level + 1, node.documents)
                    below.append(child)
                if about is _About.VALUE:
                    node.same.append(child)
                elif about is _About.PART:
                    node.parts.append(child)
        return below

    def _referred(self, node: _Node, reference: str) -> None:
        self._references += 1
        if not reference.startswith("#"):
            raise _OverError(f"refers to {reference[:100]!a}, which is outside of it")
        if self._references > MOST_REFERENCES:
            raise _OverError(f"has more than {MOST_REFERENCES} references")
        if reference.count("/") > _MOST_PARTS:
            raise _OverError(f"has a reference of more than {_MOST_PARTS} parts")
        if len(node.documents) > _MOST_DOCUMENTS:
            raise _OverError(f"refers from within {len(node.documents)} documents")
        self._found.append((node, unquote(reference[1:])))

    def _targets(
        self, node: _Node, fragment: str
    ) -> Iterator[tuple[Mapping[str, Any], _Documents]]:
        """Yield what a reference in a subschema may mean, each with the documents around it.

        Nothing is yielded for an invalid reference, which is no reason to leave a tool out: a
        validator reports the reference when it gets there, and a client without one ignores it.
        """
        if fragment and not fragment.startswith("/"):
            if fragment in self._anchors:
                yield self._anchors[fragment], node.documents
            return
        for which, document in enumerate(node.documents):
            at: Any = document
            documents = node.documents[which:]
            for part in fragment.split("/")[1:]:
                self.steps += 1
                at = _member(at, part.replace("~1", "/").replace("~0", "~"))
                documents = _documents(at, documents)
            if isinstance(at, dict):
                yield at, documents

    def _expand(self, root: _Node, *, with_parts: bool) -> None:
        """Compute how many subschemas `root` and everything below it expand to, children first.

        With `with_parts`, a schema that contains itself through a part of the value counts as a
        single subschema there: a value has finitely many parts, so its check ends.

        Raises:
            _OverError: it expands too far, or, without `with_parts`, it refers to itself.
        """
        todo = [root]
        while todo:
            node = todo[-1]
            below = node.same + node.parts if with_parts else node.same
            self.steps += 1 + len(below)
            if node.expanded:
                todo.pop()
            elif not node.is_open:
                node.is_open = True
                if not with_parts and any(child.is_open for child in below):
                    raise _OverError("refers to itself without an end")
                todo += [child for child in below if not (child.expanded or child.is_open)]
            else:
                node.is_open = False
                node.expanded = 1 + sum(child.expanded or 1 for child in below)
                if node.expanded > MOST_EXPANDED:
                    raise _OverError(f"expands to more than {MOST_EXPANDED} subschemas")
                todo.pop()


def _subschemas(keyword: str, value: Any) -> Iterator[tuple[_About, Mapping[str, Any]]]:
    """Yield the schemas in the value of a JSON Schema keyword, and what each applies to.

    Those that are `true` or `false` are left out.
    """
    if isinstance(value, dict):
        if keyword in _ONE:
            yield _ONE[keyword], value
        elif keyword in _NAMED:
            about = _NAMED[keyword]
            yield from ((about, each) for each in value.values() if isinstance(each, dict))
    elif isinstance(value, list) and keyword in _MANY:
        about = _MANY[keyword]
        yield from ((about, each) for each in value if isinstance(each, dict))


def _documents(at: Any, around: _Documents) -> _Documents:
    """Return the schema documents that a subschema is in, the innermost first.

    The subschema is one itself if it has `$id`, or `id` (old drafts).
    """
    is_one = isinstance(at, dict) and any(isinstance(at.get(key), str) for key in _IDS)
    return (at, *around) if is_one and at is not around[0] else around


def _member(of: Any, key: str) -> Any:
    if isinstance(of, dict):
        return of.get(key)
    if isinstance(of, list) and key.isdecimal() and len(key) < 6:  # noqa: PLR2004 - an index
        return of[int(key)] if int(key) < len(of) else None
    return None
