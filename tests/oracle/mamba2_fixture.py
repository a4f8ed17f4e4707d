"""What the scripts that make fixtures of Mamba-2 language models share, and tests/test_mamba2_weights.cpp reads.

A fixture is one safetensors file. A model in it is its config.json and a table of its weights, both as text; the values
themselves are drawn by a generator that C++ has as well (scantape's Random, SplitMix64), so that the file stays small.
Of a gradient the file has everything where it is small, else some elements and products with random directions.
"""

import json
import math

import numpy

SAMPLES = 96  # elements of a large gradient
DIRECTIONS = 3  # products of a gradient with a random direction


def seed_of(text):
    """FNV-1a, 64 bits."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def uniform(text, count):
    """`count` numbers in [0, 1): those that Random(seed_of(text)) gives one after the other."""
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed_of(text)) + numpy.uint64(0x9E3779B97F4A7C15) * numpy.arange(1, count + 1, dtype=numpy.uint64)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return (z >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53


def uniform_between(text, low, high, shape):
    return low + (high - low) * uniform(text, math.prod(shape)).reshape(shape)


def range_of(name, shape):
    """Between which numbers a weight is drawn: far from a fresh model, so that tokens change and dt meets its limits."""
    if "embedding" in name or name == "lm_head.weight":
        return [-0.3, 0.3]
    if "norm" in name:
        return [0.6, 1.4]
    if name.endswith("dt_bias"):
        return [-4.0, -0.5]
    if name.endswith("A_log"):
        return [0.0, 2.5]
    if name.endswith(".D"):
        return [0.5, 1.5]
    if name.endswith("conv1d.bias"):
        return [-0.2, 0.2]
    # A strong out_proj: else a tied model says the last token again.
    width = (5.0 if "out_proj" in name else 2.0) / math.sqrt(shape[-1])
    return [-width, width]


def table_of(shapes):
    """{name: [shape, low, high]} of {name: shape}."""
    return {name: [list(shape), *range_of(name, shape)] for name, shape in shapes.items()}


def weights_of(model, table):
    return {name: uniform_between(f"{model}/{name}", low, high, shape) for name, (shape, low, high) in table.items()}


def tokens(text, count, vocabulary):
    return (uniform(text, count) * vocabulary).astype(numpy.int32)


def digest(model, name, gradient):
    """[norm, products with directions, elements] of a gradient, in f64."""
    flat = gradient.astype(numpy.float64).reshape(-1)
    products = [flat @ uniform_between(f"{model}/{name}/direction {k}", -1, 1, [flat.size]) for k in range(DIRECTIONS)]
    places = slice(None)
    if flat.size > SAMPLES:
        places = (uniform(f"{model}/{name}/samples", SAMPLES) * flat.size).astype(numpy.int64)
    return numpy.concatenate([[numpy.sqrt((flat**2).sum())], products, flat[places]])


TYPES = {numpy.dtype(numpy.float64): "F64", numpy.dtype(numpy.float32): "F32", numpy.dtype(numpy.int32): "I32"}


def write(path, tensors, texts):
    header, offset = {"__metadata__": texts}, 0
    for name, value in tensors.items():
        header[name] = {"dtype": TYPES[value.dtype], "shape": list(value.shape), "data_offsets": [offset, offset + value.nbytes]}
        offset += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    body = b"".join(numpy.ascontiguousarray(value).tobytes() for value in tensors.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def read(path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    texts = header.pop("__metadata__")
    kinds = {name: dtype for dtype, name in TYPES.items()}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        tensors[name] = numpy.frombuffer(data[begin:end], kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors, texts
