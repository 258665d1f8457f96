"""Templates through Python: seen, set, reset, taken out of use, loaded from files, by those who may."""

import json

import pytest

from rota import Actor, Backoff, Rota
from rota.errors import DuplicateJob, InvalidDefinition, InvalidName, InvalidOption, PermissionDenied, UnknownTemplate
from rota.model.templates import FIELDS, Rate
from rota.resources.definitions import Loaded

MANAGER = Actor("mia", role="system_manager")
ADMIN = Actor("adam", role="admin")
USER = Actor("uma", role="user")


@pytest.fixture
def send(rota):
    @rota.job(max_running=5, timeout="5m", backoff=Backoff(base=5), rate_limit=(10, 60), display_name="Send e-mail")
    def send(to="nobody"):
        """Send what it is told to."""

    return send


# ---- registering -----------------------------------------------------------------------------------------------------


def test_a_handler_can_say_every_field_of_its_template(rota):
    said = {
        "executor": "process",
        "display_name": "All",
        "description": "Everything.",
        "priority": "critical",
        "timeout": 1.5,
        "max_retries": 1,
        "max_crashes": 2,
        "backoff": Backoff(base=1),
        "queue": "slow",
        "queue_ttl": "1h",
        "payload_max": 100,
        "dedup_window": "1m",
        "requires_permission": "all",
        "max_running": 3,
        "concurrency": 2,
        "rate_limit": "1/s",
        "submit_limit": "2/s",
        "default_params": {},
    }
    assert set(said) == set(FIELDS) - {"handler"}
    rota.job(execute, **said)
    view = rota.templates.get("execute")
    assert set(view.sources.values()) == {"code"}
    assert (view.handler, view.executor, view.priority, view.queue_ttl, view.dedup_window) == (
        f"{__name__}:execute",
        "process",
        100,
        3600,
        60,
    )
    assert (view.rate_limit, view.submit_limit, view.backoff.base) == (Rate(1, 1.0), Rate(2, 1.0), 1)


def execute():
    return None


def test_a_name_in_the_place_of_the_function_says_where_names_go(rota):
    with pytest.raises(InvalidOption, match=r"@rota.job\(name='nightly'\)"):
        rota.job("nightly")


@pytest.mark.parametrize("option", ["max_retry", "handler", "retries"])
def test_an_option_that_is_not_there_is_refused_with_those_that_are(rota, option):
    with pytest.raises(
        InvalidOption,
        match=rf"@rota.job has no option {option!r}( \(did.*\))?: it takes name, display_name, description, executor, priority",
    ):
        rota.job(execute, **{option: 3})


def test_an_option_out_of_its_range_is_refused_where_the_handler_is_registered(rota):
    with pytest.raises(InvalidOption, match="max_running=-1"):
        rota.job(execute, max_running=-1)
    assert rota.templates.list() == []


# ---- looking ---------------------------------------------------------------------------------------------------------


def test_a_template_shows_what_is_in_force_and_whose_word_it_is(rota, send):
    rota.templates.update("send", max_running=2, description="Another story")
    view = rota.templates.get("send")
    assert (view.display_name, view.description, view.state, view.version) == ("Send e-mail", "Another story", "ENABLED", 2)
    assert (view.max_running, view.timeout, view.max_retries, view.payload_max) == (2, 300.0, 5, 2**20)
    assert (view.rate_limit, view.backoff) == (Rate(10, 60.0), Backoff(base=5))
    assert {field: str(view.sources[field]) for field in ("max_running", "timeout", "max_retries", "handler", "queue_ttl")} == {
        "max_running": "people",
        "timeout": "code",
        "max_retries": "setting",
        "handler": "code",
        "queue_ttl": "setting",
    }
    assert view.handled_here
    assert view.updated_at >= view.created_at


def test_templates_are_listed_by_name_archived_ones_only_if_asked_for(rota, send):
    rota.job(lambda: None, name="beta")
    rota.job(lambda: None, name="alpha")
    rota.templates.archive("beta")
    assert [view.name for view in rota.templates.list()] == ["alpha", "send"]
    assert [view.name for view in rota.templates.list(archived=True)] == ["alpha", "beta", "send"]
    assert rota.templates.get("beta").state == "ARCHIVED"
    rota.templates.enable("beta")
    assert [view.name for view in rota.templates.list()] == ["alpha", "beta", "send"]


