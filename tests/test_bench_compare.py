"""tools/bench_compare tells a change from noise. Arguments: the program. Standard library only."""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)


def row(name, repetitions, **more):
    middle = sorted(repetitions)[len(repetitions) // 2]
    spread = (max(repetitions) - min(repetitions)) / 2 / middle
    return {"case": name, "direction": "forward", "dtype": "f32", "device": "cpu", "pass": True, "seconds": middle,
            "spread": spread, "repetitions": repetitions, **more}


def document(*rows):
    roofs = {"copy_bytes_per_s": 50e9, "multiply_add_operations_per_s": {"f32": 500e9, "f64": 250e9}}
    return {"format_version": 1, "program": "bench_ops", "git": "abc", "build_type": "release", "date": "today", "threads": 2,
            "devices": {"cpu": {"description": "some CPU", "roofs": roofs}}, "rows": list(rows)}


STEADY = [1.00e-3, 1.01e-3, 0.99e-3, 1.00e-3, 1.005e-3]


class Compare(unittest.TestCase):
    def compare(self, old, new, *options):
        with tempfile.TemporaryDirectory() as folder:
            paths = [pathlib.Path(folder) / name for name in ("old.json", "new.json")]
            for path, text in zip(paths, (old, new)):
                path.write_text(text if isinstance(text, str) else json.dumps(text))
            done = subprocess.run([sys.executable, PROGRAM, *map(str, paths), *options], capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr

    def expect(self, code, last_line, old, new, *options):
        got, out, err = self.compare(old, new, *options)
        self.assertEqual(got, code, out + err)
        self.assertEqual(out.splitlines()[-1], last_line)
        return out

    def scaled(self, factor):
        return document(row("a", [seconds * factor for seconds in STEADY]))

    def test_the_same_file_is_the_same(self):
        self.expect(0, "0 slower, 0 faster, 1 same, 0 new, 0 gone, 0 WRONG", self.scaled(1), self.scaled(1))

    def test_a_tenth_slower_and_a_tenth_faster(self):
        out = self.expect(1, "1 slower, 0 faster, 0 same, 0 new, 0 gone, 0 WRONG", self.scaled(1), self.scaled(1.1))
        self.assertRegex(out, r"slower +0\.91x +1\.00 ms -> +1\.10 ms  a forward f32 cpu")
        self.expect(0, "0 slower, 1 faster, 0 same, 0 new, 0 gone, 0 WRONG", self.scaled(1), self.scaled(0.9))

    def test_less_than_the_least_change_is_the_same(self):
        self.expect(0, "0 slower, 0 faster, 1 same, 0 new, 0 gone, 0 WRONG", self.scaled(1), self.scaled(1.03))

    def test_within_the_spread_is_the_same(self):
        noisy = document(row("a", [0.8e-3, 1.3e-3, 1.2e-3, 1.1e-3, 1.2e-3]))
        self.expect(0, "0 slower, 0 faster, 1 same, 0 new, 0 gone, 0 WRONG", self.scaled(1), noisy)

    def test_what_the_machine_lost_is_not_the_ops(self):
        slow = self.scaled(1.2)
        roofs = slow["devices"]["cpu"]["roofs"]
        roofs["copy_bytes_per_s"] *= 0.75
        self.expect(0, "0 slower, 0 faster, 1 same, 0 new, 0 gone, 0 WRONG", self.scaled(1), slow)

    def test_new_gone_and_wrong_rows_are_named(self):
        failed = row("c", STEADY)
        failed["pass"] = False
        for key in ("seconds", "spread", "repetitions"):
            del failed[key]
        out = self.expect(1, "0 slower, 0 faster, 0 same, 1 new, 1 gone, 1 WRONG",
                          document(row("a", STEADY), row("c", STEADY)), document(row("b", STEADY), failed))
        for text in ["new", "gone", "WRONG"]:
            self.assertRegex(out, r"(?m)^{} ".format(text))

    def test_not_a_number_is_no_equal(self):
        broken = self.scaled(1)
        broken["rows"][0]["repetitions"] = []
        self.assertEqual(self.compare(self.scaled(1), broken)[0], 3)

    def test_other_machines_are_refused_unless_asked_for(self):
        other = copy.deepcopy(self.scaled(1))
        other["devices"]["cpu"]["description"] = "another CPU"
        code, _, said = self.compare(self.scaled(1), other)
        self.assertEqual(code, 3)
        self.assertIn("another CPU", said)
        self.assertEqual(self.compare(self.scaled(1), other, "--any-machine")[0], 0)
        other = copy.deepcopy(self.scaled(1))
        other["threads"] = 64
        self.assertEqual(self.compare(self.scaled(1), other)[0], 3)

    def test_what_is_no_result_is_refused(self):
        for text in ["", "[]", "{}", '{"program": "bench_ops", "format_version": 2}']:
            self.assertEqual(self.compare(self.scaled(1), text)[0], 3, text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
