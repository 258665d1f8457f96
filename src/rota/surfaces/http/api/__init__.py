"""One module for each resource: a router that turns requests into calls of `Rota`, each with its Actor, and nothing more."""
