"""Connections: which addresses, logins and secrets fit each other, and whose jobs may use one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.errors import InvalidInput, InvalidName, InvalidOption
from rota.model.connections import SCHEMES, Connection, DatabaseKind, check_connection
from rota.model.gate import Actor, Role, uses
from rota.model.grants import Grant, GranteeKind, Privilege, TargetKind, holdings_of

CANARY = "hunter2"
WAREHOUSE = Connection(id="1", organization="acme", name="dw", url="postgresql://wh/dw", login="etl", secret="pw", created_by="ada")
FILE = Connection(id="2", organization="acme", name="file", url="sqlite:////data/x.db", created_by="ada")


def checked(base: Connection = WAREHOUSE, **fields: object) -> Connection:
    return check_connection(replace(base, **fields), name_max=20)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("postgresql://wh/dw", DatabaseKind.POSTGRESQL),
        ("postgres://wh:5433/dw", DatabaseKind.POSTGRESQL),
        ("postgresql://[::1]:5432/dw?sslmode=verify-full&channel_binding=require", DatabaseKind.POSTGRESQL),
    ],
)
def test_an_address_of_postgresql_is_taken_as_it_is(url, kind):
    connection = checked(url=url)
    assert (connection.url, connection.kind) == (url, kind)


@pytest.mark.parametrize("path", ["/data/x.db", "x.db", "/data/a b@c:d.db"])
def test_a_file_of_sqlite_is_taken_as_it_is(path):
    connection = checked(FILE, url=f"sqlite:///{path}")
    assert (connection.kind, connection.key) == (DatabaseKind.SQLITE, ("acme", "file"))


def test_every_scheme_is_in_one_table():
    assert set(SCHEMES.values()) == set(DatabaseKind)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://etl:{CANARY}@wh/dw",
        f"postgresql://wh/dw?password={CANARY}",
        f"postgresql://wh/dw?sslpassword={CANARY}",
        f"postgresql://etl:{CANARY} x@wh/dw",
        f"postgresql://{CANARY}@wh/dw",
        f"mysql://etl:{CANARY}@wh/dw",
        f"host=wh password={CANARY}",
        f"etl:{CANARY}@wh/dw",
        f"postgresql://etl%3A{CANARY}@wh/dw",
        f"postgresql://etl:{CANARY}@wh:port/dw",
        f"postgresql://wh/dw?passfile=/{CANARY}",
        f"postgresql://wh/dw?service={CANARY}",
        f"postgresql://wh/dw?user=postgres&x={CANARY}",
        f"postgresql://wh/dw?host=/run/{CANARY}",
        f"postgresql://wh/dw#{CANARY}",
        f"postgresql://a,{CANARY}/dw",
        f"postgresql://%2Frun%2F{CANARY}/dw",
        f"postgresql:///{CANARY}",
        f"postgresql://{CANARY}",
        f"postgresql://{CANARY}:port/dw",
        f"postgresql://wh/dw\n{CANARY}",
        f"{CANARY}://wh/dw\0",
        "",
        "postgresql://wh/" + "x" * 2000,
        7,
        None,
    ],
)
def test_other_addresses_are_refused_and_not_repeated(url):
    with pytest.raises(InvalidOption, match="url") as refused:
        checked(url=url)
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:// ", "sqlite://data.db", "sqlite:///:memory:", "sqlite:///a\nb"])
def test_what_names_no_file_is_refused(url):
    with pytest.raises(InvalidOption, match="url"):
        checked(FILE, url=url)


def test_an_unknown_scheme_is_named_with_the_known_ones():
    with pytest.raises(InvalidOption, match=r"scheme 'mysql', which no connection can use: use postgresql://host/database or sqlite:///"):
        checked(url="mysql://wh/dw")


@pytest.mark.parametrize(
    ("base", "fields", "error", "words"),
    [
        (WAREHOUSE, {"login": None}, InvalidOption, "needs a login"),
        (WAREHOUSE, {"login": " "}, InvalidOption, "login"),
        (WAREHOUSE, {"login": "x" * 300}, InvalidOption, "login"),
        (WAREHOUSE, {"secret": "a-b"}, InvalidName, "not the name of a secret"),
        (WAREHOUSE, {"name": "x" * 21}, InvalidName, "connection name"),
        (WAREHOUSE, {"multi": "yes"}, InvalidOption, "multi='yes'"),
        (FILE, {"login": "etl"}, InvalidOption, "has no users"),
        (FILE, {"secret": "pw"}, InvalidOption, "has no users"),
    ],
)
def test_parts_that_do_not_fit_are_refused(base, fields, error, words):
    with pytest.raises(error, match=words) as refused:
        checked(base, **fields)
    assert isinstance(refused.value, InvalidInput)


def test_a_password_may_be_left_out():
    assert checked(secret=None).secret is None


# ---- whose jobs may use one ------------------------------------------------------------------------------------------


def use(kind=GranteeKind.USER, grantee="bob", target="dw", organization="acme", privilege=Privilege.USE, of=TargetKind.CONNECTION):
    return Grant(
        id=f"{kind}{grantee}{target}{organization}{of}",
        organization=organization,
        grantee_kind=kind,
        grantee=grantee,
        privilege=privilege,
        target_kind=of,
        target_id=target,
        target=target,
        granted_by="ada",
    )


MEMBER = use(privilege=Privilege.ROLE, target="ops", of=TargetKind.ROLE)
TABLE = [
    # role, organization, grants, may
    (Role.MANAGER, "acme", [], True),
    (Role.MANAGER, "beta", [], True),
    (Role.ADMIN, "acme", [], True),
    (Role.ADMIN, "beta", [], False),
    (Role.USER, "acme", [], False),
    (Role.USER, "acme", [use()], True),
    (Role.USER, "acme", [use(GranteeKind.PUBLIC, "")], True),
    (Role.USER, "acme", [use(GranteeKind.ROLE, "ops")], False),
    (Role.USER, "acme", [use(GranteeKind.ROLE, "ops"), MEMBER], True),
    (Role.USER, "acme", [use(grantee="cid")], False),
    (Role.USER, "acme", [use(target="other")], False),
    (Role.USER, "acme", [use(of=TargetKind.SECRET)], False),
    (Role.USER, "acme", [use(organization="beta")], False),
    (Role.USER, "beta", [use()], False),
    (Role.USER, "beta", [use(organization="beta")], False),
    (Role.ADMIN, "beta", [use(), use(organization="beta")], False),
]


@pytest.mark.parametrize(("role", "organization", "grants", "may"), TABLE)
def test_a_connection_is_used_by_managers_admins_of_its_organization_and_those_it_was_granted_to(role, organization, grants, may):
    actor = Actor("bob", organization, role)
    assert uses(actor, TargetKind.CONNECTION, "dw", "acme", holdings_of("bob", organization, grants)) is may
