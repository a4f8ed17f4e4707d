#!/usr/bin/env python3
"""Writes tests/oracle/fixtures/mamba2_hf*: what transformers' Mamba2ForCausalLM makes of small models, in f32 on the CPU.

Logits, loss, every parameter's gradient and 50 greedy tokens of each, and two models as save_pretrained leaves them. The
classes of transformers are only called: nothing of theirs is here.

    python3 tests/oracle/make_mamba2_fixtures.py [--check]

--check compares with the files that are there and writes nothing. Needs torch and transformers in a virtual environment;
made with torch 2.6.0 and transformers 4.57.1. From 4.53 on its CPU path repeats the groups of B and C as its kernels do;
its gated norm takes one mean over all channels whatever the groups are. That is norm_groups = 1 here.
"""

import argparse
import json
import pathlib
import shutil
import tempfile

import numpy
import torch
import transformers
from transformers import Mamba2Config, Mamba2ForCausalLM

import mamba2_fixture as fixture

OUT = pathlib.Path(__file__).resolve().parent / "fixtures"
NEW_TOKENS = 50
INFINITE = float("inf")

# hidden, expand, head_dim, state, groups, conv, chunk, length, prompt, vocabulary, layers, tied, limits of dt. With limits
# there are at least two heads: the one number that is a single head's d_dt_bias cancels to below 1e-4 of its terms in f32.
COLUMNS = ["hidden_size", "expand", "head_dim", "state_size", "n_groups", "conv_kernel", "chunk_size", "length", "prompt",
           "vocab_size", "num_hidden_layers", "tie_word_embeddings", "time_step_limit"]
MODELS = {
    "narrow heads": [16, 2, 4, 8, 1, 4, 8, 24, 7, 29, 2, True, (0.0, INFINITE)],
    "two taps": [24, 2, 16, 16, 1, 2, 7, 23, 1, 31, 2, False, (0.0, INFINITE)],
    "clamped steps": [64, 2, 64, 100, 1, 4, 16, 33, 6, 29, 2, True, (0.02, 0.2)],
    "wide heads": [40, 2, 80, 128, 1, 4, 32, 32, 9, 19, 1, False, (0.0, INFINITE)],
    "one chunk": [24, 2, 16, 100, 1, 2, 256, 19, 4, 37, 3, False, (0.0, 0.05)],
    "two groups": [16, 2, 4, 16, 2, 4, 5, 21, 2, 29, 2, True, (0.0, INFINITE)],
    "four groups": [16, 2, 4, 8, 4, 2, 16, 32, 11, 31, 2, False, (0.01, 0.3)],
    "eight groups": [32, 2, 8, 16, 8, 4, 64, 40, 6, 23, 2, True, (0.0, INFINITE)],
    "two wide heads": [64, 2, 64, 8, 2, 4, 16, 17, 4, 41, 1, False, (0.0, INFINITE)],
    "expand 3": [16, 3, 16, 128, 1, 4, 12, 36, 8, 29, 1, True, (0.0, 0.5)],
}
# What else is in the config.json: a key that older files have and that changes nothing there; an epsilon that shows.
MORE = {"two taps": {"norm_before_gate": True}, "expand 3": {"layer_norm_epsilon": 0.02}}


def build(name, columns):
    options = dict(zip(COLUMNS, columns))
    length, prompt = options.pop("length"), options.pop("prompt")
    config = Mamba2Config(**options, num_heads=options["hidden_size"] * options["expand"] // options["head_dim"],
                          bos_token_id=None, eos_token_id=None, pad_token_id=None, **MORE.get(name, {}))
    model = Mamba2ForCausalLM(config).eval()
    parameters = dict(model.named_parameters())
    table = fixture.table_of({key: value.shape for key, value in parameters.items()})
    with torch.no_grad():
        for key, values in fixture.weights_of(name, table).items():
            parameters[key].copy_(torch.from_numpy(values))
    return model, table, length, prompt


def text_of(config):
    """config.json as save_pretrained writes it."""
    with tempfile.TemporaryDirectory() as folder:
        config.architectures = ["Mamba2ForCausalLM"]
        config.save_pretrained(folder)
        return (pathlib.Path(folder) / "config.json").read_text()


