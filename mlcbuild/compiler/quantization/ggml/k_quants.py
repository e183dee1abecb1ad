"""Blocks of ggml's K-quants in NumPy. What they stand for is ggml's; which numbers are chosen is said here.

A block of 256 numbers has parts, and numbers of its own in float16:

    Q4_K, Q5_K    8 parts of 32:    w' = q · (d · s) - (e · m)    q of 4 or 5 bits, s and m of 6 bits
    Q6_K          16 parts of 16:   w' = q · (d · s)              q from -32 to 31, s from -128 to 127

Of a part x with the largest integer L, each of `_TRIES` attempts r (from -1 to 1) takes the integers of steps that are
a little larger or smaller than those that the range of x needs,

    q = round((x - low) · (L + r) / (high - low)),   low = min(x, 0), high = max(x)     (Q4_K, Q5_K)
    q = round(x · -(32 + r) / the x of largest magnitude)                               (Q6_K)

and the step, with the offset, that fit these best: weighted least squares, where an x weighs rms(x) + |x| (Q4_K, Q5_K),
or x² (Q6_K), so that large weights are kept better. The attempt with the least weighted square error is taken. That is
the method of llama.cpp's quantizer (ggml-org/llama.cpp, pull request 1684), by formulas of our own: its bytes are not
promised. The largest step and offset of a block then make d and e, which are rounded to float16 before s and m are
chosen by them, and at last each q is the integer nearest to its x by the numbers that are stored.

So |w' - x| is at most half of d · s, or how far x lies outside of what the part's integers reach (`bounds`).
Everything is elementwise, or a sum in a fixed order: equal numbers give equal bytes on every processor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlcbuild.compiler.weights.tensor import Array

_BLOCK = 256
_TRIES = tuple(np.float32(step / 10) for step in range(-10, 11))
_LARGEST_SCALE = 63
_SIX_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Blocks of n · 256 numbers: integers (n, parts, size) from `least` on, steps and offsets (n, parts) of what they
    stand for, q · step - offset; and the numbers of which these are made: of the block (n,) float16, and of the parts
    (n, parts) integers."""

    integers: Array
    steps: Array
    offsets: Array
    scale: Array
    scales: Array
    offset_scale: Array
    offset_scales: Array


def affine(numbers: Array, largest: int) -> Parts:
    """Q4_K and Q5_K of numbers (n, 256) float32; `largest` is the largest integer."""
    x = numbers.reshape(-1, 8, 32)
    steps, offsets = _affine_fit(x, np.float32(largest))
    scale, scales = _by_largest(steps)
    offset_scale, offset_scales = _by_largest(offsets)
    steps = scale.astype(np.float32)[:, np.newaxis] * scales
    offsets = offset_scale.astype(np.float32)[:, np.newaxis] * offset_scales
    places = _quotient(x + offsets[:, :, np.newaxis], steps[:, :, np.newaxis])
    return Parts(
        integers=np.clip(np.rint(places), 0, largest).astype(np.uint8),
        steps=steps,
        offsets=offsets,
        scale=scale,
        scales=scales.astype(np.uint8),
        offset_scale=offset_scale,
        offset_scales=offset_scales.astype(np.uint8),
    )


def symmetric(numbers: Array) -> Parts:
    """Q6_K of numbers (n, 256) float32."""
    x = numbers.reshape(-1, 16, 16)
    steps = _symmetric_fit(x)
    place = np.abs(steps).argmax(axis=1)[:, np.newaxis]
    scale = (np.take_along_axis(steps, place, axis=1)[:, 0] / np.float32(-128)).astype("<f2")
    wide = scale.astype(np.float32)[:, np.newaxis]
    scales = np.clip(np.rint(_quotient(steps, wide)), -128, 127)
    steps = wide * scales
    places = _quotient(x, steps[:, :, np.newaxis])
    none = np.zeros(scale.shape, "<f2")
    return Parts(
        integers=np.clip(np.rint(places), -_SIX_BITS, _SIX_BITS - 1).astype(np.int8),
        steps=steps,
        offsets=np.zeros_like(steps),
        scale=scale,
        scales=scales.astype(np.int8),
        offset_scale=none,
        offset_scales=np.zeros(scales.shape, np.uint8),
    )


def bounds(numbers: Array, parts: Parts, *, least: int, largest: int) -> Array:
    """How far what the parts stand for may be from numbers (n, 256), in float64, without the rounding of float32:
    integers are chosen as the nearest from `least` to `largest`."""
    x = numbers.astype(np.float64).reshape(parts.integers.shape)
    steps, offsets = (each.astype(np.float64)[:, :, np.newaxis] for each in (parts.steps, parts.offsets))
    ends = least * steps - offsets, largest * steps - offsets
    outside = np.maximum(np.minimum(*ends) - x, x - np.maximum(*ends))
    # A quotient is rounded in float32 before it is rounded to an integer.
    half = np.abs(steps) * (0.5 + max(-least, largest) * 2.0**-22)
    found: Array = np.maximum(half, outside).reshape(numbers.shape)
    return found


