#!/usr/bin/env python3
"""Writes tests/oracle/fixtures/mamba2_sequential.safetensors: Mamba-2 language models by their definition alone.

Plain, sequential float64 arithmetic of PyTorch tensors, one token after the other; PyTorch's automatic differentiation
gives the gradients. It covers what public code treats in different ways: norms of each group by itself, the gate before
and after the norm, several groups, limits of dt.

    python3 tests/oracle/mamba2_sequential.py [--check]

--check compares with the file that is there and writes nothing; it exits with 77 where there is no PyTorch. Runs with
python3-torch and python3-numpy of Debian 12.
"""

import argparse
import json
import pathlib
import sys

try:
    import numpy
    import torch
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

import mamba2_fixture as fixture

OUT = pathlib.Path(__file__).resolve().parent / "fixtures" / "mamba2_sequential.safetensors"
LENGTH = 11
TAPS = 3
EPSILON = 1e-5


def silu(x):
    return x / (1 + torch.exp(-x))


def normed(x, weight):
    return x / torch.sqrt((x * x).mean() + EPSILON) * weight


def normed_by_groups(x, weight, groups):
    return torch.cat([normed(part, scale) for part, scale in zip(x.chunk(groups), weight.chunk(groups))])


def step_of_time(raw, limits):
    value = torch.log1p(torch.exp(raw))
    return torch.minimum(torch.maximum(value, torch.tensor(limits[0])), torch.tensor(limits[1]))


def mixer(tokens, w, config):
    """tokens: a list of vectors [D]; w: the mixer's weights by their names."""
    mixing = config["ssm_cfg"]
    P, N, G = mixing["headdim"], mixing["d_state"], mixing["ngroups"]
    E = mixing["expand"] * config["d_model"]
    H = E // P
    conv = w["conv1d.weight"][:, 0, :]
    past = [torch.zeros(E + 2 * G * N) for _ in range(TAPS - 1)]
    state = [torch.zeros(P, N) for _ in range(H)]
    out = []
    for u in tokens:
        z, xBC, dt = (w["in_proj.weight"] @ u).split([E, E + 2 * G * N, H])
        past.append(xBC)
        convolved = silu(sum(conv[:, k] * past[len(past) - TAPS + k] for k in range(TAPS)) + w["conv1d.bias"])
        x, B, C = convolved.split([E, G * N, G * N])
        y = []
        for head in range(H):
            of_group = slice(head // (H // G) * N, (head // (H // G) + 1) * N)
            delta = step_of_time(dt[head] + w["dt_bias"][head], mixing["dt_limit"])
            input_of_head = x[head * P:(head + 1) * P]
            decay = torch.exp(-torch.exp(w["A_log"][head]) * delta)
            state[head] = decay * state[head] + delta * torch.outer(input_of_head, B[of_group])
            y.append(state[head] @ C[of_group] + w["D"][head] * input_of_head)
        y = torch.cat(y)
        if mixing["norm_before_gate"]:
            gated = normed_by_groups(y, w["norm.weight"], G) * silu(z)
        else:
            gated = normed_by_groups(y * silu(z), w["norm.weight"], G)
        out.append(w["out_proj.weight"] @ gated)
    return out


def logits_of(ids, w, config):
    table = w["backbone.embedding.weight"]
    stream = [table[int(i)] for i in ids]
    for layer in range(config["n_layer"]):
        prefix = f"backbone.layers.{layer}."
        of_mixer = {key[len(prefix) + 6:]: value for key, value in w.items() if key.startswith(prefix + "mixer.")}
        added = mixer([normed(x, w[prefix + "norm.weight"]) for x in stream], of_mixer, config)
        stream = [x + y for x, y in zip(stream, added)]
    head = table if config["tie_embeddings"] else w["lm_head.weight"]
    return torch.stack([head @ normed(x, w["backbone.norm_f.weight"]) for x in stream])


def loss_of(logits, targets):
    """Of the tokens that count: those whose target is not -100."""
    losses = [torch.logsumexp(row, 0) - row[int(target)] for row, target in zip(logits, targets) if target != -100]
    return sum(losses) / len(losses)


def shapes_of(config):
    mixing = config["ssm_cfg"]
    D, V, N, G = config["d_model"], config["vocab_size"], mixing["d_state"], mixing["ngroups"]
    E = mixing["expand"] * D
    H, C = E // mixing["headdim"], E + 2 * G * N
    shapes = {"backbone.embedding.weight": [V, D]}
    for layer in range(config["n_layer"]):
        of_layer = {"norm.weight": [D], "mixer.in_proj.weight": [E + C + H, D], "mixer.conv1d.weight": [C, 1, TAPS],
                    "mixer.conv1d.bias": [C], "mixer.dt_bias": [H], "mixer.A_log": [H], "mixer.D": [H],
                    "mixer.norm.weight": [E], "mixer.out_proj.weight": [D, E]}
        shapes.update({f"backbone.layers.{layer}.{name}": shape for name, shape in of_layer.items()})
    shapes["backbone.norm_f.weight"] = [D]
    if not config["tie_embeddings"]:
        shapes["lm_head.weight"] = [V, D]
    return shapes


def models():
    for groups in [1, 2, 4, 8]:
        for first in [False, True]:
            mixing = {"layer": "Mamba2", "d_state": 3 + groups % 3, "d_conv": TAPS, "expand": 2, "headdim": 2,
                      "ngroups": groups, "norm_before_gate": first, "dt_limit": [0.01, 0.25 if first else 100.0]}
            yield f"groups {groups}, " + ("norm first" if first else "gate first"), {
                "d_model": 8, "n_layer": 2, "vocab_size": 16, "pad_vocab_size_multiple": 16, "tie_embeddings": groups < 4,
                "rms_norm": True, "residual_in_fp32": True, "ssm_cfg": mixing}


def made():
    tensors, texts = {}, {}
    for name, config in models():
        table = fixture.table_of(shapes_of(config))
        weights = {key: torch.from_numpy(value).requires_grad_(True) for key, value in fixture.weights_of(name, table).items()}
        ids = fixture.tokens(f"{name}/ids", LENGTH, config["vocab_size"])
        targets = numpy.append(ids[1:], numpy.int32(-100)).astype(numpy.int32)
        targets[3] = -100
        logits = logits_of(ids, weights, config)
        loss = loss_of(logits, targets)
        loss.backward()
        texts[f"{name}/config.json"], texts[f"{name}/weights"] = json.dumps(config), json.dumps(table)
        tensors[f"{name}/ids"], tensors[f"{name}/targets"] = ids[None], targets[None]
        tensors[f"{name}/logits"] = logits.detach().numpy()[None]
        tensors[f"{name}/loss"] = numpy.array([loss.item()])
        for key, value in weights.items():
            tensors[f"{name}/gradient/{key}"] = fixture.digest(name, key, value.grad.numpy())
    return tensors, texts


def check(new):
    old = fixture.read(OUT)
    assert old[1] == new[1] and list(old[0]) == list(new[0]), "other models than the file has: run without --check"
    worst = 0.0
    for name, want in old[0].items():
        assert want.shape == new[0][name].shape and want.dtype == new[0][name].dtype, name
        error = float(numpy.abs(want - new[0][name]).max() / (numpy.abs(want).max() or 1))
        assert error <= 1e-12, (name, error)
        worst = max(worst, error)
    print(f"{len(list(models()))} models made anew, largest difference {worst:.1e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    only_check = parser.parse_args().check
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    new = made()
    if only_check:
        check(new)
        return
    fixture.write(OUT, *new)
    print("wrote", OUT.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
