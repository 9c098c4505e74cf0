"""A document's window and memory in one softmax by the compiled kernel; slots that a block does not see cost nothing.

Axes: c queries and m keys at hand, S slots, h heads, d head dimension, w block, b blocks.
"""

from torch import Tensor

from longform.functional.document import DocumentAttention, Part, far_logits
from longform.functional.native_attention import add_bias, heads_of, new_job, with_rows
from longform.functional.native_library import run_attention
from longform.functional.window_pairs_cpu import single_token_bias_of_blocks


class NativeDocument(DocumentAttention):
    """A document's window and memory by the kernel."""

    def __call__(self, part: Part, out: Tensor) -> None:
        far = self.far
        query, key, value, far_key, far_value = (
            with_rows(x)[None] for x in (part.query, part.key, part.value, far.key, far.value)
        )
        job = new_job(query, out.transpose(0, 1)[None])
        if far.is_of_single_tokens(part):
            far_key, far_value, job.slots = key, value, part.length
            weighed = single_token_bias_of_blocks(part, far)
            if weighed is not None:
                job.window = part.window
                bias = weighed.float().expand(query.shape[1], -1, -1)[None]
                add_bias(job, bias, blocks=True)
        else:
            blocks = part.blocks()
            logits = far_logits(far, self.shares(part), blocks.start, blocks.stop, part.window).float().contiguous()
            job.key, job.value, job.keys, job.slots = heads_of(key), heads_of(value), key.shape[2], far.key.shape[1]
            job.window, job.start, job.key_start = part.window, part.start, part.key_start
            add_bias(job, logits[None, None].expand(1, query.shape[1], -1, -1), blocks=True)
            if far.bias is not None:
                head_bias = far.bias.detach().float().contiguous()
                job.head_bias = head_bias.data_ptr()
        job.slot_key, job.slot_value = heads_of(far_key), heads_of(far_value)
        run_attention(job)
