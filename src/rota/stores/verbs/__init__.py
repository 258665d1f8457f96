"""What every store on a relational database shares: the verbs, over statements that each dialect has under the same names."""
