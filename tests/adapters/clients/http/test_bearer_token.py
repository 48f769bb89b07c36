"""The token file is created once, and must be private to the user."""

from pathlib import Path

import pytest

from capd.adapters.clients.http_front.bearer_token import TokenUnsafeError, load_token


def test_a_token_is_made_once_and_only_its_user_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "http.token"

    tokens = [load_token(file), load_token(file)]

    assert tokens[0] == tokens[1]
    assert (len(tokens[0]) >= 43, file.stat().st_mode & 0o777) == (True, 0o600)


def test_two_daemons_have_two_tokens(tmp_path: Path) -> None:
    tokens = {load_token(tmp_path / "a"), load_token(tmp_path / "b")}

    assert len(tokens) == 2


@pytest.mark.parametrize("kind", ["open", "link", "folder", "short"])
def test_a_file_that_others_may_know_is_not_used(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "http.token"
    if kind == "open":
        file.write_text("t" * 43)
        file.chmod(0o644)
    elif kind == "link":
        (tmp_path / "other").write_text("t" * 43)
        file.symlink_to(tmp_path / "other")
    elif kind == "folder":
        file.mkdir()
    else:
        file.write_text("secret")
        file.chmod(0o600)

    with pytest.raises(TokenUnsafeError):
        load_token(file)
