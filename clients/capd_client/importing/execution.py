"""Carries out the plan of an import: first the secrets, then the servers that need them."""

import contextlib
from collections.abc import Callable

from capd_client.importing.plan import ImportPlan
from capd_client.importing.stores import KnownValues, SecretStore
from capd_client.own_tap import OwnTap
from capd_client.stored_secrets import SecretError
from capd_client.taps import TapError


def carry_out(plan: ImportPlan, tap: OwnTap, store: SecretStore, known: KnownValues) -> None:
    """Save the secrets of `plan` in `store`, and add its servers to `tap`: all of them or none.

    A secret that `known` says is stored already is not saved again.

    Raises:
        TapError, SecretError, OSError: something could not be written. All that was written before
            is removed again.
    """
    undo: list[Callable[[], object]] = []
    try:
        for planned in plan.added:
            for key, value in planned.secrets.items():
                if not known.is_stored(key, value):
                    store.keep(key, value)
                    undo.append(lambda key=key: store.remove(key))  # type: ignore[misc]  # bound
        for planned in plan.added:
            assert planned.server is not None
            tap.add(planned.server)
            undo.append(lambda name=planned.name: tap.remove(name))  # type: ignore[misc]  # bound
    except BaseException:
        for step in reversed(undo):
            with contextlib.suppress(TapError, SecretError, OSError):
                step()
        raise
