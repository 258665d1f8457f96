"""External commands: which a worker runs, how they are confined, and how each run ends with nothing left of it.

    config      the operator's file: what is allowed, with which limits
    trust       who could change a file or a folder
    program     a command line, and the file that it names, opened and checked
    isolation   bubblewrap: whether it works here, and its arguments
    warden      the process that starts one command and ends it with everything it started
    runner      one attempt from its order to its outcome

Commands run on Linux only. Nothing here is imported by a worker without `external_file`.
"""

from rota.runners.external.config import ExternalConfig, load_config
from rota.runners.external.isolation import Isolation, probe_isolation
from rota.runners.external.kernel import guard_process
from rota.runners.external.runner import ExternalRunner, refuse_exposed

__all__ = ["ExternalConfig", "ExternalRunner", "Isolation", "guard_process", "load_config", "probe_isolation", "refuse_exposed"]
