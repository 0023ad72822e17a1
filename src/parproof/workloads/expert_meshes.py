"""Meshes of dp × ep × tp ranks. No torch, so that tests can name them while they are collected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mesh:
    """dp × ep × tp ranks, tp fastest; dp_inner exchanges dp and ep, so that ep groups are not neighbours."""

    dp: int = 1
    ep: int = 1
    tp: int = 1
    dp_inner: bool = False

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.dp * self.ep * self.tp

    def place(self, rank: int) -> tuple[int, int, int]:
        """Coordinates (d, e, t) of a rank."""
        outer, t = divmod(rank, self.tp)
        return (outer % self.dp, outer // self.dp, t) if self.dp_inner else (*divmod(outer, self.ep), t)

    def shard(self, rank: int) -> int:
        """Index of the tokens that a rank holds; those of one ep group are neighbours."""
        d, e, _ = self.place(rank)
        return d * self.ep + e

    def name(self) -> str:
        """For test ids."""
        axes = [f"{axis}{n}" for axis, n in (("dp", self.dp), ("ep", self.ep), ("tp", self.tp)) if n > 1]
        return "_".join(axes or ["ep1"]) + "_interleaved" * self.dp_inner


MESHES = (
    Mesh(),
    Mesh(ep=2),
    Mesh(dp=2),
    Mesh(ep=3),
    Mesh(ep=4),
    Mesh(dp=2, ep=2),
    Mesh(dp=2, ep=2, dp_inner=True),
    Mesh(ep=2, tp=2),
)
DISPATCHED = [("all_to_all", mesh) for mesh in MESHES] + [
    ("padded", Mesh()),
    ("padded", Mesh(ep=3)),
    ("padded", Mesh(ep=2, tp=2)),
    ("all_gather", Mesh(ep=2)),
    ("all_gather", Mesh(ep=4)),
    ("all_gather", Mesh(dp=2, ep=2, dp_inner=True)),
]
"""Every mesh with the common dispatcher, every kind of mesh with the others."""
