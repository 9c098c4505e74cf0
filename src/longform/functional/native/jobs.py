"""What is asked of the compiled kernels: the structures of native/'s headers, field by field.

Axes: B batch, h heads, d head dimension.
"""

import ctypes


class Heads(ctypes.Structure):
    """native/attention.h's heads_of: a tensor (B, h, rows, d), d contiguous."""

    _fields_ = [("data", ctypes.c_void_p), *((name, ctypes.c_int64) for name in ("batch", "head", "row"))]


class AttentionJob(ctypes.Structure):
    """native/attention.h's attention_job."""

    _fields_ = [
        *((name, Heads) for name in ("query", "key", "value", "slot_key", "slot_value", "out")),
        *((name, ctypes.c_void_p) for name in ("bias", "head_bias", "log_total")),
        *((name, ctypes.c_int64) for name in ("bias_batch", "bias_head", "bias_block")),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "queries", "keys", "slots", "dim")),
        *((name, ctypes.c_int64) for name in ("window", "start", "key_start", "threads", "room_bytes")),
        ("room", ctypes.c_void_p),
        ("scale", ctypes.c_float),
    ]


class AttentionGradientJob(ctypes.Structure):
    """native/attention_gradient.h's attention_gradient_job."""

    _fields_ = [
        *((name, Heads) for name in ("query", "key", "value", "slot_key", "slot_value", "out")),
        *((name, Heads) for name in ("d_out", "d_query", "d_key", "d_value")),
        *((name, ctypes.c_void_p) for name in ("log_total", "bias", "head_bias")),
        *((name, ctypes.c_void_p) for name in ("d_slot_key", "d_slot_value", "d_head_bias")),
        *((name, ctypes.c_int64) for name in ("bias_batch", "bias_head", "bias_block")),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "queries", "slots", "dim", "window", "parts")),
        *((name, ctypes.c_int64) for name in ("threads", "room_bytes")),
        ("room", ctypes.c_void_p),
        ("scale", ctypes.c_float),
    ]


class LinearJob(ctypes.Structure):
    """native/linear.h's linear_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "residual", "bias_times", "out", "before_gelu")),
        *((name, ctypes.c_int64) for name in ("x_row", "weight_row", "residual_row", "out_row", "before_row")),
        *((name, ctypes.c_int64) for name in ("rows", "weight_rows", "inputs", "outputs", "kind", "ending")),
        *((name, ctypes.c_int64) for name in ("threads", "room_bytes")),
        ("room", ctypes.c_void_p),
    ]


class WeightGradientJob(ctypes.Structure):
    """native/weight_gradient.h's weight_gradient_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "d_out", "d_weight", "d_bias")),
        *((name, ctypes.c_int64) for name in ("x_row", "d_out_row", "rows", "inputs", "outputs")),
        *((name, ctypes.c_int64) for name in ("threads", "room_bytes")),
        ("room", ctypes.c_void_p),
    ]


class GeluGradientJob(ctypes.Structure):
    """native/gelu_gradient.h's gelu_gradient_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "d_out", "d_x")),
        *((name, ctypes.c_int64) for name in ("count", "threads", "room_bytes")),
        ("room", ctypes.c_void_p),
    ]


class MeanJob(ctypes.Structure):
    """native/mean_of_runs.h's mean_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "out", "count")),
        *((name, ctypes.c_int64) for name in ("x_batch", "x_row", "count_batch")),
        *((name, ctypes.c_int64) for name in ("batch", "rows", "features", "size", "sinks", "threads")),
    ]


class NormOfSumJob(ctypes.Structure):
    """native/norm_of_sum.h's norm_of_sum_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("residual", "weight", "bias", "d_out", "branch", "d_rounded")),
        *((name, ctypes.c_void_p) for name in ("out", "mean", "scale", "d_residual", "d_weight", "d_bias")),
        *((name, ctypes.c_void_p) for name in ("rounded", "d_branch")),
        *((name, ctypes.c_int64) for name in ("rows", "features", "threads", "room_bytes")),
        ("room", ctypes.c_void_p),
        ("epsilon", ctypes.c_float),
    ]


class NormJob(ctypes.Structure):
    """native/layer_norm.h's norm_job."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("x", "weight", "bias", "out")),
        *((name, ctypes.c_int64) for name in ("rows", "features", "threads", "units")),
        ("epsilon", ctypes.c_float),
    ]


Job = AttentionJob | AttentionGradientJob | GeluGradientJob | LinearJob | NormOfSumJob | WeightGradientJob
KERNELS: dict[type[Job], str] = {  # for some units or others
    AttentionJob: "attention",
    AttentionGradientJob: "attention_gradient",
    GeluGradientJob: "gelu_gradient",
    LinearJob: "linear",
    NormOfSumJob: "norm_of_sum",
    WeightGradientJob: "weight_gradient",
}
