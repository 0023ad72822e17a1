"""The reference: every mechanism from first principles, right also where what torch ships is not."""

from parproof.subjects.protocol import Subject
from parproof.subjects.reference.collectives_lacks import LACKS as COLLECTIVES_LACKS
from parproof.subjects.reference.pipeline_lacks import LACKS as PIPELINE_LACKS
from parproof.subjects.reference.zero_lacks import LACKS as ZERO_LACKS

SUBJECT = Subject(
    name="reference",
    mechanisms={
        "collectives": "parproof.subjects.reference.collectives:Collectives",
        "autograd_collectives": "parproof.subjects.reference.collectives_autograd:AutogradCollectives",
        "coalesced_collectives": "parproof.subjects.reference.collectives_coalesced:CoalescedCollectives",
        "functional_collectives": "parproof.subjects.reference.collectives_functional:FunctionalCollectives",
        "object_collectives": "parproof.subjects.reference.collectives_messages:ObjectCollectives",
        "point_to_point": "parproof.subjects.reference.collectives_messages:PointToPoint",
        "decision": "parproof.subjects.reference.decision:Decision",
        "context": "parproof.subjects.reference.context:ContextAttention",
        "expert": "parproof.subjects.reference.expert:ExpertParallel",
        "overlap": "parproof.subjects.reference.overlap:Overlap",
        "pipeline": "parproof.subjects.reference.pipeline:Pipeline",
        "replica": "parproof.subjects.reference.replica:ReplicaRouting",
        "tensor": "parproof.subjects.reference.tensor:TensorParallel",
        "zero": "parproof.subjects.reference.zero:Zero",
    },
    lacks=COLLECTIVES_LACKS | PIPELINE_LACKS | ZERO_LACKS,
)
