"""Measure Rota beside its peers on this machine: one run, one table. `make bench`; see bench/README.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

from harness import compare, depth, history, http, mongodb, postgres, profile, rota_only, schedules, soak, soak_postgres, tenants
from harness.children import Children, NotMeasured, clean
from harness.figures import Figure, as_json, table
from harness.install import PINS, install_node, install_python
from harness.lab import FULL, LONG, MONGODB, OWN, POSTGRES, PREFIX, QUICK, ROTA, ROTA_PG, SERVERS, SQLITE, SYSTEMS, Lab, Scale, System
from harness.server import Server
from harness.usage import Others

BENCH = Path(__file__).resolve().parent
KIT = BENCH.parent / ".bench"
MEASUREMENTS: dict[str, Callable[[Lab, Sequence[System]], Iterator[Figure]]] = {
    "enqueue": compare.enqueue,
    "bulk": compare.bulk,
    "drain": compare.drain,
    "idle": compare.idle,
    "depth": depth.depth,
    "backlog": rota_only.backlog,
    "million": rota_only.million,
    "limits": tenants.limits,
    "quiet": tenants.quiet,
    "blocked": tenants.blocked,
    "history": history.history,
    "schedules": schedules.schedules,
    "http": http.http,
    "types": rota_only.types,
    "sql": rota_only.sql,
    "process": rota_only.process,
    "start": rota_only.start,
}
NAMES = ", ".join([*(system.name for system in SYSTEMS), *MEASUREMENTS])
ALONE = {"depth": ROTA_PG} | dict.fromkeys(
    ["backlog", "million", "limits", "quiet", "blocked", "history", "schedules", "types", "sql", "process", "start"], ROTA
)
"""Measurements of Rota alone, and on which store."""


def main() -> int:
    """Parse the command line, build the bench, run, print."""
    options = _options()
    signal.signal(signal.SIGTERM, _interrupt)
    names = {name for name in (options.only or "").split(",") if name}
    unknown = names - set(MEASUREMENTS) - {system.name for system in SYSTEMS}
    if unknown:
        print(f"--only {min(unknown)!r} names neither a system nor a measurement: {NAMES}", file=sys.stderr)
        return 2
    try:
        with ExitStack() as stack:
            try:
                return _run(stack, options, names)
            finally:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not leave a server behind
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
    except KeyboardInterrupt:
        print("stopped; all processes of this run are ended", file=sys.stderr)
        return 130


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small counts, one run of each; without --store on SQLite only")
    parser.add_argument("--long", action="store_true", help="`depth` with a million waiting and five million ended jobs: half an hour more")
    parser.add_argument("--store", choices=list(PREFIX), help="only what is on this kind of store")
    parser.add_argument("--only", metavar="NAME,…", help=f"systems and/or measurements: {NAMES}")
    parser.add_argument("--runs", type=int, metavar="N", help="how often each figure is taken (three times; --quick: once)")
    parser.add_argument("--waiting", type=int, metavar="N", help="waiting jobs of `depth` and `backlog`")
    parser.add_argument("--ended", type=int, metavar="N", help="ended jobs of `depth`")
    parser.add_argument(
        "--soak",
        action="store_true",
        help=f"instead: {soak.JOBS:,} jobs through one worker, its memory over time; with --store postgres the sizes of tables and indexes",
    )
    parser.add_argument("--profile", action="store_true", help="instead: where the time of Rota's drain on PostgreSQL goes, by statement")
    parser.add_argument("--jobs", type=int, metavar="N", help="jobs of the soak or of the profile")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every run's figure there")
    parser.add_argument("--no-node", action="store_true", help="leave out the Node peers")
    return parser.parse_args()


def _run(stack: ExitStack, options: argparse.Namespace, names: set[str]) -> int:
    load_before = os.getloadavg()[0]
    lab = _lab(stack, options)
    _probe_own(lab)
    if options.soak or options.profile:
        return _instead(stack, lab, options)
    systems, measurements = _selected(names, store=options.store, quick=options.quick)
    _install(stack, lab, systems, no_node=options.no_node)
    figures = _measure(lab, systems, measurements)
    descriptions = [_describe(lab, system) for system in systems]
    header = _header(lab, load_before)
    print("\n".join([header, "", table(figures), "", *descriptions]))
    if options.json:
        document = {"machine": header, "systems": descriptions, "figures": as_json(figures)}
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False))
    return 0


def _instead(stack: ExitStack, lab: Lab, options: argparse.Namespace) -> int:
    try:
        if options.profile:
            _start_postgres(stack, lab, profile.SETTINGS)
            profile.profile(lab, options.jobs or profile.JOBS)
        elif options.store == POSTGRES:
            _start_postgres(stack, lab)
            soak_postgres.soak(lab, options.jobs or soak.JOBS)
        else:
            soak.soak(lab, options.jobs or soak.JOBS)
    except NotMeasured as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 1
    return 0


def _selected(names: set[str], *, store: str | None, quick: bool) -> tuple[list[System], list[str]]:
    asked = [system for system in SYSTEMS if system.name in names]
    kinds = {store} if store else {SQLITE} if quick and not asked else set(PREFIX)
    systems = [system for system in asked or SYSTEMS if system.store in kinds]
    measurements = [name for name in MEASUREMENTS if name in names] or list(MEASUREMENTS)
    return systems, [name for name in measurements if name not in ALONE or ALONE[name] in systems]


def _measure(lab: Lab, systems: Sequence[System], measurements: Sequence[str]) -> list[Figure]:
    figures: list[Figure] = []
    for name in measurements:
        lab.say(f"── {name}")
        others = Others()
        taken = list(MEASUREMENTS[name](lab, systems))
        share = others.share()
        figures += [replace(figure, others=share) if figure.others is None else figure for figure in taken]
    return figures


# ---- building the bench ------------------------------------------------------------------------------------------


def _lab(stack: ExitStack, options: argparse.Namespace) -> Lab:
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-", dir=_disk()))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # counters only; a folder of our own is made in it
    counters = Path(tempfile.mkdtemp(prefix="rota-bench-", dir=memory))
    stack.callback(shutil.rmtree, counters, ignore_errors=True)
    KIT.mkdir(exist_ok=True)
    log = KIT / "children.log"
    log.write_text("")
    source = os.pathsep.join([str(BENCH.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = clean(os.environ) | {"BENCH_COUNTERS": str(counters), "BENCH_STORES": str(folder), "PYTHONPATH": source}
    children = stack.enter_context(Children(environment, log))
    return Lab(children, BENCH, KIT / "node/peers", counters, folder, _scale(options))


def _scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else LONG if options.long else FULL
    if options.runs is not None:
        scale = replace(scale, runs=max(1, options.runs))
    if options.waiting is not None:
        scale = replace(scale, waiting=options.waiting, waiting_pg=options.waiting)
    return scale if options.ended is None else replace(scale, ended_pg=options.ended)


def _disk() -> str:
    """Return a temporary folder on a real disk: in memory an fsync costs nothing and no figure would mean anything."""
    candidates = [tempfile.gettempdir(), "/var/tmp"]  # only the parent of a folder made by mkdtemp
    return next((path for path in candidates if _filesystem(path) != "tmpfs"), candidates[0])


def _filesystem(path: str) -> str:
    best = ("", "unknown")
    try:
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, kind, *_ = line.split()
            if (path == mount or path.startswith(mount.rstrip("/") + "/")) and len(mount) >= len(best[0]):
                best = (mount, kind)
    except OSError:
        pass
    return best[1]


def _probe_own(lab: Lab) -> None:
    """See whether this interpreter, which stands for the user's, has what Rota's side needs; compile that before anything is measured."""
    folders = [str(BENCH.parent / "src"), str(BENCH / "peers"), str(BENCH / "harness")]
    lab.children.call([sys.executable, "-m", "compileall", "-q", *folders], cap_s=120)
    for runtime, statement in OWN.items():
        try:
            lab.children.call([sys.executable, "-c", statement], cap_s=30)
        except NotMeasured as error:
            lab.missing[runtime] = f"{statement!r} fails: {error}"
            lab.say(f"{sys.executable}: {lab.missing[runtime]}")


def _install(stack: ExitStack, lab: Lab, systems: Sequence[System], *, no_node: bool) -> None:
    needed = {system.runtime for system in systems}
    for runtime in [name for name in PINS if name in needed]:
        _try(lab, runtime, partial(install_python, lab.children, BENCH, KIT, PINS[runtime]))
    if "node" in needed and no_node:
        lab.missing["node"] = "left out by --no-node"
    elif "node" in needed:
        _try(lab, "node", lambda: install_node(lab.children, BENCH, KIT))
    for store, start in (POSTGRES, _start_postgres), (MONGODB, _start_mongodb):
        if any(system.store == store and not lab.why_not(system) for system in systems):
            start(stack, lab)


def _try(lab: Lab, runtime: str, install: Callable[[], Path]) -> None:
    lab.say(f"installing the {runtime} peers into {KIT}")
    try:
        lab.runtimes[runtime] = install()
    except NotMeasured as error:
        lab.missing[runtime] = f"its peers could not be installed: {error}"
        lab.say(lab.missing[runtime])


def _start_postgres(stack: ExitStack, lab: Lab, more: Mapping[str, str] | None = None) -> None:
    _serve(stack, lab, POSTGRES, postgres.serving(lab.children, Path(_disk()), KIT / "postgres", more or {}))


def _start_mongodb(stack: ExitStack, lab: Lab) -> None:
    _serve(stack, lab, MONGODB, mongodb.serving(lab.children, Path(_disk())))


def _serve(stack: ExitStack, lab: Lab, store: str, serving: AbstractContextManager[Server]) -> None:
    """Start a server for the rest of the run, and say where it is."""
    kind = SERVERS[store]
    try:
        server = stack.enter_context(serving)
    except NotMeasured as error:
        lab.missing[store] = str(error)
        lab.say(f"no {kind.name}: {error}")
        return
    lab.environment[kind.address] = server.url
    lab.servers[store] = server.process.pid
    lab.say(f"{kind.name} {server.version} at {server.url}, {server.settings}")


# ---- around the table ----------------------------------------------------------------------------------------------


def _header(lab: Lab, load_before: float) -> str:
    system = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    machine = f"{system}, stores on {_filesystem(str(lab.stores))}"
    took = time.monotonic() - lab.started_at
    busy = "" if load_before < 0.5 else f" Something else was running before this began (load {load_before:.1f})."
    return f"{time.strftime('%Y-%m-%d')}: {machine}; {took / 60:.1f} minutes.{busy}"


def _describe(lab: Lab, system: System) -> str:
    try:
        if reason := lab.why_not(system):
            raise NotMeasured(reason)
        about = lab.ask(system, "describe", cap_s=30)
    except NotMeasured as error:
        return f"- {system.title}: not measured: {error}"
    return f"- {system.title} {about['version']}: {about['settings']}"


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
