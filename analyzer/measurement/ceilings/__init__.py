"""A machine's ceilings: products, memory, loops and copies, measured one small model each."""
