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
import zlib

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


def norm(plain, added_later):
    """plain(r, weight, bias, eps) gives y; r is x, or x + residual. added_later: the second half of the cases came
    when later ops had fixtures already, whose numbers it must leave alone."""
    def model(eps):
        def call(x, weight, residual=None, bias=None):
            r = x if residual is None else x + residual
            y = plain(r, weight, bias, eps)
            return {"y": y} if residual is None else {"y": y, "r": r}
        return call

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
        cases.append(fixture(name, {"eps": eps}, values, {}, model(eps)))
    before = GENERATOR.get_state()
    if added_later:
        GENERATOR.manual_seed(1)
    for shape, skip in [((5, 7), ()), ((2, 3, 16), ("y",)), ((4, 12), ("r",))]:
        values = {"x": normal(*shape), "residual": normal(*shape), "weight": normal(shape[-1], mean=1, scale=0.5)}
        cases.append(fixture(f"residual without {skip}", {"eps": 1e-5}, values, {}, model(1e-5), skip))
        values["bias"] = normal(shape[-1])
        cases.append(fixture(f"residual, bias without {skip}", {"eps": 1e-5}, values, {}, model(1e-5), skip))
    if added_later:
        GENERATOR.set_state(before)
    return cases


def layer_norm():
    def plain(x, weight, bias, eps):
        deviation = x - x.mean(-1, keepdim=True)
        y = deviation / torch.sqrt((deviation**2).mean(-1, keepdim=True) + eps) * weight
        y = y if bias is None else y + bias
        # PyTorch's own folds the mean into an offset, which costs it digits where the mean is large.
        torch.testing.assert_close(F.layer_norm(x, (x.shape[-1],), weight, bias, eps), y, rtol=1e-9, atol=1e-9)
        return y

    return norm(plain, added_later=True)


def rms_norm():
    def plain(x, weight, bias, eps):
        y = x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps) * weight
        return y if bias is None else y + bias

    return norm(plain, added_later=False)


def projection_layer_norm():
    def model(eps):
        def call(x, weight, norm_weight, bias=None, norm_bias=None):
            return {"y": F.layer_norm(F.linear(x, weight, bias), (weight.shape[0],), norm_weight, norm_bias, eps)}
        return call

    cases = []
    for shape, width, eps in [((5, 7), 4, 1e-5), ((2, 3, 6), 17, 1e-5), ((40, 5), 6, 1e-3), ((2, 4), 70, 1e-5)]:
        for with_bias in [True, False]:
            for with_norm_bias in [True, False]:
                values = {"x": normal(*shape), "weight": normal(width, shape[-1]),
                          "norm_weight": normal(width, mean=1, scale=0.5)}
                if with_bias:
                    values["bias"] = normal(width)
                if with_norm_bias:
                    values["norm_bias"] = normal(width)
                cases.append(fixture(f"{shape} to {width}, bias {with_bias}, norm_bias {with_norm_bias}",
                                     {"eps": eps}, values, {}, model(eps)))
    return cases


def elementwise(function):
    points = torch.tensor([-700.0, -104.0, -30.0, -1.0, -1e-9, 0.0, 1e-9, 1.0, 19.9, 20.0, 20.1, 88.0, 1000.0])
    return [fixture("random", {}, {"x": normal(4, 9, scale=4)}, {}, function),
            fixture("far and near", {}, {"x": points}, {}, function)]


def softplus():
    return elementwise(lambda x: {"y": F.softplus(x)})


def neg_exp():
    return [fixture("random", {}, {"x": normal(4, 9, scale=4)}, {}, lambda x: {"y": -torch.exp(x)})]


def copy():
    return [fixture("random", {}, {"x": normal(4, 9)}, {}, lambda x: {"y": x.clone()})]


def silu():
    # sigma(x) written so that nothing overflows.
    def sigma(x):
        e = torch.exp(-torch.abs(x))
        return torch.where(x >= 0, 1 / (1 + e), e / (1 + e))
    return elementwise(lambda x: {"y": x * sigma(x)})


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


