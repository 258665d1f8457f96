"""Numbered migrations, which bring an earlier store up to date; a new one is made by `schema.sql`, which is generated from them."""
