"""The values that an entry asks for: from `--set`, from the user, or its defaults.

A secret's value is saved in the store; the definition and all output contain only its key. A key
that is stored already belongs to another server: the new server gets that secret only if the user
agrees.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from capd_client import tables
from capd_client.mcp_registry.process import RegistryError
from capd_client.stored_secrets import SecretError, checked_value

_STORED = re.compile(r"@(?P<key>[A-Za-z_][A-Za-z0-9_]*)")


@dataclass(slots=True)
class Answers:
    """The answers to an entry's inputs."""

    values: dict[str, list[str]] = field(default_factory=dict)
    """The values of each input by its name; a secret's value is `{{ENV:KEY}}`."""
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    """New secret values, by key."""
    missing: list[str] = field(default_factory=list)
    """Required inputs without a value."""


def given_values(words: Sequence[str]) -> dict[str, list[str]]:
    """Return the values in `words` by name; each word is `NAME=VALUE`, and a name may come twice.

    Raises:
        RegistryError: a word is not of this form.
    """
    found: dict[str, list[str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            # The message never has the whole word: it may be a secret.
            raise RegistryError(f"--set {name[:40]!r} is not NAME=VALUE")
        found.setdefault(name, []).append(value)
    return found


def ask_inputs(
    inputs: Sequence[Mapping[str, Any]],
    given: Mapping[str, Sequence[str]],
    server: str,
    known: Mapping[str, str],
    *,
    is_asked: bool,
) -> Answers:
    """Return the answers to the inputs of an entry: given ones, the person's, or defaults.

    `server` is the server's name here. `known` are stored secrets. A person is asked only with
    `is_asked`.

    Raises:
        RegistryError: `given` has a name that is no input, or the key of a secret that is not
            stored; or a value cannot be saved.
    """
    names = [str(each["name"]) for each in inputs]
    for name in given:
        if name not in names:
            listed = ", ".join(names) or "nothing"
            raise RegistryError(f"{server} asks for no {name[:80]!r}; it asks for {listed}")
    answers = Answers()
    for each in inputs:
        name = str(each["name"])
        values = [value for value in given.get(name, ()) if value]
        if each.get("is_secret"):
            _secret(each, values[:1], server, known, answers, is_asked=is_asked)
            continue
        needs_one = bool(each.get("is_required")) and not each.get("default")
        if not values and needs_one and is_asked:
            values = [_asked(each)]
        if values:
            answers.values[name] = values
        elif needs_one:
            answers.missing.append(name)
    return answers


def _secret(
    each: Mapping[str, Any],
    values: Sequence[str],
    server: str,
    known: Mapping[str, str],
    answers: Answers,
    *,
    is_asked: bool,
) -> None:
    name = str(each["name"])
    stored = _STORED.fullmatch(values[0]) if values else None
    if stored is not None:
        if not known.get(stored["key"]):
            raise RegistryError(
                f"no secret {stored['key']} is stored: capd secret set {stored['key']}"
            )
        answers.values[name] = [_reference(stored["key"])]
        return
    plain = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "SECRET"
    plain = f"_{plain}" if plain[0].isdigit() else plain
    if not values and is_asked and known.get(plain):
        text = f"{plain} is stored for another server. Give it to {server} as well?"
        if click.confirm(text, default=False):
            answers.values[name] = [_reference(plain)]
            return
    if not values and is_asked and each.get("is_required"):
        values = [_asked(each)]
    if not values:
        if each.get("is_required"):
            answers.missing.append(name)
        return
    key = _free_key(plain, server, {**known, **answers.secrets}, values[0])
    try:
        answers.secrets[key] = checked_value(values[0])
    except SecretError as error:
        raise RegistryError(f"{name}: {error}") from None
    answers.values[name] = [_reference(key)]


def _free_key(plain: str, server: str, known: Mapping[str, str], value: str) -> str:
    own = re.sub(r"[^A-Za-z0-9]+", "_", server).upper()
    own = f"_{own}" if own[:1].isdigit() else own
    keys = [plain, f"{own}_{plain}", *(f"{own}_{plain}_{number}" for number in range(2, 1000))]
    return next(key for key in keys if known.get(key, value) in {value, ""})


def _reference(key: str) -> str:
    return f"{{{{ENV:{key}}}}}"


def _asked(each: Mapping[str, Any]) -> str:
    """Ask the user for the value of one input, and return it."""
    if each.get("description"):
        tables.say(f"  {each['description']}")
    name = tables.printable(str(each["name"]))
    choices = [tables.printable(str(choice)) for choice in each.get("choices") or ()]
    kind = click.Choice(choices) if choices and not each.get("is_secret") else str
    is_hidden = bool(each.get("is_secret"))
    hint = f" ({tables.printable(str(each['placeholder']))})" if each.get("placeholder") else ""
    prompted: str = click.prompt(f"{name}{hint}", type=kind, hide_input=is_hidden)
    return prompted
