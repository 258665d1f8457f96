"""A Django view that takes an order and enqueues the job about it in one transaction: both are there, or neither.

Run it with ROTA_STORE=postgresql://user@host/database.
"""

import os

import django
from django.conf import settings
from django.db import connection, models, transaction
from django.http import HttpRequest, JsonResponse
from django.test import RequestFactory
from psycopg.conninfo import conninfo_to_dict

from rota import Rota

rota = Rota()  # the store that $ROTA_STORE names
place = {name.upper(): value for name, value in conninfo_to_dict(os.environ["ROTA_STORE"]).items()}
place["NAME"] = place.pop("DBNAME")
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **place}})
django.setup()


class Order(models.Model):
    item = models.TextField()

    class Meta:
        app_label = "shop"
        db_table = "orders"


@rota.job
def ship(order: int) -> str:
    return f"order {order} is on its way"


def buy(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():
        order = Order.objects.create(item=request.POST["item"])
        ship.options(transaction=connection).enqueue(order.id)
        if order.item == "gold":
            raise ValueError("there is none left")  # what is done so far is undone, the job too
    return JsonResponse({"order": order.id})


if __name__ == "__main__":
    with connection.schema_editor() as editor:
        editor.execute("DROP TABLE IF EXISTS orders")
        editor.create_model(Order)
    print(buy(RequestFactory().post("/buy", {"item": "tea"})).content.decode())
    try:
        buy(RequestFactory().post("/buy", {"item": "gold"}))
    except ValueError as error:
        print(error)
    print("jobs:", len(rota.jobs.list(job_type="ship")))

    with rota.running():
        for job in rota.jobs.list(job_type="ship"):
            print(ship.handle(job.id).result(timeout=10))
    rota.close()
    connection.close()
