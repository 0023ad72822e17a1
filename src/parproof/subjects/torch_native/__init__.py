"""What torch ships, called the way its documentation says."""

from parproof.subjects.protocol import Subject
from parproof.subjects.torch_native.collectives_lacks import LACKS as COLLECTIVES_LACKS

SUBJECT = Subject(
    name="torch_native",
    mechanisms={"collectives": "parproof.subjects.torch_native.collectives:Collectives"},
    lacks=COLLECTIVES_LACKS | {"replica*": "torch ships no router of serving requests"},
)
