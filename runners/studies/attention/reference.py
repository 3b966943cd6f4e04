"""Scaled dot-product attention in NumPy float64, and the operands that every framework gets.

Operands are (B, T, H, D) and exact in bf16, so one result serves all precisions. Heads do not
depend on each other, so a CPU can compute single ones whole.
"""

import numpy as np

OPERANDS = ("q", "k", "v", "do")
RESULTS = ("o", "dq", "dk", "dv")
# Rows of the matrix of scores that are computed at once.
BLOCK = 256
# Two heads are computed of sequences up to this length, and one head of longer ones.
LONGEST_FOR_TWO = 2048


def draw(number, count):
    """Return the first `count` values of operand `number`: normal, rounded to bf16's 8 bits."""
    values = np.random.default_rng(number).standard_normal(count, np.float32)
    bits = values.view(np.uint32)
    bits += 0x8000
    bits &= 0xFFFF0000
    return values


def checked_heads(batch, length, heads):
    """Return the (sample, head) that are compared: the first and the last."""
    last = (batch - 1, heads - 1)
    return [last] if length > LONGEST_FOR_TWO or last == (0, 0) else [(0, 0), last]


def exact(q, k, v, do, causal):
    """Return o, dq, dk and dv of one head in float64; operands are (T, D)."""
    q, k, v, do = (array.astype(np.float64) for array in (q, k, v, do))
    scale = q.shape[1] ** -0.5
    o, dq, dk, dv = (np.zeros_like(q) for _ in RESULTS)
    for start in range(0, len(q), BLOCK):
        rows = slice(start, start + BLOCK)
        seen = slice(0, min(start + BLOCK, len(k)) if causal else len(k))
        p = scale * q[rows] @ k[seen].T  # (rows, T)
        if causal:
            later = np.arange(seen.stop)[None] > np.arange(start, start + len(p))[:, None]
            p[later] = -np.inf
        p -= p.max(1, keepdims=True)
        np.exp(p, out=p)
        p /= p.sum(1, keepdims=True)
        o[rows] = p @ v[seen]
        dv[seen] += p.T @ do[rows]
        ds = do[rows] @ v[seen].T
        ds -= (do[rows] * o[rows]).sum(1, keepdims=True)
        ds *= p
        dq[rows] = scale * ds @ k[seen]
        dk[seen] += scale * ds.T @ q[rows]
    return dict(zip(RESULTS, (o, dq, dk, dv), strict=True))
