"""What torch's context parallelism does not offer on CPU, with the reason. No torch here."""

LACKS = {
    "context.ulysses*": "torch ships no Ulysses (all-to-all) attention",
    "context.*.striped*": "torch balances by head and tail blocks only",
    "context.*.zigzag.full*": "torch refuses load balancing without a causal mask",
    "context.*.documents": "torch's ring templates take one causal flag and no document mask",
    "context.*.grouped_heads": "torch's CPU flash operator wants as many key/value heads as query heads",
    "context.merge": "torch merges pairs of output and log-sum-exp in a private class, never a part without keys",
    "context.refusals": "torch checks layouts in context_parallel, which does not run on CPU; its ring templates do not",
}
