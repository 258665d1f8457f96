"""Requests whose end or whose host can be understood in two ways are refused, and nothing behind them is looked at: a real server."""

import re
import socket
from contextlib import closing

import pytest

from rota import Rota, Settings
from tests.support.pace import patient
from tests.surfaces.http.sse_support import served

BODY = b'{"name": "echo"}'


@pytest.fixture
def door(tmp_path):
    with closing(Rota(tmp_path / "rota.db", settings=Settings(synchronous="NORMAL"))) as rota:
        rota.job(name="echo")(lambda: None)
        with served(rota) as made:
            yield made


def spoken(door, data):
    """Send bytes, and return all that comes back until the server closes; fail if it stays open."""
    with closing(socket.create_connection(("127.0.0.1", door.port), timeout=patient(10))) as connection:
        connection.sendall(data)
        answer = b""
        while part := connection.recv(65_536):
            answer += part
        return answer


def request(door, *headers, body=b"", host=b"localhost"):
    lines = [b"POST /api/v1/jobs HTTP/1.1", b"Host: " + host, f"Authorization: Bearer {door.secret}".encode()]
    return b"\r\n".join([*lines, b"Content-Type: application/json", *headers, b"", body])


@pytest.mark.parametrize(
    "headers",
    [
        (b"Content-Length: 26", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: chunked", b"Content-Length: 26"),
        (b"transfer-encoding: CHUNKED", b"content-length: 0"),
    ],
)
def test_a_request_with_two_lengths_is_refused_and_what_is_behind_it_is_not_processed(door, headers):
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    behind = request(door, b"Content-Length: %d" % len(BODY), body=BODY)
    answer = spoken(door, request(door, *headers, body=chunked) + behind)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"connection: close" in answer.lower()
    assert door.rota.jobs.list() == []


def test_a_request_with_two_lengths_behind_a_good_one_is_refused_too(door):
    good = request(door, b"Content-Length: %d" % len(BODY), body=BODY)
    bad = request(door, b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n")
    answer = spoken(door, good + bad + good)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answer) == [b"201", b"400"]
    assert len(door.rota.jobs.list()) == 1


@pytest.mark.parametrize("header", [b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked"])
def test_a_request_with_one_length_is_processed(door, header):
    body = BODY if b"Length" in header else b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
    answer = spoken(door, request(door, header, b"Connection: close", body=body))
    assert answer.startswith(b"HTTP/1.1 201")


MALFORMED = "[::1].evil.example|[::1]evil|[::1|::1|[evil.example]|a b|localhost:80:80|localhost:x|local/host|a@localhost"


@pytest.mark.parametrize("host", MALFORMED.encode().split(b"|"))
def test_a_host_that_is_none_is_refused(door, host):
    answer = spoken(door, request(door, b"Content-Length: %d" % len(BODY), body=BODY, host=host))
    assert answer.startswith(b"HTTP/1.1 400"), answer
    assert door.rota.jobs.list() == []


@pytest.mark.parametrize("host", [b"[::1]", b"[::1]:8420", b"127.0.0.1:8420", b"LOCALHOST", b"localhost.:80"])
def test_a_host_of_ours_is_served(door, host):
    answer = spoken(door, request(door, b"Content-Length: %d" % len(BODY), b"Connection: close", body=BODY, host=host))
    assert answer.startswith(b"HTTP/1.1 201"), answer
