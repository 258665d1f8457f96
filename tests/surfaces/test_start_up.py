"""What a start loads: by modules, not by time, so that it holds on a busy machine, too."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.core import TyperCommand
from typer.main import get_command

import rota
from rota.engine.worker import PRELOADED
from rota.surfaces.cli.app import app
from rota.surfaces.cli.tree import Leaf
from tests.support.pace import patient
from tests.surfaces.cli_support import ROOT

OTHERS = {"apsw", "asyncio", "click", "concurrent.futures", "multiprocessing", "pydantic", "rich", "ssl", "subprocess", "typer"}
OTHERS |= {"cryptography", "httpx2", "jinja2", "opentelemetry", "prometheus_client", "psycopg", "pymongo", "starlette", "uvicorn"}
"""Packages that not every program needs."""

WORKING = {f"rota.engine.{name}" for name in ("driver", "store_copy", "turn_request", "webhook_delivery", "worker")}
"""Parts that a program needs that runs jobs, not one that enqueues them."""


def loaded(code: str, *, store: str = "nowhere.db") -> set[str]:
    """Return what a fresh process has loaded after some code, apart from what Python itself loads to start."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nfirst = set(sys.modules)\n{code}\nprint(*set(sys.modules) - first, file=sys.stderr)"],
        env={"PYTHONPATH": str(ROOT / "src"), "ROTA_STORE": store, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=patient(50),
        check=True,
    )
    return set(done.stderr.split())


def loaded_by_command(*words: str, store: str = "nowhere.db") -> set[str]:
    call = f"""
from rota.__main__ import main
sys.argv = ["rota", *{words!r}]
try:
    main()
except SystemExit as end:
    assert end.code in (0, 2 if not sys.argv[1:] else 0), end.code
"""
    return loaded(call, store=store)


def inside(modules: set[str], *packages: str) -> set[str]:
    return {name for name in modules for package in packages if name == package or name.startswith(f"{package}.")}


# ---- the package ------------------------------------------------------------------------------------------------------


def test_importing_the_package_loads_nothing_else_of_it():
    modules = loaded("import rota")
    assert inside(modules, "rota") == {"rota"}
    assert not inside(modules, "msgspec", *OTHERS)


def test_an_error_is_imported_without_the_engine():
    assert inside(loaded("from rota import RotaError"), "rota") == {"rota", "rota.errors"}


def test_importing_rota_itself_loads_no_package_that_only_some_programs_need():
    assert not inside(loaded("from rota import Rota"), "socket", "tomllib", "rota.simulation", "rota.surfaces.cli", "rota.testing", *OTHERS)


def test_importing_rota_itself_loads_no_worker_no_store_and_no_server():
    assert not inside(
        loaded("from rota import Rota"), "rota.sql", "rota.stores.sqlite", "rota.stores.postgres", "rota.surfaces.http", *WORKING
    )


def test_a_worker_without_secrets_loads_no_keys():
    code = "from rota import Rota\nr = Rota(PLACE)\nr.job(lambda: None, name='a')\nr.enqueue('a')\nr.turn()\nr.turn()\nr.close()"
    with TemporaryDirectory() as folder:
        assert not inside(loaded(code.replace("PLACE", repr(f"{folder}/rota.db"))), "rota.vault", "rota.resources.secrets", "cryptography")


@pytest.mark.parametrize("name", rota.__all__)
def test_each_name_is_the_one_of_the_module_that_it_comes_from(name):
    found = getattr(rota, name)
    assert found is getattr(importlib.import_module(found.__module__), name)
    assert pickle.loads(pickle.dumps(found)) is found


def test_a_star_import_brings_every_name():
    names: dict[str, object] = {}
    exec("from rota import *", names)
    assert {name: names[name] for name in rota.__all__} == {name: getattr(rota, name) for name in rota.__all__}


def test_the_directory_of_the_package_lists_every_name_before_any_is_used():
    code = "import rota\nassert set(rota.__all__) <= set(dir(rota)), dir(rota)\nassert '__version__' in dir(rota)"
    assert inside(loaded(code), "rota") == {"rota"}


def test_the_errors_are_at_hand_as_a_module_of_the_package():
    loaded("import rota\nassert issubclass(rota.errors.NotFound, rota.RotaError)")


def test_a_name_that_is_not_there_gives_pythons_own_error():
    with pytest.raises(AttributeError, match=r"^module 'rota' has no attribute 'Rotta'$") as refused:
        rota.Rotta  # noqa: B018
    assert (refused.value.name, refused.value.obj) == ("Rotta", rota)
    with pytest.raises(ImportError, match=r"^cannot import name 'Rotta' from 'rota' \("):
        exec("from rota import Rotta")


