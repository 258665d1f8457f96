"""What is looked at in every command line, before it is read: its encoding, and passwords in it."""

from __future__ import annotations

from collections.abc import Iterable

import typer

from rota.model.urls import has_password


def warn_of_passwords(arguments: Iterable[str]) -> None:
    """Say that everybody on this machine can read a password that stands on the command line."""
    if any(map(has_password, arguments)):
        typer.echo(
            "warning: a password on the command line can be read by everybody on this machine (ps): "
            "give the URL in $ROTA_STORE, and the password in ~/.pgpass",
            err=True,
        )


def refuse_broken_text(arguments: Iterable[str]) -> None:
    """Refuse what is no text: bytes of another encoding could be neither stored nor found."""
    for each in arguments:
        if any("\ud800" <= letter <= "\udfff" for letter in each):
            raise typer.BadParameter(f"{each!r} is not UTF-8: give it in the encoding of this terminal")
