"""What torch's context parallelism does not offer on CPU, with the reason. No torch here."""

LACKS = {
    "context.ulysses*": "torch ships no Ulysses (all-to-all) attention",
    "context.*.striped*": "torch balances by head and tail blocks, not by stripes",
    "context.ring.zigzag.full*": "torch's ring refuses load balancing without a causal mask",
    "context.ring.documents": "torch's ring templates take one causal flag and no document mask",
    "context.*.prefix*": "context_parallel takes every key that it is given for a part of the sequence: a prefix that all ranks hold "
    "counts once for each of them, and the ring templates do the same",
    "context.merge": "torch merges pairs of output and log-sum-exp in a private class, never a part without keys",
    "context.sharing.refusals": "torch has no layer with shared tensors to refuse: norms are modules of their own",
    "context.refusals": "torch has no plan to refuse: context_parallel splits any length, if need be unevenly, and knows documents "
    "only as a mask",
}
