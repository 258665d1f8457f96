"""What typer draws a page of help with, loaded without the parts of rich that no page of ours uses."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

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


def _stand_in(module: str, name: str) -> ModuleType:
    class Later(type):
        def __call__(cls, *args: Any, **options: Any) -> Any:
            return getattr(import_module(module), name)(*args, **options)

        def __getattr__(cls, attribute: str) -> Any:
            return getattr(getattr(import_module(module), name), attribute)

    made = ModuleType(module)
    setattr(made, name, Later(name, (), {}))
    return made
