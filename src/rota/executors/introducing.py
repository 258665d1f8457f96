"""What a new handler process is told first: settings, where modules are, and which program it belongs to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from multiprocessing import process as multiprocessing_process
from pathlib import Path

from rota.executors.locate import MAIN, locate_app
from rota.executors.wire import Init, Program
from rota.model.handler import Handler, Place
from rota.ports.executor import Equipment


def introduction(equipment: Equipment, more: AbstractSet[str] = frozenset()) -> Init:
    """Return what a new process is told first; `more`: modules to import beside those of handlers that were declared for processes."""
    app = None if equipment.app is None else locate_app(equipment.app)
    if app is not None:
        # A process has the middleware of the modules that it imports: those of the functions themselves too.
        functions = (*equipment.middleware, *equipment.app.on.process_start.functions) if equipment.app is not None else ()
        more |= {app.module, *(str(getattr(function, "__module__", None) or MAIN) for function in functions)}
    modules = sorted({getattr(handler.function, "__module__", None) or MAIN for handler in process_handlers(equipment)} | more)
    # Absolute: a handler may change the directory.
    log_dir = None if equipment.log_dir is None else str(Path(equipment.log_dir).absolute())
    program = _program(with_main=MAIN in modules)
    return Init(equipment.settings, log_dir, program, [module for module in modules if module != MAIN], equipment.store, app)


def prepared(init: Init) -> dict[str, object]:
    """Return the program as `multiprocessing.spawn.prepare` takes it."""
    program = init.program
    data: dict[str, object] = {"sys_path": [*map(os.fsdecode, program.path)], "sys_argv": [*map(os.fsdecode, program.argv)]}
    if program.main_name is not None:
        data["init_main_from_name"] = program.main_name
    elif program.main_path is not None:
        data["init_main_from_path"] = os.fsdecode(program.main_path)
    return data


def _program(*, with_main: bool) -> Program:
    """Look at this program.

    Not by way of `multiprocessing.spawn.get_preparation_data`: that settles how the program itself starts processes from then on, and fails
    in a directory that was removed.
    """
    # What '' stands for in a path: the directory that the program was started in.
    home = multiprocessing_process.ORIGINAL_DIR or ""  # type: ignore[attr-defined] # not in its stub
    entries: list[object] = list(sys.path)  # a Path among them is passed over, as importing does
    path = [os.fsencode(entry or home) for entry in entries if isinstance(entry, str)]
    argv = [os.fsencode(str(word)) for word in sys.argv]
    main = sys.modules[MAIN] if with_main else None
    file = getattr(main, "__file__", None)
    return Program(
        path,
        argv,
        main_name=getattr(getattr(main, "__spec__", None), "name", None),
        main_path=None if file is None else os.fsencode(os.path.normpath(os.path.join(home, file))),  # noqa: PTH118 - as it is, '..' and links too
    )


def process_handlers(equipment: Equipment) -> Iterable[Handler]:
    """Return the handlers that were declared for processes."""
    return (handler for handler in tuple(equipment.handlers.values()) if handler.executor == Place.PROCESS)