def step_factors(dt, A, method):
    """a, a - 1 and s of A_bar and B_bar = s B, elementwise."""
    z = dt * A
    if method == "zoh":
        a, F_, s = torch.exp(z), exp_minus_1(z), dt * phi1(z)
    elif method == "exp_euler":
        a, F_, s = torch.exp(z), exp_minus_1(z), dt
    elif method == "bilinear":
        a, F_, s = (1 + z / 2) / (1 - z / 2), z / (1 - z / 2), dt / (1 - z / 2)
    else:
        a, F_, s = 1 + z, z, dt
    return a, F_, s


def discretize():
    def model(dt, A, B, method):
        a, F_, s = step_factors(dt, A, method)
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


def discretize_per_head():
    def model(dt, A, method):
        a, F_, s = step_factors(dt, A, method)
        return {"A_bar": a, "F": F_, "s": s}

    cases = []
    for method in ["zoh", "exp_euler", "bilinear", "euler"]:
        for name, dt, A in [
            ("usual", uniform(1e-3, 0.1, 2, 3, 4), -uniform(0.5, 20, 4)),
            ("small", uniform(1e-4, 1e-3, 2, 2, 3), -uniform(1e-4, 1e-2, 3)),
            ("all sizes", torch.full((1, 2, 6), 0.01), -torch.logspace(-6, 5.7, 6)),
        ]:
            cases.append(fixture(f"{method} {name}", {"method": method}, {"dt": dt, "A": A}, {},
                                 lambda dt, A, m=method: model(dt, A, m)))
    return cases


def discretize_dense():
    def exponential(Q):
        """exp(Q): Taylor's sum of Q / 2^k, then k squarings. PyTorch's own matrix_exp is off by 1e-11."""
        k = max(0, math.ceil(math.log2(float(Q.detach().abs().sum(1).max()) + 1e-300)) + 1)
        term = total = torch.eye(len(Q))
        for i in range(1, 30):
            term = term @ Q / (i * 2.0**k)
            total = total + term
        for _ in range(k):
            total = total @ total
        return total

    def less_one(z):
        """exp(z) - 1 by the sum alone, for a small z."""
        term = total = z
        for i in range(2, 30):
            term = term @ z / i
            total = total + term
        return total

    def model(dt, A, B, method):
        n = len(A)
        one, none = torch.eye(n), torch.zeros(n, n)
        if method in ("zoh", "exp_euler"):
            # The exponential of [[dt A, dt I], [0, 0]] holds that of dt A and the integral over the step side by side.
            block = exponential(torch.cat([torch.cat([dt * A, dt * one], 1), torch.cat([none, none], 1)]))
            A_bar, integral = block[:n, :n], block[:n, n:]
            small = float((dt * A).detach().abs().sum(1).max()) < 0.5
            F_ = less_one(dt * A) if small else A_bar - one
            B_bar = integral @ B if method == "zoh" else dt * B
        elif method == "bilinear":
            left = one - dt / 2 * A
            A_bar, F_ = torch.linalg.solve(left, one + dt / 2 * A), torch.linalg.solve(left, dt * A)
            B_bar = torch.linalg.solve(left, dt * B)
        else:
            A_bar, F_, B_bar = one + dt * A, dt * A, dt * B
        return {"A_bar": A_bar, "B_bar": B_bar, "F": F_}

    def second_opinion(dt, A, B, method, outputs):
        names = {"zoh": "zoh", "bilinear": "bilinear", "euler": "euler"}
        if method not in names:
            return
        system = (A.numpy(), B.numpy(), numpy.ones((1, len(A))), numpy.zeros((1, B.shape[1])))
        a, b, *_ = scipy.signal.cont2discrete(system, float(dt), method=names[method])
        for name, theirs in [("A_bar", a), ("B_bar", b)]:
            mine = numpy.array(outputs[name]["values"]).reshape(theirs.shape)
            assert numpy.max(numpy.abs(theirs - mine)) <= 1e-11 * (1 + numpy.max(numpy.abs(mine))), (method, name)

    def skew(n, scale):
        g = normal(n, n, scale=scale / math.sqrt(n))
        return g - g.T - torch.eye(n) / 2

    v = normal(5)
    cases = []
    for method in ["zoh", "exp_euler", "bilinear", "euler"]:
        for name, dt, A in [
            ("usual", 0.05, skew(4, 3.0)),
            ("one state", 0.3, -uniform(0.5, 2, 1, 1)),
            ("small", 1e-4, 0.01 * normal(3, 3)),
            ("singular", 0.7, -3 * torch.outer(v, v) / (v @ v)),
            ("not normal", 0.4, torch.triu(2 * normal(6, 6), 1) - torch.eye(6)),
            ("large step", 2.0, skew(5, 6.0)),
            ("growing", 0.5, normal(4, 4) + torch.eye(4)),
        ]:
            values = {"dt": torch.tensor(dt), "A": A, "B": normal(len(A), 3)}
            case = fixture(f"{method} {name}", {"method": method}, values, {},
                           lambda dt, A, B, m=method: model(dt, A, B, m))
            second_opinion(values["dt"], A, values["B"], method, case["outputs"])
            cases.append(case)
    return cases


