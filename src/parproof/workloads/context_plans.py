"""Plans of context parallelism that tests name while they are collected. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from parproof.subjects.context_protocol import VARIANTS, ContextPlan

LENGTH = 24  # splits into 2, 3 and 4 ranks, and into zigzag halves of each
DOCUMENTS = 5, 11, 8
WHOLE_LAYOUTS = ("contiguous", "zigzag", "striped")  # the others need documents
EVEN_DOCUMENTS = {2: (4, 12, 8), 3: (6, 18), 4: (8, 16)}  # by ranks: each document splits into zigzag halves
# documents that are packed into one sequence, and the layout that splits it
PACKED = {
    "three_documents": (DOCUMENTS, "contiguous"),
    "lone_tokens": ((1, 22, 1), "contiguous"),
    "three_documents_zigzag": (DOCUMENTS, "zigzag"),
    "three_documents_striped": (DOCUMENTS, "striped"),
    "each_document_zigzag": (EVEN_DOCUMENTS[4], "document_zigzag"),
}
# key/value heads of 8 query heads; Ulysses needs one for each of 2 ranks
SHARED_HEADS = [(n, variant) for variant in VARIANTS for n in ((2, 4) if variant == "ulysses" else (1, 2))]
# documents of one call and of the next one, of one instance
IN_TURN = {"one_document": ((), ()), "other_documents": (DOCUMENTS, (1, 22, 1))}


@dataclass(frozen=True)
class Sharing:
    """What all ranks hold whole: norm weights of one head («head») or of all («all»), a prefix of so many keys.

    padding   positions at the end that stand for nothing: a document of their own, without a gradient
    kv_heads  of 8 query heads; groups: one of 4 ranks, or ranks 0, 2 and 1, 3 apart
    """

    norm: str = ""
    prefix: int = 0
    padding: int = 0
    causal: bool = True
    kv_heads: int = 8
    groups: int = 1

    def plan(self, variant: str) -> ContextPlan:
        """Causal ones go around balanced."""
        documents = (LENGTH - self.padding, self.padding) if self.padding else ()
        balance = "zigzag" if self.causal and not documents else "contiguous"
        return ContextPlan(variant, balance, self.causal, LENGTH, documents)

    def needs(self, variant: str) -> tuple[str, ...]:
        """Capabilities that it takes."""
        plan = self.plan(variant)
        kinds: dict[str, object] = {"norms": self.norm, "prefix": self.prefix, "documents": self.padding}
        mask = "causal" if self.causal else "full"
        kinds[f"grouped_heads.{mask}"] = self.kv_heads < 8
        wanted = [f"context.{variant}.{kind}" for kind, asked in kinds.items() if asked]
        return f"context.{variant}.{plan.balance}.{mask}.float64", *wanted


SHARINGS = {
    "norm_of_each_head": Sharing("head"),
    "norm_over_all_heads": Sharing("all"),
    "norm_full": Sharing("all", causal=False),
    "norm_of_22_padded_to_24": Sharing("all", padding=2),
    "prefix_of_5": Sharing(prefix=5),
    "prefix_of_5_full": Sharing(prefix=5, causal=False),
    "prefix_and_norm_of_shared_heads": Sharing("all", prefix=3, kv_heads=4),
    "norm_in_two_groups": Sharing("head", groups=2),
}

# (plan, query heads, key/value heads, text of the refusal)
REFUSED = {
    "indivisible": (ContextPlan("ring", "contiguous", True, 25), 4, 4, "sequence of 25 over 2 ranks"),
    "half_block": (ContextPlan("ring", "zigzag", True, 26), 4, 4, "sequence of 26 over 2 ranks"),
    "empty": (ContextPlan("ring", "contiguous", True, 0), 4, 4, "sequence of 0 over 2 ranks"),
    "heads": (ContextPlan("ulysses", "contiguous", True, 24), 3, 3, "3 query and 3 key/value heads"),
    "sharing": (ContextPlan("ring", "contiguous", True, 24), 4, 3, "4 query heads on 3 key/value heads"),
    "document_zigzag": (
        ContextPlan("ring", "document_zigzag", True, 24, (6, 18)),
        4,
        4,
        "document of 6 over 2 ranks",
    ),
    "documents": (ContextPlan("ring", "contiguous", True, 24, (5, 6)), 4, 4, "documents of 11 positions"),
    "variant": (ContextPlan("star", "contiguous", True, 24), 4, 4, "variant 'star'"),
    "balance": (ContextPlan("ring", "random", True, 24), 4, 4, "balance 'random'"),
}

# shapes of shared tensors (2 rows, 4 heads of width 4), documents, text of the refusal
REFUSED_SHARINGS: dict[str, tuple[dict[str, tuple[int, ...]], tuple[int, ...], str]] = {
    "unknown_name": ({"suffix_k": (2, 4, 3, 4)}, (), "shared tensor 'suffix_k'"),
    "one_of_a_pair": ({"prefix_k": (2, 4, 3, 4)}, (), "prefix_k alone"),
    "one_norm": ({"k_weight": (4,)}, (), "k_weight alone"),
    "prefix_beside_documents": (
        {"prefix_k": (2, 4, 3, 4), "prefix_v": (2, 4, 3, 4)},
        (10, 14),
        "shared prefix beside 2 documents",
    ),
    "prefix_of_one_head": (
        {"prefix_k": (2, 1, 3, 4), "prefix_v": (2, 1, 3, 4)},
        (),
        r"prefix_k of shape \[2, 1, 3, 4\]",
    ),
    "weights_of_half_the_heads": ({"q_weight": (8,), "k_weight": (8,)}, (), "q_weight of 8 elements"),
}
