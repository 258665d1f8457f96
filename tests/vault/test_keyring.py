from __future__ import annotations

import base64
import os
import subprocess
import sys

import pytest

from rota.errors import InvalidOption, SecretUnavailable
from rota.model.settings import Settings
from rota.vault import Keyring, MasterKeys, new_key_line

FIRST, SECOND = base64.b64encode(b"1" * 32).decode(), base64.b64encode(b"2" * 32).decode()


def key_file(folder, *lines, mode=0o600):
    path = folder / "master-key"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(mode)
    return path


def loaded(path, environ=None):
    return Keyring.load(Settings(master_key_file=str(path)), environ or {})


def test_the_first_key_encrypts_and_all_are_known(tmp_path):
    keyring = loaded(key_file(tmp_path, "# the key of 2026", FIRST, "", f"  {SECOND}\r"))
    assert keyring.current == keyring.ids[0]
    assert [keyring.key(each) for each in keyring.ids] == [b"1" * 32, b"2" * 32]
    assert FIRST not in repr(keyring)
    assert all(len(each) == 16 for each in keyring.ids)


def test_a_new_key_line_is_a_key(tmp_path):
    assert loaded(key_file(tmp_path, new_key_line(), new_key_line())).ids
    assert new_key_line() != new_key_line()


def test_without_a_key_there_is_an_empty_keyring_that_names_the_remedy(tmp_path):
    keyring = Keyring.load(Settings(), {})
    assert not keyring
    with pytest.raises(SecretUnavailable, match=r"master_key_file .*rota secret key"):
        _ = keyring.current
    with pytest.raises(SecretUnavailable, match="0123456789abcdef is needed"):
        keyring.key("0123456789abcdef")


def test_a_key_is_never_taken_from_the_environment():
    assert not Keyring.load(Settings.from_environment({"ROTA_MASTER_KEY": FIRST}), {"ROTA_MASTER_KEY": FIRST})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o601])
def test_a_key_file_that_others_can_use_is_refused_with_the_remedy(tmp_path, mode):
    path = key_file(tmp_path, FIRST, mode=mode)
    with pytest.raises(InvalidOption, match=rf"has mode {mode:04o}.*chmod 600 {path}"):
        loaded(path)
    path.chmod(0o400)
    assert loaded(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_file_of_somebody_else_is_refused(tmp_path):
    path = key_file(tmp_path, FIRST)
    os.chown(path, 12345, -1)
    with pytest.raises(InvalidOption, match=r"belongs to user 12345.*yours or root's"):
        loaded(path)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["not base64!"], "line 1 of the key file"),
        ([FIRST, base64.b64encode(b"short").decode()], "line 2 of the key file"),
        (["# nothing", ""], "has no key"),
        (["#" * 70_000], "larger than"),
    ],
)
def test_what_is_not_a_key_is_refused_by_its_line_and_not_shown(tmp_path, lines, says):
    with pytest.raises(InvalidOption, match=says) as refused:
        loaded(key_file(tmp_path, *lines))
    assert "not base64!" not in str(refused.value)
    assert FIRST not in str(refused.value)


def test_a_key_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidOption, match="nowhere can't be read"):
        loaded(tmp_path / "nowhere")
    tmp_path.chmod(0o700)
    with pytest.raises(InvalidOption, match="has no key"):
        loaded(tmp_path)


def test_a_credential_of_systemd_comes_first_whatever_its_mode(tmp_path):
    (tmp_path / "credentials").mkdir()
    credential = tmp_path / "credentials" / "rota-master-key"
    credential.write_text(SECOND)
    credential.chmod(0o440)
    path = key_file(tmp_path, FIRST)
    keyring = loaded(path, {"CREDENTIALS_DIRECTORY": str(credential.parent)})
    assert keyring.key(keyring.current) == b"2" * 32
    credential.unlink()
    assert loaded(path, {"CREDENTIALS_DIRECTORY": str(credential.parent)}).key(keyring_of(FIRST)) == b"1" * 32


def keyring_of(line):
    return Keyring([base64.b64decode(line)]).current


def test_a_key_file_that_has_changed_is_read_again(tmp_path):
    path = key_file(tmp_path, FIRST)
    keys = MasterKeys(Settings(master_key_file=str(path)), {})
    assert keys.keyring() is keys.keyring()
    key_file(tmp_path / "..", SECOND, FIRST).replace(path)
    assert keys.keyring().ids == (keyring_of(SECOND), keyring_of(FIRST))
    path.chmod(0o644)
    with pytest.raises(InvalidOption, match="chmod 600"):
        keys.keyring()


def test_rota_does_not_need_cryptography_to_be_imported():
    program = "import sys, rota, rota.vault; sys.exit(any(name.split('.')[0] == 'cryptography' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
