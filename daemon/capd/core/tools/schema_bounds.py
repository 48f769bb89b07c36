"""Limits on a JSON schema: a tool whose schema exceeds them is left out.

Clients compile and expand the schemas that capd passes on. A schema that refers to other documents,
never ends, or expands from a few lines into millions is found here by counting. Nothing is
expanded, fetched or matched. Recursion into a value's parts is allowed, because a tree of comments
needs it. The number of steps is limited by the size of the document.

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
"""Subschemas after every reference is replaced by its target."""

_MOST_PARTS = 32
_MOST_DOCUMENTS = 4
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_IDS = ("$id", "id")


class _About(Enum):
    """What the subschemas of a keyword describe."""

    VALUE = auto()
    """The same value, so that a cycle of them never ends."""
    PART = auto()
    """A part of it."""
    NOTHING = auto()
    """Nothing, until a reference names them."""


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
class Examined:
    """The result for a schema: why it is over the bounds, or nothing; and the cost of the check."""

    reason: str
    steps: int


def examined(schema: Mapping[str, Any]) -> Examined:
    """Tell whether a decoded schema is within the limits, and at what cost."""
    look = _Look(schema)
    try:
        look.collect()
        look.count()
    except _OverError as error:
        return Examined(str(error), look.steps)
    return Examined("", look.steps)


_Documents = tuple[Mapping[str, Any], ...]


class _OverError(Exception):
    """A bound is exceeded; the text is the reason."""


@dataclass(slots=True, eq=False)
class _Node:
    """A subschema, with those that it includes."""

    schema: Mapping[str, Any]
    level: int
    documents: _Documents
    """The documents that `#` may mean in it, the nearest first."""
    same: list["_Node"] = field(default_factory=list)
    parts: list["_Node"] = field(default_factory=list)
    expanded: int = 0
    is_open: bool = False


class _Look:
    """One check of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.steps = 0
        # By identity: a decoded document is a tree, so each object occurs once.
        self._nodes: dict[int, _Node] = {}
        self._anchors: dict[str, Mapping[str, Any]] = {}
        self._found: list[tuple[_Node, str]] = []
        self._references = 0
        self._root = self._node(document, 1, (document,))

    def collect(self) -> None:
        """Find every subschema and link it to those that it includes.

        Raises:
            _OverError: a bound is exceeded.
        """
        todo = [self._root]
        while todo:
            while todo:
                todo += self._joined(todo.pop())
            # An anchor may stand after its reference. A target may stand where no keyword puts a
            # schema, and then it brings along more.
            found, self._found = self._found, []
            for node, reference in found:
                for target, documents in self._targets(node, reference):
                    if id(target) not in self._nodes:
                        todo.append(self._node(target, 1, documents))
                    node.same.append(self._nodes[id(target)])

    def count(self) -> None:
        """Count the expanded subschemas, for one value and in total.

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
                raise _OverError(f"has two anchors {anchor[:100]!a}")
        node = _Node(schema, level, _documents(schema, documents))
        self._nodes[id(schema)] = node
        return node

    def _joined(self, node: _Node) -> list[_Node]:
        """Return the subschemas inside `node` itself."""
        below: list[_Node] = []
        self.steps += len(node.schema)
        for keyword, value in node.schema.items():
            if keyword in _REFERENCES and isinstance(value, str):
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
        """Yield the possible targets of a reference; none for an invalid one.

        A validator reports an invalid reference when it reaches it, and a client without a
        validator never does.
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
        """Compute the counts of `root` and everything below it, children first.

        A schema that contains itself counts as one there: its parts end with the value.
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
    """Yield the schemas in the value of a keyword; `true` and `false` include nothing."""
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
    """Return what `#` may mean at `at`: in some drafts `id` begins a document, in others `$id`."""
    is_one = isinstance(at, dict) and any(isinstance(at.get(key), str) for key in _IDS)
    return (at, *around) if is_one and at is not around[0] else around


def _member(of: Any, key: str) -> Any:
    if isinstance(of, dict):
        return of.get(key)
    if isinstance(of, list) and key.isdecimal() and len(key) < 6:  # noqa: PLR2004 - an index
        return of[int(key)] if int(key) < len(of) else None
    return None
