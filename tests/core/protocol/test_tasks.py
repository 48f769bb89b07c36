"""Which server has a task, and which results are tasks."""

import msgspec
import pytest

from capd.core.protocol.tasks import (
    EXTENSION,
    MOST_ID,
    MOST_TASKS,
    TaskOwners,
    has_tasks,
    task_of,
    with_tasks,
    without_tasks,
)
from capd_protos.types import ClientFacts, ServerIdentity

ONE, TWO = ServerIdentity("one"), ServerIdentity("two")


@pytest.mark.parametrize(
    ("result", "task"),
    [
        (b'{"resultType":"task","taskId":"t","status":"working"}', "t"),
        (b'{"resultType":"complete","taskId":"t"}', ""),
        (b'{"taskId":"t"}', ""),
        (b'{"resultType":"task","taskId":7}', ""),
        (b'{"content":[{"type":"text","text":"taskId"}]}', ""),
        (b'{"resultType":"task","taskId":"%s"}' % (b"x" * (MOST_ID + 1)), ""),
        (b'{"resultType":"task","taskId":"t","more":"%s"}' % (b"x" * 100_000), ""),
        (b'{"resultType":"task","taskId":"t"', ""),
        (b'["taskId"]', ""),
    ],
)
def test_a_result_is_a_task_if_it_says_so(result: bytes, task: str) -> None:
    assert task_of(result) == task


def test_an_id_that_two_servers_gave_is_of_both() -> None:
    owners = TaskOwners()
    for server in (ONE, ONE, TWO):
        owners.add("t", server)
    owners.add("u", TWO)

    again = TaskOwners()
    again.restore(owners.saved())

    assert [again.of(each) for each in ("t", "u", "v")] == [[ONE, TWO], [TWO], []]


def test_the_newest_tasks_are_remembered() -> None:
    owners = TaskOwners()
    owners.add("old", ONE)
    owners.add("used", ONE)
    for number in range(MOST_TASKS - 1):
        owners.add(f"t-{number}", ONE)
        owners.add("used", ONE)

    assert (owners.of("old"), owners.of("used"), len(owners.saved())) == ([], [ONE], MOST_TASKS)


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"extensions": {EXTENSION: {}, "a/b": {"c": 1}}, "roots": {}}, {"a/b": {"c": 1}}),
        ({"extensions": {EXTENSION: {}}, "roots": {}}, {}),
    ],
)
def test_a_client_without_tasks_keeps_all_else(
    capabilities: dict[str, object], expected: dict[str, object]
) -> None:
    client = ClientFacts(capabilities=msgspec.json.encode(capabilities))

    told = msgspec.json.decode(without_tasks(client).capabilities)

    assert told == {"extensions": expected, "roots": {}}


def test_a_client_that_takes_no_tasks_is_left_as_it_is() -> None:
    client = ClientFacts(capabilities=b'{"extensions":{"a/b":{}}}')

    assert without_tasks(client) is client


@pytest.mark.parametrize(
    ("capabilities", "has"),
    [
        (b'{"extensions":{"io.modelcontextprotocol/tasks":{}}}', True),
        (b'{"extensions":{"io.modelcontextprotocol/ui":{}}}', False),
        (b'{"extensions":["io.modelcontextprotocol/tasks"]}', False),
        (b'{"io.modelcontextprotocol/tasks":{}}', False),
        (b"{}", False),
        (b"", False),
    ],
)
def test_a_client_has_tasks_if_it_declares_them_and_can_be_given_them(
    capabilities: bytes, has: bool
) -> None:
    client = ClientFacts(capabilities=capabilities)

    assert [has_tasks(client), has_tasks(with_tasks(client))] == [has, True]


def test_a_client_that_is_given_tasks_keeps_what_it_has() -> None:
    client = ClientFacts(capabilities=b'{"roots":{},"extensions":{"a.b/c":{"d":1}}}')

    given = msgspec.json.decode(with_tasks(client).capabilities)

    assert given == {"roots": {}, "extensions": {"a.b/c": {"d": 1}, EXTENSION: {}}}
