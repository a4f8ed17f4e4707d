"""What the build itself promises. R16: no warning passes, for neither compiler. R17: training builds nothing."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BUILD, PROGRAM = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)


class R16(unittest.TestCase):
    def test_warnings_are_errors_in_every_compilation(self):
        commands = json.loads((BUILD / "compile_commands.json").read_text())
        self.assertGreater(len(commands), 50)
        for command in commands:
            words = command["command"].split()
            if command["file"].endswith(".cu"):
                self.assertIn("-Werror=all-warnings", words, command["file"])
            else:
                self.assertIn("-Werror", words, command["file"])
                self.assertTrue({"-Wall", "-Wextra"} <= set(words), command["file"])


class R17(unittest.TestCase):
    def test_training_starts_where_nothing_could_be_built(self):
        with tempfile.TemporaryDirectory() as folder:
            bare = {"PATH": "", "HOME": folder, "OMP_NUM_THREADS": "1"}
            for arguments in [
                ["synth", "--out", folder + "/bars", "--days", "3", "--symbols", "ES"],
                ["train", "--data-dir", folder + "/bars", "--output-dir", folder + "/run", "--max-steps", "2",
                 "--hidden-dim", "2", "--num-layers", "1"],
            ]:
                done = subprocess.run([PROGRAM, *arguments], env=bare, capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(os.path.exists(folder + "/run/summary.json"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
