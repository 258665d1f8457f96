"""What `rota doctor` looks at in a MongoDB store: the replica set, time, who else is in it, and what Rota made there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from bson import json_util
from pymongo import MongoClient, uri_parser
from pymongo.errors import OperationFailure

from rota.errors import RotaError, StoreUnusable
from rota.model.findings import Finding, advice, look_at, ok, problem, size_text, span_text
from rota.model.settings import Settings
from rota.model.values import SECOND, Instant
from rota.stores import paths, permissions
from rota.stores.mongodb.address import Address
from rota.stores.mongodb.db import Db
from rota.stores.mongodb.documents import Document
from rota.stores.mongodb.errors import ATLAS_ERROR, UNAUTHORIZED, translated
from rota.stores.mongodb.grants import KINDS, OWNER, wanted
from rota.stores.mongodb.schema import COLLECTIONS, INDEXES, RULES, VERSION, Index
from rota.stores.mongodb.transaction import server_time
from rota.stores.verbs import repair

NOT_ASKED = frozenset({UNAUTHORIZED, ATLAS_ERROR, 20, 59, 76, 115})
"""Refused because this user may not ask that, or because a router answers: nothing is wrong with the server."""
MONITOR = "this user may not ask the server; the role clusterMonitor lets it"
LISTING = "this user may not list what is in the database; the owner of the store may"
LISTED = frozenset({"schema", "indexes"})
ARBITER, PRIMARY, SECONDARY = "ARBITER", "PRIMARY", "SECONDARY"
LAG_S = 10.0
"""A member this far behind the primary can't take over at once, and does not help to acknowledge what is written."""
WINDOW_S = 24 * 3600.0
OPLOG_FULL = 0.9
"""The share of its size from which on the oplog forgets its oldest entries."""
LIMIT_S_MIN, LIMIT_S_MAX = 30, 120
"""Transactions of ours take seconds; one whose process was lost holds what it wrote until this limit, unless somebody ends it."""
HOLDING_S = 10.0
TRANSACTIONS_MAX = 10
ELECTION_S, ELECTION_MARGIN_S = 10.0, 10.0
"""The server's own time after which a primary is taken for lost, and what the election and the client take beyond that."""
SKEW_S = 1.0
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
FREE_PROBLEM_BYTES, FREE_ADVICE_BYTES = 500 * 1024 * 1024, 5 * 1024**3
MISSING_SHOWN = 5


def checkup(
    db: Db, client: MongoClient[Document], where: Address, settings: Settings, *, now: Instant, machine: Callable[[], Instant], full: bool
) -> list[Finding]:
    """Look at everything; nothing is changed."""
    server = Server(client, where)
    asked: dict[str, Callable[[], Iterator[Finding]]] = {
        "server": partial(_server, server),
        "replica set": partial(_members, server),
        "durability": partial(_durability, server),
        "oplog": partial(_oplog, server),
        "failover": partial(_failover, server, settings),
        "transaction limit": partial(_limit, server),
        "transactions": partial(_transactions, server),
        "encryption": partial(_encryption, client, where),
        "disk space": partial(_space, server),
        "schema": partial(_schema, server),
        "indexes": partial(_indexes, server),
    }
    checks = {name: partial(_if_allowed, name, check) for name, check in asked.items()} | {
        "clock": partial(_clock, client, machine),
        permissions.NAME: partial(_permissions, where, settings),
        "rights": partial(_rights, server),
        "due jobs": partial(repair.overdue, db, now),
        "outbox": partial(repair.outbox, db, now),
        "webhooks": partial(repair.webhooks, db, settings, now),
        "rows": partial(repair.rows, db, full=full),
    }
    return look_at({name: partial(_in_words, where, check) for name, check in checks.items()}, (RotaError, OSError))