def test_what_is_not_there_is_named(rota, send):
    for ask in (
        rota.templates.get,
        rota.templates.reset,
        rota.templates.enable,
        rota.templates.disable,
        rota.templates.archive,
        rota.templates.delete,
    ):
        with pytest.raises(UnknownTemplate, match="there is no template 'sned': `rota template list`"):
            ask("sned")


# ---- setting ---------------------------------------------------------------------------------------------------------


def test_setting_returns_what_is_in_force_now(rota, send):
    view = rota.templates.update("send", timeout="10s", priority="low", submit_limit="5/m", dedup_window=60)
    assert (view.timeout, view.priority, view.submit_limit, view.dedup_window) == (10.0, 25, Rate(5, 60.0), 60.0)
    assert rota.templates.update("send", max_running=None).max_running is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "nothing to set: give some of display_name"),
        ({"timeot": 1}, r"a template has no option 'timeot' \(did you mean 'timeout'\?\): it takes display_name"),
        ({"timeout": -1}, "timeout=-1"),
        ({"handler": "send"}, "package.module:function"),
    ],
)
def test_what_cannot_be_set_is_refused_and_nothing_changes(rota, send, options, words):
    before = rota.templates.get("send")
    with pytest.raises(InvalidOption, match=words):
        rota.templates.update("send", **options)
    assert rota.templates.get("send") == before


def test_a_new_template_needs_a_handler(rota):
    with pytest.raises(InvalidOption, match="template 'resize' is not there yet and needs a handler"):
        rota.templates.update("resize", timeout=5)
    view = rota.templates.update("resize", handler="shop.images:resize", timeout=5)
    assert (view.handler, view.timeout, view.handled_here, view.sources["handler"]) == ("shop.images:resize", 5.0, False, "people")
    assert rota.jobs.get(rota.enqueue("resize")).timeout == 5.0
    with pytest.raises(InvalidName):
        rota.templates.update("re\nsize", handler="shop.images:resize")


def test_a_handler_that_is_here_needs_no_name_of_a_handler(rota, send):
    assert rota.templates.update("send", timeout=5).handled_here


def test_resetting_takes_back_some_or_all_of_what_people_set(rota, send):
    rota.templates.update("send", timeout=1, priority=1, max_running=1)
    view = rota.templates.reset("send", "timeout")
    assert (view.timeout, view.priority, view.max_running) == (300.0, 1, 1)
    view = rota.templates.reset("send")
    assert (view.timeout, view.priority, view.max_running) == (300.0, 50, 5)
    assert "people" not in view.sources.values()
    with pytest.raises(InvalidOption, match="a template has no field 'timeot'"):
        rota.templates.reset("send", "timeot")


def test_a_template_that_only_people_made_keeps_its_handler(rota):
    rota.templates.update("resize", handler="shop.images:resize", executor="process", timeout=5)
    view = rota.templates.reset("resize")
    assert (view.handler, view.executor, view.timeout) == ("shop.images:resize", "process", 300.0)
    with pytest.raises(InvalidOption, match="nobody else says which handler 'resize' has"):
        rota.templates.reset("resize", "handler")


# ---- who may ---------------------------------------------------------------------------------------------------------


def test_templates_are_managed_by_system_managers_only_and_read_by_all_who_submit(rota, send, tmp_path):
    file = tmp_path / "jobs.toml"
    file.write_text("")
    verbs = [
        lambda actor: rota.acting_as(actor).templates.update("send", timeout=5),
        lambda actor: rota.acting_as(actor).templates.reset("send"),
        lambda actor: rota.acting_as(actor).templates.disable("send"),
        lambda actor: rota.acting_as(actor).templates.enable("send"),
        lambda actor: rota.acting_as(actor).templates.archive("send"),
        lambda actor: rota.acting_as(actor).store.load(file),
        lambda actor: rota.acting_as(actor).store.load(samples=True),
        lambda actor: rota.acting_as(actor).templates.delete("send"),
    ]
    before = rota.templates.list(archived=True)
    shown = rota.templates.get("send")
    for actor in (ADMIN, USER):
        for verb in verbs:
            with pytest.raises(PermissionDenied, match="may not manage templates"):
                verb(actor)
        assert rota.acting_as(actor).templates.list(archived=True) == before
        assert rota.acting_as(actor).templates.get("send") == shown
    for verb in verbs:
        verb(MANAGER)


