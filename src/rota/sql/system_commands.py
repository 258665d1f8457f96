"""ALTER SYSTEM: settings that the store keeps."""

from __future__ import annotations

from rota.errors import InvalidOption, NotFound
from rota.resources.stored_settings import put
from rota.sql.execution import Execution, Refusal
from rota.sql.result import Result
from rota.sql.syntax import AlterSystem


def alter_system(run: Execution, statement: AlterSystem) -> Result:
    """Set a setting for all processes, or reset it."""
    try:
        view = put(run.ask, statement.setting, statement.value)
    except NotFound as error:
        raise Refusal("setting", str(error), code="unknown_setting", sqlstate="42704") from None
    except InvalidOption as error:
        raise Refusal("value", str(error), code="invalid_option", sqlstate="22023") from None
    if view.notice is not None:
        run.notice(view.notice)
    return Result("ALTER SYSTEM", notices=run.notices)
