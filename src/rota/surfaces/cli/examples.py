"""Examples on the help pages of commands: by hand or, of one that is made from an operation, from the examples of its parameters."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import msgspec

from rota.operation import Field, Operation

EXAMPLES: dict[str, tuple[str, ...]] = {
    "job list": ("rota job list --status RUNNING --status QUEUED", "rota job list --type send_email --since 2h --json | jq .id"),
    "job log": ("rota job log 42 --chain", "rota job log JOB-2026-00042.2 --raw", "rota job log 42 --follow"),
    "job update": ("rota job update 42 --priority high", "rota job update 42 -p to=bob@example.org --in 10m"),
    "job run-now": ("rota job run-now 42",),
    "login": ("rota login", "rota login --url https://jobs.example.org"),
    "job move": ("rota job move 42 --front", "rota job move 42 --before 40"),
    "job cancel": ("rota job cancel 42 43 --reason 'wrong address'", "rota job cancel 42 --yes"),
    "job retry": ("rota job retry 42", "rota dead list --json | jq -r .id | xargs rota job retry"),
    "job again": ("rota job again 42 -p to=bob@example.org",),
    "dead groups": ("rota dead groups", "rota dead groups --type send_email --json | jq -r '.groups[].message'"),
    "job cancel-all": ("rota job cancel-all --all", "rota job cancel-all --status QUEUED --type send_email"),
    "dead retry": ("rota dead retry --all", "rota dead retry --type send_email --text 'connection refused' --yes"),
    "dead delete": ("rota dead delete --type legacy --yes",),
    "schedule create": (
        "rota schedule create daily send_email --cron '0 9 * * MON-FRI' --timezone Europe/Berlin -p to=ada@example.org",
        "rota schedule create heartbeat ping --every 5m --overlap queue --catch-up none",
        "rota schedule create launch announce --at 2026-12-01T09:00:00+01:00 --on-completion drop",
    ),
    "schedule update": (
        "rota schedule update daily --cron '0 8 * * *' -p to=bob@example.org",
        "rota schedule update daily --ends none --calendar none",
    ),
    "schedule plan": ("rota schedule plan daily --cron '0 8 * * *' --days 30",),
    "schedule occurrences": ("rota schedule occurrences daily", "rota schedule occurrences --not-ran --since 7d"),
    "schedule fire": ("rota schedule fire daily -p to=eve@example.org",),
    "calendar update": ("rota calendar update holidays 2026-12-25 2026-12-26", "rota calendar update holidays @holidays.txt"),
    "connection create": (
        "rota connection create warehouse postgresql://wh.example/dw --login etl --secret-name wh_password",
        "rota connection create ledger sqlite:////var/lib/shop/ledger.db --multi",
    ),
    "connection rotate": ("rota connection rotate warehouse", "pass show warehouse | rota connection rotate warehouse"),
    "connection update": (
        "rota connection update warehouse --url postgresql://wh2.example/dw",
        "rota connection update warehouse --secret-name none --single",
    ),
    "template define": (
        "rota template define orders_by_region --sql 'SELECT * FROM orders WHERE region = :region' --connection warehouse",
        "rota template define backup --command '/usr/local/bin/backup --all' --timeout 1h",
    ),
    "template update": (
        "rota template update send_email --max-running 2 --rate-limit 10/60s --timeout 5m",
        "rota template update send_email --max-running none --priority high",
        "rota template update resize --handler shop.images:resize --display-name 'Resize pictures'",
    ),
    "template load": ("rota template load jobs.toml --dry-run", "rota template load --samples"),
    "bridge monque": (
        "rota bridge monque mongodb://localhost/shop --app shop.jobs:rota",
        "rota bridge monque 'mongodb://localhost/shop?collection=jobs' --app shop.jobs:rota --no-indexes",
        "rota bridge monque mongodb://localhost/shop --check",
    ),
    "import monque": (
        "rota import monque jobs.jsonl --app shop.jobs:rota --max-retries 9",
        "mongoexport -c monque_jobs | rota import monque - --make-templates",
    ),
    "import crontab": (
        "rota import crontab /etc/crontab --system --dry-run",
        "crontab -l | rota import crontab - --prefix web1_ --timezone Europe/Berlin",
    ),
    "grant create": (
        "rota grant create EXECUTE bob --job nightly",
        "rota grant create 'CREATE JOB' operators --kind ROLE --grant-option",
        "rota grant create 'VIEW JOB HISTORY' PUBLIC",
    ),
    "secret key": ("rota secret key", "(umask 077; rota secret key > /etc/rota/master-key)"),
    "secret create": ("rota secret create DB_PASSWORD < password.txt",),
    "secret set": ("rota secret set DB_PASSWORD", "pass show database | rota secret set DB_PASSWORD --job nightly"),
    "secret rotate": ("rota secret rotate",),
    "user create": ("rota user create root --role system_manager", "rota user create bob --organization acme --permission reports"),
    "user update": ("rota user update bob --role admin", "rota user update bob --permission none"),
    "token create": ("rota token create laptop --permit manage", "rota token create shop --user bob --permit submit --expires 90d"),
    "webhook update": ("rota webhook update ID --disabled", "rota webhook update ID --url https://example.com/new"),
    "webhook rotate": ("rota webhook rotate ID", "rota webhook rotate --organization acme"),
    "purge": ("rota purge --dry-run", "rota purge --older-than 7d --yes"),
    "repair": ("rota repair", "rota repair --full"),
    "admin job list": ("rota admin job list", "rota admin job list --state PAUSED --json"),
    "admin job runs": ("rota admin job runs", "rota admin job runs nightly_report --limit 5"),
    "admin job metrics": ("rota admin job metrics",),
    "sql": (
        "rota sql",
        "rota sql -c 'SELECT job_name, state FROM sys.jobs'",
        "rota sql jobs.sql --app shop.jobs:rota",
        "rota sql -c 'SELECT * FROM sys.job_runs WHERE state = :state' -p state=FAILED --csv",
    ),
    "doctor": ("rota doctor", "rota doctor --full --json | jq 'select(.state != \"ok\")'"),
    "up": ("rota up --app shop.jobs:rota", "rota up --app examples.tour:rota --demo"),
    "worker": (
        "rota worker --app shop.jobs:rota --store /var/lib/shop/rota.db --concurrency 16",
        "rota worker --app shop.jobs:rota --queue mail,default --exclude rebuild_index",
        "rota worker --type 'kind:sql:*' --store /var/lib/shop/rota.db",
    ),
    "serve": ("rota serve", "rota serve --store postgresql://rota@db.example.org/jobs --host 0.0.0.0 --port 8420"),
    "mcp": ("rota mcp --store /var/lib/shop/rota.db", "rota mcp --app shop.jobs:rota --as ada"),
    "enqueue": (
        "rota enqueue send_email -p to=ada@example.org -p subject='Hello'",
        "rota enqueue resize --params '{\"width\": 640}' --in 90s --priority high",
        "rota enqueue nightly --unique-key nightly --wait --wait-timeout 5m",
        "rota enqueue report --depends-on 41 --depends-on 42 --on-parent-failure skip",
        "rota enqueue --handler shop.jobs:rebuild_index -p shop=3",
    ),
    "settings": ("rota settings", "ROTA_CONCURRENCY=32 rota settings --json"),
    "version": ("rota version",),
    "top": ("rota top", "rota top --once", "rota top --json | jq -r .health.sentence"),
    "forecast": (
        "rota forecast",
        "rota forecast --hours 168 --skipped",
        "rota forecast --schedule daily --start 2026-10-24T00:00:00Z --end 2026-10-27T00:00:00Z",
    ),
    "events": ("rota events", "rota events 42", "rota events --type job.ended --status DEAD_LETTER --json"),
    "promote": (
        "rota promote rota.db postgresql://shop@db.example.org/shop",
        "rota promote postgresql://shop@db.example.org/shop rota.db",
        "rota promote rota.db mongodb://shop@db.example.org/shop",
        "rota promote rota.db postgresql://shop@db.example.org/rehearsal --keep",
    ),
    "reopen": ("rota reopen --store rota.db",),
    "simulate": (
        "rota simulate --days 7 --seed 42",
        "rota simulate --days 2 --faults crash,clock-step,sleep --workers 2",
        "rota simulate --days 30 --failures --json | jq .totals",
    ),
    "group create": (
        "rota group create extract transform load --name nightly",
        "rota group create extract load --then report --on-parent-failure run",
        "rota group create 'resize:{\"width\": 640}' 'resize:{\"width\": 1280}' --mode parallel --on-failure continue",
    ),
}


def examples(*lines: str) -> str:
    """Return the epilog of a command's help: each example on a line of its own."""
    return "\n\n".join(("Examples:" if len(lines) > 1 else "Example:", *(f"$ {line}" for line in lines)))


def generated(operation: Operation, option_of: Callable[[Field], str]) -> tuple[str, ...]:
    """Return the shortest call, unless that changes nothing, and one with the first two options that have examples."""
    shortest = " ".join(["rota", str(operation.cli), *(_text(field) for field in operation.fields if field.required)])
    options = [field for field in operation.fields if not field.positional and field.shape.example is not None]
    shown = [f"{option_of(field)} {_text(field)}" for field in options if field.name not in {"limit", "organization"}][:2]
    longer = (" ".join([shortest, *shown]),) if shown else ()
    return longer if operation.name == "update" else (shortest, *longer)


def _text(field: Field) -> str:
    example: Any = field.shape.example
    if isinstance(example, list):
        example = example[0]
    if isinstance(example, dict):
        example = msgspec.json.encode(example).decode()
    return field.shape.metavar or field.name.upper() if example is None else shlex.quote(str(example))
