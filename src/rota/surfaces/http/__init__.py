"""The HTTP API and the dashboard of one `Rota`."""

from rota.surfaces.http.app import make_app

__all__ = ["make_app"]
