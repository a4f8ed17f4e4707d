#!/usr/bin/env python3
"""Files made and read by the safetensors package, against which this project's reader and writer are tested.

make_safetensors.py              writes tests/oracle/fixtures/safetensors.json: files as hexadecimal text, and what is in them
make_safetensors.py --read FILE  prints what the package finds in a file: a line a tensor, in the order of their names

Needs the packages safetensors and numpy (a virtual environment will do).
"""

import json
import pathlib
import sys

import numpy
import safetensors

OUT = pathlib.Path(__file__).resolve().parent / "fixtures" / "safetensors.json"
NUMPY = {"float64": numpy.float64, "float32": numpy.float32, "float16": numpy.float16, "int32": numpy.int32}


def bits_of_bfloat16(values):
    """The upper halves of f32, of values that have no lower ones."""
    bits = numpy.asarray(values, numpy.float32).view(numpy.uint32)
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype(numpy.uint16)


def tensor(dtype, shape, values):
    array = bits_of_bfloat16(values) if dtype == "bfloat16" else numpy.asarray(values, NUMPY[dtype])
    assert array.size == numpy.prod(shape, dtype=int)
    return {"dtype": dtype, "shape": list(shape), "array": array, "values": [float(v) for v in values]}


def spec(value):
    """A tensor as the package takes it: by address from version 0.8 on, as bytes before."""
    array = value["array"]
    if hasattr(safetensors, "TensorSpec"):
        return safetensors.TensorSpec(dtype=value["dtype"], shape=value["shape"], data_ptr=array.ctypes.data,
                                      data_len=array.nbytes)
    return {"dtype": value["dtype"], "shape": value["shape"], "data": array.tobytes()}


def case(name, metadata, **tensors):
    data = safetensors.serialize({key: spec(value) for key, value in tensors.items()}, metadata)
    return {"name": name, "hex": bytes(data).hex(), "metadata": metadata or {},
            "tensors": {key: {"dtype": value["dtype"], "shape": value["shape"], "values": value["values"]}
                        for key, value in tensors.items()}}


def cases():
    yield case("one", None, weight=tensor("float32", (2, 3), [1, -2, 3.5, 0.25, -0.0, 65536]))
    yield case("every type", {"format": "pt", "made": "by hand"},
               f64=tensor("float64", (2,), [1 / 3, -1e300]), f32=tensor("float32", (1, 2, 1), [1.5, -2]),
               bf16=tensor("bfloat16", (3,), [1.0078125, -3, 2.0 ** 100]), f16=tensor("float16", (1,), [-65504]),
               i32=tensor("int32", (2, 2), [0, -1, 2147483647, -2147483648]))
    yield case("odd sizes", None, a=tensor("float16", (3,), [1, 2, 3]), b=tensor("float32", (), [7]),
               c=tensor("float64", (1,), [8]), none=tensor("float32", (0, 5), []))
    yield case("names", {"": "empty"}, **{"backbone.layers.0.mixer.A_log": tensor("float32", (2,), [0, 1]),
                                          'quoted "name"\\': tensor("float32", (1,), [5])})
    yield case("nothing", None)


def show(path):
    for name, value in sorted(safetensors.deserialize(pathlib.Path(path).read_bytes())):
        print(name, value["dtype"], "x".join(map(str, value["shape"])), bytes(value["data"]).hex())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--read"]:
        show(sys.argv[2])
    else:
        document = {"format_version": 1, "made_by": "safetensors " + safetensors.__version__, "cases": list(cases())}
        OUT.write_text(json.dumps(document, indent=None, separators=(",", ":")).replace('{"name"', '\n{"name"') + "\n")
