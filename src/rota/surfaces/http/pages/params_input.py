"""The params in a form of a page: as fields where the schema of the handler is known, or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from http import HTTPStatus
from typing import Any

import msgspec

from rota.errors import InvalidInput, InvalidParams, Refused
from rota.surfaces.http import problems
from rota.surfaces.http.pages.context import Form, Visit, pretty
from rota.surfaces.http.pages.params_form import Field, ParamsForm, form_for

ENTERED_AS = "params_as"
"""The form's field that says how its params were entered: fields, or json."""
SWITCH = "switch"
"""The button that shows the same params in the other way."""
TEXT = "params"


class Unread(Exception):  # noqa: N818 - nothing is wrong with the program
    """What was typed can't be sent on: the page is shown again, with what was typed and why."""

    def __init__(self, detail: str = "", status: int = HTTPStatus.UNPROCESSABLE_ENTITY, headers: Mapping[str, str] | None = None) -> None:
        """Take what the page says, beside what its fields say."""
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.headers = headers


UNSENT = Unread(status=HTTPStatus.OK)
"""Of a page that is shown for the first time: nothing was typed yet."""


class ParamsInput:
    """The params of one form."""

    def __init__(
        self,
        schema: Mapping[str, Any] | None,
        params: Mapping[str, Any] | None = None,
        *,
        defaults: Mapping[str, Any] | None = None,
        as_json: bool = False,
        zone: tzinfo = UTC,
    ) -> None:
        """Show params that are there, or those of a new job; `defaults` are the template's own."""
        self.form: ParamsForm | None = form_for(schema, params, defaults, zone)
        self.as_json = as_json or self.form is None
        self.text = pretty(dict(params or {}))

    @property
    def fields(self) -> list[Field]:
        """One field for each parameter."""
        return [] if self.form is None else self.form.fields

    @property
    def errors(self) -> list[Field]:
        """The fields that were refused."""
        return [] if self.form is None or self.as_json else self.form.errors

    @property
    def remarks(self) -> list[str]:
        """What has to be said about the values that were typed."""
        return [] if self.form is None or self.as_json else [field.remark for field in self.form.root.walk() if field.remark]

    @property
    def rows(self) -> int:
        """How many lines of the JSON are seen at once."""
        return min(30, max(8, self.text.count("\n") + 2))

    def read(self, sent: Form) -> dict[str, Any] | None:
        """Return the params that were sent, None if the form has none. Raise Unread if they can't be read, or are to be shown otherwise."""
        self.as_json = self.form is None or sent.get(ENTERED_AS) != "fields"
        if self.as_json and sent.text(TEXT) is None and SWITCH not in sent:
            return None
        if self.form is None or self.as_json:
            self.text = sent.get(TEXT, "")
            try:
                params = params_of(sent.text(TEXT))
            except InvalidParams as error:
                raise Unread(str(error)) from None
        else:
            params = self.form.read(sent)
            if self.form.errors:
                raise Unread
        if SWITCH in sent:
            self._switch(params)
        return params

    def refused(self, visit: Visit, error: InvalidInput | Refused) -> Unread:
        """Return a refusal of what was sent, for the page that has the form."""
        answer = problems.of(error, store=visit.rota.store.url)
        detail = str(msgspec.json.decode(bytes(answer.body))["detail"])
        if self.form is not None and not self.as_json:
            self.form.blame(detail)
        headers = {name: value for name, value in answer.headers.items() if name == "retry-after"}
        return Unread("" if self.errors else detail, answer.status_code, headers)

    def _switch(self, params: dict[str, Any]) -> None:
        if not self.as_json:
            self.as_json, self.text = True, pretty(params)
        elif self.form is None or not self.form.fill(params):
            raise Unread("The fields cannot show these params without changing them: continue as JSON.")
        else:
            self.as_json = False
        raise Unread(status=HTTPStatus.OK)


def params_of(text: str | None) -> dict[str, Any]:
    """Return params as people type them: a JSON object, or nothing."""
    try:
        found = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidParams(f"the params are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidParams('the params are not a JSON object, such as {"name": "value"}')
    return found
