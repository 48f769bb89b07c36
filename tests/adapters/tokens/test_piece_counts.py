"""Text pieces are counted in advance, and their counts survive a restart."""

from pathlib import Path

import pytest
import trio

from capd.adapters.tokens import piece_counts
from capd.adapters.tokens.counted_texts import NotCountedError
from capd.adapters.tokens.piece_counts import PieceCounts


class Counter:
    """A scripted counter of two tokens per piece, which records its inputs."""

    def __init__(self) -> None:
        self.journal: list[list[bytes]] = []
        self.is_broken = False

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        await trio.lowlevel.checkpoint()
        self.journal.append(texts)
        if self.is_broken:
            raise NotCountedError("Tokens are not counted: reinstall capd")
        return dict.fromkeys(texts, 2)


async def test_a_piece_is_counted_once_for_all_and_over_a_restart(tmp_path: Path) -> None:
    counter, file = Counter(), tmp_path / "piece_counts.json"
    pieces = PieceCounts(counter, file)

    known = [await pieces.learn([text]) for text in ("git log", "git log", "git show")]
    again = PieceCounts(counter, file)
    known.append(await again.learn(["git log", "git show"]))

    assert counter.journal == [[b"git", b" log"], [b" show"]]
    assert (known, again.costs.of("git show")) == ([True] * 4, 4)


async def test_what_cannot_be_counted_is_taken_for_its_bytes(tmp_path: Path) -> None:
    counter = Counter()
    counter.is_broken = True
    pieces = PieceCounts(counter)

    # No usual word, whose most tokens are known without counting.
    known = await pieces.learn(["zyx qwv"])

    assert (known, pieces.costs.of("zyx qwv")) == (False, len("zyx qwv"))


@pytest.mark.parametrize("text", ["", "{", '{"vocabulary":"old","pieces":{"git":9}}', "\x00"])
async def test_a_file_that_is_none_costs_a_count_and_no_more(tmp_path: Path, text: str) -> None:
    file = tmp_path / "piece_counts.json"
    file.write_text(text)
    pieces = PieceCounts(Counter(), file)

    known = await pieces.learn(["git"])

    assert (known, pieces.costs.of("git")) == (True, 2)


async def test_without_a_counter_nothing_is_asked() -> None:
    pieces = PieceCounts()

    known = await pieces.learn(["git"])

    assert known is False


async def test_a_full_cache_says_that_earlier_pieces_are_not_known_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(piece_counts, "MOST_PIECES", 2)
    pieces = PieceCounts(Counter())

    known = [await pieces.learn([text]) for text in ("zyx qwv", "xkcd", "zyx qwv")]

    assert known == [True, False, False]
    assert pieces.costs.of("zyx") == 2
