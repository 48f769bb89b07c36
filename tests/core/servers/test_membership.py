"""How the daemon recognises which processes belong to a server."""

import pytest

from capd.core.servers.membership import Membership, is_adopted, strongest_method
from capd_protos.tree_marks import Mark

MARK = Mark("0123abcd", "fedc000000000001")
LIMIT = MARK.limit(None)


@pytest.mark.parametrize(
    ("prefix", "has_group", "has_proc", "way"),
    [
        (("bwrap", "--unshare-pid", "--"), True, True, "namespace"),
        (("bwrap", "--unshare-all", "--"), False, True, "namespace"),
        (("bwrap", "--tmpfs", "/home/me/.ssh", "--"), True, True, "cgroup"),
        ((), True, True, "cgroup"),
        ((), False, True, "sweep"),
        ((), False, False, "group"),
    ],
)
def test_the_strongest_way_is_named(
    prefix: tuple[str, ...], has_group: bool, has_proc: bool, way: Membership
) -> None:
    assert strongest_method(prefix, has_group=has_group, has_proc=has_proc) == way


@pytest.mark.parametrize(
    ("limit", "value", "own_limit", "is_one"),
    [
        pytest.param(LIMIT, MARK.of_server, None, True, id="as it was started"),
        pytest.param(LIMIT, "", None, True, id="with another environment"),
        pytest.param(5, "", None, True, id="with a lower limit"),
        pytest.param(None, MARK.of_server, None, True, id="root raised the limit"),
        pytest.param(None, "", None, False, id="what the daemon started"),
        pytest.param(None, MARK.of_helper, None, False, id="the embedder"),
        pytest.param(LIMIT, "", LIMIT, False, id="what a daemon below a server started"),
        pytest.param(LIMIT - 1, "", LIMIT, True, id="a server of a daemon below a server"),
    ],
)
def test_a_child_of_the_daemon_is_adopted_where_it_has_a_mark(
    limit: int | None, value: str, own_limit: int | None, is_one: bool
) -> None:
    assert is_adopted(MARK, limit, value, own_limit=own_limit) is is_one