def test_type_checkers_are_told_the_same_names_and_places_as_programs_get():
    tree = ast.parse((ROOT / "src/rota/__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    told = {each.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for each in node.names}
    assert sorted(told) == rota.__all__
    for name, module in told.items():
        assert getattr(rota, name) is getattr(importlib.import_module(str(module)), name)


# ---- the command line -------------------------------------------------------------------------------------------------

ENGINE = ("rota.compose", "rota.engine", "rota.executors", "rota.stores", "rota.surfaces.python", "rota.simulation", "rota.surfaces.http")
SERVERS = OTHERS - {"apsw", "pydantic", "rich", "subprocess", "typer"}
"""What no command needs that serves nothing. typer itself loads subprocess, and pydantic to read options."""


@pytest.fixture
def store(tmp_path: Path) -> str:
    place = tmp_path / "rota.db"
    desk = rota.Rota(place)
    desk.job(name="greet")(lambda: None)
    desk.enqueue("greet")
    desk.close()
    return str(place)


@pytest.mark.parametrize("words", [("--help",), ("-h",), ()])
def test_the_page_of_all_commands_imports_no_command_and_no_engine(words):
    modules = loaded_by_command(*words)
    assert not inside(modules, *ENGINE, *SERVERS, "apsw", "msgspec", "pydantic", "rota.sql")
    assert inside(modules, "rota.surfaces.cli") <= {f"rota.surfaces.cli{name}" for name in ("", ".app", ".help_page", ".tree")}


@pytest.mark.parametrize("words", [("--help",), ("job", "list", "--help"), ("enqueue", "--help")])
def test_a_page_of_help_loads_no_parser_of_markdown_and_no_lexer(words):
    modules = loaded_by_command(*words)
    assert "typer.rich_utils" in modules
    assert not inside(modules, "markdown_it", "pygments", "rich.markdown", "rich.traceback")


@pytest.mark.parametrize(
    "words", [("job", "list", "--help"), ("schedule", "create", "--help"), ("worker", "--help"), ("promote", "--help")]
)
def test_the_page_of_one_command_loads_no_rota_and_no_store(words):
    assert not inside(loaded_by_command(*words), "rota.surfaces.python", "rota.stores", "rota.surfaces.http", "apsw", *SERVERS)


def test_a_list_of_jobs_loads_neither_a_worker_nor_a_server_nor_another_store(store):
    assert not inside(loaded_by_command("job", "list", store=store), "rota.surfaces.http", "rota.stores.postgres", *WORKING, *SERVERS)


def test_a_list_as_json_is_printed_without_rich(store):
    assert not inside(loaded_by_command("job", "list", "--json", store=store), "rich")


def test_only_the_command_that_is_called_is_built():
    branch = get_command(app).commands["job"]
    branch.commands["list"]
    assert [name for name, command in branch.commands.data.items() if isinstance(command, TyperCommand)] == ["list"]


def test_what_the_page_of_all_commands_says_is_what_each_command_says_itself():
    leaves = [command for command in get_command(app).commands.values() if isinstance(command, Leaf)]
    assert len(leaves) > 20
    for leaf in leaves:
        said = leaf.whole.help.split("\n\n")[0].replace("\n", " ")
        assert (leaf.name, leaf.help, leaf.rich_help_panel, leaf.hidden) == (leaf.whole.name, said, leaf.whole.rich_help_panel, False)


def places_below(group):
    for command in group.commands.values():
        if hasattr(command, "commands") and not getattr(command, "places", ()):
            yield from places_below(command)
        else:
            yield from getattr(command, "places", None) or (command.place,)


def test_every_command_of_a_module_is_in_the_tree():
    """A command is a function that takes --json."""
    places = {place for place in places_below(get_command(app)) if ":" in place}
    assert len(places) > 10
    assert places == {
        f"{module}:{name}"
        for module in {place.partition(":")[0] for place in places}
        for name, value in vars(importlib.import_module(f"rota.surfaces.cli.{module}")).items()
        if not name.startswith("_") and getattr(value, "__annotations__", {}).get("as_json") == "JsonOption"
    }


def test_the_page_is_the_one_that_typer_draws_by_itself():
    def page(first: str) -> str:
        code = f"{first}\nfrom rota.__main__ import main\nimport sys\nsys.argv = ['rota', 'job', 'list', '--help']\nmain()"
        environment = {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "90"}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=patient(50), check=True
        ).stdout

    assert page("") == page("import typer.rich_utils") != ""


def test_a_class_that_was_left_out_is_imported_when_it_is_used():
    loaded(
        "from rota.surfaces.cli.help_page import load_help_page\n"
        "load_help_page()\n"
        "import typer.rich_utils as pages\n"
        "assert 'rich.markdown' not in sys.modules\n"
        "drawn = pages.Markdown('# hello')\n"
        "tall = pages.Traceback.from_exception(ValueError, ValueError('no'), None)\n"
        "from rich.markdown import Markdown\n"
        "from rich.traceback import Traceback\n"
        "assert type(drawn) is Markdown and type(tall) is Traceback"
    )


ELSEWHERE = {
    "asyncio": "only async programs import it, in their own thread",
    "concurrent.futures": "as asyncio",
    "importlib.metadata": "only where the system has no rules for time zones",
    "shlex": "only the doctor, in the caller's thread",
    "pickle": "only who pickles",
    "opentelemetry": "only with traces, before the worker starts",
}


def test_what_is_imported_late_is_there_before_the_threads_of_a_worker():
    """A thread that imports while the program forks leaves the child with a lock that nobody releases."""
    late = set()
    for folder in ("engine", "model", "ports", "stores"):
        for path in (ROOT / "src/rota" / folder).rglob("*.py"):
            functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
            for node in (each for function in functions for each in ast.walk(function)):
                if isinstance(node, ast.Import):
                    late |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    late.add(node.module)
    foreign = {name for name in late if not name.startswith("rota")}
    unknown = {
        name for name in foreign if name not in PRELOADED and not any(name.split(".")[0] == each.split(".")[0] for each in ELSEWHERE)
    }
    assert unknown == set()
    assert sys.modules.keys() >= set(PRELOADED)


def test_a_worker_that_runs_jobs_loads_nothing_of_sql(tmp_path):
    code = "from rota import Rota\nrota = Rota()\n@rota.job\ndef work(): ...\nwork.enqueue()\nrota.turn()\nrota.turn()\nrota.close()"
    assert not inside(loaded(code, store=str(tmp_path / "rota.db")), "rota.sql")
