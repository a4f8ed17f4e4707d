"""tools/ptxas_report finds what is planted in kernels for it, and nothing in kernels that are in order.

Needs nvcc and ptxas, no GPU. Arguments: the program."""

import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("ptxas_report", PROGRAM)
report = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
loader.exec_module(report)

PLANTED = r"""
#include <cuda_bf16.h>

// 64 values live at once in a kernel that may have 32 registers.
template <class T>
__global__ void __launch_bounds__(1024, 2) spilling_kernel(const T* x, T* y, int n) {
  float a[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) a[i] = static_cast<float>(x[i * n + threadIdx.x]);
  for (int round = 0; round < n; ++round)
#pragma unroll
    for (int i = 0; i < 64; ++i) a[i] = a[i] * a[(i * 7 + 3) % 64] + a[(i + 1) % 64];
#pragma unroll
  for (int i = 0; i < 64; ++i) y[i * n + threadIdx.x] = static_cast<T>(a[i]);
}
template __global__ void spilling_kernel<float>(const float*, float*, int);
template __global__ void spilling_kernel<__nv_bfloat16>(const __nv_bfloat16*, __nv_bfloat16*, int);
template __global__ void spilling_kernel<double>(const double*, double*, int);

template <class T>
__global__ void __launch_bounds__(256) half_of_kernel(const T* x, T* y) {
  y[threadIdx.x] = x[threadIdx.x] * 0.3;  // the literal is f64
}
template __global__ void half_of_kernel<float>(const float*, float*);
template __global__ void half_of_kernel<double>(const double*, double*);

__device__ __noinline__ float far_away(float x) { return static_cast<float>(sqrt(static_cast<double>(x))); }
__global__ void __launch_bounds__(256) calling_kernel(float* x) { x[threadIdx.x] = far_away(x[threadIdx.x]); }

__global__ void __launch_bounds__(256) adding_kernel(float* x) { atomicAdd(x, x[threadIdx.x]); }
__global__ void __launch_bounds__(256) swapping_kernel(unsigned* x) {
  unsigned old = *x, assumed;
  do old = atomicCAS(x, assumed = old, __float_as_uint(__uint_as_float(assumed) + 1.0f));
  while (old != assumed);
}

__global__ void __launch_bounds__(256) clean_kernel(float* x) {
  __shared__ float cells[256];
  cells[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = cells[255 - threadIdx.x] * 0.3f;
}
"""


