"""Relations that are put together from documents: which collections a row is of, what each column is, and how they are read.

One collection is walked, as rows are asked for, and the others are asked for by the keys of a chunk. A bound on a column of the walked
collection is a part of its filter; others are looked at as soon as their column is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

from rota.ports.scan import Bound, Compares, Order
from rota.stores.mongodb.db import Db
from rota.stores.mongodb.documents import Document, Row
from rota.stores.mongodb.statements.relation_bounds import OWNER, condition_of, filter_of

Record = dict[str, Document]
"""The documents of one row, by the names of their parts."""
Check = Callable[[Record], bool]

CHUNK_FIRST, CHUNK_GROWS, CHUNK_MAX = 50, 4, 1000
"""Documents that are read at a time: at first, how many times more each time, and at most."""
NOTHING: Document = {}


class Field(NamedTuple):
    """A field of the documents of a part."""

    part: str
    name: str


class Column(NamedTuple):
    """The fields that a column is made of, and how; one that is not made is its field."""

    fields: tuple[Field, ...]
    make: Callable[..., Any] | None = None


class Needed(Enum):
    """Whether a row without a part is left out."""

    NEVER = "never"
    IF_ASKED = "if asked"
    """Every row has it: it is looked for when a column of it is asked for, and only a broken store has rows without."""
    ALWAYS = "always"


class Part(NamedTuple):
    """One document of another collection for each row, or none: its own fields have the values of others."""

    collection: str
    by: tuple[Field, ...]
    own: tuple[str, ...] = ("_id",)
    needed: Needed = Needed.NEVER
    where: Document = NOTHING


class View(NamedTuple):
    """A relation: the collection that is walked, the other parts in the order in which they can be found, and the columns."""

    base: str
    collection: str
    columns: dict[str, Column]
    parts: dict[str, Part] = {}  # noqa: RUF012 - of a tuple, never changed
    where: Document = NOTHING
    several: Callable[[Document], list[Document]] | None = None
    """The documents that one stands for, if it has several rows."""

    def names(self) -> dict[str, str]:
        """Return the columns that documents of the walked collection have as they are, with their names there."""
        return {column: fields[0].name for column, (fields, make) in self.columns.items() if make is None and fields[0].part == self.base}

    def records(self, documents: list[Document]) -> list[Record]:
        """Return the rows of documents, which have no other part yet."""
        if self.several is None:
            return [{self.base: document} for document in documents]
        return [{self.base: document} for one in documents for document in self.several(one)]


class Walk(NamedTuple):
    """How the documents of a view are walked."""

    hint: str | None = None
    """The index."""
    batch: int = CHUNK_FIRST
    """How many come first."""
    is_of_few: bool = False
    """Whether the server puts them together, which costs more for each document and one question for all of them."""
    in_order: bool = False
    """Whether they are in order as they come."""


def same(part: str, names: str) -> dict[str, Column]:
    """Return columns that have the names of their fields."""
    return {name: Column((Field(part, name),)) for name in names.split()}


def first_given(*values: Any) -> Any:
    """Return the first value that is not NULL."""
    return next((value for value in values if value is not None), None)


def read(db: Db, view: View, columns: Sequence[str], bounds: Sequence[Bound], *, order: Order | None, walk: Walk) -> Iterator[Row]:
    """Return the columns of rows that meet the bounds, in order. What the server can't sort is read whole."""
    names = view.names()
    left = [bound for bound in bounds if not _can_push(bound, names)]
    filters = [filter_of(bound, names) for bound in bounds if _can_push(bound, names)]
    stages: list[Document] = [{"$match": _all_of([view.where, *filters])}]
    if order is None or walk.in_order:
        return Reading(db, view, columns, left, walk).rows(stages)
    if order.column in names:
        stages.append({"$sort": {names[order.column]: -1 if order.descending else 1}})
        return Reading(db, view, columns, left, walk).rows(stages)
    rows = Reading(db, view, (*columns, order.column), left, walk).rows(stages)
    return (row[:-1] for row in sorted(rows, key=_last, reverse=order.descending))


def _last(row: Row) -> tuple[bool, Any]:
    return row[-1] is not None, row[-1]


def _can_push(bound: Bound, names: dict[str, str]) -> bool:
    return all(column in names for column in _compared(bound))


def _compared(bound: Bound) -> tuple[str, ...]:
    return (bound.column, OWNER) if bound.compares is Compares.OWNED else (bound.column,)


def _all_of(filters: Iterable[Document]) -> Document:
    several = [each for each in filters if each]
    return {"$and": several} if len(several) > 1 else several[0] if several else {}


