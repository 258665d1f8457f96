"""Faces: Rota's chains in the words of older systems. Pure projections of the model's values; nothing is stored twice."""
