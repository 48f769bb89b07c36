"""The data that a person and a login in progress exchange."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from capd.core.servers.login_answers import PasteError

LoginWay = Literal["browser", "device"]


@dataclass(slots=True, eq=False)
class LoginDialogue:
    """The parts of one login that its person sees: the code to enter, the address to paste."""

    way: LoginWay = "browser"
    """`device`: with a code, on any device (RFC 8628). `browser`: by a redirect to this machine."""
    user_code: str = ""
    """The code to enter, once the address is shown; empty if `way` is `browser`."""
    take_pasted: Callable[[str], None] | None = None
    """Takes the redirect's address as text; None if the login does not wait for one."""

    def paste(self, address: str) -> None:
        """Take the address to which the login redirected; a person copied it from a browser.

        Raises:
            PasteError: the address is not this login's redirect.
        """
        if self.take_pasted is None:
            raise PasteError("this login takes no address")
        self.take_pasted(address)