class Reading:
    """One scan of a view: what is asked for, and what rows must meet that the server does not look at."""

    def __init__(self, db: Db, view: View, columns: Sequence[str], bounds: Sequence[Bound], walk: Walk) -> None:
        """Take what is asked for."""
        self._db = db
        self._view = view
        self._walk = walk
        self._getters = [_getter(view.columns[column]) for column in columns]
        self._wanted = _fields(view, [*columns, *(column for bound in bounds for column in _compared(bound))])
        self._checks: dict[str, list[Check]] = {}
        places = {name: place for place, name in enumerate((view.base, *view.parts))}
        for bound in bounds:
            compared = [view.columns[column] for column in _compared(bound)]
            last = max((field.part for column in compared for field in column.fields), key=places.__getitem__)
            self._checks.setdefault(last, []).append(_check(condition_of(bound), [_getter(column) for column in compared]))

    def rows(self, stages: list[Document]) -> Iterator[Row]:
        """Return the rows of the documents that a pipeline gives."""
        getters = self._getters
        for record in self._together(stages) if self._walk.is_of_few else self._in_chunks(stages):
            yield tuple([getter(record) for getter in getters])

    def _in_chunks(self, stages: list[Document]) -> Iterator[Record]:
        """Walk the documents, and ask for the other parts of a chunk at a time."""
        view, wanted, size = self._view, self._wanted, self._walk.batch
        shown = {"$project": {"_id": 1} | dict.fromkeys(wanted[view.base], 1)}
        cursor = self._db.pipeline(view.collection, [*stages, shown], hint=self._walk.hint, batch=size)
        while documents := list(islice(cursor, size)):
            records = self._kept(view.base, view.records(documents))
            for name, part in view.parts.items():
                if name in wanted and records:
                    records = self._kept(name, _joined(self._db, records, name, part, wanted[name]))
            yield from records
            size = max(size, min(size * CHUNK_GROWS, CHUNK_MAX))
            cursor.batch_size(size)

    def _together(self, stages: list[Document]) -> Iterator[Record]:
        """Have the server put few documents together."""
        view = self._view
        parts = {name: part for name, part in view.parts.items() if name in self._wanted}
        for document in self._db.pipeline(view.collection, [*stages, *_lookups(view, parts)], hint=self._walk.hint):
            record: Record = {name: next(iter(document.pop(name)), NOTHING) for name in parts}
            record[view.base] = document
            whole = all(record[name] for name, part in parts.items() if part.needed is not Needed.NEVER)
            if whole and all(check(record) for checks in self._checks.values() for check in checks):
                yield record

    def _kept(self, part: str, records: list[Record]) -> list[Record]:
        """Return the records that meet what can be looked at once they have a part."""
        checks = self._checks.get(part, ())
        return [record for record in records if all(check(record) for check in checks)] if checks else records


def _fields(view: View, columns: Iterable[str]) -> dict[str, set[str]]:
    """Return the fields that columns are made of, by part; parts that lead to others are among them."""
    wanted: dict[str, set[str]] = {view.base: set()}
    for column in columns:
        for part, name in view.columns[column].fields:
            wanted.setdefault(part, set()).add(name)
    for name, joined in reversed(view.parts.items()):
        if name in wanted or joined.needed is Needed.ALWAYS:
            wanted.setdefault(name, set())
            for field in joined.by:
                wanted.setdefault(field.part, set()).add(field.name)
    return wanted


def _joined(db: Db, records: list[Record], name: str, part: Part, fields: set[str]) -> list[Record]:
    """Give each record its document of a part."""
    by = part.by
    keys = [tuple([record[field.part].get(field.name) for field in by]) for record in records]
    among = {own: {"$in": list({key[place] for key in keys} - {None})} for place, own in enumerate(part.own)}
    found: dict[tuple[Any, ...], Document] = {}
    if all(values["$in"] for values in among.values()):
        documents = db.find(part.collection, among | part.where, (*part.own, *fields))
        found = {tuple([document.get(own) for own in part.own]): document for document in documents}
    for record, key in zip(records, keys, strict=True):
        record[name] = found.get(key, NOTHING)
    return [record for record in records if record[name]] if part.needed is not Needed.NEVER else records


def _lookups(view: View, parts: dict[str, Part]) -> Iterator[Document]:
    for name, part in parts.items():
        field = part.by[0]
        local = field.name if field.part == view.base else f"{field.part}.{field.name}"
        yield {"$lookup": {"from": part.collection, "localField": local, "foreignField": part.own[0], "as": name}}


def _getter(column: Column) -> Callable[[Record], Any]:
    """Return what takes the value of a column from a record."""
    fields, make = column
    part, name = fields[0]
    if make is None:
        return lambda record: record[part].get(name)
    return lambda record: make(*[record[field.part].get(field.name) for field in fields])


def _check(condition: Callable[..., bool], getters: list[Callable[[Record], Any]]) -> Check:
    return lambda record: condition(*[getter(record) for getter in getters])
