"""Records that cannot say more than was observed: levels, writing, audit. No torch, no pytest."""
