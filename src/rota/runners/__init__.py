"""Runners do the work of jobs that are SQL, procedures or commands. Each is imported when it is used."""
