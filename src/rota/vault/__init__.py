"""Master keys, and the envelope that secrets are encrypted in. Imported when a secret is: few programs have any."""

from rota.vault.envelope import open_sealed, open_secrets, rewrap, seal
from rota.vault.keyring import Keyring, key_file, new_key_line
from rota.vault.master_keys import MasterKeys
from rota.vault.webhooks import open_signing, reseal_signing, seal_signing

__all__ = [
    "Keyring",
    "MasterKeys",
    "key_file",
    "new_key_line",
    "open_sealed",
    "open_secrets",
    "open_signing",
    "reseal_signing",
    "rewrap",
    "seal",
    "seal_signing",
]
