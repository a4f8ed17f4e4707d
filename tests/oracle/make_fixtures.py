#!/usr/bin/env python3
"""Writes tests/oracle/fixtures/*.json: what each op gives by definitions that share nothing with this library.

Every op is written here as plain, sequential float64 arithmetic of PyTorch tensors; PyTorch's automatic differentiation
gives the gradients. Where PyTorch or scipy has the op itself (layer norm, softplus, AdamW, gradient clipping,
cont2discrete), that is used, or must agree before a fixture is written. Inputs come from a fixed seed.

    python3 tests/oracle/make_fixtures.py        needs python3-torch, python3-numpy, python3-scipy of Debian 12
"""

import json
import math
import pathlib

import numpy
import scipy.signal
import torch
import torch.nn.functional as F

OUT = pathlib.Path(__file__).resolve().parent / "fixtures"
GENERATOR = torch.Generator().manual_seed(20240607)
torch.set_default_dtype(torch.float64)


def normal(*shape, scale=1.0, mean=0.0):
    return mean + scale * torch.randn(shape, generator=GENERATOR)


def uniform(low, high, *shape):
    return low + (high - low) * torch.rand(*shape, generator=GENERATOR)


def tensor(value):
    value = value.detach()
    return {"shape": list(value.shape), "values": [float(v) for v in value.reshape(-1)]}


def fixture(name, options, inputs, constants, function, skip_cotangents=()):
    """inputs have gradients, constants have none; function returns a dict of outputs."""
    leaves = {key: value.clone().requires_grad_(True) for key, value in inputs.items()}
    outputs = function(**leaves, **constants)
    cotangents = {key: normal(*value.shape) for key, value in outputs.items() if key not in skip_cotangents}
    scalar = sum((outputs[key] * cotangents[key]).sum() for key in cotangents)
    gradients = torch.autograd.grad(scalar, list(leaves.values()), allow_unused=True)
    return {
        "name": name,
        "options": options,
        "inputs": {key: tensor(value) for key, value in {**inputs, **constants}.items()},
        "outputs": {key: tensor(value) for key, value in outputs.items()},
        "cotangents": {key: tensor(value) for key, value in cotangents.items()},
        "gradients": {
            key: tensor(torch.zeros_like(leaf) if gradient is None else gradient)
            for (key, leaf), gradient in zip(leaves.items(), gradients)
        },
    }


def projection():
    def plain(x, weight, bias=None):
        rows = []
        for row in x.reshape(-1, x.shape[-1]):
            y = [sum(row[i] * weight[o, i] for i in range(weight.shape[1])) for o in range(weight.shape[0])]
            rows.append(torch.stack(y) + (bias if bias is not None else 0))
        return {"y": torch.stack(rows).reshape(*x.shape[:-1], weight.shape[0])}

    cases = []
    for shape, out in [((4, 5), 3), ((2, 3, 7), 4), ((1, 1), 1)]:
        values = {"x": normal(*shape), "weight": normal(out, shape[-1])}
        cases.append(fixture(f"plain {shape}", {}, values, {}, plain))
        cases.append(fixture(f"bias {shape}", {}, {**values, "bias": normal(out)}, {}, plain))
    return cases


def layer_norm():
    def plain(x, weight, bias, eps):
        deviation = x - x.mean(-1, keepdim=True)
        y = deviation / torch.sqrt((deviation**2).mean(-1, keepdim=True) + eps) * weight + bias
        # PyTorch's own folds the mean into an offset, which costs it digits where the mean is large.
        torch.testing.assert_close(F.layer_norm(x, (x.shape[-1],), weight, bias, eps), y, rtol=1e-9, atol=1e-9)
        return {"y": y}

    cases = []
    for name, x, eps in [
        ("unit", normal(5, 7), 1e-5),
        ("leading dimensions", normal(2, 3, 16, mean=2), 1e-5),
        ("mean 1e3", normal(4, 33, mean=1e3), 1e-5),
        ("eps dominates", normal(6, 12, scale=1e-4), 1e-5),
        ("eps 1", normal(6, 12, scale=1e-2), 1.0),
        ("one channel", normal(4, 1), 1e-5),
        ("wide", normal(2, 70), 1e-5),
    ]:
        width = x.shape[-1]
        values = {"x": x, "weight": normal(width, mean=1, scale=0.5), "bias": normal(width)}
        cases.append(fixture(name, {"eps": eps}, values, {},
                             lambda x, weight, bias, e=eps: plain(x, weight, bias, e)))
    return cases