def spectral_radius():
    """The radius by numpy's eigenvalues, of matrices where the largest stands alone: there the definition by powers is the
    same number to all digits."""
    cases = []
    for n in [1, 2, 5, 12]:
        A = normal(n, n, scale=0.5 / math.sqrt(n)) + torch.ones(n, n) * 2 / n
        sizes = numpy.sort(numpy.abs(numpy.linalg.eigvals(A.numpy())))
        assert n == 1 or sizes[-2] < 0.9 * sizes[-1], sizes
        cases.append({"name": f"{n} rows", "options": {}, "inputs": {"A_bar": tensor(A)},
                      "outputs": {"radius": tensor(torch.tensor(sizes[-1]))}, "cotangents": {}, "gradients": {}})
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


def scan_forms():
    def decayed(form, decay, t, state):
        if form == "dense":
            return torch.stack([sum(decay[i, k] * state[:, k] for k in range(state.shape[1])) for i in range(state.shape[1])], 1)
        if form == "constant":
            return decay * state
        return decay[:, t].reshape(*decay[:, t].shape, *[1] * (state.dim() - decay.dim() + 1)) * state

    def model(form, direction, minus_one):
        def plain(a, b, h0=None, start=None):
            decay = a if minus_one == "no" else a + (torch.eye(a.shape[0]) if form == "dense" else 1)
            state = h0 if h0 is not None else torch.zeros(b.shape[0], *b.shape[2:])
            length = b.shape[1]
            rows = [None] * length
            for t in range(length) if direction == "forward" else reversed(range(length)):
                moved = decayed(form, decay, t, state)
                if start is not None:
                    kept = [moved[item] if start[item, t] == 0 else torch.zeros_like(moved[item]) for item in range(b.shape[0])]
                    moved = torch.stack(kept)
                state = moved + b[:, t]
                rows[t] = state
            return {"h": torch.stack(rows, 1), "final_state": state}
        return plain

    flags = torch.tensor([[0.0, 0, 1, 0, 0, 0], [1, 0, 0, -2, 0, 1]])
    shapes = {"constant": ((3,), (3,)), "varying": ((2, 6, 3), (3,)), "dense": ((3, 3), (3,)), "per head": ((2, 6, 2), (2, 3)),
              "per head, P and N": ((2, 6, 2), (2, 2, 2))}
    cases = []
    for form, (decay, channels) in shapes.items():
        for direction in ["forward", "reversed"]:
            for minus_one in ["no", "yes"]:
                for starts in [False, True]:
                    a = uniform(-0.9, 0.9, *decay)
                    if minus_one == "yes":
                        a = a - (torch.eye(3) if form == "dense" else 1)
                    values = {"a": a, "b": normal(2, 6, *channels)}
                    if starts or direction == "reversed":
                        values["h0"] = normal(2, *channels)
                    options = {"direction": direction, "minus_one": minus_one}
                    cases.append(fixture(f"{form} {direction} minus_one={minus_one} starts={starts}", options, values,
                                         {"start": flags} if starts else {}, model(form, direction, minus_one)))
    return cases


