"""The lab: what schedules will do, whether they did it, and what a change would change."""
