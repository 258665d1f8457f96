"""The `rota` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from rota.surfaces.cli import main as command  # noqa: PLC0415 - the command line is not needed by programs

    command()


if __name__ == "__main__":
    main()