def elementwise(function):
    points = torch.tensor([-700.0, -104.0, -30.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 19.9, 20.0, 20.1, 88.0, 1000.0])
    return [fixture("random", {}, {"x": normal(4, 9, scale=4)}, {}, function),
            fixture("far and near", {}, {"x": points}, {}, function)]


def softplus():
    return elementwise(lambda x: {"y": F.softplus(x)})


def silu():
    # sigma(x) written so that nothing overflows.
    def sigma(x):
        e = torch.exp(-torch.abs(x))
        return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))
    return elementwise(lambda x: {"y": x * sigma(x)})


def discretize():
    def phi1(z):
        # (exp(z) - 1) / z; by its series near 0, where the quotient loses digits. Not torch.expm1, whose gradient is
        # formed as expm1(z) + 1 and so loses digits far below 0.
        near = torch.where(torch.abs(z) < 0.5, z, torch.zeros_like(z))
        series = torch.zeros_like(z)
        for k in range(20, -1, -1):
            series = series * near + 1.0 / math.factorial(k + 1)
        far = torch.where(torch.abs(z) < 0.5, torch.ones_like(z), z)
        return torch.where(torch.abs(z) < 0.5, series, (torch.exp(far) - 1) / far)

    def exp_minus_1(z):
        return torch.where(torch.abs(z) < 0.5, z * phi1(z), torch.exp(z) - 1)

    def model(dt, A, B, method):
        z = dt * A
        if method == "zoh":
            a, F_, s = torch.exp(z), exp_minus_1(z), dt * phi1(z)
        elif method == "exp_euler":
            a, F_, s = torch.exp(z), exp_minus_1(z), dt
        elif method == "bilinear":
            a, F_, s = (1 + z / 2) / (1 - z / 2), z / (1 - z / 2), dt / (1 - z / 2)
        else:
            a, F_, s = 1 + z, z, dt
        return {"A_bar": a, "B_bar": s[:, None] * B, "F": F_}

    def second_opinion(dt, A, B, method, outputs):
        """scipy discretises each state as a system of its own."""
        names = {"zoh": "zoh", "bilinear": "bilinear"}
        if method not in names:
            return
        for n in range(len(A)):
            system = (numpy.array([[A[n].item()]]), B[n:n + 1].numpy(), numpy.ones((1, 1)), numpy.zeros((1, B.shape[1])))
            a, b, *_ = scipy.signal.cont2discrete(system, dt[n].item(), method=names[method])
            assert abs(a[0, 0] - outputs["A_bar"]["values"][n]) <= 1e-12, (method, n)
            mine = numpy.array(outputs["B_bar"]["values"]).reshape(B.shape)[n]
            # scipy's zoh exponentiates a matrix: a few more roundings.
            assert numpy.max(numpy.abs(b[0] - mine)) <= 1e-11 * (1 + numpy.max(numpy.abs(mine))), (method, n)

    cases = []
    for method in ["zoh", "exp_euler", "bilinear", "euler"]:
        for name, dt, A in [
            ("usual", uniform(1e-3, 0.1, 5), -uniform(0.5, 20, 5)),
            ("small", uniform(1e-4, 1e-3, 3), -uniform(1e-4, 1e-2, 3)),
            ("large", uniform(0.5, 2, 3), -uniform(3, 40, 3)),
            ("all sizes", torch.full((6,), 0.01), -torch.logspace(-6, 5.7, 6)),
        ]:
            values = {"dt": dt, "A": A, "B": normal(len(A), 4)}
            case = fixture(f"{method} {name}", {"method": method}, values, {},
                           lambda dt, A, B, m=method: model(dt, A, B, m))
            if name != "all sizes":
                second_opinion(dt, A, values["B"], method, case["outputs"])
            cases.append(case)
    return cases


