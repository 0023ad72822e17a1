"""One module a foreign format: how it is recognised, what it says, where its numbers do not hold together."""
