"""GRANT, REVOKE, CREATE ROLE, DROP ROLE and what shows them: who may, what is refused, and what goes with what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rota import Rota, Settings
from rota.errors import NotFound, PermissionDenied, SqlError
from rota.model.access import PERMITS, Permit
from rota.model.gate import Actor, Role
from tests.sql.test_sql_rights import HOURLY, state
from tests.support.keys import key_file


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(master_key_file=str(key_file(tmp_path)), synchronous="NORMAL")


@pytest.fixture
def shared(rota: Rota) -> Rota:
    """Two organizations: a manager, an admin and four users in one, an admin and a user in the other, and a job of the admin."""
    for name in ("acme", "beta"):
        rota.organizations.create(name)
    rota.users.create("root", role="system_manager")
    for name, organization, role in [
        ("ada", "acme", "admin"),
        ("bob", "acme", "user"),
        ("cid", "acme", "user"),
        ("dan", "acme", "user"),
        ("eve", "beta", "admin"),
        ("fay", "beta", "user"),
    ]:
        rota.users.create(name, organization=organization, role=role)
    rota.acting_as("ada").sql(f"CREATE JOB j {HOURLY}")
    rota.acting_as("ada").sql("CREATE CONNECTION c URL = 'sqlite:////data/c.db'")
    return rota


def done(rota: Rota, who: str | None, text: str) -> list[str]:
    """Carry a statement out, and return its notices."""
    (result,) = (rota if who is None else rota.acting_as(who)).sql(text)
    assert all(notice.sqlstate == "01000" for notice in result.notices)
    return [notice.message for notice in result.notices]


def refusal(rota: Rota, who: str, text: str) -> SqlError:
    with pytest.raises(SqlError) as caught:
        rota.acting_as(who).sql(text)
    return caught.value


def held(rota: Rota) -> list[tuple[str, str, str]]:
    """Return every grant: to whom, what, and by whom."""
    return sorted((grant.grantee or "PUBLIC", str(grant.privilege), grant.granted_by) for grant in rota.grants.list())


def trail(rota: Rota) -> list[str]:
    return [each.action for each in rota.audit.list(limit=1000) if each.subject in {"grant", "role"}][::-1]


# ---- granting ----------------------------------------------------------------------------------------------------------


def test_a_privilege_on_a_job_holds_until_it_is_revoked(shared):
    assert state(shared, "bob", "EXECUTE JOB j") == "42704"
    assert done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob") == []
    assert state(shared, "bob", "EXECUTE JOB j") == ""
    assert state(shared, "cid", "EXECUTE JOB j") == "42704"
    assert state(shared, "bob", "DROP JOB j") == "42704"
    assert done(shared, "ada", "REVOKE EXECUTE ON JOB j FROM bob") == []
    assert state(shared, "bob", "EXECUTE JOB j") == "42704"
    assert trail(shared) == ["grant.create", "grant.delete"]


def test_all_is_the_four_privileges_on_a_job(shared):
    done(shared, "ada", "GRANT ALL PRIVILEGES ON JOB j TO bob")
    assert held(shared) == [("bob", each, "ada") for each in ("ALTER", "DROP", "EXECUTE", "VIEW JOB HISTORY")]
    done(shared, "ada", "REVOKE DROP ON JOB j FROM bob")
    assert state(shared, "bob", "DROP JOB j") == "42704"
    for text in ("EXECUTE JOB j", "ALTER JOB j SET TIMEOUT = 5", "SHOW JOB j", "PAUSE JOB j", "CANCEL JOB j"):
        assert state(shared, "bob", text) == "", text
    (notice,) = done(shared, "ada", "REVOKE ALL ON JOB j FROM bob")
    assert notice == "bob has no DROP on job j that you may revoke: nothing was revoked"
    assert held(shared) == []
    assert trail(shared) == ["grant.create"] * 4 + ["grant.delete"] * 4


def test_granting_twice_and_revoking_what_is_not_there_are_notices(shared):
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob")
    assert done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob") == ["EXECUTE on job j to bob (by ada) was granted already"]
    assert done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob WITH GRANT OPTION") == []
    assert trail(shared) == ["grant.create"] * 2
    assert done(shared, "ada", "REVOKE ALTER ON JOB j FROM bob") == ["bob has no ALTER on job j that you may revoke: nothing was revoked"]
    assert len(held(shared)) == 1


def test_public_is_everybody_in_the_organization_and_nobody_else(shared):
    done(shared, "ada", "GRANT VIEW JOB HISTORY TO PUBLIC")
    for who in ("bob", "cid"):
        assert state(shared, who, "SHOW JOB j") == ""
    for who in ("eve", "fay"):
        assert state(shared, who, "SHOW JOB j") == "42704"
    assert shared.acting_as("fay").sql("SELECT * FROM sys.jobs")[0].rows == ()


def test_only_members_of_a_role_in_its_organization_hold_what_it_was_granted(shared):
    for who in ("ada", "eve"):
        done(shared, who, "CREATE ROLE ops")
    done(shared, "ada", "GRANT EXECUTE, ALTER ON JOB j TO ROLE ops")
    for organization, member in (("acme", "bob"), ("beta", "fay")):
        shared.acting_as(Actor("root", organization, Role.MANAGER)).sql(f"GRANT ROLE ops TO {member}")
    for text in ("EXECUTE JOB j", "ALTER JOB j SET TIMEOUT = 5"):
        assert state(shared, "bob", text) == ""
        assert state(shared, "cid", text) == "42704"
        assert state(shared, "fay", text) == "42704"


def test_membership_is_granted_by_managers_and_by_who_may_pass_it_on(shared):
    done(shared, "ada", "CREATE ROLE ops")
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO ops")
    assert refusal(shared, "ada", "GRANT ROLE ops TO bob").sqlstate == "42501"
    manager = shared.acting_as(Actor("root", "acme", Role.MANAGER))
    manager.sql("GRANT ROLE ops TO bob WITH GRANT OPTION")
    assert state(shared, "bob", "EXECUTE JOB j") == ""
    done(shared, "bob", "GRANT ROLE ops TO cid")
    assert state(shared, "cid", "EXECUTE JOB j") == ""
    error = refusal(shared, "ada", "REVOKE ROLE ops FROM bob")
    assert error.sqlstate == "2BP01"
    assert "role ops to cid (by bob)" in str(error)
    done(shared, "ada", "REVOKE ROLE ops FROM bob CASCADE")
    for who in ("bob", "cid"):
        assert state(shared, who, "EXECUTE JOB j") == "42704"


def test_a_role_is_no_member_of_a_role(shared):
    manager = shared.acting_as(Actor("root", "acme", Role.MANAGER))
    manager.sql("CREATE ROLE ops; CREATE ROLE night")
    with pytest.raises(SqlError, match="role night can't be a member of role ops: grant ops to its users"):
        manager.sql("GRANT ROLE ops TO ROLE night")
    assert held(shared) == []


def test_a_name_that_is_a_user_and_a_role_or_neither_is_refused_with_the_remedy(shared):
    done(shared, "ada", "CREATE ROLE bob")
    error = refusal(shared, "ada", "GRANT EXECUTE ON JOB j TO cid, bob")
    assert (error.sqlstate, error.column) == ("22023", 32)
    assert "say USER bob or ROLE bob" in str(error)
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO USER bob")
    done(shared, "ada", "GRANT ALTER ON JOB j TO ROLE bob")
    error = refusal(shared, "ada", "GRANT EXECUTE ON JOB j TO nobody")
    assert (error.code, error.sqlstate, error.column) == ("unknown_grantee", "42704", 27)
    assert "there is no user or role 'nobody' in organization 'acme'" in str(error)
    for text in ("TO ROLE cid", "TO USER fay", "TO eve"):
        assert refusal(shared, "ada", f"GRANT EXECUTE ON JOB j {text}").sqlstate == "42704"
    assert held(shared) == [("bob", "ALTER", "ada"), ("bob", "EXECUTE", "ada")]


def test_a_statement_grants_all_of_it_or_nothing(shared):
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob WITH GRANT OPTION")
    assert refusal(shared, "bob", "GRANT EXECUTE, ALTER ON JOB j TO cid, dan").sqlstate == "42501"
    assert held(shared) == [("bob", "EXECUTE", "ada")]
    done(shared, "bob", "GRANT EXECUTE ON JOB j TO cid, dan")
    assert len(held(shared)) == 3


# ---- who may -----------------------------------------------------------------------------------------------------------

GRANTED = {
    "CREATE JOB": True,
    "VIEW JOB HISTORY": True,
    "VIEW JOB HISTORY ON JOB j": True,
    "EXECUTE ON JOB j": True,
    "ALTER ON JOB j": True,
    "DROP ON JOB j": True,
    "ALL ON JOB j": True,
    "USE ON CONNECTION c": True,
    "USE ON SECRET s": True,
    "EXECUTE EXTERNAL JOB": False,
    "ROLE ops": False,
}
"""Whether an admin may grant it."""


@pytest.mark.parametrize("what", GRANTED)
def test_nobody_grants_what_they_have_not(shared, what):
    done(shared, "ada", "CREATE ROLE ops")
    done(shared, "ada", "CREATE SECRET s VALUE 'hunter2'")
    assert state(shared, "bob", f"GRANT {what} TO cid") in {"42501", "42704"}
    assert state(shared, "eve", f"GRANT {what} TO cid") in {"42501", "42704"}
    assert state(shared, "ada", f"GRANT {what} TO cid") == ("" if GRANTED[what] else "42501")
    manager = Actor("root", "acme", Role.MANAGER)
    assert state(shared, manager, f"GRANT {what} TO bob WITH GRANT OPTION") == ""
    assert state(shared, "bob", f"GRANT {what} TO dan") == ""
    assert state(shared, "dan", f"GRANT {what} TO bob") in {"42501", "42704"}
    assert {grant.organization for grant in shared.grants.list()} == {"acme"}


def test_the_owner_of_a_job_grants_on_it(shared):
    done(shared, "ada", "GRANT CREATE JOB TO bob")
    done(shared, "bob", f"CREATE JOB own {HOURLY}")
    done(shared, "bob", "GRANT EXECUTE, VIEW JOB HISTORY ON JOB own TO cid")
    assert state(shared, "cid", "EXECUTE JOB own") == ""
    assert refusal(shared, "bob", "GRANT CREATE JOB TO cid").sqlstate == "42501"
    assert refusal(shared, "bob", "GRANT EXECUTE ON JOB j TO cid").sqlstate == "42704"
    assert refusal(shared, "bob", "GRANT VIEW JOB HISTORY TO cid").sqlstate == "42501"


def test_a_token_without_the_permit_grants_nothing(shared):
    for permit in (Permit.READ, Permit.SUBMIT, Permit.OPERATE):
        rights = frozenset(each for each, needed in PERMITS.items() if needed is permit)
        who = Actor("ada", "acme", Role.ADMIN, operations=rights)
        for text in ("GRANT EXECUTE ON JOB j TO bob", "REVOKE EXECUTE ON JOB j FROM bob", "CREATE ROLE r", "DROP ROLE r"):
            assert state(shared, who, text) == "42501", permit
    assert held(shared) == []


def test_in_a_suspended_organization_nobody_grants_and_privileges_only_read_and_cancel(shared):
    done(shared, "ada", "GRANT ALL ON JOB j TO bob")
    shared.organizations.suspend("acme")
    assert state(shared, "ada", "GRANT EXECUTE ON JOB j TO cid") == "55000"
    assert state(shared, "bob", "SHOW JOB j") == ""
    assert state(shared, "bob", "CANCEL JOB j") == ""
    assert state(shared, "bob", "EXECUTE JOB j") == "55000"
    assert state(shared, "bob", "ALTER JOB j SET TIMEOUT = 5") == "55000"


# ---- revoking ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def passed_on(shared):
    """EXECUTE, from ada to bob, from bob to cid, from cid to dan."""
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob WITH GRANT OPTION")
    done(shared, "bob", "GRANT EXECUTE ON JOB j TO cid WITH GRANT OPTION")
    done(shared, "cid", "GRANT EXECUTE ON JOB j TO dan")
    return shared


@pytest.mark.parametrize("word", ["", " RESTRICT"])
def test_a_revoke_is_refused_while_others_rest_on_it(passed_on, word):
    error = refusal(passed_on, "ada", f"REVOKE EXECUTE ON JOB j FROM bob{word}")
    assert (error.code, error.sqlstate) == ("still_needed", "2BP01")
    assert "EXECUTE on job j to cid (by bob), EXECUTE on job j to dan (by cid)" in str(error)
    assert len(held(passed_on)) == 3


def test_cascade_revokes_what_was_granted_onward(passed_on):
    done(passed_on, "ada", "GRANT EXECUTE ON JOB j TO dan")
    done(passed_on, "ada", "REVOKE EXECUTE ON JOB j FROM bob CASCADE")
    assert held(passed_on) == [("dan", "EXECUTE", "ada")]
    assert trail(passed_on) == ["grant.create"] * 4 + ["grant.delete"] * 3


def test_the_grant_option_is_revoked_alone(passed_on):
    assert refusal(passed_on, "ada", "REVOKE GRANT OPTION FOR EXECUTE ON JOB j FROM bob").sqlstate == "2BP01"
    done(passed_on, "ada", "REVOKE GRANT OPTION FOR EXECUTE ON JOB j FROM bob CASCADE")
    assert held(passed_on) == [("bob", "EXECUTE", "ada")]
    assert state(passed_on, "bob", "EXECUTE JOB j") == ""
    assert state(passed_on, "bob", "GRANT EXECUTE ON JOB j TO cid") == "42704"
    (notice,) = done(passed_on, "ada", "REVOKE GRANT OPTION FOR EXECUTE ON JOB j FROM bob")
    assert "WITH GRANT OPTION that you may revoke" in notice


def test_who_granted_it_managers_and_admins_may_revoke_and_others_learn_nothing(passed_on):
    (notice,) = done(passed_on, "bob", "REVOKE EXECUTE ON JOB j FROM dan")
    assert notice == "dan has no EXECUTE on job j that you may revoke: nothing was revoked"
    assert refusal(passed_on, "dan", "REVOKE EXECUTE ON JOB j FROM cid").sqlstate == "42704"
    assert refusal(passed_on, "eve", "REVOKE EXECUTE ON JOB j FROM cid").sqlstate == "42704"
    done(passed_on, "cid", "REVOKE EXECUTE ON JOB j FROM dan")
    done(passed_on, "root", "REVOKE EXECUTE ON JOB j FROM cid")
    assert held(passed_on) == [("bob", "EXECUTE", "ada")]


def test_the_last_reason_counts(passed_on):
    done(passed_on, "root", "GRANT EXECUTE ON JOB j TO bob WITH GRANT OPTION")
    done(passed_on, "ada", "REVOKE EXECUTE ON JOB j FROM bob CASCADE")
    # An admin revokes what anybody has granted: bob's is gone, whoever gave it.
    assert held(passed_on) == []


# ---- what goes with what -----------------------------------------------------------------------------------------------


def test_a_dropped_job_and_one_that_was_replaced_lose_their_grants(shared):
    done(shared, "ada", "GRANT ALL ON JOB j TO bob")
    done(shared, "ada", f"RECREATE JOB j {HOURLY}")
    assert held(shared) == []
    assert state(shared, "bob", "EXECUTE JOB j") == "42704"
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob")
    done(shared, "ada", "DROP JOB j")
    assert held(shared) == []
    done(shared, "ada", f"CREATE JOB j {HOURLY}")
    assert state(shared, "bob", "EXECUTE JOB j") == "42704"


def test_a_renamed_job_keeps_its_grants(shared):
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob")
    done(shared, "ada", "ALTER JOB j RENAME TO k")
    assert state(shared, "bob", "EXECUTE JOB k") == ""
    done(shared, "ada", f"CREATE JOB j {HOURLY}")
    assert state(shared, "bob", "EXECUTE JOB j") == "42704"


def test_a_deleted_user_comes_back_without_its_grants(shared):
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob")
    shared.users.delete("bob")
    shared.users.create("bob", organization="acme")
    assert held(shared) == []
    assert state(shared, "bob", "EXECUTE JOB j") == "42704"


def test_roles_are_created_once_and_dropped_when_nothing_names_them(shared):
    assert refusal(shared, "bob", "CREATE ROLE ops").sqlstate == "42501"
    done(shared, "ada", "CREATE ROLE ops")
    assert refusal(shared, "ada", "CREATE ROLE ops").sqlstate == "42710"
    done(shared, "eve", "CREATE ROLE ops")
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO ops")
    error = refusal(shared, "ada", "DROP ROLE ops")
    assert error.sqlstate == "2BP01"
    assert "revoke EXECUTE on job j to ops (by ada) first" in str(error)
    done(shared, "ada", "REVOKE EXECUTE ON JOB j FROM ops")
    assert refusal(shared, "bob", "DROP ROLE ops").sqlstate == "42501"
    done(shared, "ada", "DROP ROLE ops")
    assert refusal(shared, "ada", "DROP ROLE ops").sqlstate == "42704"
    assert [(role.organization, role.name) for role in shared.roles.list()] == [("beta", "ops")]
    assert trail(shared) == ["role.create", "role.create", "grant.create", "grant.delete", "role.delete"]


# ---- what is shown -----------------------------------------------------------------------------------------------------


def test_show_grants_and_sys_grants_have_what_one_may_see(passed_on):
    done(passed_on, "ada", "GRANT VIEW JOB HISTORY TO PUBLIC")
    query = "SELECT grantee, privilege, granted_by FROM sys.grants ORDER BY grantee"
    everything = [
        ("PUBLIC", "VIEW JOB HISTORY", "ada"),
        ("bob", "EXECUTE", "ada"),
        ("cid", "EXECUTE", "bob"),
        ("dan", "EXECUTE", "cid"),
    ]
    seen = {"ada": everything, "root": everything, "bob": everything[:3], "dan": [everything[0], everything[3]], "eve": [], "fay": []}
    for who, rows in seen.items():
        view = passed_on.acting_as(who)
        assert list(view.sql(query)[0].rows) == rows, who
        shown = view.sql("SHOW GRANTS")[0]
        assert sorted((row[0], row[2], row[7]) for row in shown.rows) == sorted(rows), who
        assert len(view.grants.list()) == len(rows)
    assert [row[0] for row in passed_on.acting_as("ada").sql("SHOW GRANTS FOR JOB j")[0].rows] == ["bob", "cid", "dan"]
    assert [row[0] for row in passed_on.acting_as("ada").sql("SHOW GRANTS FOR bob")[0].rows] == ["bob"]
    assert [row[0] for row in passed_on.acting_as("ada").sql("SHOW GRANTS FOR PUBLIC")[0].rows] == ["PUBLIC"]


def test_a_grant_names_its_job_by_id(shared):
    done(shared, "ada", "GRANT EXECUTE ON JOB j TO bob WITH GRANT OPTION")
    query = "SELECT g.object, g.object_kind, g.grantable, j.job_name FROM sys.grants g JOIN sys.jobs j ON j.job_uuid = g.object_uuid"
    assert shared.sql(query)[0].rows == (("j", "JOB", 1, "j"),)


def test_show_roles_and_sys_roles_are_apart_by_organization(shared):
    for who in ("ada", "eve"):
        done(shared, who, "CREATE ROLE ops")
        assert [row[0] for row in shared.acting_as(who).sql("SHOW ROLES")[0].rows] == ["ops"]
        assert shared.acting_as(who).sql("SELECT organization, created_by FROM sys.roles")[0].rows == (
            ({"ada": "acme", "eve": "beta"}[who], who),
        )
    assert len(shared.sql("SHOW ROLES")[0].rows) == 2
    assert refusal(shared, "bob", "SHOW ROLES").sqlstate == "42501"


def test_users_have_ids_and_jobs_name_them(shared):
    query = "SELECT u.user_name FROM sys.jobs j JOIN sys.users u ON u.user_uuid = j.created_by_user_uuid"
    assert shared.sql(query)[0].rows == (("ada",),)
    (user_id,) = shared.sql("SELECT user_uuid FROM sys.users WHERE user_name = 'ada'")[0].rows[0]
    assert user_id == shared.users.get("ada").id
    shared.sql(f"CREATE JOB mine {HOURLY}")
    ((by,),) = shared.sql("SELECT created_by_user_uuid FROM sys.jobs WHERE job_name = 'mine'")[0].rows
    assert by is not None


def test_bodies_are_shown_job_by_job(shared):
    for name in ("a", "b", "c"):
        done(shared, "ada", f"CREATE JOB {name} SCHEDULE = EVERY 1 HOUR AS 'SELECT ''{name}'''")
    done(shared, "ada", "GRANT VIEW JOB HISTORY TO bob")
    done(shared, "ada", "GRANT ALTER ON JOB b TO bob")
    done(shared, "ada", "GRANT CREATE JOB TO bob")
    done(shared, "bob", "CREATE JOB own SCHEDULE = EVERY 1 HOUR AS 'SELECT 1'")
    query = "SELECT job_name, job_sql FROM sys.jobs WHERE job_type = 'SQL' ORDER BY job_name"
    assert shared.acting_as("bob").sql(query)[0].rows == (("a", None), ("b", "SELECT 'b'"), ("c", None), ("own", "SELECT 1"))
    assert shared.acting_as("bob").sql("SELECT count(job_sql) FROM sys.jobs WHERE job_sql LIKE 'SELECT%'")[0].rows == ((2,),)
    assert None not in [row[1] for row in shared.acting_as("ada").sql(query)[0].rows]


def test_no_statement_shows_a_body_to_who_may_only_view_the_history(shared):
    done(shared, "ada", "CREATE JOB a SCHEDULE = EVERY 1 HOUR AS 'SELECT ''canary'''")
    done(shared, "ada", "GRANT VIEW JOB HISTORY ON JOB a TO bob")
    bob = shared.acting_as("bob")
    told = [bob.sql(text)[0].rows for text in ("SHOW JOB a", "SELECT * FROM sys.jobs", "SHOW JOBS", "EXPLAIN JOB a", "SHOW JOB RUNS")]
    assert "canary" not in repr(told)
    assert refusal(shared, "bob", "SHOW CREATE JOB a").sqlstate == "42501"
    assert "canary" not in repr([bob.schedules.get("a"), bob.templates.list()])
    done(shared, "ada", "GRANT ALTER ON JOB a TO bob")
    for text in ("SHOW JOB a", "SELECT * FROM sys.jobs", "SHOW CREATE JOB a"):
        assert "canary" in repr(bob.sql(text)[0].rows), text


# ---- history -----------------------------------------------------------------------------------------------------------


def test_history_of_a_job_is_its_runs_its_log_and_its_ledger(shared, clock):
    done(shared, "ada", f"CREATE JOB other {HOURLY}")
    for name in ("j", "other"):
        shared.acting_as("ada").sql(f"EXECUTE JOB {name}")
    shared.turn()
    shared.turn()
    bob = shared.acting_as("bob")
    runs = {job.id: job for job in shared.jobs.list()}
    assert bob.jobs.list() == []
    done(shared, "ada", "GRANT VIEW JOB HISTORY ON JOB j TO bob")
    (seen,) = bob.jobs.list()
    (hidden,) = set(runs) - {seen.id}
    assert bob.jobs.get(seen.id).owner == "ada"
    assert bob.jobs.runs(seen.id)
    assert bob.jobs.log(seen.id)
    assert [schedule.name for schedule in bob.schedules.list()] == ["j"]
    assert bob.schedules.get("j").name == "j"
    assert len(bob.sql("SELECT * FROM sys.job_runs")[0].rows) == 1
    for look in (bob.jobs.get, bob.jobs.runs, bob.jobs.log):
        with pytest.raises(NotFound):
            look(hidden)
    with pytest.raises((NotFound, PermissionDenied)):
        bob.jobs.cancel(seen.id)
    done(shared, "ada", "REVOKE VIEW JOB HISTORY ON JOB j FROM bob")
    assert bob.jobs.list() == []
    with pytest.raises(PermissionDenied):
        bob.jobs.log(seen.id)
    done(shared, "ada", "GRANT VIEW JOB HISTORY TO bob")
    assert {job.id for job in bob.jobs.list()} == set(runs)
    assert bob.jobs.log(hidden)


ASKER = """
import sys
from rota import Rota
from rota.errors import SqlError
bob = Rota(sys.argv[1]).acting_as("bob")
for line in sys.stdin:
    try:
        bob.sql(line)
        print("yes", flush=True)
    except SqlError as error:
        print(error.sqlstate, flush=True)
"""


def test_another_process_that_knows_the_grants_learns_of_a_revoke_at_its_next_call(shared, where):
    asker = subprocess.Popen([sys.executable, "-c", ASKER, where], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def asks() -> str:
        assert asker.stdin is not None
        assert asker.stdout is not None
        asker.stdin.write("SHOW JOB j\n")
        asker.stdin.flush()
        return asker.stdout.readline().strip()

    try:
        for _ in range(3):
            assert asks() == "42704"
            done(shared, "ada", "GRANT VIEW JOB HISTORY ON JOB j TO bob")
            assert asks() == "yes"
            assert asks() == "yes"
            done(shared, "ada", "REVOKE VIEW JOB HISTORY ON JOB j FROM bob")
    finally:
        asker.kill()
        asker.communicate()
