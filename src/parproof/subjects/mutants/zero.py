"""Mutants of PAR-ZERO-STATE: the reference with one lie each (the catalogue says which)."""

from __future__ import annotations

from parproof.subjects.mutants import zero_keeping as keeping
from parproof.subjects.mutants import zero_refusing as refusing
from parproof.subjects.mutants import zero_sending as sending
from parproof.subjects.protocol import Subject
from parproof.subjects.reference.zero_lacks import LACKS


def _subject(kind: type) -> Subject:
    address = f"{kind.__module__}:{kind.__name__}.mechanism"
    return Subject(name=kind.__name__.lower(), mechanisms={"zero": address}, lacks=LACKS)


sum_not_mean = _subject(sending.SumNotMean)
mean_twice = _subject(sending.MeanTwice)
reduces_in_bf16 = _subject(sending.ReducesInBf16)
one_parameter_is_not_reduced = _subject(sending.OneParameterIsNotReduced)
replicas_are_not_reduced = _subject(sending.ReplicasAreNotReduced)
all_reduce_for_reduce_scatter = _subject(sending.AllReduceForReduceScatter)
last_micro_batch_only = _subject(sending.LastMicroBatchOnly)
divides_by_accumulation_twice = _subject(sending.DividesByAccumulationTwice)
ignores_accumulation = _subject(sending.IgnoresAccumulation)
no_sync_still_sends = _subject(sending.NoSyncStillSends)
steps_per_micro_batch = _subject(sending.StepsPerMicroBatch)
local_norm = _subject(sending.LocalNorm)
norm_over_all_copies = _subject(sending.NormOverAllCopies)
clips_before_reducing = _subject(sending.ClipsBeforeReducing)
padding_leaks_into_the_norm = _subject(sending.PaddingLeaksIntoTheNorm)
counts_tied_weights_twice = _subject(sending.CountsTiedWeightsTwice)
optimizer_state_is_not_sharded = _subject(keeping.OptimizerStateIsNotSharded)
gradients_are_not_freed = _subject(keeping.GradientsAreNotFreed)
keeps_unsharded_gradients = _subject(keeping.KeepsUnshardedGradients)
mixed_in_name_only = _subject(keeping.MixedInNameOnly)
keeps_parameters_gathered = _subject(keeping.KeepsParametersGathered)
last_shard_is_not_synced = _subject(keeping.LastShardIsNotSynced)
stale_gather = _subject(keeping.StaleGather)
extra_gather = _subject(keeping.ExtraGather)
broadcast_from_the_wrong_owner = _subject(keeping.BroadcastFromTheWrongOwner)
shards_overlap = _subject(keeping.ShardsOverlap)
bias_correction_off_by_one = _subject(keeping.BiasCorrectionOffByOne)
coupled_decay = _subject(keeping.CoupledDecay)
forgets_the_groups = _subject(keeping.ForgetsTheGroups)
frozen_parameters_decay = _subject(keeping.FrozenParametersDecay)
unused_parameters_step = _subject(keeping.UnusedParametersStep)
used_here_only = _subject(keeping.UsedHereOnly)
checkpoint_without_second_moment = _subject(keeping.CheckpointWithoutSecondMoment)
resume_resets_the_step = _subject(keeping.ResumeResetsTheStep)
reshard_swaps_shards = _subject(keeping.ReshardSwapsShards)
saves_late = _subject(keeping.SavesLate)
leaves_moments_behind = _subject(keeping.LeavesMomentsBehind)
resumes_in_float32 = _subject(keeping.ResumesInFloat32)
gradients_in_float32 = _subject(sending.GradientsInFloat32)
trains_with_stale_shards = _subject(keeping.TrainsWithStaleShards)
casts_on_load = _subject(keeping.CastsOnLoad)
loads_what_fits = _subject(keeping.LoadsWhatFits)
accepts_any_plan = _subject(keeping.AcceptsAnything)
plan_falls_over = _subject(refusing.PlanFallsOver)
prints_the_plan = _subject(refusing.PrintsThePlan)
names_no_parameter = _subject(refusing.NamesNoParameter)
owners_round_down = _subject(keeping.DropsTheRemainder)
