"""What torch ships, called the way its documentation says."""

from parproof.subjects.protocol import Subject
from parproof.subjects.torch_native.collectives_lacks import LACKS as COLLECTIVES_LACKS
from parproof.subjects.torch_native.context_lacks import LACKS as CONTEXT_LACKS
from parproof.subjects.torch_native.expert_lacks import LACKS as EXPERT_LACKS
from parproof.subjects.torch_native.older_lacks import LACKS as OLDER_LACKS
from parproof.subjects.torch_native.overlap_lacks import LACKS as OVERLAP_LACKS
from parproof.subjects.torch_native.pipeline_lacks import LACKS as PIPELINE_LACKS
from parproof.subjects.torch_native.tensor_lacks import LACKS as TENSOR_LACKS
from parproof.subjects.torch_native.zero_lacks import LACKS as ZERO_LACKS

SUBJECT = Subject(
    name="torch_native",
    mechanisms={
        "collectives": "parproof.subjects.torch_native.collectives:Collectives",
        "autograd_collectives": "parproof.subjects.torch_native.collectives_autograd:AutogradCollectives",
        "coalesced_collectives": "parproof.subjects.torch_native.collectives_coalesced:CoalescedCollectives",
        "functional_collectives": "parproof.subjects.torch_native.collectives_functional:FunctionalCollectives",
        "object_collectives": "parproof.subjects.torch_native.collectives_messages:ObjectCollectives",
        "point_to_point": "parproof.subjects.torch_native.collectives_messages:PointToPoint",
        "context": "parproof.subjects.torch_native.context:ContextAttention",
        "expert": "parproof.subjects.torch_native.expert:ExpertParallel",
        "overlap": "parproof.subjects.torch_native.overlap:Overlap",
        "pipeline": "parproof.subjects.torch_native.pipeline:Pipeline",
        "tensor": "parproof.subjects.torch_native.tensor:TensorParallel",
        "zero": "parproof.subjects.torch_native.zero:Zero",
    },
    lacks=COLLECTIVES_LACKS
    | CONTEXT_LACKS
    | EXPERT_LACKS
    | OLDER_LACKS
    | OVERLAP_LACKS
    | PIPELINE_LACKS
    | TENSOR_LACKS
    | ZERO_LACKS
    | {"replica*": "torch ships no router of serving requests", "decision*": "torch plans nothing"},
)
