"""What decoded, resized and normalised pixels must be: float64 references and comparisons in NumPy.

Frames are (N, H, W, 3) in levels from 0 to 255. A loader declares its filter; its pixels are
compared with that filter's.
"""

import math

import numpy as np

FILTERS = ("triangle", "triangle_repeated", "bilinear", "area")


def resize_matrix(name, before, after):
    """Return the weights (after, before) of a filter; rows sum to 1.

    `bilinear` takes the two nearest pixels. `triangle` widens it as an image shrinks, which is
    bilinear with antialiasing. It ends at the edge; `triangle_repeated` repeats the edge's pixels.
    `area` is the mean of what a new pixel covers.
    """
    scale = before / after
    width = 1.0 if name == "bilinear" else max(1.0, scale)
    beyond = math.ceil(width) if name == "triangle_repeated" else 0
    new, old = np.arange(after)[:, None], np.arange(-beyond, before + beyond)[None]
    if name == "area":
        overlap = np.minimum(old + 1, (new + 1) * scale) - np.maximum(old, new * scale)
        found = np.maximum(overlap, 0.0)
    else:
        found = np.maximum(0.0, 1.0 - np.abs(old + 0.5 - (new + 0.5) * scale) / width)
    found /= found.sum(axis=1, keepdims=True)
    inside = found[:, beyond:beyond + before]
    inside[:, 0] += found[:, :beyond].sum(axis=1)
    inside[:, -1] += found[:, beyond + before:].sum(axis=1)
    return inside


def resized(frames, size, name):
    """Return frames of `size` (height, width) in float64 levels, not rounded."""
    down, across = (resize_matrix(name, before, after)
                    for before, after in zip(frames.shape[1:3], size, strict=True))
    # A frame at a time: float64 copies of all would be large.
    return np.stack([np.einsum("yh,hwc,xw->yxc", down, frame.astype(np.float64), across,
                               optimize=True) for frame in frames])


def normalised(frames, mean, deviation):
    """Return (N, 3, H, W) from levels: from 0 to 1, then z-scores by channel."""
    scores = (frames / 255.0 - np.asarray(mean)) / np.asarray(deviation)
    return scores.transpose(0, 3, 1, 2)


def levels_apart(found, exact):
    """Return the largest mean difference of any frame, and the largest of any pixel."""
    apart = np.abs(found.astype(np.float64) - exact)
    return float(apart.mean(axis=(1, 2, 3)).max()), float(apart.max())


def compare_decoded(found, exact):
    """Return facts about decoded frames (n, H, W, 3) beside the reference's (N, H, W, 3).

    `frames` counts them; `place` is the first frame that is nearer to another frame of the
    reference, `nearest` that frame, or both -1; `swapped` is the mean difference with the channels
    in reverse.
    """
    facts = {"frames": len(found)}
    # Small versions are enough to tell frames apart.
    ours, theirs = (small(frames) for frames in (found, exact))
    apart = np.abs(ours[:, None] - theirs[None]).mean(axis=2)
    nearest = apart.argmin(axis=1)
    places = np.arange(len(found))
    within = np.minimum(places, len(exact) - 1)
    wrong = np.flatnonzero((nearest != places) & (apart[places, nearest] < apart[places, within]))
    facts["place"] = int(wrong[0]) if len(wrong) else -1
    facts["nearest"] = int(nearest[wrong[0]]) if len(wrong) else -1
    if len(found) == len(exact):
        facts["mean"], facts["max"] = levels_apart(found, exact)
        facts["swapped"] = levels_apart(found[..., ::-1], exact)[0]
    return facts


def compare_resized(found, before, size, name):
    """Return facts about resized frames beside each filter's version of the frames before."""
    versions = {each: resized(before, size, each) for each in FILTERS}
    facts = dict(zip(("mean", "max"), levels_apart(found, versions[name]), strict=True))
    facts.update((each, levels_apart(found, version)[0]) for each, version in versions.items())
    return facts


def compare_normalised(found, before, mean, deviation):
    """Return the largest difference from normalising the frames before once, and twice."""
    once = normalised(before, mean, deviation)
    twice = normalised(once.transpose(0, 2, 3, 1), mean, deviation)
    return {"mean": float(np.abs(found - once).max()), "twice": float(np.abs(found - twice).max())}


def small(frames, cells=16):
    """Return the means of about cells x cells blocks of each frame, flat: (N, cells^2 * 3)."""
    size = [min(cells, length) for length in frames.shape[1:3]]
    return resized(frames, size, "area").reshape(len(frames), -1)