def _in_words(where: Address, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """Make a look; what the driver says of a failure, with all of the command and of its answer, becomes one sentence."""
    with translated(where):
        return list(check())


def _if_allowed(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Make a look that needs rights beyond those of a worker; without them it is left out, and that is said."""
    try:
        yield from list(check())
    except OperationFailure as error:
        if error.code not in NOT_ASKED:
            raise
        yield ok(name, f"not checked: {LISTING if name in LISTED else MONITOR}")


class Server:
    """Commands to the server and to the database of the store."""

    def __init__(self, client: MongoClient[Document], where: Address) -> None:
        """Take the connections."""
        self._client = client
        self.where = where
        self.database = client[where.database]

    def admin(self, command: str, value: Any = 1, **options: Any) -> Document:
        """Run a command of the server."""
        return self._client.admin.command(command, value, **options)

    def config(self) -> Document:
        """Return how the replica set is configured."""
        config: Document = self.admin("replSetGetConfig")["config"]
        return config

    def oplog(self) -> tuple[Document, float]:
        """Return how large the oplog is, and how many seconds it reaches back."""
        local = self._client["local"]
        size = local.command("collStats", "oplog.rs")
        first, last = (local["oplog.rs"].find_one({}, {"ts": 1}, sort=[("$natural", way)]) for way in (1, -1))
        return size, float(last["ts"].time - first["ts"].time) if first and last else 0.0

    def mongosh(self, collection: str) -> str:
        """Return how mongosh names a collection of the store."""
        return f"{self.mongosh_database()}.{collection}"

    def mongosh_database(self) -> str:
        """Return how mongosh names the database of the store."""
        return f"db.getSiblingDB({json_util.dumps(self.where.database)})"


# ---- the servers -----------------------------------------------------------------------------------------------------


def _server(server: Server) -> Iterator[Finding]:
    version = server.admin("buildInfo")["version"]
    engine = server.admin("serverStatus").get("storageEngine", {}).get("name", "wiredTiger")
    if engine != "wiredTiger":
        text = f"MongoDB {version} with the storage engine {engine}: what was acknowledged can be lost"
        yield problem("server", text, "use wiredTiger, which MongoDB comes with")
    else:
        yield ok("server", f"MongoDB {version} (wiredTiger)")


def _members(server: Server) -> Iterator[Finding]:
    """Look whether a majority is there, and whether it keeps up."""
    members: list[Document] = server.admin("replSetGetStatus")["members"]
    votes = {member["_id"]: member.get("votes", 1) for member in server.config()["members"]}
    up = [member for member in members if member["stateStr"] in {PRIMARY, SECONDARY, ARBITER}]
    down = [f"{member['name']} ({member['stateStr']})" for member in members if member not in up]
    bearing = [member for member in up if member["stateStr"] != ARBITER and votes.get(member["_id"])]
    majority = sum(map(bool, votes.values())) // 2 + 1
    text = f"{len(up)} of {len(members)} members are up"
    if down:
        text += f"; down: {', '.join(down)}"
    if len(bearing) < majority:
        remedy = "start the members that are down: nothing is acknowledged before a majority has it"
        yield problem("replica set", f"{text}; {len(bearing)} of those with data vote, and a majority is {majority}", remedy)
    elif down and len(bearing) == majority:
        yield problem("replica set", f"{text}: if one more fails, nothing can be written", "start them")
    elif down:
        yield advice("replica set", text, "start them, or remove them from the set")
    else:
        yield from _lagging(members, text)


def _lagging(members: list[Document], text: str) -> Iterator[Finding]:
    newest = max((member["optimeDate"] for member in members if "optimeDate" in member), default=None)
    lags = {member["name"]: (newest - member["optimeDate"]).total_seconds() for member in members if member["stateStr"] == SECONDARY}
    late = {name: lag_s for name, lag_s in lags.items() if lag_s > LAG_S}
    if late:
        said = ", ".join(f"{name} by {span_text(lag_s)}" for name, lag_s in late.items())
        yield advice("replica set", f"{text}; behind the primary: {said}", "see what slows it down: its disk, its network")
    elif len(members) == 1:
        yield ok("replica set", "one member: there is no failover, and no second copy")
    else:
        yield ok("replica set", f"{text}, and none is far behind")


def _durability(server: Server) -> Iterator[Finding]:
    if server.config().get("writeConcernMajorityJournalDefault", True):
        yield ok("durability", "what is acknowledged is in the journals of a majority")
        return
    text = "writeConcernMajorityJournalDefault is false: what is acknowledged is in memory, and lost if a majority loses power at once"
    yield advice("durability", text, "rs.reconfig() with writeConcernMajorityJournalDefault: true, unless it may be lost")


def _oplog(server: Server) -> Iterator[Finding]:
    size, window_s = server.oplog()
    full = size["size"] / size["maxSize"] if size.get("maxSize") else 0.0
    text = f"it reaches {span_text(window_s)} back in {size_text(size.get('maxSize', 0))}"
    if len(server.config()["members"]) > 1 and full >= OPLOG_FULL and window_s < WINDOW_S:
        text += ": a member that is down for longer has to copy everything anew"
        yield advice("oplog", text, "make it larger: db.adminCommand({replSetResizeOplog: 1, size: <megabytes>}) on every member")
    else:
        yield ok("oplog", text if full >= OPLOG_FULL else f"{full:.0%} of {size_text(size.get('maxSize', 0))} are in use")


def _failover(server: Server, settings: Settings) -> Iterator[Finding]:
    config = server.config()
    election_s = config.get("settings", {}).get("electionTimeoutMillis", ELECTION_S * 1000) / 1000
    least_s = election_s + ELECTION_MARGIN_S
    if len(config["members"]) == 1:
        yield ok("failover", "one member: nothing to fail over to")
    elif settings.guard_s < least_s:
        text = f"workers stop their handlers after {settings.guard_s:g} s without a primary: an election may take {least_s:g} s"
        yield advice("failover", text, f"set lease_guard={least_s:g} and lease_ttl={1.5 * least_s:g} for every worker")
    else:
        yield ok("failover", f"handlers keep running through {settings.guard_s:g} s without a primary")


def _limit(server: Server) -> Iterator[Finding]:
    name = "transactionLifetimeLimitSeconds"
    limit_s = server.admin("getParameter", **{name: 1})[name]
    text = f"{name} is {limit_s}"
    if limit_s < LIMIT_S_MIN:
        yield advice(
            "transaction limit", f"{text}: long purges and changes of many jobs are broken off", f"set it to {LIMIT_S_MIN} or more"
        )
    elif limit_s > LIMIT_S_MAX:
        yield advice("transaction limit", f"{text}: a transaction of a program that was lost holds what it wrote that long", "set it to 60")
    else:
        yield ok("transaction limit", text)


def _transactions(server: Server) -> Iterator[Finding]:
    """Look for transactions that have been open for long: others wait for what they wrote, or are refused."""
    limited: list[Document] = [
        {"$currentOp": {"allUsers": True, "idleSessions": True}},
        {"$match": {"transaction.timeOpenMicros": {"$gt": round(HOLDING_S * SECOND)}}},
        {"$limit": TRANSACTIONS_MAX},
    ]
    found = server.admin("aggregate", 1, pipeline=limited, cursor={})["cursor"]["firstBatch"]
    for operation in found:
        session = operation["lsid"]["id"].hex()
        who = f"{operation.get('appName') or 'a program'}{f' at {place}' if (place := operation.get('client')) else ''}"
        text = f"a transaction of {who} is open for {span_text(operation['transaction']['timeOpenMicros'] / SECOND)}"
        remedy = f'find out what it waits for; db.adminCommand({{killSessions: [{{id: UUID("{session}")}}]}}) ends it'
        yield advice("transactions", f"{text}: work that writes the same documents is refused or waits", remedy)
    if not found:
        yield ok("transactions", "none is held open for long")


def _encryption(client: MongoClient[Document], where: Address) -> Iterator[Finding]:
    options = uri_parser.parse_uri(where.secret.replace("mongodb+srv://", "mongodb://", 1), warn=False)["options"]
    encrypted = options.get("tls", where.secret.startswith("mongodb+srv://"))
    hosts = {host for host, _ in client.nodes}
    if encrypted:
        yield ok("encryption", "connections are encrypted")
    elif hosts <= LOCAL:
        yield ok("encryption", "connections do not leave the machine")
    else:
        text = f"connections to {', '.join(sorted(hosts - LOCAL))} are not encrypted: params can be read on the way"
        yield advice("encryption", text, "use tls=true in the URL")


def _space(server: Server) -> Iterator[Finding]:
    stats = server.database.command("dbStats")
    used, text = stats["storageSize"] + stats["indexSize"], f"{server.where.database} takes"
    text = f"{text} {size_text(used)} (indexes {size_text(stats['indexSize'])})"
    if "fsTotalSize" not in stats:
        yield ok("disk space", text)
        return
    free = stats["fsTotalSize"] - stats["fsUsedSize"]
    text = f"{text}; {size_text(free)} are free beside it"
    if free < FREE_PROBLEM_BYTES:
        yield problem("disk space", text, "make room: nothing can be accepted or ended on a full disk; `rota purge` removes what is old")
    elif free < FREE_ADVICE_BYTES:
        yield advice("disk space", text, "make room in time")
    else:
        yield ok("disk space", text)


def _clock(client: MongoClient[Document], machine: Callable[[], Instant]) -> Iterator[Finding]:
    server_time(client)  # the second answer is not held up by opening a connection
    before = machine()
    there = round(server_time(client).timestamp() * SECOND)
    after = machine()
    ahead_s, unsure_s = ((before + after) / 2 - there) / SECOND, (after - before) / 2 / SECOND + 0.001
    text = f"this machine's is {span_text(abs(ahead_s))} {'ahead of' if ahead_s > 0 else 'behind'} the primary's"
    text = f"{text} (give or take {span_text(unsure_s)})"
    if abs(ahead_s) - unsure_s > SKEW_S:
        remedy = "set it by NTP: Rota itself goes by the primary's clock on every machine, but log lines and handlers go by this one"
        yield advice("clock", text, remedy)
    else:
        yield ok("clock", text)


# ---- what is ours ----------------------------------------------------------------------------------------------------


def _permissions(where: Address, settings: Settings) -> Iterator[Finding]:
    """Look at what workers keep in files of this machine."""
    try:
        paths.locks(where.name, settings).check()
    except StoreUnusable as error:
        remedy = "remove it, or set XDG_RUNTIME_DIR; `rota repair` closes a folder that is this user's own"
        yield problem(permissions.NAME, str(error), remedy)
    yield from permissions.look(paths.kept(where.name, settings), settings)


def _schema(server: Server) -> Iterator[Finding]:
    there = {found["name"]: found.get("options", {}) for found in server.database.list_collections()}
    missing = sorted(set(COLLECTIONS) - there.keys())
    if missing:
        yield problem("schema", f"there is no collection {', '.join(missing)}", "restore it from a backup")
        return
    for name in sorted(RULES):
        if _shown(there[name].get("validator")) != _shown(RULES[name]):
            remedy = f"{server.mongosh_database()}.runCommand({{collMod: {_shown(name)}, validator: {_shown(RULES[name])}}})"
            yield problem("schema", f"collection {name} does not refuse what Rota has it refuse", remedy)
    found = server.database["meta"].find_one({"_id": "schema"})
    yield ok("schema", f"{server.where.database!r} is at version {found['value'] if found else 0} of {VERSION}")


def _indexes(server: Server) -> Iterator[Finding]:
    """Compare every index with what Rota makes."""
    made = {(name, index["name"]): index for name in COLLECTIONS for index in server.database[name].list_indexes()}
    wrong = 0
    for index in INDEXES:
        found = made.get((index.collection, index.name))
        create = f"{server.mongosh(index.collection)}.createIndex({_shown(dict(index.keys()))}, {_shown(index.options())})"
        if found is None:
            text = f"index {index.name} of {index.collection} is missing: what it is for walks the whole collection, or goes unchecked"
            yield problem("indexes", text, create)
        elif not _is_as_made(index, found):
            drop = f"{server.mongosh(index.collection)}.dropIndex({_shown(index.name)})"
            yield problem("indexes", f"index {index.name} of {index.collection} is not as Rota made it", f"{drop}; {create}")
        else:
            continue
        wrong += 1
    if not wrong:
        yield ok("indexes", f"all {len(INDEXES)} are there")


def _is_as_made(index: Index, found: Mapping[str, Any]) -> bool:
    keys = [(name, int(way)) for name, way in found["key"].items()]
    same = keys == index.keys() and bool(found.get("unique")) == index.unique and not found.get("hidden")
    return same and _shown(found.get("partialFilterExpression")) == _shown(index.only)


def _shown(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=dict).decode()


def _rights(server: Server) -> Iterator[Finding]:
    """Look what this user is able to be."""
    status = server.admin("connectionStatus", showPrivileges=True)["authInfo"]
    users = [user["user"] for user in status["authenticatedUsers"]]
    if not users:
        yield ok("rights", "access control is off: every program that reaches the server can do everything")
        return
    lacks = {kind: _missing(server, status["authenticatedUserPrivileges"], kind) for kind in KINDS}
    able = [kind for kind, missing in lacks.items() if not missing]
    if "worker" in able:
        yield ok("rights", f"user {users[0]!r} can {'serve, ' if 'server' in able else ''}work, submit and read")
        return
    first = ", ".join(lacks["worker"][:MISSING_SHOWN]) + (", …" if len(lacks["worker"]) > MISSING_SHOWN else "")
    abilities = {"submitter": "submit", "reader": "read", "owner": "own the store"}
    text = f"user {users[0]!r} can {' and '.join(abilities[kind] for kind in able) or 'neither submit nor read'}"
    remedy = "fine if that is what it is for; `rota grants ROLE --kind worker` prints the role that a worker needs"
    yield (advice if able else problem)("rights", f"{text}; a worker would lack {first}", remedy)


def _missing(server: Server, privileges: list[Document], kind: str) -> list[str]:
    """Return the actions on collections that a user lacks to be of a kind."""
    needed = {name: set(OWNER) for name in COLLECTIONS} if kind == "owner" else wanted(kind)
    missing: list[str] = []
    for collection, actions in needed.items():
        held = {
            action for privilege in privileges if _reaches(server, privilege["resource"], collection) for action in privilege["actions"]
        }
        missing += [f"{action} on {collection}" for action in sorted(actions - held)]
    return missing


def _reaches(server: Server, resource: Document, collection: str) -> bool:
    if resource.get("anyResource"):
        return True
    return resource.get("db") in {"", server.where.database} and resource.get("collection") in {"", collection}
