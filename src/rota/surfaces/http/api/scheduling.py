"""The bodies of schedules."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from rota.surfaces.http.api.bodies import Body, Moment, Name, Params, Priority, Span, Text


class ScheduleOptions(Body):
    """What can be said of a schedule. What is not given stays; null takes it back to its default."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cron": "0 8 * * 1-5", "timezone": "Europe/Berlin", "calendar": None}]})

    template: Name | None = None
    cron: Text | None = Field(None, description="One of `cron`, `at` and `every` says when.", examples=["0 9 * * *"])
    at: Moment | None = None
    every: Span | None = None
    timezone: Name | None = Field(None, examples=["Europe/Berlin"])
    starts: Moment | None = None
    ends: Moment | None = None
    params: Params | None = None
    priority: Priority | None = None
    catch_up: Literal["none", "last", "all"] | None = None
    catch_up_lateness: Span | None = None
    catch_up_count: int | None = None
    overlap: Literal["allow", "queue", "skip"] | None = None
    jitter: Span | None = None
    calendar: Name | None = None
    on_completion: Literal["PRESERVE", "DROP"] | None = None
    depends_on: list[Name] | None = Field(None, max_length=1000)
    run_as: Name | None = Field(None, description="Not available yet: any role is refused.")
    description: Text | None = None


class ScheduleChange(ScheduleOptions):
    """A change of a schedule: what is not given stays; null takes an option back to its default."""

    name: Name | None = Field(None, description="Another name. Refused for a schedule that code declares.")

    def changes(self) -> dict[str, Any]:
        """Return what was said, as the options of an edit."""
        renamed = {"new_name": self.name} if "name" in self.model_fields_set else {}
        return self.given("name") | renamed


class NewSchedule(ScheduleOptions):
    """A schedule to be made."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "daily", "template": "send_email", "cron": "0 9 * * *", "timezone": "Europe/Berlin"}]}
    )

    name: Name
    template: Name
    enabled: bool = True
    organization: Name | None = None

    def options(self) -> dict[str, Any]:
        """Return what was said beyond its name and whose it is."""
        return self.given("name", "template", "enabled", "organization")


class PlannedChange(ScheduleOptions):
    """A change that is only thought of."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cron": "0 8 * * *", "days": 30}]})

    days: int = Field(90, ge=1, le=36_525, description="How far to look.")


class Firing(Body):
    """A job of a schedule, now."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"params": {"to": "c@d.e"}}]})

    params: Params = Field(default_factory=dict, description="They go over the schedule's own.")
