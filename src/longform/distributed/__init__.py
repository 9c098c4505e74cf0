"""One text over several processes: each has a part of its tokens, and what they tell each other is constant."""

from longform.distributed.collectives import gather_tokens
from longform.distributed.parallel import sequence_parallel

__all__ = ["gather_tokens", "sequence_parallel"]
