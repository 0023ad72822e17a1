"""The commands of `parproof`, one module each: its arguments, what it asks, how it prints the answer."""
