"""Documents as Monque keeps them: its own four samples."""

from __future__ import annotations

PENDING = {
    "_id": {"$oid": "6760a1234567890abcdef123"},
    "name": "send-email",
    "data": {"to": "user@example.com", "subject": "Welcome!", "template": "welcome"},
    "status": "pending",
    "nextRunAt": {"$date": "2025-12-16T10:30:00.000Z"},
    "lockedAt": None,
    "failCount": 0,
    "createdAt": {"$date": "2025-12-16T10:29:55.000Z"},
    "updatedAt": {"$date": "2025-12-16T10:29:55.000Z"},
}
RECURRING = {
    "_id": {"$oid": "6760a1234567890abcdef456"},
    "name": "daily-report",
    "data": {"reportType": "sales"},
    "status": "pending",
    "nextRunAt": {"$date": "2025-12-17T00:00:00.000Z"},
    "lockedAt": None,
    "failCount": 0,
    "repeatInterval": "0 0 * * *",
    "createdAt": {"$date": "2025-12-16T08:00:00.000Z"},
    "updatedAt": {"$date": "2025-12-16T08:00:00.000Z"},
}
PROCESSING = {
    "_id": {"$oid": "6760a1234567890abcdef789"},
    "name": "sync-user",
    "data": {"userId": "user-123"},
    "status": "processing",
    "nextRunAt": {"$date": "2025-12-16T10:30:00.000Z"},
    "lockedAt": {"$date": "2025-12-16T10:30:01.000Z"},
    "failCount": 0,
    "uniqueKey": "sync-user-123",
    "createdAt": {"$date": "2025-12-16T10:29:50.000Z"},
    "updatedAt": {"$date": "2025-12-16T10:30:01.000Z"},
}
FAILED = {
    "_id": {"$oid": "6760a1234567890abcdefabc"},
    "name": "process-payment",
    "data": {"orderId": "order-456", "amount": 99.99},
    "status": "failed",
    "nextRunAt": {"$date": "2025-12-16T11:00:00.000Z"},
    "lockedAt": None,
    "failCount": 10,
    "failReason": "Payment gateway timeout after 10 attempts",
    "createdAt": {"$date": "2025-12-16T09:00:00.000Z"},
    "updatedAt": {"$date": "2025-12-16T11:00:00.000Z"},
}
SAMPLES = [PENDING, RECURRING, PROCESSING, FAILED]
NAMES = [each["name"] for each in SAMPLES]


def changed(document, **fields):
    """A document with some fields changed, and without those that are `...`."""
    return {name: value for name, value in (document | fields).items() if value is not ...}
