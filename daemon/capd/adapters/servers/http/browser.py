"""Opening an address in the user's browser: a program and its arguments, never a shell line."""

import subprocess
from collections.abc import Awaitable, Callable, Sequence

import trio

from capd.adapters.servers.http.logins import LoginFailedError

OPEN_TIMEOUT = 30.0


def opened_with(
    opener: Sequence[str], environment: dict[str, str]
) -> Callable[[str], Awaitable[None]]:
    """Return a function that shows an address by running `opener` with it as the last argument."""

    async def show(url: str) -> None:
        with trio.move_on_after(OPEN_TIMEOUT):
            try:
                done = await trio.run_process(
                    [*opener, url],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=False,
                )
            except OSError as error:
                raise LoginFailedError(f"{opener[0]} cannot be run: {error.strerror}") from None
            if done.returncode == 0:
                return
        raise LoginFailedError(f"{opener[0]} did not open the browser")

    return show
