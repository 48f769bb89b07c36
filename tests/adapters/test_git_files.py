"""Which checkout is around a project."""

from pathlib import Path

from capd.adapters.git_files import read_checkout


def test_the_checkout_around_a_folder_that_cannot_be_looked_at_is_found(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")

    checkout = read_checkout(str(tmp_path / ("long" * 100)))

    assert checkout.branch == "main"
