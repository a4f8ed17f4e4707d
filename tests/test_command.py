"""The program as its users meet it: exit codes, messages, JSON, nothing half written. Standard library only."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
MODEL = pathlib.Path(__file__).resolve().parent / "oracle/fixtures/mamba2_hf_whole"
DATA = os.environ.get("SCANTAPE_TEST_DATA")
SANITIZED = {"ASAN_OPTIONS", "TSAN_OPTIONS"} & set(os.environ)  # sanitizers take memory of their own


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=600)


class Command(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.bars = cls.root / "bars"
        made = run("synth", "--out", cls.bars, "--days", 3, "--symbols", "ES", "--seed", 5)
        assert made.returncode == 0, made.stderr
        cls.small = ["--hidden-dim", 4, "--state-dim", 2, "--num-layers", 1, "--epochs", 2]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def refused(self, code, says, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stdout, "")
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, "one sentence: " + done.stderr)
        self.assertTrue(done.stderr.startswith("scantape: "), done.stderr)

    def document(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        document = json.loads(done.stdout)
        self.assertEqual(document["format_version"], 1)
        return document

    def test_help_everywhere_with_an_example(self):
        for command in ["info", "ops", "gradcheck", "inspect", "synth", "train", "evaluate", "generate"]:
            done = run(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn("Example", done.stdout)
            self.assertIn("scantape " + command, done.stdout)

    def test_info(self):
        info = self.document("info", "--json")
        self.assertIn(info["cuda"], ["native", "emulated", "none"])
        self.assertEqual(info["devices"][0]["device"], "cpu")
        for key in ["version", "git_hash", "build_type", "cpu_instruction_set", "threads"]:
            self.assertTrue(info[key], key)
        self.assertIn("scantape " + info["version"], run("info").stdout)

    def test_ops_and_their_gradcheck_rows(self):
        ops = self.document("ops", "--json")["ops"]
        names = [op["op"] for op in ops]
        for name in ["projection", "layer_norm", "softplus", "silu", "discretize", "scan", "mse", "adamw", "grad_norm"]:
            self.assertIn(name, names)
        document = self.document("gradcheck", "--op", "silu", "--device", "cpu", "--json")
        self.assertTrue(document["rows"])
        for row in document["rows"]:
            self.assertTrue(row["pass"], row)
            self.assertTrue(row["max_rel_err"] <= row["tolerance"], row)
            for key in ["op", "case", "variant", "device", "backend", "dtype", "argument", "launches"]:
                self.assertIn(key, row)

    def test_usage_errors(self):
        self.refused(2, "--no-such-flag", "train", "--data-dir", self.bars, "--no-such-flag")
        self.refused(2, "subcommand", *[])
        self.refused(2, "--data-dir", "train")
        self.refused(2, "no_such_op", "gradcheck", "--op", "no_such_op")
        out = self.root / "refused"
        base = ["train", "--data-dir", self.bars, "--output-dir", out]
        self.refused(2, "--state-dim is 0", *base, "--state-dim", 0)
        self.refused(2, "--learning-rate is nan", *base, "--learning-rate", "nan")
        self.refused(2, "--learning-rate is inf", *base, "--learning-rate", "inf")
        self.refused(2, "contradict", *base, "--use-gpu", "--device", "cpu")
        self.refused(2, "--output-dir", "train", "--data-dir", self.bars)
        self.refused(2, "NQH4", *base, "--symbol", "NQH4")
        self.refused(2, "--threads", *base, "--threads", -3)
        self.refused(2, "--seed", *base, "--seed", -1)
        self.refused(2, "--op", "gradcheck", "--op", "")
        self.refused(2, "--data-dir is empty", "train", "--data-dir", "", "--output-dir", out)
        self.refused(2, "--hidden-dim", *base, "--hidden-dim", 2**63 - 1)
        self.refused(2, "/dev/null/run", "train", "--data-dir", self.bars, "--output-dir", "/dev/null/run", *self.small)
        self.assertFalse(out.exists())

    def test_generate(self):
        base = ["generate", "--model", MODEL, "--tokens", "1,2,3"]
        document = self.document(*base, "--max-new-tokens", 6, "--json")
        self.assertEqual(document["prompt"], [1, 2, 3])
        self.assertEqual(len(document["tokens"]), 6)
        self.assertEqual(document["norm_groups"], 1)
        self.assertEqual(document["parameters"], 1592)
        done = run(*base, "--max-new-tokens", 6)
        self.assertEqual(done.stdout, ",".join(map(str, document["tokens"])) + "\n")
        self.assertEqual(done.stderr, "")
        # What it said is a prompt like any other: the state carries on what the whole text would give.
        longer = ",".join(map(str, document["prompt"] + document["tokens"][:4]))
        self.assertEqual(self.document("generate", "--model", MODEL, "--tokens", longer, "--max-new-tokens", 2,
                                       "--json")["tokens"], document["tokens"][4:])
        self.assertEqual(self.document(*base, "--norm-groups", 2, "--json")["norm_groups"], 2)
        self.assertEqual(self.document(*base, "--max-new-tokens", 6, "--dtype", "f64", "--json")["tokens"],
                         document["tokens"])

    def test_generate_refuses(self):
        base = ["generate", "--model", MODEL, "--tokens"]
        for tokens in ["", ",", "1,,2", "1,", ",1", "1,x", "1 2", "1.5", "-1", "99999999999", "0x1"]:
            self.refused(2, "--tokens is " + tokens, *base, tokens)
        self.refused(2, "token 13 is not in the vocabulary, wants 0 to 12", *base, "1,13")
        self.refused(2, "--tokens", "generate", "--model", MODEL)
        self.refused(2, "--model", "generate", "--tokens", 1)
        self.refused(2, "--max-new-tokens", *base, 1, "--max-new-tokens", 0)
        self.refused(2, "--dtype", *base, 1, "--dtype", "bf16")
        self.refused(2, "norm_groups is 3", *base, 1, "--norm-groups", 3)
        self.refused(2, "--norm-groups", *base, 1, "--norm-groups", -1)
        folder = self.root / "model"
        self.refused(3, "is no directory", "generate", "--model", folder, "--tokens", 1)
        folder.mkdir()
        self.refused(3, "holds no config.json", "generate", "--model", folder, "--tokens", 1)
        (folder / "config.json").write_bytes((MODEL / "config.json").read_bytes())
        self.refused(3, "holds no weights", "generate", "--model", folder, "--tokens", 1)
        (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04" + bytes(60))
        self.refused(3, ["PyTorch", "convert it"], "generate", "--model", folder, "--tokens", 1)
        (folder / "config.json").write_text("{}")
        self.refused(3, "neither hidden_size", "generate", "--model", folder, "--tokens", 1)

    def test_data_errors(self):
        empty = self.root / "empty"
        empty.mkdir()
        out = self.root / "no_data"
        self.refused(3, str(empty), "train", "--data-dir", empty, "--output-dir", out)
        self.refused(3, "100000", "train", "--data-dir", self.bars, "--output-dir", out, "--sequence-length", 100000)
        broken = self.root / "broken.dbn"
        broken.write_bytes(b"DBN\x01\xff\xff\xff\xff")
        self.refused(3, "broken.dbn", "train", "--data-dir", broken, "--output-dir", out)
        self.refused(3, "broken.dbn", "inspect", broken)
        self.assertFalse(out.exists())

    def test_output_that_cannot_be_written_is_an_error(self):
        for arguments in [["info"], ["info", "--json"], ["ops"], ["train", "--dry-run", "--json", "--data-dir", self.bars]]:
            with open("/dev/full", "w") as full:
                done = subprocess.run([PROGRAM, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 3, arguments)
            self.assertTrue(done.stderr, arguments)

    def test_dry_run_writes_nothing(self):
        before = sorted(self.root.iterdir())
        plan = self.document("train", "--dry-run", "--json", "--data-dir", self.bars)
        self.assertGreater(plan["windows"]["train"], 0)
        self.assertEqual(plan["parameters"], 121025)
        self.assertGreater(plan["memory_bytes"]["total"], 0)
        for key in ["files", "bars_read", "duplicates", "dropped", "odd", "unmapped", "warnings", "stretches", "cuts"]:
            self.assertIn(key, plan)
        self.assertEqual(sorted(self.root.iterdir()), before)

    def test_train_then_evaluate_in_a_new_process(self):
        out = self.root / "run"
        done = run("train", "--data-dir", self.bars, "--output-dir", out, *self.small)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"{out}\n")
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["epoch"] for line in lines], [1, 2])
        for line in lines:
            report = self.document("evaluate", "--checkpoint", out / f"checkpoints/epoch-{line['epoch']:04}",
                                   "--data-dir", self.bars, "--json", "--batch-size", 5)
            scores = {part["part"]: part for part in report["parts"]}
            self.assertEqual(scores["val"]["loss"], line["val_loss"])
            self.assertEqual(scores["val"]["baseline_loss"], line["val_baseline_loss"])
            self.assertTrue(report["same_data"])
        self.assertIn("epoch", run("evaluate", "--checkpoint", out / "last", "--data-dir", self.bars).stdout)
        self.refused(2, "holds a run already", "train", "--data-dir", self.bars, "--output-dir", out, *self.small)
        self.refused(3, "holds no checkpoint", "evaluate", "--checkpoint", self.root / "empty2", "--data-dir", self.bars)
        model = out / "checkpoints/epoch-0002/model.safetensors"
        model.write_bytes(model.read_bytes()[:-4])
        self.refused(3, ["model.safetensors", "outside"], "evaluate", "--checkpoint", out / "last", "--data-dir", self.bars)

    def test_evaluate_names_each_part_by_its_place_in_time(self):
        week = self.root / "week"
        made = run("synth", "--out", week, "--days", 7, "--symbols", "ES", "--seed", 6)
        self.assertEqual(made.returncode, 0, made.stderr)
        files = sorted(week.glob("*.dbn.zst"))
        folders = {}
        for name, chosen in {"early": files[:2], "middle": files[2:5], "late": files[5:], "all": files}.items():
            folders[name] = self.root / ("week_" + name)
            folders[name].mkdir()
            for file in chosen:
                (folders[name] / file.name).symlink_to(file)
        out = self.root / "week_run"
        done = run("train", "--data-dir", folders["middle"], "--output-dir", out, "--split", "60/20/20", *self.small)
        self.assertEqual(done.returncode, 0, done.stderr)

        def scores(folder):
            report = self.document("evaluate", "--checkpoint", out / "last", "--data-dir", folders[folder], "--json")
            self.assertEqual(report["same_data"], folder == "middle")
            for part in report["parts"]:
                self.assertGreater(part["positions"], 0, part)
                self.assertGreater(part["baseline_loss"], 0, part)
                self.assertAlmostEqual(part["skill"], 1 - part["loss"] / part["baseline_loss"], 12)
            return {part["part"]: part for part in report["parts"]}

        alone, among = scores("middle"), scores("all")
        self.assertEqual(list(alone), ["train", "val", "test"])
        self.assertEqual(list(among), ["before", "train", "val", "test", "new"])
        for held_out in ["val", "test"]:
            self.assertEqual(alone[held_out], among[held_out], "what lies around it changes nothing")
        # What the weights were not fitted on is no part of train, whichever side it lies on.
        self.assertEqual(scores("early"), {"before": scores("early")["before"]})
        self.assertEqual(scores("late"), {"new": scores("late")["new"]})
        printed = run("evaluate", "--checkpoint", out / "last", "--data-dir", folders["all"]).stdout.splitlines()
        self.assertIn("not the bars of training", printed[0])
        self.assertEqual([line.split()[0] for line in printed[2:7]], list(among))
        for line in printed[2:7]:
            self.assertEqual(line.split()[1:3], [str(among[line.split()[0]][key]) for key in ["windows", "positions"]])

    @unittest.skipUnless(DATA, "SCANTAPE_TEST_DATA is not set")
    def test_the_real_month_in_windows(self):
        plan = self.document("train", "--dry-run", "--json", "--data-dir", f"{DATA}/bars/6e", "--stride", 1)
        self.assertEqual(plan["stretches"], 23)
        self.assertEqual(plan["windows_with_warm_up"],
                         {"total": 28617, "train": 22833, "validation": 5724, "test": 0, "purged": 60})
        self.assertEqual(plan["bars"], 29996)

    @unittest.skipUnless(DATA, "SCANTAPE_TEST_DATA is not set")
    def test_the_real_month_stays_below_300_megabytes(self):
        out = self.root / "month"
        peak = self.peak_kilobytes("train", "--data-dir", f"{DATA}/bars/6e", "--output-dir", out, "--max-steps", "3")
        if not SANITIZED:
            self.assertLess(peak, 300 * 1024, "kilobytes")

    @unittest.skipIf(SANITIZED, "sanitizers keep memory of their own")
    def test_a_program_that_computes_nothing_loads_little(self):
        # cuBLASLt alone would take 210 MB: it is loaded by the first product on a GPU.
        self.assertLess(self.peak_kilobytes("--version"), 100 * 1024, "kilobytes")

    def peak_kilobytes(self, *arguments):
        child = subprocess.Popen([PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(child.returncode, 0)
        return usage.ru_maxrss


if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=2).result
    for test, reason in result.skipped:
        print(f"skipped: {test.id()}: {reason}")
    ran = result.testsRun - len(result.skipped)
    sys.exit(77 if ran == 0 else 0 if result.wasSuccessful() else 1)
