"""Data as any format has it, changed at a path: what an edited text has to mean afterwards."""

import copy
import json
from typing import Any

Path = tuple[str | int, ...]


def found(data: Any, path: Path) -> Any:
    """Return what is at `path`, None where nothing is."""
    for step in path:
        if isinstance(step, str):
            data = data.get(step) if isinstance(data, dict) else None
        else:
            data = data[step] if isinstance(data, list) and step < len(data) else None
    return data


def is_there(data: Any, path: Path) -> bool:
    """Tell whether there is something at `path`, be it null."""
    container = found(data, path[:-1])
    if isinstance(path[-1], str):
        return isinstance(container, dict) and path[-1] in container
    return isinstance(container, list) and path[-1] < len(container)


def with_value(data: Any, path: Path, value: Any) -> Any:
    """Return `data` with `value` at `path`; maps on the way there are made, also out of null."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        changed = list(data)
        changed[step : step + 1] = [with_value(found(data, (step,)), rest, value)]
        return changed
    return {**(data or {}), step: with_value((data or {}).get(step), rest, value)}


def without(data: Any, path: Path) -> Any:
    """Return `data` without what is at `path`."""
    changed = copy.deepcopy(data)
    if is_there(changed, path):
        del found(changed, path[:-1])[path[-1]]
    return changed


def is_same(one: Any, other: Any) -> bool:
    """Tell whether two mean the same; 1 is not true, and a map that is empty is not null."""
    return _text(one) == _text(other)


def _text(data: Any) -> str:
    # Dates and times of TOML are what JSON does not have.
    return json.dumps(data, sort_keys=True, default=repr)
