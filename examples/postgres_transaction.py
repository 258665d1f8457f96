"""An order and the job about it in one transaction of your own psycopg connection: both are there, or neither.

Run it with ROTA_STORE=postgresql://user@host/database.
"""

import asyncio
import os

import psycopg

from rota import Rota

rota = Rota()  # the store that $ROTA_STORE names
DATABASE = os.environ["ROTA_STORE"]


@rota.job
def ship(item: str) -> str:
    return f"one {item} on its way"


def buy(connection: psycopg.Connection, item: str) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO orders VALUES (%s)", [item])
        ship.options(transaction=connection).enqueue(item)


async def buy_async(connection: psycopg.AsyncConnection, item: str) -> None:
    async with connection.transaction():
        await connection.execute("INSERT INTO orders VALUES (%s)", [item])
        await ship.options(transaction=connection).enqueue_async(item)


async def main_async() -> None:
    async with await psycopg.AsyncConnection.connect(DATABASE) as connection:
        await buy_async(connection, "coffee")


if __name__ == "__main__":
    with psycopg.connect(DATABASE, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS orders; CREATE TABLE orders (item text PRIMARY KEY)")
        buy(connection, "tea")
        try:
            buy(connection, "tea")
        except psycopg.errors.UniqueViolation:
            print("there is no second order, and no second job")
    asyncio.run(main_async())

    with rota.running():
        for job in rota.jobs.list(job_type="ship"):
            print(ship.handle(job.id).result(timeout=10))
    rota.close()
