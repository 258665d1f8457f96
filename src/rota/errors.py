"""Every error Rota raises, as one tree.

    RotaError
    ├── InvalidInput            the caller's value was refused before anything was written
    │   ├── InvalidName
    │   ├── InvalidParams       not JSON, or not what the handler takes
    │   ├── PayloadTooLarge
    │   ├── InvalidOption       a setting, option or keyword out of its range
    │   ├── InvalidHandler      a handler that could never run
    │   ├── UnknownTemplate
    │   ├── TemplateUnavailable disabled or archived
    │   └── DuplicateId         an id that belongs to another job already
    ├── NotFound                no job, group or worker of that id
    ├── Refused                 the thing exists, but its state does not allow this
    │   ├── IllegalMove         a move the table of states does not have
    │   ├── AlreadyEnded        the chain has ended; names the end
    │   ├── StillLive           the chain is live; names the live job
    │   ├── KeyTaken            the unique key belongs to another chain
    │   ├── QueueFull
    │   ├── GroupRefused        a job that cannot join this group
    │   ├── ResourceBusy        direct execution found no slot in time; names the holder
    │   └── TransactionMisuse   a transaction used where it cannot be
    ├── WaitTimeout             the chain had not ended when the wait was over (also a TimeoutError)
    └── StoreError              the store itself
        ├── StoreUnusable       wrong file, no permission, made by a newer Rota
        ├── StoreBusy           another process held the write lock for too long
        └── StoreUnavailable    disk full, I/O error: nothing was written

What a *handler* raises to steer its own end is not an error of ours and stands in `rota.model.signals`.
Each class has a `code`, stable across releases; `docs/reference/errors.md` is tested against this tree.
"""

from __future__ import annotations

from typing import ClassVar


class RotaError(Exception):
    """The root: `except RotaError` catches everything Rota refuses or fails to do."""

    code: ClassVar[str] = "error"


class InvalidInput(RotaError, ValueError):
    """A value from the caller was refused; nothing was written."""

    code = "invalid_input"


class InvalidName(InvalidInput):
    """A name is empty, too long, or has characters that names can't have."""

    code = "invalid_name"


class InvalidParams(InvalidInput):
    """Params that JSON can't hold, or that the handler does not take."""

    code = "invalid_params"


class PayloadTooLarge(InvalidInput):
    """Params over the payload limit."""

    code = "payload_too_large"


class InvalidOption(InvalidInput):
    """An option, setting or keyword has a value that is not allowed."""

    code = "invalid_option"


class InvalidHandler(InvalidInput):
    """A handler that is not callable, not importable or of a signature that can't be called."""

    code = "invalid_handler"


class UnknownTemplate(InvalidInput):
    """No template of this name is known here."""

    code = "unknown_template"


class TemplateUnavailable(InvalidInput):
    """The template exists but takes no new jobs: it is disabled or archived."""

    code = "template_unavailable"


class DuplicateId(InvalidInput):
    """The id was chosen before for another job."""

    code = "duplicate_id"


class NotFound(RotaError, LookupError):
    """Nothing of that id is in this store."""

    code = "not_found"


class Refused(RotaError):
    """The state of the thing does not allow what was asked."""

    code = "refused"


class IllegalMove(Refused):
    """A move that the table of legal moves does not have."""

    code = "illegal_move"


class AlreadyEnded(Refused):
    """The chain has ended; the message names its end."""

    code = "already_ended"


class StillLive(Refused):
    """The chain still has a live job; the message names it."""

    code = "still_live"


class KeyTaken(Refused):
    """The unique key is held by another live chain; the message names it."""

    code = "key_taken"


class QueueFull(Refused):
    """The organization's queue is at its limit."""

    code = "queue_full"


class GroupRefused(Refused):
    """A job that is grouped already, or is past waiting, can't join a group."""

    code = "group_refused"


class ResourceBusy(Refused):
    """No slot for a direct execution became free within its timeout."""

    code = "resource_busy"


class TransactionMisuse(Refused):
    """A transaction was used where it can't be: closed, of another store, or not passed on."""

    code = "transaction_misuse"


class WaitTimeout(RotaError, TimeoutError):
    """The chain had not ended when the wait was over. It goes on; wait again."""

    code = "wait_timeout"


class StoreError(RotaError):
    """The store failed or can't be used."""

    code = "store_error"


class StoreUnusable(StoreError):
    """The store can't be opened as it is; nothing in it was changed."""

    code = "store_unusable"


class StoreBusy(StoreError):
    """Another process held the write lock longer than `busy_timeout`."""

    code = "store_busy"


class StoreUnavailable(StoreError):
    """The store could not be read or written (disk full, I/O error); nothing was half-written."""

    code = "store_unavailable"
