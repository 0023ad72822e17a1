"""What torch ships nothing for in expert parallelism."""

_NOTHING = "torch ships no accounting of routes and no rule for judging them"
LACKS: dict[str, str] = {
    "expert.tp": "torch ships no plan for experts that are split over a tensor-parallel axis too",
    "expert.padded": "torch ships no dispatch that pads to a capacity (its all_to_all_vdev kernels need symmetric"
    " memory, which has no CPU backend)",
    "expert.ties": "torch.topk promises no order among equal logits",
    "expert.account": _NOTHING,
    "expert.recommend": _NOTHING,
}
