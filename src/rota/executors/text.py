"""Text from handlers, made fit to be kept: valid Unicode, bounded in bytes, and never an exception of its own."""

from __future__ import annotations

CUT = "… (cut)"
_CUT_BYTES = len(CUT.encode())


def clean(value: object) -> str:
    """Return a value as text that can be encoded; lone surrogates become escapes."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the error it belongs to
        text = f"<{type(value).__name__} whose text can't be had>"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def head(text: str, limit_bytes: int) -> str:
    """Return the beginning of a text that is too long, marked as cut."""
    if len(text) * 4 <= limit_bytes or len(data := text.encode()) <= limit_bytes:
        return text
    return data[: max(0, limit_bytes - _CUT_BYTES)].decode(errors="ignore") + CUT


def tail(text: str, limit_bytes: int) -> str:
    """Return the end of a text that is too long, marked as cut: a traceback's last lines say most."""
    if len(text) * 4 <= limit_bytes or len(data := text.encode()) <= limit_bytes:
        return text
    return CUT + data[len(data) - max(0, limit_bytes - _CUT_BYTES) :].decode(errors="ignore")
