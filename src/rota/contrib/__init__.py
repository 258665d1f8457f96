"""Glue between Rota and libraries of others. Each module needs its library, and nothing of Rota imports it."""
