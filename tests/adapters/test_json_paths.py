"""JSON paths: matches, errors for invalid paths, and time limits."""

import json

import pytest

from capd.adapters import json_paths
from capd.adapters.json_paths import BadPathError, find

VALUE = {"items": [{"id": n, "name": f"n{n}", "tags": ["é"] * n} for n in range(30)]}
DATA = json.dumps(VALUE).encode()


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$.items[3:5].id", [3, 4]),
        ("$.items[-1]['name']", ["n29"]),
        ("$.items[?@.id > 27].name", ["n28", "n29"]),
        ("$.items[?match(@.name, 'n2')].tags", [["é", "é"]]),
        ("$.none", []),
    ],
)
async def test_a_path_finds_values(path: str, values: list[object]) -> None:
    found = await find(DATA, path, 10_000)

    assert (found.count, [json.loads(bytes(each)) for each in found.values]) == (
        len(values),
        values,
    )


async def test_values_without_room_are_counted() -> None:
    found = await find(DATA, "$.items[*].name", 20)

    assert (found.count, len(found.values)) == (30, 5)


@pytest.mark.parametrize(
    ("data", "path", "said"),
    [
        (DATA, "items", "The JSON path 'items' is wrong: "),
        (DATA, "$.items[", "The JSON path '$.items[' is wrong: "),
        (DATA, "$" + ".a" * 2000, "The JSON path is longer than 2,000 characters."),
        (b"no json", "$.a", "This part is not JSON: "),
    ],
)
async def test_what_leads_nowhere_is_told(data: bytes, path: str, said: str) -> None:
    with pytest.raises(BadPathError) as caught:
        await find(data, path, 100)

    assert str(caught.value).startswith(said)


async def test_a_path_that_never_ends_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_paths, "TIMEOUT", 0.5)
    data = b"[" * 60 + b"]" * 60

    with pytest.raises(BadPathError, match="takes too much time or memory"):
        await find(data, f"${'..*' * 8}[?@ == 'nowhere']", 100)
