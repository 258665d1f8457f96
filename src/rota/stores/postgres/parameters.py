"""What type each parameter of a statement has, by its name: the only place that says so.

PostgreSQL wants to know before it sees a value. A statement may say otherwise where it uses one: `:until::uuid`.
Ids come as hexadecimal text, or as bytes that the connection turns into that; lists come as JSON; many ids that are packed into
bytes (`PACKED`), and the params of many jobs, come as arrays (`rota.stores.postgres.values`).
"""

from __future__ import annotations

WHOLE = "{}::bigint"
FLAG = "({}::bigint <> 0)"
REAL = "{}::double precision"
TEXT = "{}::text"
ID = "{}::uuid"
# Nobody's id is empty text: recovery, which is no worker, has none.
PERHAPS_ID = "nullif({}::text, '')::uuid"
DIGEST = "decode({}::text, 'hex')"
NUMBERS = "translate({}::text, '[]', '{{}}')::bigint[]"
WORDS = "ARRAY(SELECT json_array_elements_text({}::json))"
IDS = "ARRAY(SELECT json_array_elements_text({}::json)::uuid)"
PACKED = "{}::uuid[]"
TEXTS = "{}::text[]"

_NAMES = {
    WHOLE: (
        "after ahead at beat before before_at before_id blockers catch_up_count catch_up_lateness child count created_at created_from"
        " code created_until cursor_at definitions delivered_at due_at earliest ends_at exit_code expires_at few first floor gap gave_up_at"
        " interval jitter job_number lane last last_at last_due_at latest lease limit look made most max_crashes max_priority max_queued"
        " max_retries max_running moved newest next_at now number passed position priority progress queued_at recorded_at requested_at"
        " resolved_at rowid rules run_at sent sequence_number since slots span spare starts_at step times until version want with_result"
    ),
    FLAG: "depends dropped ended failed fresh not_ran told",
    REAL: "timeout",
    ID: "adopter_id chain endpoint_id group_id job_id new_id parent reservation_id root_id run_id schedule_id token_id",
    PERHAPS_ID: "before_schedule template_id worker_id",
    DIGEST: "hash job_hash",
    NUMBERS: "children lanes limits moments numbers rowids tails",
    WORDS: "fates names statuses types",
    IDS: "groups roots",
    PACKED: "ids schedules",
    TEXTS: "bodies",
}

PARAMETERS: dict[str, str] = {name: template for template, names in _NAMES.items() for name in names.split()}


def typed(name: str, place: int) -> str:
    """Return a parameter's place in a statement, with its type."""
    return PARAMETERS.get("lane" if name.startswith("lane_") else name, TEXT).format(f"${place}")