def test_who_changed_a_template_is_written_down(rota, send):
    rota.acting_as("mia").templates.update("send", timeout=5)
    rota.acting_as("mia").templates.disable("send")
    entries = rota.audit.list(limit=2)
    assert [(entry.action, entry.subject_id, entry.actor) for entry in entries] == [
        ("template.state", "send", "mia"),
        ("template.set", "send", "mia"),
    ]


# ---- files -----------------------------------------------------------------------------------------------------------

TOML = """
[templates.send]
timeout = "10s"
priority = "high"
rate_limit = "10/60s"
max_running = "none"
backoff = { base = 5, cap = "1h" }

[templates."mail.digest"]
handler = "shop.mail:digest"
display_name = "Digest"
state = "disabled"

[organizations.acme]
display_name = "Acme Ltd"
max_running = 5
max_priority = "high"

[users.ada]
organization = "acme"
role = "admin"
permissions = ["mail", "billing"]
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="jobs.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_file_adds_and_changes_what_it_names_and_repeating_it_changes_nothing(rota, send, write):
    path = write(TOML)
    assert rota.store.load(path) == Loaded(
        added=("organization acme", "user ada", "template mail.digest"), changed=("template send",), unchanged=()
    )
    view = rota.templates.get("send")
    assert (view.timeout, view.priority, view.rate_limit, view.max_running) == (10.0, 75, Rate(10, 60.0), None)
    assert view.backoff == Backoff(base=5, cap=3600)
    assert (rota.templates.get("mail.digest").state, rota.templates.get("mail.digest").display_name) == ("DISABLED", "Digest")
    acme = rota.organizations.get("acme")
    assert (acme.display_name, acme.max_running, acme.max_queued, acme.max_priority) == ("Acme Ltd", 5, None, 75)
    assert [(user.name, user.organization, user.role, user.permissions) for user in rota.users.list()] == [
        ("ada", "acme", "admin", ("billing", "mail"))
    ]
    before = rota.templates.list(), rota.organizations.list(), rota.users.list(), rota._session.open().store.definitions()
    assert rota.store.load(path).unchanged == ("organization acme", "user ada", "template send", "template mail.digest")
    assert (rota.templates.list(), rota.organizations.list(), rota.users.list(), rota._session.open().store.definitions()) == before


def test_what_a_file_does_not_name_stays_as_it_is(rota, send, write):
    rota.templates.update("send", max_retries=1, timeout=1)
    rota.templates.disable("send")
    rota.store.load(write("[templates.send]\ntimeout = 2"))
    view = rota.templates.get("send")
    assert (view.max_retries, view.timeout, view.state) == (1, 2.0, "DISABLED")
    assert rota.store.load(write("[templates.send]\nstate = 'enabled'")).changed == ("template send",)
    assert rota.templates.get("send").state == "ENABLED"


def test_a_dry_run_says_what_would_be_and_writes_nothing(rota, send, write):
    before = rota.templates.list(), rota._session.open().store.definitions()
    loaded = rota.store.load(write(TOML), dry_run=True)
    assert (loaded.added, loaded.changed, loaded.dry_run) == (
        ("organization acme", "user ada", "template mail.digest"),
        ("template send",),
        True,
    )
    assert (rota.templates.list(), rota._session.open().store.definitions()) == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[templates.send]\ntimeout = !\n", "jobs.toml: is not TOML: Invalid value (at line 2, column 11)"),
        ("[templates.send]\ntimeout = -1", "jobs.toml, [templates.send]: timeout=-1 is not allowed"),
        ("[templates.send]\ntimeot = 1", "[templates.send]: there is no key 'timeot': it has state, display_name"),
        ("[templates.send]\nstate = 'off'", "[templates.send]: state='off' is not one of enabled, disabled, archived"),
        ("[templates.send]\ntimeout = 1979-05-27", "[templates.send]: timeout=datetime.date(1979, 5, 27)"),
        ("[templates]\nsend = 3", "[templates.send]: is not a table"),
        ("templates = 3", "[templates]: is not a table of tables"),
        ("[templates.resize]\ntimeout = 3", "[templates.resize]: template 'resize' is not there yet and needs a handler"),
        ('[templates."a\\nb"]\nhandler = "a:b"', "can't be printed"),
        ("[template.send]", "there is no [template]: it has [templates.NAME], [organizations.NAME], [users.NAME]"),
        ("[organizations.acme]\nmax_running = -1", "[organizations.acme]: max_running=-1"),
        ("[organizations.acme]\nstate = 'removed'", "[organizations.acme]: there is no key 'state': it has display_name, max_running"),
        ("[users.ada]\norganization = 'nowhere'", "[users.ada]: organization='nowhere' is neither in the store nor in this file"),
        ("[users.ada]\nrole = 'king'", "[users.ada]: role='king' is not one of system_manager, admin, user"),
        ("[users.ada]\npermissions = 'mail'", "[users.ada]: permissions='mail' is not allowed"),
    ],
)
def test_a_file_that_is_wrong_in_one_place_is_refused_whole_naming_the_place(rota, send, write, text, words):
    before = rota.templates.list(), rota._session.open().store.definitions()
    with pytest.raises(InvalidDefinition) as refused:
        rota.store.load(write(f"{text}\n{TOML.replace('[templates.send]', '[templates.other]')}" if text.endswith("]") else text))
    assert words in str(refused.value)
    with pytest.raises(InvalidDefinition):
        rota.store.load(write(f"[organizations.first]\n{text}" if not text.startswith("templates") else text))
    assert (rota.templates.list(), rota._session.open().store.definitions()) == before
    assert [each.name for each in rota.organizations.list()] == ["default"]


def test_a_file_that_cannot_be_read_is_refused_naming_it(rota, tmp_path, write):
    for path in (tmp_path / "none.toml", write("", "jobs.yaml"), tmp_path):
        with pytest.raises(InvalidDefinition, match=str(path)):
            rota.store.load(path)


JOB_TYPES = [
    {
        "doctype": "Job Type",
        "type_name": "pdf_generation",
        "display_name": "PDF",
        "handler_method": "shop.documents.pdf",
        "default_timeout": 60,
        "default_priority": "High",
        "max_retries": 3,
        "is_enabled": 0,
        "requires_permission": "print",
        "deduplication_window": 60,
        "docstatus": 0,
        "modified": "2025-12-15 10:00:00",
        "name": "pdf_generation",
    },
    {"doctype": "Job Type", "type_name": "fax_send", "handler_method": "shop.fax.send", "description": None, "requires_permission": ""},
]


def test_job_types_of_a_fixture_become_templates(rota, write):
    path = write(json.dumps(JOB_TYPES), "job_type.json")
    assert rota.store.load(path).added == ("template pdf_generation", "template fax_send")
    view = rota.templates.get("pdf_generation")
    assert (view.display_name, view.handler, view.timeout, view.priority, view.max_retries) == ("PDF", "shop.documents.pdf", 60.0, 75, 3)
    assert (view.state, view.requires_permission, view.dedup_window) == ("DISABLED", "print", 60.0)
    fax = rota.templates.get("fax_send")
    assert (fax.state, fax.display_name, fax.timeout, fax.max_retries, fax.dedup_window) == ("ENABLED", "Fax send", 300.0, 5, 300.0)
    assert rota.store.load(path).unchanged == ("template pdf_generation", "template fax_send")


@pytest.mark.parametrize(("said", "window"), [({}, 300.0), ({"deduplication_window": None}, 300.0), ({"deduplication_window": 0}, None)])
def test_a_job_type_without_a_window_has_the_fixtures_usual_one_and_zero_switches_it_off(rota, write, said, window):
    path = write(json.dumps([JOB_TYPES[1] | said]), "job_type.json")
    rota.store.load(path)
    assert rota.templates.get("fax_send").dedup_window == window
    assert rota.store.load(path).unchanged == ("template fax_send",)
    rota.enqueue("fax_send", {"to": "a"})
    if window is None:
        rota.enqueue("fax_send", {"to": "a"})
    else:
        with pytest.raises(DuplicateJob):
            rota.enqueue("fax_send", {"to": "a"})


def test_the_usual_window_of_a_fixture_takes_nothing_away_that_somebody_has_said(rota, send, write):
    rota.job(lambda: None, name="coded", dedup_window=20)
    rota.templates.update("fax_send", handler="shop.fax:send", dedup_window=10)
    types = [JOB_TYPES[1] | {"type_name": name} for name in ("fax_send", "coded", "send")]
    rota.store.load(write(json.dumps(types), "job_type.json"))
    assert [rota.templates.get(name).dedup_window for name in ("fax_send", "coded", "send")] == [10.0, 20.0, 300.0]


def test_json_may_also_be_written_like_toml(rota, write):
    rota.store.load(write('{"templates": {"resize": {"handler": "shop.images:resize", "max_running": null}}}', "jobs.json"))
    assert rota.templates.get("resize").handler == "shop.images:resize"


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([{"doctype": "Role"}], 'item 1: is not a job type: it needs "doctype": "Job Type"'),
        ([3], "item 1: is not a job type"),
        ([{"doctype": "Job Type"}], "item 1 (None): None is not a template name"),
        ([JOB_TYPES[1] | {"is_enabled": "yes"}], "item 1 (fax_send): is_enabled='yes' is not allowed: give 0 or 1"),
        ([JOB_TYPES[1] | {"timeout": 3}], "item 1 (fax_send): there is no key 'timeout': it has type_name, is_enabled, display_name"),
        ([JOB_TYPES[1] | {"default_priority": "Urgent"}], "item 1 (fax_send): priority 'Urgent' is not allowed"),
        ([JOB_TYPES[1], JOB_TYPES[1]], "item 2 (fax_send): is there twice: item 1 (fax_send) has this name too"),
        ("text", "holds neither tables nor a list"),
    ],
)
def test_a_fixture_that_is_wrong_is_refused_naming_the_item(rota, write, items, words):
    with pytest.raises(InvalidDefinition) as refused:
        rota.store.load(write(json.dumps(items), "job_type.json"))
    assert words in str(refused.value)
    assert rota.templates.list() == []


def test_json_that_is_none_is_refused_with_its_line(rota, write):
    with pytest.raises(InvalidDefinition, match=r"is not JSON: .* \(at line 2, column 1\)"):
        rota.store.load(write("[\n", "job_type.json"))
    with pytest.raises(InvalidDefinition, match="nested too deeply"):
        rota.store.load(write("[" * 100_000, "job_type.json"))


def test_the_sample_is_the_one_of_the_fixture(rota):
    assert rota.store.load(samples=True).added == ("template sample_job",)
    view = rota.templates.get("sample_job")
    assert (view.display_name, view.handler) == ("Sample Background Job", "rota.samples.execute_sample_job")
    assert (view.timeout, view.priority, view.max_retries, view.state) == (60.0, 50, 3, "ENABLED")
    assert rota.store.load(samples=True).unchanged == ("template sample_job",)


def test_a_file_needs_the_right_to_manage_organizations_only_if_it_names_some(rota, send, write, monkeypatch):
    from rota.model.gate import RIGHTS, Reach, Right, Role

    monkeypatch.setitem(RIGHTS[Right.MANAGE_TEMPLATES], Role.ADMIN, Reach.ALL)
    rota.acting_as(ADMIN).store.load(write("[templates.send]\ntimeout = 2"))
    with pytest.raises(PermissionDenied, match="may not manage organizations"):
        rota.acting_as(ADMIN).store.load(write(TOML))
    assert rota.templates.get("send").timeout == 2.0


def test_a_template_is_known_to_other_programs_at_once(rota, clock):
    other = Rota(rota.store.url, clock=clock)
    rota.templates.update("resize", handler="shop.images:resize")
    assert other.jobs.get(other.enqueue("resize")).job_type == "resize"
    rota.templates.disable("resize")
    assert other.templates.get("resize").state == "DISABLED"
    other.close()