def discretized_scan():
    def plain(dt, A, u, h0=None, start=None, method="zoh", direction="forward"):
        batch, length, states = u.shape
        state = h0 if h0 is not None else torch.zeros(batch, states)
        order = range(length) if direction == "forward" else range(length - 1, -1, -1)
        rows = [None] * length
        for t in order:
            a, _, s = step_factors(dt[:, t] if dt.dim() == 3 else dt, A, method)
            new = s * u[:, t] + torch.zeros(batch, states)
            cut = torch.zeros(batch, 1, dtype=torch.bool) if start is None else (start[:, t] != 0)[:, None]
            state = rows[t] = torch.where(cut, new, a * state + new)
        return {"h": torch.stack(rows, 1), "final_state": state}

    cases = []
    for method in ["zoh", "exp_euler", "bilinear", "euler"]:
        for name, batch, length, states, low, high, rates in [
            ("usual", 2, 7, 3, 1e-3, 0.1, -uniform(0.5, 10, 3)),
            ("one step", 3, 1, 2, 0.1, 1.0, -uniform(0.5, 1.5, 2)),
            ("slow", 1, 90, 2, 1e-3, 2e-3, -torch.tensor([1e-3, 0.1])),
            ("all sizes", 1, 6, 5, 0.01, 0.02, -torch.logspace(-4, 2 if method == "euler" else 5.4, 5)),
        ]:
            for step in ["constant", "varying"]:
                for direction in ["forward", "reversed"]:
                    for packed in [False, True]:
                        if name != "usual" and (direction == "reversed" or packed):
                            continue
                        shape = (states,) if step == "constant" else (batch, length, states)
                        values = {"dt": uniform(low, high, *shape), "A": rates, "u": normal(batch, length, states)}
                        if name != "one step" or step == "varying":
                            values["h0"] = normal(batch, states)
                        constants = {}
                        if packed:
                            constants["start"] = torch.tensor([[0.0, 0, 1, 0, 0, -2, 0], [3.0, 0, 0, 0, 0, 0, 1]])
                        skip = ("h",) if name == "slow" and step == "constant" else ()
                        title = f"{method} {step} {name} {direction}{' packed' if packed else ''}"
                        cases.append(fixture(title, {"method": method, "direction": direction}, values, constants,
                                             lambda m=method, d=direction, **tensors: plain(**tensors, method=m, direction=d),
                                             skip))
    return cases


def causal_conv1d():
    def plain(x, weight, bias=None, initial_state=None, start=None, activation="silu"):
        batch, length, channels = x.shape
        taps = weight.shape[1]
        items, states = [], []
        for item in range(batch):
            # Pairs of an input and the number of the sequence it belongs to; the state is of the first.
            before = initial_state[item] if initial_state is not None else torch.zeros(taps - 1, channels)
            seen = [(0, row) for row in before]
            sequence, rows = 0, []
            for t in range(length):
                if start is not None and start[item, t] != 0:
                    sequence += 1
                seen.append((sequence, x[item, t]))
                p = bias if bias is not None else torch.zeros(channels)
                for k in range(taps):
                    whose, row = seen[len(seen) - taps + k]
                    if whose == sequence:
                        p = p + weight[:, k] * row
                rows.append(p * torch.sigmoid(p) if activation == "silu" else p)
            items.append(torch.stack(rows))
            if taps > 1:
                states.append(torch.stack([row if whose == sequence else torch.zeros(channels)
                                           for whose, row in seen[len(seen) - taps + 1:]]))
        y = torch.stack(items)
        if start is None and initial_state is None:
            # PyTorch's own convolution, padded on the left.
            own = F.conv1d(x.transpose(1, 2), weight[:, None], bias, padding=taps - 1, groups=channels)[..., :length]
            own = F.silu(own) if activation == "silu" else own
            torch.testing.assert_close(own.transpose(1, 2), y, rtol=1e-12, atol=1e-12)
        return {"y": y, "final_state": torch.stack(states)} if taps > 1 else {"y": y}

    def model(activation):
        return lambda **tensors: plain(**tensors, activation=activation)

    flags = torch.tensor([[0.0, 0, 1, 0, 0, 0, 0, 0, -2], [1, 0, 0, 0, 0, 3, 1, 0, 0]])
    cases = []
    for taps in [1, 2, 3, 4, 5, 16]:
        for activation in ["silu", "none"]:
            for packed in [False, True]:
                for given in [False, True]:
                    values = {"x": normal(2, 9, 3), "weight": normal(3, taps, scale=0.7)}
                    if given:
                        values["bias"] = normal(3)
                        if taps > 1:
                            values["initial_state"] = normal(2, taps - 1, 3)
                    title = f"K={taps} {activation} packed={packed} given={given}"
                    cases.append(fixture(title, {"activation": activation}, values, {"start": flags} if packed else {},
                                         model(activation)))
    for skip in [("y",), ("final_state",)]:
        values = {"x": normal(2, 2, 3), "weight": normal(3, 4), "bias": normal(3), "initial_state": normal(2, 3, 3)}
        cases.append(fixture(f"short without {skip}", {"activation": "silu"}, values, {}, model("silu"), skip))
    return cases


