"""Delivery: a real worker and a real receiver. Whatever a receiver does, jobs go on."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from rota import PermanentError, Rota, Settings
from rota.model.webhooks import DeliveryState, WebhookState
from rota.ports.sender import Message
from rota.senders import http
from rota.senders.http import HttpSender
from tests.support.pace import patient
from tests.support.receiver import receiving
from tests.support.waiting import eventually

SECRET = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
OPEN = {"webhook_private": "allow", "webhook_http": "allow"}
QUICK = Settings(**OPEN, webhook_retries="0.05,0.1,0.15", webhook_timeout=0.5, webhook_interval=0.05, poll=0.01, poll_hinted=0.01)


@pytest.fixture
def receiver():
    with receiving() as made:
        yield made


@pytest.fixture
def settings():
    return QUICK


@pytest.fixture
def shop(live):
    @live.job
    def greet(name: str = "you") -> str:
        return f"Hello, {name}"

    @live.job(max_retries=0)
    def breaks() -> None:
        raise PermanentError("never")

    return live


def states(rota):
    return [each.state for each in rota.webhooks.deliveries(limit=1000)]


def all_over(rota, count):
    return lambda: len(found := states(rota)) == count and DeliveryState.WAITING not in found


def test_an_end_is_told_once_signed_and_under_the_id_of_its_run(shop, receiver):
    made = shop.webhooks.create(receiver.url())
    with shop.running():
        job = shop.enqueue("greet")
        run = shop.wait(job.id)
        eventually(all_over(shop, 1), what="delivery")
    (came,) = receiver.received
    came.verify(made.secret)
    assert came.key == came.json["run_id"] == run.id
    assert came.json["event"] == "run.completed"
    assert came.json["job"]["id"] == job.id
    assert "result" not in came.json
    assert came.headers["content-type"] == "application/json"
    assert states(shop) == [DeliveryState.DELIVERED]


def test_a_receiver_that_fails_is_asked_three_times_more_under_the_same_key_and_then_given_up(shop, receiver):
    hook = shop.webhooks.create(receiver.url("/500")).webhook
    with shop.running():
        shop.enqueue("greet")
        eventually(all_over(shop, 1), what="giving up")
    assert len(receiver.received) == 4
    assert len({came.key for came in receiver.received}) == 1
    gaps = [after.at - before.at for before, after in zip(receiver.received, receiver.received[1:], strict=False)]
    assert [gap >= least for gap, least in zip(gaps, (0.05, 0.1, 0.15), strict=True)] == [True] * 3
    (found,) = shop.webhooks.deliveries()
    assert (found.state, found.attempts, found.last_status) == (DeliveryState.GAVE_UP, 4, 500)
    assert shop.webhooks.get(hook.id).failing_since is not None


def test_one_that_recovers_gets_it_and_is_failing_no_longer(shop, receiver):
    receiver.script = [500, 503]
    hook = shop.webhooks.create(receiver.url("/script")).webhook
    with shop.running():
        shop.enqueue("greet")
        eventually(all_over(shop, 1), what="delivery at last")
    assert states(shop) == [DeliveryState.DELIVERED]
    assert shop.webhooks.get(hook.id).failing_since is None


def test_redirects_are_not_followed(shop, receiver):
    shop.webhooks.create(receiver.url("/redirect"))
    with shop.running():
        shop.enqueue("greet")
        eventually(all_over(shop, 1), what="giving up")
    assert {came.path for came in receiver.received} == {"/redirect"}
    assert "redirects are not followed" in shop.webhooks.deliveries()[0].last_error


def test_who_answers_gone_is_disabled_at_once(shop, receiver):
    hook = shop.webhooks.create(receiver.url("/410")).webhook
    with shop.running():
        shop.enqueue("greet")
        eventually(all_over(shop, 1), what="giving up")
        shop.wait(shop.enqueue("greet").id)
    assert len(receiver.received) == 1
    assert shop.webhooks.get(hook.id).state is WebhookState.DISABLED


@pytest.mark.parametrize("path", ["/hang", "/drip"])
def test_a_receiver_that_never_ends_its_answer_is_left_when_its_time_is_over(receiver, path):
    begun = time.monotonic()
    sent = HttpSender(QUICK).send(message(receiver.url(path)))
    assert sent.status is None
    assert sent.error == "no answer within 0.5 s"
    assert 0.4 < time.monotonic() - begun < patient(2)


def test_of_an_answer_that_has_no_end_only_the_beginning_is_read(receiver):
    assert HttpSender(QUICK).send(message(receiver.url("/long"))).accepted


def test_a_receiver_that_closes_has_not_accepted(receiver):
    sent = HttpSender(QUICK).send(message(receiver.url("/close")))
    assert (sent.accepted, sent.error) == (False, "the connection was closed before an answer came")


def test_a_receiver_that_hangs_delays_no_job_and_no_other_receiver(shop, receiver):
    shop.webhooks.create(receiver.url("/hang"))
    with receiving() as other:
        shop.webhooks.create(other.url("/200", host="localhost"))
        with shop.running():
            begun = time.monotonic()
            jobs = shop.enqueue_many([("greet", {"name": str(number)}) for number in range(200)])
            eventually(lambda: shop.store.stats().by_status["COMPLETED"] == 200, what="the jobs")
            took = time.monotonic() - begun
            eventually(lambda: len(other.received) == 200, what="what the other was told")
        receiver.let_go.set()
    assert len(jobs) == 200
    assert took < patient(3)
    assert {came.path for came in receiver.received} == {"/hang"}


def test_a_job_has_a_receiver_of_its_own(shop, receiver):
    secret = shop.webhooks.rotate()
    with shop.running():
        shop.enqueue("greet")
        job = shop.enqueue("breaks", webhook=receiver.url())
        eventually(all_over(shop, 1), what="delivery")
    (came,) = receiver.received
    came.verify(secret)
    assert came.json["event"] == "run.dead_lettered"
    assert came.json["job"]["id"] == job.id
    assert came.json["error"]["message"] == "PermanentError: never"


def test_after_a_rotation_both_secrets_open_the_message_for_a_while(shop, receiver):
    made = shop.webhooks.create(receiver.url())
    new = shop.webhooks.rotate(made.webhook.id)
    with shop.running():
        shop.enqueue("greet")
        eventually(all_over(shop, 1), what="delivery")
    for secret in (made.secret, new):
        receiver.received[0].verify(secret)
    with pytest.raises(Exception, match="No matching signature"):
        receiver.received[0].verify(SECRET)


def test_what_was_given_up_is_sent_again_when_somebody_asks(shop, receiver):
    receiver.script = [500] * 4
    shop.webhooks.create(receiver.url("/script"))
    with shop.running():
        shop.enqueue("greet")
        eventually(all_over(shop, 1), what="giving up")
        shop.webhooks.redeliver(shop.webhooks.deliveries()[0].id)
        eventually(lambda: states(shop) == [DeliveryState.DELIVERED], what="delivery")
    assert len({came.key for came in receiver.received}) == 1


def test_what_waits_for_a_webhook_that_was_disabled_is_given_up(shop, receiver):
    hook = shop.webhooks.create(receiver.url()).webhook
    shop.jobs.direct("greet")
    shop.webhooks.update(hook.id, enabled=False)
    with shop.running():
        eventually(all_over(shop, 1), what="giving up")
    assert receiver.received == []
    assert "disabled" in shop.webhooks.deliveries()[0].last_error


def test_where_nothing_can_be_sent_messages_wait_and_doctor_says_so(shop, receiver, monkeypatch, caplog):
    monkeypatch.setattr("rota.local_workers.make_sender", lambda settings: None)
    monkeypatch.setattr("rota.resources.store.make_sender", lambda settings: None)
    shop.webhooks.create(receiver.url())
    with caplog.at_level(logging.WARNING), shop.running():
        shop.wait(shop.enqueue("greet").id)
        eventually(lambda: "pip install '.[webhooks]'" in caplog.text, what="the warning")
    assert states(shop) == [DeliveryState.WAITING]
    (found,) = [each for each in shop.store.doctor() if each.name == "sending"]
    assert "pip install '.[webhooks]'" in found.remedy


def test_old_messages_are_forgotten_by_a_worker(tmp_path, receiver):
    keeps = Rota(tmp_path / "rota.db", settings=Settings(**OPEN, webhook_retention=0, webhook_interval=0.05, retention_interval=0.05))
    keeps.job(name="greet")(lambda: None)
    keeps.webhooks.create(receiver.url())
    with keeps.running():
        keeps.enqueue("greet")
        eventually(lambda: receiver.received and not keeps.webhooks.deliveries(), what="forgetting")
    keeps.close()


# ---- where to --------------------------------------------------------------------------------------------------------


def message(url):
    return Message(url=url, key="k", payload="{}", secrets=(SECRET,), at=datetime.now(UTC))


def resolves(monkeypatch, *addresses):
    """Let every name stand for these."""
    families = {True: socket.AF_INET6, False: socket.AF_INET}

    def looked_up(host, port, **_):
        return [(families[":" in address], socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(http.socket, "getaddrinfo", looked_up)


GUARDED = Settings(webhook_http="allow", webhook_timeout=0.5)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "0x7f.1"])
def test_a_private_address_is_not_connected_to_however_it_is_written(receiver, host):
    sent = HttpSender(GUARDED).send(message(receiver.url(host=host)))
    assert sent.status is None
    assert "webhook_private" in sent.error or "looked up" in sent.error
    assert receiver.received == []


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "::1", "10.0.0.1", "169.254.169.254", "fe80::1%lo"])
def test_a_public_name_that_stands_for_a_private_address_is_refused(receiver, monkeypatch, address):
    resolves(monkeypatch, address)
    sent = HttpSender(GUARDED).send(message(receiver.url(host="hooks.example.com")))
    assert "hooks.example.com is at a private address" in sent.error
    assert receiver.received == []


def test_the_address_that_was_looked_at_is_the_one_that_is_connected_to(receiver, monkeypatch):
    """A name that stands for another address at its second look-up gains nothing: there is no second one."""
    asked = []
    answers = [["93.184.215.14"], ["127.0.0.1"]]

    def changes(host, port, **_):
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers[min(len(asked), 2) - 1]]

    monkeypatch.setattr(http.socket, "getaddrinfo", changes)
    connected = []

    def connect(self, host, *_):
        connected.append(host)
        raise http.httpcore2.ConnectError("not today")

    monkeypatch.setattr(http.httpcore2.SyncBackend, "connect_tcp", connect)
    assert HttpSender(GUARDED).send(message(receiver.url(host="hooks.example.com"))).error == "could not be connected to"
    assert (asked, connected) == (["hooks.example.com"], ["93.184.215.14"])


def test_a_proxy_of_the_environment_is_not_used(receiver, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", receiver.url())
    monkeypatch.setenv("ALL_PROXY", receiver.url())
    resolves(monkeypatch, "127.0.0.1")
    assert "private" in HttpSender(GUARDED).send(message("http://hooks.example.com/")).error
    assert receiver.received == []


def test_plain_http_is_refused_also_at_the_last_moment(receiver):
    sent = HttpSender(Settings(webhook_private="allow")).send(message(receiver.url()))
    assert "webhook_http" in sent.error
    assert receiver.received == []


def test_what_is_kept_of_a_failure_tells_neither_path_nor_secret(receiver):
    sent = HttpSender(GUARDED).send(message(receiver.url("/s3cret-path")))
    assert "s3cret" not in sent.error
    assert SECRET not in sent.error


@pytest.fixture
def encrypted(tmp_path):
    """A receiver behind TLS, as (port, its certificate)."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*made, "-keyout", tmp_path / "key", "-out", tmp_path / "cert"], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        with (
            suppress(ssl.SSLError, OSError),
            listening.accept()[0] as connection,
            context.wrap_socket(connection, server_side=True) as inside,
        ):
            came = b""
            while not came.endswith(b"{}"):
                came += inside.recv(65_536)
            inside.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    yield listening.getsockname()[1], tmp_path / "cert"
    listening.close()


def test_a_message_goes_by_tls_to_whom_somebody_vouches_for(encrypted, monkeypatch):
    port, certificate = encrypted
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    sent = HttpSender(QUICK).send(message(f"https://localhost:{port}/"))
    assert (sent.status, sent.error) == (204, None)


def test_a_certificate_that_nobody_vouches_for_is_refused(encrypted):
    sent = HttpSender(QUICK).send(message(f"https://localhost:{encrypted[0]}/"))
    assert sent.error == "its certificate is not trusted"


def test_a_certificate_of_another_name_is_refused(encrypted, monkeypatch):
    port, certificate = encrypted
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    sent = HttpSender(QUICK).send(message(f"https://127.0.0.1:{port}/"))
    assert sent.error == "its certificate is not trusted"
