"""Revokes a token, removes a user or closes a session in a process of its own. Arguments: store, verb, what it is about."""

import sys

from rota import Rota
from rota.admission import Admission

rota = Rota(sys.argv[1])
verbs = {"revoke": rota.tokens.revoke, "remove": rota.users.delete, "close": Admission(rota).close_session}
verbs[sys.argv[2]](sys.argv[3])
rota.close()
