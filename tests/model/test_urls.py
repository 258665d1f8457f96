from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.urls import StoreUrl, has_password, hide, shown

SECRETS = ["postgresql://ada:hush@h/db", "postgres://ada:hu@sh@h:5432/db", "postgresql://ada:hu/sh@h/db", "postgresql://ada:hu?sh@h/db"]
SECRETS += ["postgresql://h/db?user=ada&password=hush", "postgresql://ada:hu:sh@h,i/db?sslmode=require", "mongodb://ada:hush@h/db"]
SECRETS += ["postgresql://ada@h/db?sslpassword=hu@sh", "postgresql://:hush@/db"]


@pytest.mark.parametrize("url", SECRETS)
def test_a_password_is_never_shown(url):
    for text in (shown(url), str(StoreUrl(url)), repr(StoreUrl(url)), f"{StoreUrl(url)}", f"{StoreUrl(url)!r:>100}", hide(f"at {url}!")):
        assert "hu" not in text
        assert "sh" not in text
    assert has_password(url)
    assert has_password(f"--store={url}")


def test_the_driver_is_given_what_the_caller_gave():
    url = StoreUrl("postgresql://ada:hush@h/db")
    assert url.startswith("postgresql://")
    assert url.encode() == b"postgresql://ada:hush@h/db"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://ada:hush@db.example:5432/jobs?sslmode=require", "postgresql://ada@db.example:5432/jobs"),
        ("postgresql://db.example/jobs", "postgresql://db.example/jobs"),
        ("postgresql:///jobs", "postgresql:///jobs"),
        ("rota.db", "rota.db"),
        ("/var/lib/a:b@c/rota.db", "/var/lib/a:b@c/rota.db"),
        ("sqlite:////var/lib/a:b@c/rota.db", "sqlite:////var/lib/a:b@c/rota.db"),
    ],
)
def test_the_rest_of_an_address_is_shown(url, said):
    assert shown(url) == str(StoreUrl(url)) == said


@pytest.mark.parametrize("text", ["rota.db", "postgresql://ada@h/db", "postgresql://h:5432/db?user=ada", "see docs://a and b:c@d", "a:b@c"])
def test_what_has_no_password_is_left_alone(text):
    assert not has_password(text)
    assert hide(text) == text


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc", "Z"))), st.sampled_from(["", ":5432"]))
def test_whatever_the_password_is_made_of_it_stays_hidden(password, port):
    secret = f"QX{password}XQ"
    assert "QX" not in shown(f"postgresql://ada:{secret}@host{port}/jobs")
    assert "XQ" not in shown(f"postgresql://ada:{secret}@host{port}/jobs")
