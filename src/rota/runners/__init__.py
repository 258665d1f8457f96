"""Runners: what does the work of jobs that are SQL, procedures and commands. Imported when such a job is first run."""