def causal_conv1d_step():
    def plain(x, weight, state=None, bias=None, activation="silu"):
        before = state if state is not None else torch.zeros(x.shape[0], weight.shape[1] - 1, x.shape[1])
        window = torch.cat([before, x[:, None]], 1)
        p = (window * weight.T).sum(1) + (bias if bias is not None else 0)
        y = F.silu(p) if activation == "silu" else p
        return {"y": y, "new_state": window[:, 1:]} if weight.shape[1] > 1 else {"y": y}

    cases = []
    for taps in [1, 2, 4, 16]:
        for activation in ["silu", "none"]:
            for given in [False, True]:
                values = {"x": normal(3, 5), "weight": normal(5, taps, scale=0.7)}
                if given:
                    values["bias"] = normal(5)
                    if taps > 1:
                        values["state"] = normal(3, taps - 1, 5)
                cases.append(fixture(f"K={taps} {activation} given={given}", {"activation": activation}, values, {},
                                     lambda a=activation, **tensors: plain(**tensors, activation=a)))
    return cases


def gated_rms_norm():
    def plain(x, weight, z=None, groups=1, norm_before_gate="no", eps=1e-5):
        def norm(u):
            parts = []
            for part in u.split(u.shape[-1] // groups, -1):
                parts.append(part / torch.sqrt((part**2).mean(-1, keepdim=True) + eps))
            return torch.cat(parts, -1)

        gate = 1 if z is None else z / (1 + torch.exp(-z))
        return {"y": norm(x) * weight * gate if norm_before_gate == "yes" else norm(x * gate) * weight}

    cases = []
    for shape, groups, eps in [((5, 8), 1, 1e-5), ((2, 3, 12), 4, 1e-5), ((4, 33), 3, 1e-3), ((3, 6), 6, 0.5), ((7,), 1, 1e-5),
                               ((2, 70), 2, 1e-5)]:
        for order in ["no", "yes"]:
            for gated in [True, False]:
                values = {"x": normal(*shape), "weight": normal(shape[-1], mean=1, scale=0.5)}
                if gated:
                    values["z"] = normal(*shape, scale=2)
                options = {"groups": groups, "norm_before_gate": order, "eps": eps}
                cases.append(fixture(f"{shape} groups={groups} norm_before_gate={order} gated={gated}", options, values, {},
                                     lambda o=options, **tensors: plain(**tensors, **o)))
    return cases


def ssd_plain(x, dt, A, B, C, D=None, z=None, dt_bias=None, initial_state=None, start=None, softplus=False, limits=None):
    """The recurrence as a loop over steps, rows of the batch and heads; states are [P, N] matrices."""
    batch, length, heads, width = x.shape
    groups, states = B.shape[2:]
    rows, last = [], []
    for b in range(batch):
        of_heads, finals = [], []
        for h in range(heads):
            g = h // (heads // groups)
            state = initial_state[b, h] if initial_state is not None else torch.zeros(width, states)
            ys = []
            for t in range(length):
                step = dt[b, t, h] + (dt_bias[h] if dt_bias is not None else 0)
                if softplus:
                    step = F.softplus(step)
                if limits is not None:
                    step = torch.clamp(step, *limits)
                moved = step * torch.outer(x[b, t, h], B[b, t, g])
                fresh = start is not None and float(start[b, t]) != 0
                state = moved if fresh else torch.exp(step * A[h]) * state + moved
                y = state @ C[b, t, g]
                if D is not None:
                    y = y + D[h] * x[b, t, h]
                ys.append(y if z is None else y * F.silu(z[b, t, h]))
            of_heads.append(torch.stack(ys))
            finals.append(state)
        rows.append(torch.stack(of_heads, 1))
        last.append(torch.stack(finals))
    return torch.stack(rows), torch.stack(last)


def ssd_values(rows, heads, groups, width, states, skip, gated, bias, softplus):
    values = {"x": normal(*rows, heads, width), "dt": uniform(-3, 0.5, *rows, heads) if softplus else uniform(0.02, 0.6, *rows, heads),
              "A": -uniform(0.3, 2, heads), "B": normal(*rows, groups, states), "C": normal(*rows, groups, states)}
    if skip != "none":
        values["D"] = normal(heads) if skip == "head" else normal(heads, width)
    if gated:
        values["z"] = normal(*rows, heads, width)
    if bias:
        values["dt_bias"] = normal(heads, scale=0.1)
    return values


# batch, length, heads, groups, width, states, D, z, dt_bias, softplus, limits, initial state, starts
SSD_CASES = [
    (2, 7, 4, 2, 3, 5, "head", True, True, True, None, True, False),
    (1, 12, 2, 1, 4, 3, "channel", True, True, True, [0.1, 0.4], True, True),
    (2, 9, 3, 3, 2, 4, "none", False, False, False, [0.1, 0.4], False, True),
    (1, 70, 1, 1, 2, 2, "head", False, False, False, None, True, False),
    (3, 1, 2, 1, 2, 3, "channel", True, False, True, None, True, False),
    (1, 33, 8, 4, 1, 2, "channel", False, True, True, [0.0, 0.7], False, True),
]


def ssd():
    cases = []
    for batch, length, heads, groups, width, states, skip, gated, bias, softplus, limits, initial, packed in SSD_CASES:
        values = ssd_values((batch, length), heads, groups, width, states, skip, gated, bias, softplus)
        if initial:
            values["initial_state"] = normal(batch, heads, width, states)
        constants = {"start": torch.floor(uniform(0, 1.35, batch, length))} if packed else {}

        def plain(**tensors):
            out, final_state = ssd_plain(**tensors, softplus=softplus, limits=limits)
            return {"out": out, "final_state": final_state}

        low, high = limits or [0, -1]
        cases.append(fixture(f"B{batch} L{length} H{heads} G{groups} D {skip}", {"softplus": softplus, "low": low, "high": high},
                             values, constants, plain))
    return cases


def ssd_step():
    cases = []
    for batch, _, heads, groups, width, states, skip, gated, bias, softplus, limits, _, _ in SSD_CASES:
        values = ssd_values((batch,), heads, groups, width, states, skip, gated, bias, softplus)
        values["state"] = normal(batch, heads, width, states)

        def plain(state, A, D=None, dt_bias=None, **rows):
            out, next_state = ssd_plain(**{key: value[:, None] for key, value in rows.items()}, A=A, D=D, dt_bias=dt_bias,
                                        initial_state=state, softplus=softplus, limits=limits)
            return {"out": out[:, 0], "next_state": next_state}

        low, high = limits or [0, -1]
        cases.append(fixture(f"B{batch} H{heads} G{groups} D {skip}", {"softplus": softplus, "low": low, "high": high}, values, {},
                             plain))
    return cases


def selective_scan_plain(u, dt, A, B, C, D=None, z=None, dt_bias=None, initial_state=None, start=None, softplus=False):
    """The recurrence as a loop over steps, rows of the batch and channels, each with its vector of states."""
    batch, length, channels = u.shape
    groups, states = B.shape[2:]
    rows, last = [], []
    for b in range(batch):
        of_channels, finals = [], []
        for e in range(channels):
            g = e // (channels // groups)
            state = initial_state[b, e] if initial_state is not None else torch.zeros(states)
            ys = []
            for t in range(length):
                step = dt[b, t, e] + (dt_bias[e] if dt_bias is not None else 0)
                if softplus:
                    step = F.softplus(step)
                moved = step * u[b, t, e] * B[b, t, g]
                fresh = start is not None and float(start[b, t]) != 0
                state = moved if fresh else torch.exp(step * A[e]) * state + moved
                y = (state * C[b, t, g]).sum()
                if D is not None:
                    y = y + D[e] * u[b, t, e]
                ys.append(y if z is None else y * F.silu(z[b, t, e]))
            of_channels.append(torch.stack(ys))
            finals.append(state)
        rows.append(torch.stack(of_channels, 1))
        last.append(torch.stack(finals))
    return torch.stack(rows), torch.stack(last)


def selective_scan_values(rows, channels, groups, states, skip, gated, bias, softplus):
    values = {"u": normal(*rows, channels), "A": -uniform(0.3, 2, channels, states),
              "dt": uniform(-3, 0.5, *rows, channels) if softplus else uniform(0.02, 0.6, *rows, channels),
              "B": normal(*rows, groups, states), "C": normal(*rows, groups, states)}
    if skip:
        values["D"] = normal(channels)
    if gated:
        values["z"] = normal(*rows, channels)
    if bias:
        values["dt_bias"] = normal(channels, scale=0.1)
    return values


# batch, length, channels, groups, states, D, z, dt_bias, softplus, initial state, starts
SELECTIVE_SCAN_CASES = [
    (2, 7, 6, 2, 5, True, True, True, True, True, False),
    (1, 12, 4, 1, 3, True, True, True, True, True, True),
    (2, 9, 3, 3, 4, False, False, False, False, False, True),
    (1, 70, 2, 1, 2, True, False, False, False, True, False),
    (3, 1, 4, 1, 3, True, True, False, True, True, False),
    (1, 33, 8, 4, 1, True, False, True, True, False, True),
    (1, 5, 9, 1, 18, False, True, False, True, True, False),
    (1, 3, 70, 1, 2, True, True, False, False, False, False),
]


def selective_scan():
    cases = []
    for batch, length, channels, groups, states, skip, gated, bias, softplus, initial, packed in SELECTIVE_SCAN_CASES:
        values = selective_scan_values((batch, length), channels, groups, states, skip, gated, bias, softplus)
        if initial:
            values["initial_state"] = normal(batch, channels, states)
        constants = {"start": torch.floor(uniform(0, 1.35, batch, length))} if packed else {}

        def plain(**tensors):
            out, final_state = selective_scan_plain(**tensors, softplus=softplus)
            return {"out": out, "final_state": final_state}

        cases.append(fixture(f"B{batch} L{length} E{channels} G{groups} N{states}", {"softplus": softplus}, values, constants, plain))
    return cases


def selective_scan_step():
    cases = []
    for batch, _, channels, groups, states, skip, gated, bias, softplus, _, _ in SELECTIVE_SCAN_CASES:
        values = selective_scan_values((batch,), channels, groups, states, skip, gated, bias, softplus)
        values["state"] = normal(batch, channels, states)

        def plain(state, A, D=None, dt_bias=None, **rows):
            out, next_state = selective_scan_plain(**{key: value[:, None] for key, value in rows.items()}, A=A, D=D,
                                                   dt_bias=dt_bias, initial_state=state, softplus=softplus)
            return {"out": out[:, 0], "next_state": next_state}

        cases.append(fixture(f"B{batch} E{channels} G{groups} N{states}", {"softplus": softplus}, values, {}, plain))
    return cases


def state_output():
    cases = []
    for activation in ["silu", "none"]:
        act = F.silu if activation == "silu" else (lambda v: v)
        values = {"z": normal(2, 5, 6), "u": normal(2, 5, 6), "D": normal(6), "residual": normal(2, 5, 6)}
        cases.append(fixture(activation, {"activation": activation}, values, {},
                             lambda z, u, D, residual, f=act: {"out": residual + f(z + D * u)}))
    return cases


def loss(number, penalty, check, numbers):
    """Means of a penalty over what a mask counts; `check` has the op of PyTorch or None."""
    def masked(prediction, target, mask=None, **options):
        counted = torch.ones_like(prediction, dtype=torch.bool) if mask is None else mask != 0
        if not counted.any():
            return {"loss": (prediction * 0).sum()}
        value = penalty(prediction[counted] - target[counted], **options).sum() / counted.sum()
        if check is not None:
            torch.testing.assert_close(value, check(prediction[counted], target[counted], **options))
        return {"loss": value}

    cases = []
    for value in numbers:
        options = {} if number is None else {number: value}
        for name, mask in [("all", None), ("half", (torch.arange(12) % 2).reshape(3, 4).double()),
                           ("none", torch.zeros(3, 4)), ("one", torch.eye(3, 4) * torch.tensor([0.0, 3.0, 0.0, 0.0]))]:
            constants = {"target": normal(3, 4)}
            if mask is not None:
                constants["mask"] = mask
            title = name if number is None else f"{name}, {number} {value}"
            cases.append(fixture(title, options, {"prediction": normal(3, 4)}, constants,
                                 lambda o=options, **tensors: masked(**tensors, **o)))
    return cases


def mse():
    return loss(None, lambda d: d**2, F.mse_loss, [None])


def huber():
    return loss("k", lambda d, k: torch.where(torch.abs(d) <= k, d**2 / 2, k * (torch.abs(d) - k / 2)),
                lambda p, t, k: F.huber_loss(p, t, delta=k), [1.0, 0.25, 5.0])


def quantile():
    return loss("q", lambda d, q: torch.maximum((1 - q) * d, -q * d), None, [0.5, 0.1, 0.95])


def embedding():
    def plain(weight, ids):
        rows = [weight[int(i)] for i in ids.reshape(-1)]
        y = torch.stack(rows).reshape(*ids.shape, weight.shape[1])
        torch.testing.assert_close(y, F.embedding(ids.long(), weight))
        return {"y": y}

    cases = []
    for name, table, width, ids in [
        ("each once", 4, 3, torch.tensor([2.0, 0, 3, 1])),
        ("some often, some never", 6, 2, torch.tensor([[5.0, 1, 1, 5], [1, 1, 3, 5]])),
        ("one row", 1, 5, torch.zeros(2, 3)),
        ("a scalar", 3, 4, torch.tensor(2.0)),
        ("many places", 5, 2, torch.floor(uniform(0, 5, 3, 60))),
    ]:
        cases.append(fixture(name, {}, {"weight": normal(table, width)}, {"ids": ids}, plain))
    return cases


def cross_entropy():
    def plain(logits, target, ignore_index):
        x, t = logits.reshape(-1, logits.shape[-1]), target.reshape(-1).long()
        losses = [torch.log(torch.exp(row - row.max()).sum()) + row.max() - row[int(i)]
                  for row, i in zip(x, t) if i != ignore_index]
        if not losses:
            return {"loss": (logits * 0).sum()}
        loss = sum(losses) / len(losses)
        torch.testing.assert_close(loss, F.cross_entropy(x, t, ignore_index=ignore_index))
        return {"loss": loss}

    cases = []
    for name, logits, target, ignored in [
        ("all", normal(4, 5), torch.tensor([4.0, 0, 2, 2]), -100),
        ("some ignored", normal(2, 3, 4, scale=3.0), torch.tensor([[1.0, -100, 3], [-100, 0, 0]]), -100),
        ("an index that is one of the logits ignored", normal(4, 3), torch.tensor([2.0, 0, 1, 0]), 0),
        ("none counted", normal(2, 3), torch.tensor([-1.0, -1]), -1),
        ("far above", normal(3, 4, mean=5000.0), torch.tensor([0.0, 1, 3]), -100),
        ("one logit", normal(3, 1), torch.zeros(3), -100),
        ("one row", normal(6), torch.tensor(3.0), -100),
        ("wide", normal(2, 1500), torch.tensor([1499.0, 7]), -100),
    ]:
        cases.append(fixture(name, {"ignore_index": ignored}, {"logits": logits}, {"target": target},
                             lambda i=ignored, **tensors: plain(**tensors, ignore_index=i)))
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
    shared_stream = [projection, layer_norm, softplus, silu, discretize, scan, state_output, mse, adamw]
    # Whatever is added here leaves the others' numbers alone.
    own_stream = [rms_norm, projection_layer_norm, huber, quantile, discretize_per_head, discretize_dense, spectral_radius, scan_forms,
                  discretized_scan, neg_exp, copy, causal_conv1d, causal_conv1d_step, gated_rms_norm,
                  ssd, ssd_step, embedding, cross_entropy, selective_scan, selective_scan_step]
    for function in shared_stream + own_stream:
        if function in own_stream:
            GENERATOR.manual_seed(zlib.crc32(function.__name__.encode()))
        text = json.dumps({"format_version": 1, "op": function.__name__, "made_by": f"torch {torch.__version__}",
                           "cases": function()}, indent=None, separators=(",", ":"))
        (OUT / f"{function.__name__}.json").write_text(text.replace('{"name"', '\n{"name"') + "\n")


if __name__ == "__main__":
    main()