def scan():
    def plain(a, b, h0=None):
        state = h0 if h0 is not None else torch.zeros(b.shape[0], b.shape[2])
        rows = []
        for t in range(b.shape[1]):
            state = (a[:, t] if a.dim() == 3 else a) * state + b[:, t]
            rows.append(state)
        return {"h": torch.stack(rows, 1), "final_state": state}

    cases = []
    for name, batch, length, channels in [("short", 2, 5, 3), ("one step", 3, 1, 2), ("longer", 1, 40, 2)]:
        for decay in ["constant", "varying"]:
            shape = (channels,) if decay == "constant" else (batch, length, channels)
            for first in [True, False]:
                values = {"a": uniform(-1, 1.02, *shape), "b": normal(batch, length, channels)}
                if first:
                    values["h0"] = normal(batch, channels)
                for skip in [(), ("final_state",), ("h",)]:
                    if skip and name != "short":
                        continue
                    cases.append(fixture(f"{decay} {name} h0={first} without {skip}", {}, values, {}, plain, skip))
    return cases


def state_output():
    cases = []
    for activation in ["silu", "none"]:
        act = F.silu if activation == "silu" else (lambda v: v)
        values = {"z": normal(2, 5, 6), "u": normal(2, 5, 6), "D": normal(6), "residual": normal(2, 5, 6)}
        cases.append(fixture(activation, {"activation": activation}, values, {},
                             lambda z, u, D, residual, f=act: {"out": residual + f(z + D * u)}))
    return cases


def mse():
    def masked(prediction, target, mask=None):
        if mask is None:
            return {"loss": F.mse_loss(prediction, target)}
        counted = mask != 0
        if not counted.any():
            return {"loss": (prediction * 0).sum()}
        return {"loss": ((prediction[counted] - target[counted]) ** 2).sum() / counted.sum()}

    cases = []
    for name, mask in [("all", None), ("half", (torch.arange(12) % 2).reshape(3, 4).double()), ("none", torch.zeros(3, 4)),
                       ("one", torch.eye(3, 4) * torch.tensor([0.0, 3.0, 0.0, 0.0]))]:
        constants = {"target": normal(3, 4)}
        if mask is not None:
            constants["mask"] = mask
        cases.append(fixture(name, {}, {"prediction": normal(3, 4)}, constants, masked))
    return cases


def adamw():
    """torch.optim.AdamW, two groups (with and without decay), 20 steps, gradients clipped to a total norm."""
    runs = []
    for name, max_norm, lr, decay in [("clipped", 1.5, 3e-2, 0.1), ("free", 0.0, 1e-3, 0.01)]:
        decayed, plain = torch.nn.Parameter(normal(7)), torch.nn.Parameter(normal(5))
        options = {"lr": lr, "weight_decay": decay, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "max_norm": max_norm}
        optimiser = torch.optim.AdamW([{"params": [decayed], "weight_decay": decay}, {"params": [plain], "weight_decay": 0.0}],
                                      lr=lr, betas=(0.9, 0.999), eps=1e-8)
        run = {"name": name, "options": options, "decayed": 7, "start": tensor(torch.cat([decayed, plain])), "steps": []}
        for _ in range(20):
            gradient = normal(12, scale=float(uniform(0.05, 2, 1)))
            decayed.grad, plain.grad = gradient[:7].clone(), gradient[7:].clone()
            norm = float(gradient.norm())
            if max_norm > 0:
                norm = float(torch.nn.utils.clip_grad_norm_([decayed, plain], max_norm))
            optimiser.step()
            state = [optimiser.state[p] for p in (decayed, plain)]
            run["steps"].append({
                "gradient": tensor(gradient), "norm": norm,
                "parameter": tensor(torch.cat([decayed, plain])),
                "first_moment": tensor(torch.cat([s["exp_avg"] for s in state])),
                "second_moment": tensor(torch.cat([s["exp_avg_sq"] for s in state])),
            })
        runs.append(run)
    return runs


def main():
    OUT.mkdir(exist_ok=True)
    for function in [projection, layer_norm, softplus, silu, discretize, scan, state_output, mse, adamw]:
        text = json.dumps({"format_version": 1, "op": function.__name__, "made_by": f"torch {torch.__version__}",
                           "cases": function()}, indent=None, separators=(",", ":"))
        (OUT / f"{function.__name__}.json").write_text(text.replace('{"name"', '\n{"name"') + "\n")


if __name__ == "__main__":
    main()
