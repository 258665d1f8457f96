"""Runners: they do the work of jobs that are SQL, procedures or commands. See `rota.ports.runner`."""
