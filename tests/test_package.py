"""What `meson install` gives, used as strangers use it: from a folder it was moved to, by three kinds of build.

Arguments: the build folder, the source folder, the command that runs Meson, the public headers. Standard library only."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
MESON = shlex.split(sys.argv[3])
HEADERS = [word for word in sys.argv[4:] if word.endswith(".h")]
sys.argv = sys.argv[:1] + [word for word in sys.argv[4:] if not word.endswith(".h")]
CXX = shlex.split(os.environ.get("CXX", "c++"))
CONSUMERS = SOURCE / "tests/package"


def run(*command, cwd=None, **environment):
    done = subprocess.run([str(word) for word in command], cwd=cwd, env={**os.environ, **environment},
                          capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise AssertionError("{} gives {}:\n{}{}".format(shlex.join(map(str, command)), done.returncode,
                                                         done.stdout[-6000:], done.stderr[-6000:]))
    return done.stdout


def defined_symbols(path, *flags):
    """(type letter, mangled name) of what a library defines for others."""
    for line in run("nm", "--defined-only", "--extern-only", *flags, path).splitlines():
        words = line.split()
        if len(words) == 3:
            yield words[1], words[2]


# The library's own names, with what C++ derives from a name; the functions that nvcc makes for kernels; the namespace
# that stands for CUDA in an emulated build; the functions that load cuBLASLt.
OURS = re.compile(r"scantape_cublasLt|_Z(GV|T[VTISC])?(\d+__device_stub__Z)?Z*N?[KVRO]*(8scantape|17scantape_emulated)")
# Instances of the standard library's templates and references to its exceptions: every library in C++ has them, and the
# linker merges them.
STANDARD = re.compile(r"(_Z|DW\.ref\._Z)(GV|T[VTISC])?Z*N?[KVRO]*(S[tabsiod]|9__gnu_cxx)|DW\.ref\.__gxx_personality_v0$"
                      r"|_ZnwmPv$|_ZdlPvS_$|__clang_call_terminate$")
# In an emulated build the compiler's call-backs are answered by the emulator, and the linker bounds the section in which
# the compiler lists functions.
CALL_BACKS = re.compile(r"__tsan_|__ubsan_handle_|__(start|stop)___patchable_function_entries$")


class Package(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        destination = cls.folder / "destination"
        run(*MESON, "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", destination)
        installed = next(destination.rglob("libscantape.a"))
        cls.prefix = cls.folder / "moved"
        inside = next(folder for folder in installed.parents if (folder / "include").exists())
        shutil.move(inside, cls.prefix)
        cls.library = next(cls.prefix.rglob("libscantape.a"))
        cls.pc = next(cls.prefix.rglob("scantape.pc"))
        cls.cmake = next(cls.prefix.rglob("scantapeConfig.cmake")).parent
        cls.environment = {"PKG_CONFIG_PATH": str(cls.pc.parent)}
        cls.backend = re.search(r"set\(SCANTAPE_CUDA_BACKEND (\w+)\)", (cls.cmake / "scantapeConfig.cmake").read_text())[1]

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def pkg_config(self, *arguments):
        return shlex.split(run("pkg-config", *arguments, "scantape", **self.environment))

    def copy_of(self, consumer):
        folder = self.folder / consumer
        shutil.copytree(CONSUMERS / consumer, folder)
        return folder

    # ---- what is installed ----

    def test_nothing_but_the_library_its_headers_and_the_program(self):
        found = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file()}
        expected = {"include/" + header for header in HEADERS}
        expected |= {str(path.relative_to(self.prefix)) for path in
                     [self.library, self.pc, self.cmake / "scantapeConfig.cmake", self.cmake / "scantapeConfigVersion.cmake"]}
        self.assertEqual(found - {"bin/scantape"}, expected)
        public = {str(path.relative_to(room)) for room in [SOURCE / "host/include", SOURCE / "autograd/include"]
                  for path in room.rglob("*.h")}
        self.assertEqual(set(HEADERS), public, "headers that are in the tree, and those that are installed")

    def test_no_file_names_the_folder_it_was_built_in(self):
        for path in [self.pc, *self.cmake.iterdir()]:
            text = path.read_text()
            self.assertNotIn(str(SOURCE), text, path)
            self.assertNotIn(str(BUILD), text, path)

    def test_headers_need_nothing_of_cuda_and_are_cpp17_and_cpp20(self):
        source = self.folder / "headers.cpp"
        source.write_text("".join("#include <{}>\n".format(header) for header in HEADERS))
        for standard in ["c++17", "c++20"]:
            flags = ["-std=" + standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", *self.pkg_config("--cflags")]
            run(*CXX, *flags, "-fsyntax-only", source)
        reached = run(*CXX, "-std=c++17", *self.pkg_config("--cflags"), "-M", source).replace("\\\n", " ").split()
        self.assertEqual(len([path for path in reached if path.startswith(str(self.prefix))]), len(HEADERS))
        # One of ours is called cuda-something if anything is: all others must not be CUDA's.
        self.assertEqual([path for path in reached if "cuda" in path.lower().replace(str(self.prefix).lower(), "")], [])

    def test_headers_define_macros_of_their_name_only(self):
        for header in HEADERS:
            text = (self.prefix / "include" / header).read_text()
            for macro in re.findall(r"^\s*#\s*define\s+(\w+)", text, re.MULTILINE):
                self.assertTrue(macro.startswith("SCANTAPE_"), (header, macro))

    # ---- what is visible ----

    def test_every_symbol_is_of_the_namespace_scantape(self):
        count, strangers = 0, set()
        for letter, name in defined_symbols(self.library):
            count += 1
            ours = OURS.match(name) or (self.backend == "emulated" and CALL_BACKS.match(name))
            standard = letter in "VWu" and STANDARD.match(name)
            if not ours and not standard:
                strangers.add(letter + " " + name)
        self.assertGreater(count, 300)
        self.assertEqual(strangers, set())

    def test_a_shared_library_with_it_inside_shows_none_of_it(self):
        words = [word for word in self.pkg_config("--libs") if word != "-lscantape"]
        target = self.folder / "libinside.so"
        run(*CXX, "-shared", "-o", target, "-Wl,--whole-archive", self.library, "-Wl,--no-whole-archive",
            "-Wl,--exclude-libs,libbacktrace.a", *words)  # the emulator's, which is not installed with us
        shown = [letter + " " + name for letter, name in defined_symbols(target, "--dynamic")
                 if not (letter in "VWu" and STANDARD.match(name))
                 # The compiler declares these itself, as visible.
                 and not (self.backend == "emulated" and CALL_BACKS.match(name))]
        self.assertEqual(shown, [])

    # ---- who uses it ----

    def test_a_makefile_by_pkg_config_with_an_op_of_its_own(self):
        for form in ["", "--static"]:
            folder = self.copy_of("pkgconfig")
            run("make", "FORM=" + form, "CXX=" + shlex.join(CXX), cwd=folder, **self.environment)
            said = run(folder / "own_op")
            self.assertEqual(len(re.findall("input 0", said)), 2, said)
            shutil.rmtree(folder)

    def test_a_cmake_project(self):
        folder = self.copy_of("cmake")
        run("cmake", "-S", folder, "-B", folder / "build", "-DCMAKE_PREFIX_PATH=" + str(self.prefix),
            "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", folder / "build")
        said = run(folder / "build/consumer")
        self.assertIn("on cuda (emulated)" if self.backend == "emulated" else "on the CPU", said)
        refused = subprocess.run(["cmake", "-S", folder, "-B", folder / "refused", "-DCMAKE_PREFIX_PATH=" + str(self.prefix)],
                                 capture_output=True, text=True)
        self.assertEqual(refused.returncode, 0, refused.stderr)
        lists = folder / "CMakeLists.txt"
        lists.write_text(lists.read_text().replace("scantape 0.1", "scantape 0.99"))
        refused = subprocess.run(["cmake", "-S", folder, "-B", folder / "newer", "-DCMAKE_PREFIX_PATH=" + str(self.prefix)],
                                 capture_output=True, text=True)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("0.99", refused.stderr)

    @unittest.skipIf("SCANTAPE_SKIP_SUBPROJECT" in os.environ, os.environ.get("SCANTAPE_SKIP_SUBPROJECT"))
    def test_a_meson_project_with_a_subproject(self):
        folder = self.copy_of("meson")
        (folder / "subprojects").mkdir()
        # Without the folders that builds leave in the tree, which Meson would not look into either.
        shutil.copytree(SOURCE, folder / "subprojects/scantape",
                        ignore=lambda path, names: [name for name in names if name.startswith(("build", ".git", ".deps"))
                                                    and pathlib.Path(path) == SOURCE])
        run(*MESON, "setup", folder / "build", "--buildtype=debug", "-Dscantape:gpu=none", cwd=folder)
        run("ninja", "-C", folder / "build", "consumer")
        loss, gradient = map(float, run(folder / "build/consumer").split())

        def expected(decay):
            h, total = 0.0, 0.0
            for _ in range(5):
                h = decay * h + 1
                total += h * h
            return total / 5

        step = 1e-6
        self.assertAlmostEqual(loss, expected(0.9), places=12)
        # decay has three channels, and each is a third of the loss.
        self.assertAlmostEqual(gradient, (expected(0.9 + step) - expected(0.9 - step)) / (2 * step) / 3, places=8)


if __name__ == "__main__":
    unittest.main(verbosity=2)
