"""The front door: the HTTP API, and later pages, over one `Rota`."""

from rota.surfaces.http.app import make_app

__all__ = ["make_app"]
