"""What typer draws a page of help with, loaded without the parts of rich that no page of ours uses."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from typer.core import TyperArgument, TyperOption

UNUSED = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""Classes that typer imports for help in Markdown and tracebacks in colour. Their parser and lexers would add a third to a page's time."""


def load_help_page() -> None:
    """Import typer's pages with a stand-in for each of these classes, which imports the real one when it is used."""
    stand_ins = {module: _stand_in(module, name) for module, name in UNUSED.items() if module not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        import_module("typer.rich_utils")
    finally:
        for module in stand_ins:
            del sys.modules[module]


WORDS = {"str": "TEXT", "list[str]": "TEXT", "int": "N", "float": "N", "int range": "N", "float range": "N", "path": "PATH", "file": "PATH"}
"""How a value is shown where its option names it no better, by what typer shows."""


def show_plain_values() -> None:
    """Let typer show a word for the value of an option, nothing behind a flag, and arguments without their Python types."""
    option: Any = TyperOption
    argument: Any = TyperArgument
    option.display_type_rich = _value_word
    argument.display_type_rich = lambda _self, **_: None
    argument._usage_display_name = _usage_word  # noqa: SLF001 - typer has no other way


def _value_word(option: Any, ctx: Any) -> str | None:
    if option.is_flag:
        return None
    if option.metavar is not None:
        return str(option.metavar)
    shown = str(option.display_type(ctx)).strip("<>")
    return WORDS.get(shown, shown)


def _usage_word(argument: Any) -> str:
    name = argument.display_name_raw.strip("[]").removesuffix("...")
    several = "..." if argument.nargs != 1 else ""
    return f"{name}{several}" if argument.required else f"[{name}]{several}"


def _stand_in(module: str, name: str) -> ModuleType:
    class Later(type):
        def __call__(cls, *args: Any, **options: Any) -> Any:
            return getattr(import_module(module), name)(*args, **options)

        def __getattr__(cls, attribute: str) -> Any:
            return getattr(getattr(import_module(module), name), attribute)

    made = ModuleType(module)
    setattr(made, name, Later(name, (), {}))
    return made
