"""An order and the job about it in one SQLAlchemy session: both are there, or neither.

Run it with ROTA_STORE=postgresql://user@host/database.
"""

import os

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from rota import Rota

rota = Rota()  # the store that $ROTA_STORE names
engine = create_engine(os.environ["ROTA_STORE"].replace("postgresql://", "postgresql+psycopg://"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@rota.job
def ship(order: int) -> str:
    with Session(engine) as session:
        return f"one {session.get_one(Order, order).item} on its way"


def buy(session: Session, item: str) -> Order:
    order = Order(item=item)
    session.add(order)
    session.flush()  # gives the order its id
    ship.options(transaction=session).enqueue(order.id)
    return order


if __name__ == "__main__":
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        buy(session, "tea")
        session.commit()
    with Session(engine) as session:
        buy(session, "coffee")
        session.rollback()
    print("jobs:", len(rota.jobs.list(job_type="ship")))

    with rota.running():
        for job in rota.jobs.list(job_type="ship"):
            print(ship.handle(job.id).result(timeout=10))
    rota.close()
    engine.dispose()