class Planted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.scratch.name)
        (folder / "planted.cu").write_text(PLANTED)
        cls.ptx = folder / "planted.ptx"
        subprocess.run(["nvcc", "-ptx", "-arch=compute_80", "-std=c++17", "-o", cls.ptx, folder / "planted.cu"],
                       check=True)
        cls.rows = report.collect(None, [str(cls.ptx)], ["80", "90"])
        cls.found = report.faults(cls.rows, {}, whole_library=False)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def faults_of(self, kernel):
        return [text for text in self.found if text.startswith(kernel + " (")]

    def assert_fault(self, kernel, says):
        found = self.faults_of(kernel)
        self.assertEqual(len(found), 2, (kernel, self.found))  # one an architecture
        for text, arch in zip(found, ("sm_80", "sm_90")):
            self.assertIn(says, text)
            self.assertIn(arch, text)

    def test_every_kernel_has_its_row(self):
        self.assertEqual(len(self.rows), 2 * 9)
        for row in self.rows:
            self.assertGreater(row["registers"], 0)
            self.assertEqual(row["block_threads"], 1024 if row["short"].startswith("spilling") else 256)
            self.assertTrue(0 < row["occupancy"] <= 1, row)
        clean = [row for row in self.rows if row["short"] == "clean_kernel"]
        self.assertEqual([row["shared_bytes"] for row in clean], [1024, 1024])

    def test_spills(self):
        self.assert_fault("spilling_kernel<float>", "spills")
        self.assert_fault("spilling_kernel<__nv_bfloat16>", "spills")

    def test_f64_in_the_kernel_and_in_what_it_calls(self):
        self.assert_fault("half_of_kernel<float>", "mul.f64")
        self.assert_fault("calling_kernel", "sqrt.rn.f64")

    def test_atomics_of_floats_and_the_loop_that_stands_for_them(self):
        self.assert_fault("adding_kernel", "atomics")
        self.assert_fault("swapping_kernel", "atom.")

    def test_kernels_in_order_and_kernels_for_f64_have_no_fault(self):
        for kernel in ["clean_kernel", "half_of_kernel<double>", "spilling_kernel<double>"]:
            self.assertEqual(self.faults_of(kernel), [])

    def test_an_allowance_takes_away_its_fault_alone(self):
        allowed = {"half_of_kernel": "a test", "adding_kernel": "allows no atomics"}
        found = report.faults(self.rows, allowed, whole_library=False)
        self.assertEqual(len(found), len(self.found) - 2)
        self.assertFalse([text for text in found if text.startswith("half_of_kernel")])

    def test_an_allowance_that_allows_nothing_is_a_fault(self):
        found = report.faults(self.rows, {"half_of_kernel": "used", "no_such_kernel": "stale"}, whole_library=True)
        self.assertEqual([text for text in found if "ALLOWED_F64" in text and "half_of_kernel" in text], [])
        self.assertEqual(len([text for text in found if "ALLOWED_F64" in text and "no_such_kernel" in text]), 1)

    def test_exit_codes_and_json(self):
        json_path = self.ptx.with_suffix(".json")

        def exit_code(*arguments):
            return subprocess.run([sys.executable, PROGRAM, *map(str, arguments)], capture_output=True).returncode

        self.assertEqual(exit_code(self.ptx), 0)
        self.assertEqual(exit_code("--check", "--json", json_path, self.ptx), 1)
        document = json.loads(json_path.read_text())
        self.assertEqual((document["format_version"], len(document["faults"]) > 0), (1, True))
        clean = self.ptx.with_name("clean.ptx")
        subprocess.run(["nvcc", "-ptx", "-arch=compute_80", "-x", "cu", "-o", clean, "-"], check=True, text=True,
                       input="__global__ void __launch_bounds__(32) lone_kernel(float* x) { x[threadIdx.x] = 1; }\n")
        self.assertEqual(exit_code("--check", clean), 0)
        self.assertEqual(exit_code("--check", "--build", self.ptx.parent), 4)
        self.assertEqual(exit_code(), 2)


class Arithmetic(unittest.TestCase):
    def test_occupancy_by_hand(self):
        # 32 registers: 64 warps fit by registers, 2048 threads by threads.
        self.assertEqual(report.occupancy("80", 256, 32, 0), 1)
        # 64 registers are 2048 a warp: 32 warps, 4 blocks of 8.
        self.assertEqual(report.occupancy("80", 256, 64, 0), 0.5)
        # 65 registers are rounded to 72, 2304 a warp: 28 warps, 3 blocks of 8.
        self.assertEqual(report.occupancy("80", 256, 65, 0), 24 / 64)
        # Small blocks: 32 of them with one warp each.
        self.assertEqual(report.occupancy("80", 32, 32, 0), 0.5)
        # 40 KiB and the 1 KiB that each block loses: 4 of 164 KiB, 5 of 228 KiB.
        self.assertEqual(report.occupancy("80", 128, 32, 40 * 1024), 16 / 64)
        self.assertEqual(report.occupancy("90", 128, 32, 40 * 1024), 20 / 64)

    def test_what_a_kernel_is_for(self):
        inside = "void scantape::cuda::(anonymous namespace)::scan_fwd_kernel<{}>(scantape::Source<float>, double)"
        for arguments, f64 in [("float, 4", False), ("double, 4", True), ("__nv_bfloat16, double", False),
                               ("scantape::Pack<double>", True)]:
            kernel = inside.format(arguments)
            self.assertEqual(report.base_name(kernel), "scan_fwd_kernel")
            self.assertEqual(report.template_arguments(kernel), arguments)
            self.assertEqual(report.is_for_f64(kernel), f64, arguments)
        self.assertFalse(report.is_for_f64("scantape::cuda::join_kernel(int, double*)"))
        self.assertEqual(report.short_name("void a::b_kernel<double, (a::Method)2>(int)"), "b_kernel<double, 2>")


if __name__ == "__main__":
    unittest.main(verbosity=2)
