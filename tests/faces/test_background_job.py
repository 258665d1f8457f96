"""The face of the background job engine: its three samples, made by real jobs, and its words, one by one."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from rota import Actor, Backoff, Context, PermanentError, Retry, Rota, Skip, Snooze, TransientError
from rota.compat.faces import background_job as background_job_of
from rota.compat.faces import background_job_log
from rota.errors import NotFound, PermissionDenied
from rota.faces.background_job import BackgroundJob, background_job, document
from rota.model.definitions import Organization
from rota.model.gate import SYSTEM, Right, Role
from rota.model.states import Status
from rota.model.values import Job
from rota.operation import Ask
from tests.support.clock import ManualClock

ORGANIZATION = "ORG-2025-00001"
OWNER = Actor("ada", ORGANIZATION, Role.USER)
EXACT = Backoff(base=60, factor=2, jitter=0)
FIELDS = [
    "naming_series",
    "name",
    "job_type",
    "organization",
    "owner_user",
    "status",
    "priority",
    "progress",
    "progress_message",
    "input_parameters",
    "output_reference",
    "error_message",
    "error_type",
    "retry_count",
    "max_retries",
    "next_retry_at",
    "depends_on",
    "job_hash",
    "timeout_seconds",
    "created_at",
    "started_at",
    "completed_at",
    "canceled_at",
    "canceled_by",
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(datetime(2025, 12, 15, 10, 0, tzinfo=UTC))


@pytest.fixture
def engine(rota: Rota, clock: ManualClock) -> Rota:
    """A Rota with the three types of the samples and the organization they belong to."""
    rota._session.open().store.put_organization(Organization(name=ORGANIZATION, display_name="One"), actor=SYSTEM, now=clock.now())

    @rota.job
    def pdf_generation(ctx: Context) -> dict[str, str]:
        clock.advance(seconds=4)
        ctx.progress(100, "PDF generated successfully")
        return {"output_reference": "/files/report-2025-001.pdf"}

    @rota.job
    def fax_send(number: str) -> None:
        clock.advance(seconds=1)
        raise PermanentError(f"Invalid fax number format: {number}")

    @rota.job(max_retries=5, backoff=EXACT)
    def ocr_processing() -> None:
        clock.advance(seconds=29)
        raise TransientError("Connection timeout to OCR service")

    return rota


def shown(rota: Rota, job: Job) -> dict[str, object]:
    return document(background_job_of(Ask(rota._session, None, Right.READ), job.id))


@pytest.fixture
def samples(engine: Rota, clock: ManualClock) -> list[Job]:
    """Live through the day of the three samples, until the third has failed twice."""
    first = engine.acting_as(OWNER).enqueue("pdf_generation")
    clock.advance(seconds=1)
    engine.turn()
    clock.advance(minutes=59, seconds=55)
    second = engine.acting_as(OWNER).enqueue("fax_send", {"number": "+1-INVALID"})
    third = engine.acting_as(OWNER).enqueue("ocr_processing")
    clock.advance(seconds=1)
    engine.turn()
    clock.advance(minutes=1)
    engine.turn()
    return [first, second, third]


def test_the_fields_are_those_of_the_engine_and_no_other():
    assert BackgroundJob.__struct_fields__ == tuple(FIELDS)


def test_sample_one_a_successful_job(engine: Rota, samples: list[Job]):
    assert (
        shown(engine, samples[0]).items()
        >= {
            "name": "JOB-2025-00001",
            "job_type": "pdf_generation",
            "organization": "ORG-2025-00001",
            "status": "Completed",
            "progress": 100,
            "progress_message": "PDF generated successfully",
            "output_reference": "/files/report-2025-001.pdf",
            "retry_count": 0,
            "created_at": "2025-12-15 10:00:00",
            "started_at": "2025-12-15 10:00:01",
            "completed_at": "2025-12-15 10:00:05",
        }.items()
    )


def test_sample_two_a_dead_letter(engine: Rota, samples: list[Job]):
    assert (
        shown(engine, samples[1]).items()
        >= {
            "name": "JOB-2025-00002",
            "job_type": "fax_send",
            "organization": "ORG-2025-00001",
            "status": "Dead Letter",
            "progress": 0,
            "error_message": "Invalid fax number format: +1-INVALID",
            "error_type": "Permanent",
            "retry_count": 0,
            "created_at": "2025-12-15 11:00:00",
            "started_at": "2025-12-15 11:00:01",
            "completed_at": "2025-12-15 11:00:02",
        }.items()
    )


def test_sample_three_a_job_with_retries(engine: Rota, samples: list[Job]):
    third = samples[2]
    assert (
        shown(engine, third).items()
        >= {
            "name": "JOB-2025-00003",
            "job_type": "ocr_processing",
            "organization": "ORG-2025-00001",
            "status": "Queued",
            "progress": 0,
            "error_message": "Connection timeout to OCR service",
            "error_type": "Transient",
            "retry_count": 2,
            "max_retries": 5,
            "next_retry_at": "2025-12-15 11:04:00",
            "created_at": "2025-12-15 11:00:00",
        }.items()
    )
    assert shown(engine, third)["started_at"] is None


def test_what_the_samples_leave_out_has_its_default(engine: Rota):
    job = engine.acting_as(OWNER).enqueue("fax_send", {"number": "1"})
    found = shown(engine, job)
    assert (
        found.items()
        >= {
            "naming_series": "JOB-.YYYY.-",
            "owner_user": "ada",
            "status": "Queued",
            "priority": "Normal",
            "progress": 0,
            "input_parameters": {"number": "1"},
            "max_retries": 5,
            "timeout_seconds": 300,
        }.items()
    )
    empty = {"progress_message", "output_reference", "error_message", "error_type", "next_retry_at", "depends_on", "started_at"}
    assert {name for name, value in found.items() if value is None} == empty | {"completed_at", "canceled_at", "canceled_by"}
    assert msgspec.json.decode(msgspec.json.encode(found)) == found


@pytest.mark.parametrize(
    ("number", "word"), [(0, "Low"), (24, "Low"), (25, "Low"), (49, "Low"), (50, "Normal"), (74, "Normal"), (75, "High"), (99, "High")]
)
def test_a_priority_between_two_words_has_the_lower(rota: Rota, number, word):
    rota.job(name="work")(lambda: None)
    assert background_job_of(Ask(rota._session, None, Right.READ), rota.enqueue("work", priority=number).id).priority == word
    assert background_job_of(Ask(rota._session, None, Right.READ), rota.enqueue("work", priority="critical").id).priority == "Critical"


def test_a_job_that_waits_for_its_time_is_pending_and_has_no_retry_time(rota: Rota):
    rota.job(name="work")(lambda: None)
    found = background_job_of(Ask(rota._session, None, Right.READ), rota.enqueue("work", run_at=datetime(2030, 1, 1, tzinfo=UTC)).id)
    assert (found.status, found.next_retry_at) == ("Pending", None)


def test_a_job_at_work_is_running_with_its_progress(rota: Rota):
    seen = []

    @rota.job
    def work(ctx: Context):
        ctx.progress(40, "halfway, nearly")
        seen.append(background_job_of(Ask(rota._session, None, Right.READ), ctx.root_id))

    rota.enqueue("work")
    rota.turn()
    assert (seen[0].status, seen[0].completed_at) == ("Running", None)
    assert seen[0].started_at is not None


@pytest.mark.parametrize(
    ("result", "artifacts", "reference"),
    [
        ("/files/a.pdf", [], "/files/a.pdf"),
        ({"output_reference": "/files/b.pdf"}, ["/files/c.pdf"], "/files/b.pdf"),
        ({"pages": 3}, ["/files/c.pdf", "/files/d.pdf"], "/files/c.pdf"),
        (None, ["/files/c.pdf"], "/files/c.pdf"),
        ({"pages": 3}, [], None),
        (3, [], None),
    ],
)
def test_the_output_is_what_the_result_names_or_the_first_artifact(rota: Rota, result, artifacts, reference):
    @rota.job
    def work(ctx: Context):
        for path in artifacts:
            ctx.artifact(path)
        return result

    job = rota.enqueue("work")
    rota.turn()
    assert background_job_of(Ask(rota._session, None, Right.READ), job.id).output_reference == reference


def test_a_completed_job_is_at_a_hundred_and_has_no_error_left(rota: Rota, clock: ManualClock):
    @rota.job(backoff=EXACT)
    def work(ctx: Context):
        if ctx.attempt == 1:
            raise ValueError("once")

    job = rota.enqueue("work")
    rota.turn()
    assert background_job_of(Ask(rota._session, None, Right.READ), job.id).error_message == "ValueError: once"
    clock.advance(minutes=2)
    rota.turn()
    found = background_job_of(Ask(rota._session, None, Right.READ), job.id)
    assert (found.status, found.progress, found.retry_count, found.error_message, found.error_type) == ("Completed", 100, 1, None, None)


@pytest.mark.parametrize(
    ("how", "error_type", "message"),
    [
        (TransientError("later"), "Transient", "later"),
        (Retry("soon", after=5), "Transient", "soon"),
        (OSError("disk"), "Transient", "OSError: disk"),
        (PermanentError("never"), "Permanent", "never"),
    ],
)
def test_an_exhausted_job_tells_its_last_error_and_of_which_type_it_was(rota: Rota, how, error_type, message):
    @rota.job(max_retries=0)
    def work():
        raise how

    job = rota.enqueue("work")
    rota.turn()
    found = background_job_of(Ask(rota._session, None, Right.READ), job.id)
    assert (found.status, found.error_type, found.error_message) == ("Dead Letter", error_type, message)
    assert found.completed_at is not None


def test_a_timeout_is_transient(rota: Rota, clock: ManualClock):
    @rota.job(timeout=10, max_retries=0)
    def work():
        clock.advance(seconds=11)

    job = rota.enqueue("work")
    rota.turn()
    found = background_job_of(Ask(rota._session, None, Right.READ), job.id)
    assert (found.status, found.error_type, found.error_message) == ("Dead Letter", "Transient", "timed out after 10 s")


def test_a_canceled_job_says_when_and_by_whom(rota: Rota, clock: ManualClock):
    rota.job(name="work")(lambda: None)
    job = rota.enqueue("work")
    clock.advance(seconds=3)
    rota.acting_as("bob").jobs.cancel(job.id)
    found = shown(rota, job)
    assert (found["status"], found["canceled_by"], found["canceled_at"]) == ("Canceled", "bob", "2025-12-15 10:00:03")
    assert (found["completed_at"], found["error_message"]) == (None, None)


def test_a_job_that_its_handler_skipped_is_completed_with_the_reason_as_its_message(rota: Rota):
    @rota.job
    def work():
        raise Skip("nothing to do today")

    job = rota.enqueue("work")
    rota.turn()
    found = background_job_of(Ask(rota._session, None, Right.READ), job.id)
    assert (found.status, found.progress, found.progress_message) == ("Completed", 100, "nothing to do today")


def test_a_job_that_was_skipped_before_it_could_start_is_canceled_by_nobody(rota: Rota, clock: ManualClock):
    rota.job(name="work")(lambda: None)
    job = rota.enqueue("work", queue_ttl=5)
    clock.advance(seconds=6)
    rota.turn()
    found = background_job_of(Ask(rota._session, None, Right.READ), job.id)
    assert (found.status, found.canceled_by, found.error_message) == ("Canceled", None, "expired: not started within its queue_ttl")
    assert found.canceled_at is not None


def test_a_snoozed_job_is_queued_again_and_has_used_no_retry(rota: Rota, clock: ManualClock):
    @rota.job
    def work():
        raise Snooze(60, "not yet")

    job = rota.enqueue("work")
    rota.turn()
    found = background_job_of(Ask(rota._session, None, Right.READ), job.id)
    assert (found.status, found.retry_count, found.error_message) == ("Queued", 0, None)
    assert found.next_retry_at == datetime(2025, 12, 15, 10, 1, tzinfo=UTC)


def test_the_parent_is_named_by_its_own_number(rota: Rota):
    rota.job(name="work")(lambda: None)
    parent = rota.enqueue("work")
    child = rota.enqueue("work", depends_on=[parent])
    assert background_job_of(Ask(rota._session, None, Right.READ), child.id).depends_on == parent.number
    assert background_job_of(Ask(rota._session, None, Right.READ), parent.id).depends_on is None
    rota.turn()
    assert background_job_of(Ask(rota._session, None, Right.READ), child.id).depends_on == parent.number


def test_of_several_parents_the_one_that_is_waited_for_is_named(rota: Rota):
    rota.job(name="work")(lambda: None)
    done = rota.enqueue("work")
    rota.turn()
    waiting = rota.enqueue("work", run_at=datetime(2030, 1, 1, tzinfo=UTC))
    child = rota.enqueue("work", depends_on=[done, waiting])
    assert background_job_of(Ask(rota._session, None, Right.READ), child.id).depends_on == waiting.number


def test_the_hash_is_the_same_for_the_same_work_and_another_for_other(rota: Rota):
    rota.job(name="work")(lambda a=0, b=0: None)
    hashes = [
        background_job_of(Ask(rota._session, None, Right.READ), rota.enqueue("work", params).id).job_hash
        for params in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2})
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_any_id_of_the_chain_shows_the_same_record(engine: Rota):
    job = engine.acting_as(OWNER).enqueue("ocr_processing")
    engine.turn()
    _, second = engine.jobs.attempts(job.id)
    assert background_job_of(Ask(engine._session, None, Right.READ), second.id) == background_job_of(
        Ask(engine._session, None, Right.READ), job.id
    )
    assert background_job_of(Ask(engine._session, None, Right.READ), job.number).name == job.number


def test_a_torn_chain_says_failed_or_timed_out_until_it_is_mended():
    at = datetime(2025, 12, 15, tzinfo=UTC)
    for status, word in ((Status.FAILED, "Failed"), (Status.TIMED_OUT, "Timed Out")):
        job = Job(
            id="a",
            number="JOB-2025-00001",
            status=status,
            job_type="t",
            organization="default",
            priority=50,
            position=100,
            attempt=1,
            root_id="a",
            created_at=at,
        )
        assert background_job([job], run=None).status == word


def test_nobody_sees_the_record_of_another(engine: Rota):
    job = engine.acting_as(OWNER).enqueue("fax_send", {"number": "1"})
    stranger = Actor("eve", ORGANIZATION, Role.USER)
    with pytest.raises(NotFound):
        background_job_of(Ask(engine._session, stranger, Right.READ), job.id)
    with pytest.raises(PermissionDenied):
        background_job_log(Ask(engine._session, OWNER, Right.READ_LOG), job.id)


# ---- its execution log ---------------------------------------------------------------------------------------------------


def moves(rota: Rota, job: Job) -> list[tuple[object, ...]]:
    log = background_job_log(Ask(rota._session, None, Right.READ_LOG), job.id)
    assert {entry.background_job for entry in log} == {job.number}
    assert [entry.timestamp for entry in log] == sorted(entry.timestamp for entry in log)
    assert [entry.from_status for entry in log] == [None, *(entry.to_status for entry in log[:-1])]
    return [(entry.to_status, entry.actor, entry.retry_attempt) for entry in log]


def test_the_log_of_a_successful_job_passes_every_state(engine: Rota):
    job = engine.acting_as(OWNER).enqueue("pdf_generation")
    engine.turn()
    assert moves(engine, job) == [("Pending", "ada", None), ("Queued", "ada", None), ("Running", None, None), ("Completed", None, None)]


def test_the_log_of_retries_goes_from_failed_back_to_the_queue(rota: Rota, clock: ManualClock):
    @rota.job(max_retries=1, backoff=EXACT)
    def work():
        raise TransientError("no line")

    job = rota.enqueue("work")
    rota.turn()
    clock.advance(minutes=2)
    rota.turn()
    assert [to for to, _, _ in moves(rota, job)] == [
        *("Pending", "Queued", "Running", "Failed"),
        *("Queued", "Running", "Failed", "Dead Letter"),
    ]
    log = background_job_log(Ask(rota._session, None, Right.READ_LOG), job.id)
    assert [entry.retry_attempt for entry in log] == [None] * 4 + [1] * 4
    assert (log[3].message, log[7].message) == ("no line", "no line")
    assert all(entry.actor is None for entry in log[2:])
    assert document(log[0])["timestamp"] == "2025-12-15 10:00:00"


def test_the_log_of_a_permanent_error_goes_straight_to_the_dead_letters(engine: Rota):
    job = engine.acting_as(OWNER).enqueue("fax_send", {"number": "x"})
    engine.turn()
    assert [to for to, _, _ in moves(engine, job)] == ["Pending", "Queued", "Running", "Dead Letter"]


def test_the_log_of_a_timeout_says_so(rota: Rota, clock: ManualClock):
    @rota.job(timeout=10, max_retries=1, backoff=EXACT)
    def work():
        clock.advance(seconds=11)

    job = rota.enqueue("work")
    rota.turn()
    clock.advance(minutes=2)
    rota.turn()
    words = [to for to, _, _ in moves(rota, job)]
    assert words == ["Pending", "Queued", "Running", "Timed Out", "Queued", "Running", "Timed Out", "Dead Letter"]


def test_the_log_of_a_cancel_names_who_asked(rota: Rota):
    rota.job(name="work")(lambda: None)
    job = rota.enqueue("work", run_at=datetime(2030, 1, 1, tzinfo=UTC))
    rota.acting_as("bob").jobs.cancel(job.id, reason="not any more")
    assert moves(rota, job) == [("Pending", "local", None), ("Canceled", "bob", None)]
    assert background_job_log(Ask(rota._session, None, Right.READ_LOG), job.id)[-1].message == "not any more"


def test_the_log_of_a_snooze_and_of_a_retry_by_hand_goes_back_to_the_queue(rota: Rota, clock: ManualClock):
    @rota.job
    def work(ctx: Context):
        if ctx.attempt == 1:
            raise Snooze(60)
        raise Skip("nothing")

    job = rota.enqueue("work")
    rota.turn()
    clock.advance(minutes=2)
    rota.turn()
    rota.acting_as("bob").jobs.retry(job.id)
    words = [to for to, _, _ in moves(rota, job)]
    assert words == ["Pending", "Queued", "Running", "Queued", "Running", "Completed", "Queued"]
