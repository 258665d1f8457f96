"""Other systems: what comes from them, and chains as they show them."""
