"""The system's keyring, asked in a thread because a backend may block or ask a person to unlock it.

Only one question is asked at a time. If the keyring does not answer it, callers wait for a bounded
time, no further question is asked meanwhile, and nothing else is affected.
"""

from collections.abc import Iterable

import trio

from capd_protos.extras import missing
from capd_protos.secret_places import KEYRING_SERVICE, WORST_KEYRING

ANSWER_TIMEOUT = 20.0
"""Seconds for all keys of one question; a person may have to type a password."""


class SystemKeyring:
    """Asks this user's keyring for values, one question at a time."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(1)
        self._hangs = False
        self.note = ""
        """Why it gives no values, in words for a person; never contains a value."""

    async def ask(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the keyring's values for `keys`; none if it fails or does not answer in time."""
        wanted = list(keys)
        if not wanted:
            return {}
        found: dict[str, str] = {}
        if self._hangs and self._limiter.borrowed_tokens:
            return found
        with trio.move_on_after(ANSWER_TIMEOUT) as patience:
            found, self.note = await trio.to_thread.run_sync(
                _look_up, wanted, limiter=self._limiter, abandon_on_cancel=True
            )
        self._hangs = patience.cancelled_caught
        if self._hangs:
            self.note = f"it did not answer within {ANSWER_TIMEOUT:g} s: is it locked?"
        return found


def _look_up(keys: list[str]) -> tuple[dict[str, str], str]:
    # Imported here: the library searches all installed packages for backends.
    found: dict[str, str] = {}
    try:
        import keyring  # noqa: PLC0415
    except ImportError:
        return found, f"secrets.env takes its place ({missing('keyring')})"
    try:
        backend = keyring.get_keyring()
        if backend.priority < WORST_KEYRING:
            return found, "there is none that keeps secrets safely; secrets.env takes its place"
        for key in keys:
            if value := backend.get_password(KEYRING_SERVICE, key):
                found[key] = value
    except Exception as error:  # noqa: BLE001 - a plug-in's own; it must cost the daemon nothing
        # Only the exception's type, because its message may quote a secret.
        return found, f"it failed with {type(error).__name__}: is it locked?"
    return found, ""
