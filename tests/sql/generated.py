"""Statements by chance: any that the language can say, in the form in which they are read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from rota.model.grants import PRIVILEGES, Privilege, TargetKind
from rota.model.schedules import CatchUp, OnCompletion, Overlap, ScheduleState
from rota.model.templates import UNITS
from rota.sql import syntax
from rota.sql.grammar import KEYWORDS, SHOWS, Of
from rota.sql.syntax import Listing

LETTERS = "abzAZ019_ '\"\n\t;-*/$%\\?:.,()[]{}=<>éß\u0131\u0130漢😀`#@|&!~^+"
ODD_NAMES = (
    "a",
    "B1",
    "_",
    "a$b",
    "odd name",
    'q"q',
    "x.y",
    "é",
    "\u0131",
    "a-b",
    "1st",
    "'",
    "--",
    "/*",
    ";",
    "漢字",
    "d15f9cf4",
    "$$",
    "?",
    ":a",
)
CRONS = ("0 2 * * *", "*/15 * * * *", "0 9 * * MON-FRI", "@daily", "0 0 L * *", "30 4 1,15 * FRI#2")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
COMMANDS = ("/bin/true", "/opt/x --y", "/opt/a 'b c' \"d\" e\\ f", "/bin/sh -c 'echo $HOME; true'")
EXPRESSIONS = ("shard_of('a')", "SELECT shard FROM s WHERE x = ';'", "hash(customer_id)", "replace(x, 'a', 'b')", "(1)")
PIECES = (
    "job_name",
    "'a;b'",
    '"x;y"',
    "?",
    ":p",
    "$1",
    "/* ; */ 1",
    "$$;$$",
    "$t$ $$ $t$",
    "-- c;\n 2",
    "x::text",
    "(",
    ")",
    "<=",
    "||",
    "1e5",
    "[a]",
    "'it''s'",
)

WORDS = sorted({*KEYWORDS, *UNITS})


class Statements:
    """A source of statements that always gives the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)

    def __call__(self) -> syntax.Statement:
        """Return another statement."""
        return self.chance.choice(KINDS)(self)

    # ---- values

    def flip(self) -> bool:
        return self.chance.random() < 0.5

    def text(self, most: int = 12) -> str:
        return "".join(self.chance.choice(LETTERS) for _ in range(self.chance.randrange(most)))

    def name(self) -> str:
        kind = self.chance.randrange(4)
        if kind == 0:
            word = self.chance.choice(WORDS)
            return self.chance.choice([word, word.lower(), word.title()])
        if kind == 1:
            return "".join(each for each in self.text() if each.isprintable()).strip() or "x"
        return self.chance.choice(ODD_NAMES)

    def names(self, prefix: str = "") -> tuple[str, ...]:
        return tuple({prefix + self.name(): None for _ in range(self.chance.randrange(1, 4))})

    def seconds(self, least: int = 0) -> int:
        size = self.chance.choice([1, 60, 3600, 86_400])
        return max(least, size * self.chance.choice([0, 1, 2, 5, 24, 90, 1000]))

    def moment(self) -> datetime:
        at = datetime(2036, 1, 1, tzinfo=UTC) + timedelta(seconds=self.chance.randrange(10**8))
        if self.flip():
            at += timedelta(microseconds=self.chance.randrange(10**6))
        # Noon is on every clock once.
        return at if self.flip() else at.replace(tzinfo=None, hour=12)

    def bounds(self) -> tuple[datetime | None, datetime | None]:
        starts, ends = sorted((self.moment(), self.moment()), key=lambda at: at.replace(tzinfo=UTC))
        if ends.replace(tzinfo=UTC) - starts.replace(tzinfo=UTC) < timedelta(days=2):
            ends += timedelta(days=2)
        return (starts if self.flip() else None, ends if self.flip() else None)

    def uuid(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128))

    def job(self) -> syntax.JobName:
        return self.uuid() if self.chance.random() < 0.2 else self.name()

    def params(self) -> str:
        value = {self.text(): self.json(2) for _ in range(self.chance.randrange(3))}
        return msgspec.json.encode(value, order="sorted").decode()

    def json(self, depth: int) -> Any:
        kind = self.chance.randrange(5 if depth else 3)
        if kind < 3:
            return self.chance.choice([None, True, 1, -2.5, self.text(), 2**53])
        if kind == 3:
            return [self.json(depth - 1) for _ in range(self.chance.randrange(3))]
        return {self.text(): self.json(depth - 1) for _ in range(self.chance.randrange(3))}

    def argument(self) -> syntax.Argument:
        number = Decimal(self.chance.randrange(-(10**6), 10**6)) / 1000
        exact = number if number != number.to_integral_value() else Decimal("0.50")
        return self.chance.choice([None, True, False, 0, -7, 2**63 - 1, exact, self.text(), syntax.Parameter("p_1")])

    def secret(self) -> syntax.SecretValue:
        return self.chance.choice([syntax.SecretText(self.text()), syntax.Parameter(), syntax.Parameter("value")])

    # ---- jobs

    def due(self) -> syntax.DueRule:
        kind = self.chance.randrange(3)
        if kind == 0:
            return syntax.OnCronLine(self.chance.choice(CRONS))
        if kind == 1:
            return syntax.OnceAt(self.moment())
        return syntax.AtIntervals(self.seconds(1), *self.bounds())

    def partition(self) -> syntax.Partition:
        shards = tuple(f"{index}{self.chance.choice(ODD_NAMES)}" for index in range(self.chance.randrange(1, 4)))
        rules = (
            syntax.AllShards(),
            syntax.SingleShard(shards[0]),
            syntax.ShardSet(shards),
            syntax.DynamicShards(self.chance.choice(EXPRESSIONS)),
        )
        return self.chance.choice(rules)

    def body(self) -> syntax.Body:
        kind = self.chance.randrange(3)
        if kind == 0:
            return syntax.SqlBody(f"SELECT {self.text(30)}")
        if kind == 1:
            arguments = tuple(self.argument() for _ in range(self.chance.randrange(4)))
            names = dict.fromkeys(self.name() for _ in range(self.chance.randrange(3)))
            named = tuple(syntax.NamedArgument(name, self.argument()) for name in names)
            return syntax.CallBody(tuple(self.name() for _ in range(self.chance.randrange(1, 4))), arguments, named)
        return syntax.ExecBody(self.chance.choice(COMMANDS))

    def clauses(self, job: str, *, removable: bool) -> syntax.Clauses:
        none = removable and self.chance.random() < 0.3
        said: dict[str, Any] = {
            "job_class": self.chance.choice(list(syntax.JobClass)),
            "partition": self.partition(),
            "schedule": self.due(),
            "timezone": None if none else self.chance.choice(ZONES),
            "catch_up": self.chance.choice([CatchUp.NONE, CatchUp.LAST]),
            "overlap": self.chance.choice(list(Overlap)),
            "jitter": self.chance.randrange(86_401),
            "calendar": None if none else self.name(),
            "depends_on": None if none else self.names(f"{job}+"),
            "max_retries": self.chance.randrange(1001),
            "retry_backoff": self.seconds(),
            "timeout": self.seconds(),
            "on_completion": OnCompletion.PRESERVE,
            "run_as": None if none else self.name(),
            "connection": None if none else self.name(),
            "secrets": None if none else self.names(),
            "priority": self.chance.randrange(101),
            "params": self.params(),
            "description": None if none else self.text(40),
            "state": self.chance.choice(list(ScheduleState)),
            "body": self.body(),
        }
        if isinstance(said["schedule"], syntax.OnceAt) and self.flip():
            said["on_completion"] = OnCompletion.DROP
        if said["overlap"] is not Overlap.SKIP and self.flip():
            said["catch_up"] = CatchUp.ALL
        required = () if removable else ("schedule", "body")
        kept = {field: value for field, value in said.items() if field in required or self.chance.random() < 0.3}
        if kept.get("on_completion") is OnCompletion.DROP:
            kept["schedule"] = said["schedule"]
        return syntax.Clauses(**(kept or {"timeout": 60}))

    def create_job(self) -> syntax.CreateJob:
        job, mode = self.name(), self.chance.choice(list(syntax.CreateMode))
        clauses = self.clauses(job, removable=mode is syntax.CreateMode.CREATE_OR_ALTER)
        return syntax.CreateJob(job, clauses, mode, mode is syntax.CreateMode.CREATE and self.flip())

    def alter_job(self) -> syntax.AlterJob:
        job = self.name()
        return syntax.AlterJob(job, self.clauses(job, removable=True), self.name() if self.flip() else UNSET)

    def drop_job(self) -> syntax.DropJob:
        return syntax.DropJob(self.name(), self.flip(), self.flip())

    def execute_job(self) -> syntax.ExecuteJob:
        return syntax.ExecuteJob(self.name(), self.params() if self.flip() else UNSET, self.chance.choice([UNSET, None, self.seconds()]))

    # ---- the others

    def show(self) -> syntax.Show:
        what = self.chance.choice(list(Listing))
        form = SHOWS[what]
        job, grantee = None, None
        if form.of is Of.GRANTEE and self.flip():
            grantee = self.grantee()
        elif form.of is not Of.NOTHING and (form.of is Of.MUST or self.flip()):
            job = self.job()
        like = self.text() if form.like and self.flip() else None
        return syntax.Show(what, job, grantee, like, self.chance.randrange(1000) if form.limit and self.flip() else None)

    def forecast(self) -> syntax.ForecastJobs:
        job = self.job() if self.flip() else None
        kind = self.chance.randrange(3)
        if kind == 0:
            return syntax.ForecastJobs(job)
        if kind == 1:
            return syntax.ForecastJobs(job, self.seconds(1))
        start = self.moment()
        return syntax.ForecastJobs(job, None, start, start + timedelta(days=self.chance.randrange(9)))

    def select(self) -> syntax.Select:
        pieces = [self.chance.choice(PIECES) for _ in range(self.chance.randrange(1, 9))]
        found = tuple(piece for piece in pieces if piece in {"?", ":p", "$1"})
        return syntax.Select(f"{self.chance.choice(['SELECT', 'with', 'Select'])} {' '.join(pieces)}", found)

    def grantee(self) -> syntax.Grantee:
        kind = self.chance.choice(list(syntax.GranteeKind))
        return syntax.Grantee("" if kind is syntax.GranteeKind.PUBLIC else self.name(), kind)

    def rights(self) -> tuple[tuple[Privilege, ...], syntax.Target | None]:
        kind = self.chance.choice([None, *TargetKind])
        fitting = [privilege for privilege in Privilege if kind in PRIVILEGES[privilege]]
        privileges = tuple(self.chance.sample(fitting, self.chance.randrange(1, len(fitting) + 1)))
        return privileges, None if kind is None else syntax.Target(kind, self.name())

    def grantees(self) -> tuple[syntax.Grantee, ...]:
        return tuple({self.grantee(): None for _ in range(self.chance.randrange(1, 4))})

    def grant(self) -> syntax.GrantRights:
        privileges, target = self.rights()
        return syntax.GrantRights(privileges, self.grantees(), target, self.flip())

    def revoke(self) -> syntax.RevokeRights:
        privileges, target = self.rights()
        dependents = self.chance.choice([UNSET, *syntax.Dependents])
        return syntax.RevokeRights(privileges, self.grantees(), target, self.flip(), dependents)

    def alter_connection(self) -> syntax.AlterConnection:
        options: dict[str, Any] = {"url": f"sqlite:///{self.text()}", "user": self.chance.choice([None, "etl"]), "secret": self.name()}
        options["multi"] = self.flip()
        kept = {field: value for field, value in options.items() if self.flip()}
        return syntax.AlterConnection(self.name(), **(kept or {"secret": None}))

    def alter_system(self) -> syntax.AlterSystem:
        value = self.chance.choice([None, "true", "30", "-1", "1.5", "30s", "last", "select", "", self.text()])
        return syntax.AlterSystem(f"scheduler.{self.chance.choice(['enabled', 'catch_up_policy', 'set'])}", value)


