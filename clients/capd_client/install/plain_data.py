"""Changes plain data (maps, lists, scalars) at a path, so that edits of texts can be checked.

The editors of TOML and YAML change a text and parse it again. The result must equal the old data
with the same change made here.
"""

import copy
import json
from typing import Any

Path = tuple[str | int, ...]


def found(data: Any, path: Path) -> Any:
    """Return the value at `path` in `data`; None if there is none.

    A step of the path that is a text names a member of a map; a number is an index of a list.
    """
    for step in path:
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, dict) else None
        else:
            data = data[step] if isinstance(data, list) and step < len(data) else None
    return data


def is_there(data: Any, path: Path) -> bool:
    """Tell whether `data` has a value at `path`, even if it is null."""
    container = found(data, path[:-1])
    if isinstance(path[-1], str):
        return isinstance(container, dict) and path[-1] in container
    return isinstance(container, list) and path[-1] < len(container)


def with_value(data: Any, path: Path, value: Any) -> Any:
    """Return `data` with `value` at `path`; missing or null maps on the way are created."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        changed = list(data)
        changed[step : step + 1] = [with_value(found(data, (step,)), rest, value)]
        return changed
    return {**(data or {}), step: with_value((data or {}).get(step), rest, value)}


def without(data: Any, path: Path) -> Any:
    """Return a copy of `data` without the value at `path`, if there is one."""
    changed = copy.deepcopy(data)
    if is_there(changed, path):
        del found(changed, path[:-1])[path[-1]]
    return changed


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same. Unlike with `==`, 1 is not true, and 1 is not 1.0."""
    return _text(one) == _text(other)


def _text(data: Any) -> str:
    # TOML has dates and times, which JSON lacks.
    return json.dumps(data, sort_keys=True, default=repr)