def packed_affine(parts: Parts, *, bits: int) -> Array:
    """Blocks (n, 144) or (n, 176) uint8 of Q4_K or Q5_K: d, e, s and m, the fifth bits of all q, and the lowest four.

    Of s and m, the first four of eight fill the low 6 bits of bytes 0 to 3 and 4 to 7; of the others, bytes 8 to 11
    have the lowest four bits, s below m, and the highest two are above those of the first."""
    low, high = (np.split(each, 2, axis=1) for each in (parts.scales, parts.offset_scales))
    (first_s, last_s), (first_m, last_m) = low, high
    found = [
        parts.scale.view(np.uint8).reshape(-1, 2),
        parts.offset_scale.view(np.uint8).reshape(-1, 2),
        first_s | (last_s >> 4 << 6),
        first_m | (last_m >> 4 << 6),
        (last_s & 15) | (last_m << 4),
    ]
    if bits == 5:
        fifth = parts.integers >> 4 << np.arange(8, dtype=np.uint8)[:, np.newaxis]
        found.append(np.bitwise_or.reduce(fifth, axis=1))
    even, odd = parts.integers[:, ::2] & 15, parts.integers[:, 1::2] & 15
    found.append((even | odd << 4).reshape(len(even), -1))
    return np.concatenate(found, axis=1)


def packed_symmetric(parts: Parts) -> Array:
    """Blocks (n, 210) uint8 of Q6_K: the lowest four bits of all q + 32, the highest two, s, and d."""
    codes = (parts.integers + np.int8(_SIX_BITS)).view(np.uint8).reshape(-1, 2, 4, 32)
    low = (codes[:, :, :2] & 15) | (codes[:, :, 2:] & 15) << 4
    high = np.bitwise_or.reduce(codes >> 4 << np.arange(0, 8, 2, dtype=np.uint8)[:, np.newaxis], axis=2)
    count = len(codes)
    found = [low.reshape(count, -1), high.reshape(count, -1), parts.scales.view(np.uint8)]
    return np.concatenate([*found, parts.scale.view(np.uint8).reshape(-1, 2)], axis=1)


def _affine_fit(x: Array, largest: np.float32) -> tuple[Array, Array]:
    """Steps and offsets (n, parts), neither below zero."""
    low, high = np.minimum(x.min(axis=2), 0), x.max(axis=2)
    rms = np.sqrt(_sum(x * x) / np.float32(x.shape[2]))
    weights = rms[:, :, np.newaxis] + np.abs(x)
    sum_w, sum_x = _sum(weights), _sum(weights * x)
    step, offset = (high - low) / largest, -low
    best = np.full(step.shape, np.inf, np.float32)
    shifted = x - low[:, :, np.newaxis]
    for more in _TRIES:
        inverse = _quotient(np.full(step.shape, largest + more, np.float32), high - low)
        q = np.clip(np.rint(shifted * inverse[:, :, np.newaxis]), 0, largest)
        weighted = weights * q
        sum_q, sum_qq, sum_qx = _sum(weighted), _sum(weighted * q), _sum(weighted * x)
        slope = _quotient(sum_w * sum_qx - sum_x * sum_q, sum_w * sum_qq - sum_q * sum_q)
        least = _quotient(sum_qq * sum_x - sum_q * sum_qx, sum_w * sum_qq - sum_q * sum_q)
        through_zero = least > 0
        slope = np.maximum(np.where(through_zero, _quotient(sum_qx, sum_qq), slope), 0)
        least = np.where(through_zero, 0, least)
        off = slope[:, :, np.newaxis] * q + least[:, :, np.newaxis] - x
        error = _sum(weights * off * off)
        better = error < best
        best, step, offset = (
            np.where(better, one, other) for one, other in ((error, best), (slope, step), (-least, offset))
        )
    return step, offset


def _symmetric_fit(x: Array) -> Array:
    """Steps (n, parts) of either sign: the number of largest magnitude is -32 of them, or near that."""
    place = np.abs(x).argmax(axis=2)[:, :, np.newaxis]
    end = np.take_along_axis(x, place, axis=2)[:, :, 0]
    weights = x * x
    best, step = np.full(end.shape, -1, np.float32), np.zeros_like(end)
    for more in _TRIES:
        inverse = _quotient(np.full(end.shape, -(_SIX_BITS + more), np.float32), end)
        q = np.clip(np.rint(x * inverse[:, :, np.newaxis]), -_SIX_BITS, _SIX_BITS - 1)
        sum_qx, sum_qq = _sum(weights * q * x), _sum(weights * q * q)
        slope = _quotient(sum_qx, sum_qq)
        explained = slope * sum_qx  # what of the weighted squares is no error
        better = explained > best
        best, step = np.where(better, explained, best), np.where(better, slope, step)
    return step


def _by_largest(numbers: Array) -> tuple[Array, Array]:
    """Numbers (n, parts), none below zero, as a scale (n,) float16 and integers of 6 bits, in float32."""
    scale = (numbers.max(axis=1) / np.float32(_LARGEST_SCALE)).astype("<f2")
    places = _quotient(numbers, scale.astype(np.float32)[:, np.newaxis])
    return scale, np.clip(np.rint(places), 0, _LARGEST_SCALE)


def _quotient(one: Array, other: Array) -> Array:
    """one / other, and 0 where that is no finite number."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = one / other
    found[~np.isfinite(found)] = 0
    return found


def _sum(numbers: Array) -> Array:
    """Sums along the last axis, one number after the other."""
    total = numbers[:, :, 0].copy()
    for place in range(1, numbers.shape[2]):
        total += numbers[:, :, place]
    return total
