"""The verbs that all stores share, over statements that each dialect has under the same names."""