def continued(model, prompt):
    """The greedy tokens by the cache. They must be those of whole forwards, by a margin that no rounding crosses, and not
    always the same one."""
    made = model.generate(torch.from_numpy(prompt)[None].long(), attention_mask=torch.ones(1, len(prompt)).long(),
                          max_new_tokens=NEW_TOKENS, do_sample=False)
    with torch.no_grad():
        logits = model(made).logits[0, len(prompt) - 1:-1]
    best = logits.topk(2).values
    tokens = made[0, len(prompt):].numpy().astype(numpy.int32)
    assert (logits.argmax(-1).numpy() == tokens).all()
    margin = ((best[:, 0] - best[:, 1]) / logits.std(-1)).min().item()
    return tokens, margin, len(set(tokens.tolist()))


def check_tokens(name, found):
    tokens, margin, different = found
    assert margin > 1e-3, (name, margin)
    assert different >= 6, (name, tokens)
    return tokens


def outputs_of(name, model, length, prompt):
    vocabulary = model.config.vocab_size
    ids = fixture.tokens(f"{name}/ids", 2 * length, vocabulary).reshape(2, length)
    labels = ids.copy()
    labels[0, 2:5] = -100
    labels[1, -1] = -100
    result = model(input_ids=torch.from_numpy(ids).long(), labels=torch.from_numpy(labels).long())
    result.loss.backward()
    tensors = {f"{name}/ids": ids, f"{name}/labels": labels, f"{name}/logits": result.logits.detach().numpy(),
               f"{name}/loss": numpy.array([result.loss.item()]), f"{name}/prompt": ids[0, :prompt].copy(),
               f"{name}/tokens": check_tokens(name, continued(model, ids[0, :prompt].copy()))}
    for key, value in model.named_parameters():
        tensors[f"{name}/gradient/{key}"] = fixture.digest(name, key, value.grad.numpy())
    return tensors


def saved_models(folder):
    """Two models in the files of save_pretrained: one file with tied embeddings, and several files of bf16."""
    tensors = {}
    for name, tied, dtype, size in [("whole", True, torch.float32, "1GB"), ("sharded", False, torch.bfloat16, "2KB")]:
        model, _, _, _ = build(name, [8, 2, 4, 4, 2, 4, 4, 9, 3, 13, 2, tied, (0.0, INFINITE)])
        where = folder / f"mamba2_hf_{name}"
        kept = {key: value for key, value in model.to(dtype).state_dict().items() if not (tied and key == "lm_head.weight")}
        model.save_pretrained(where, state_dict=kept, max_shard_size=size)
        (where / "generation_config.json").unlink()
        model = model.float()
        ids = fixture.tokens(f"{name}/ids", 9, 13).reshape(1, 9)
        with torch.no_grad():
            tensors[f"{name}/logits"] = model(torch.from_numpy(ids).long()).logits.numpy()
        tensors[f"{name}/ids"] = ids
    return tensors


def equal(old, new):
    """Names and shapes are the same; numbers within what another machine's order of sums may do."""
    assert old[1] == new[1], "texts"
    assert list(old[0]) == list(new[0]), "names"
    worst = 0
    for name, want in old[0].items():
        got = new[0][name]
        assert got.shape == want.shape and got.dtype == want.dtype, name
        if want.dtype == numpy.int32:
            assert (got == want).all(), name
        else:
            error = numpy.sqrt(((got - want) ** 2).mean() / ((want.astype(numpy.float64) ** 2).mean() + 1e-30))
            assert error <= 1e-4, (name, error)
            worst = max(worst, error)
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    torch.manual_seed(0)
    torch.set_num_threads(1)
    print("torch", torch.__version__, "transformers", transformers.__version__)
    tensors, texts = {}, {}
    for name, columns in MODELS.items():
        model, table, length, prompt = build(name, columns)
        made = outputs_of(name, model, length, prompt)
        texts[f"{name}/config.json"] = text_of(model.config)
        texts[f"{name}/weights"] = json.dumps(table)
        tensors.update(made)
        found = continued(model, made[f"{name}/prompt"])
        print(f"{name:16} parameters {sum(p.numel() for p in model.parameters()):6} loss {made[name + '/loss'][0]:8.4f} "
              f"logits' deviation {made[name + '/logits'].std():6.3f} least margin {found[1]:.4f} different tokens {found[2]}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tensors.update(saved_models(folder))
        target = OUT / "mamba2_hf.safetensors"
        if check:
            print("largest difference from", target.name, equal(fixture.read(target), (tensors, texts)))
            return
        fixture.write(target, tensors, texts)
        for saved in folder.iterdir():
            shutil.rmtree(OUT / saved.name, ignore_errors=True)
            shutil.copytree(saved, OUT / saved.name)
    print("wrote", target.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
