#!/usr/bin/env python3
"""Writes what tools/gpu_check found out as JSON.

gpu_report.py build LOG FILE STATUS SECONDS ARCHS   versions, time and the resources of each kernel as ptxas -v told
gpu_report.py test RESULTS FILE SCANTAPE            outcomes of tests/ beside what `scantape info` says
"""

import json
import re
import subprocess
import sys

FORMAT_VERSION = 1
ENTRY = re.compile(r"^ptxas info\s*: Compiling entry function '(\S+)' for 'sm_(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"^ptxas info\s*: Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def output_of(*command):
    """What a program prints, or nothing where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def demangled(names):
    text = output_of("c++filt", *names) if names else ""
    lines = text.splitlines()
    return lines if len(lines) == len(names) else names


def kernels_of(log):
    """Registers, stack, spills and static shared memory of each kernel and architecture; the last build counts."""
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return []
    rows = kernels_of_lines(lines)
    for row in rows:
        del row["mangled"]
    return rows


def kernels_of_lines(lines):
    """The same from what `ptxas -v` printed, each row also with the kernel's mangled name."""
    kernels, row = {}, None
    for line in lines:
        if match := ENTRY.match(line):
            row = kernels[match.groups()] = {"mangled": match[1], "arch": match[2]}
        elif row is not None and (match := FRAME.search(line)):
            row.update(zip(("stack_bytes", "spill_store_bytes", "spill_load_bytes"), map(int, match.groups())))
        elif row is not None and (match := USED.match(line)):
            shared = SHARED.search(line)
            row.update(registers=int(match[1]), shared_bytes=int(shared[1]) if shared else 0)
            row = None
    names = demangled([name for name, _ in kernels])
    return [{"kernel": name, **row} for name, row in zip(names, kernels.values())]


def build(log, path, status, seconds, archs):
    document = {
        "format_version": FORMAT_VERSION,
        "part": "build",
        "pass": status == "0",
        "seconds": int(seconds),
        "gpu_archs": archs.split(","),
        "gpu": output_of("nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader").strip() or None,
        "nvcc": (output_of("nvcc", "--version").strip().splitlines() or [None])[-1],
        "compiler": (output_of("g++", "--version").splitlines() or [None])[0],
        "kernels": kernels_of(log),
    }
    write(path, document)
    kernels = document["kernels"]
    spilling = [row for row in kernels if row.get("spill_store_bytes") or row.get("spill_load_bytes")]
    print("{} kernels, {} of them spill registers".format(len(kernels), len(spilling)))
    return 0


def test(results, path, scantape):
    with open(results, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line.strip()]
    info = output_of(scantape, "info", "--json")
    named = {key: [{"name": row[1], "reason": row[2]} for row in rows if row[0] == key] for key in ("failed", "skipped")}
    passed = [row[1] for row in rows if row[0] == "passed"]
    write(path, {"format_version": FORMAT_VERSION, "part": "test", "pass": bool(passed) and not named["failed"],
                 "info": json.loads(info) if info else None, "passed": len(passed), **named})
    return 0


def write(path, document):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")


def main(arguments):
    if len(arguments) == 6 and arguments[0] == "build":
        return build(*arguments[1:])
    if len(arguments) == 4 and arguments[0] == "test":
        return test(*arguments[1:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