KINDS: tuple[Callable[[Statements], syntax.Statement], ...] = (
    Statements.create_job,
    Statements.create_job,
    Statements.alter_job,
    Statements.alter_job,
    Statements.drop_job,
    lambda one: syntax.SetJobSecret(one.name(), one.name(), one.secret()),
    lambda one: syntax.DropJobSecret(one.name(), one.name()),
    Statements.execute_job,
    lambda one: syntax.CancelRun(one.uuid()),
    lambda one: syntax.CancelJob(one.name()),
    lambda one: syntax.SteerJob(one.chance.choice(list(syntax.Steering)), one.name()),
    Statements.show,
    lambda one: syntax.ExplainJob(one.job()),
    lambda one: syntax.ExplainRun(one.uuid()),
    lambda one: syntax.PlanChange(one.chance.choice([one.create_job, one.alter_job, one.drop_job])()),
    Statements.forecast,
    Statements.select,
    Statements.grant,
    Statements.revoke,
    lambda one: syntax.CreateRole(one.name()),
    lambda one: syntax.DropRole(one.name()),
    lambda one: syntax.CreateSecret(one.name(), one.secret()),
    lambda one: syntax.AlterSecret(one.name(), one.secret()),
    lambda one: syntax.DropSecret(one.name()),
    lambda one: syntax.CreateConnection(one.name(), "postgresql://host/db", one.chance.choice([None, "etl"]), one.name(), one.flip()),
    Statements.alter_connection,
    lambda one: syntax.DropConnection(one.name()),
    Statements.alter_system,
)
