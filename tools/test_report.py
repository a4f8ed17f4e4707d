#!/usr/bin/env python3
"""Counts what tests did.

test_report.py collect BUILD TESTLOG   reads Meson's testlog.json, prints lines 'outcome <tab> name <tab> reason';
                                       exit 1 where the log is missing or names no test
test_report.py total RESULTS           reads such lines, names what failed and what was skipped and ends with
                                       'N passed, N failed, N skipped'; exit 1 on a failure or where nothing passed
"""

import json
import re
import sys

CASE = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\S+?)(?: \(\d+ ms\)|, where .*\(\d+ ms\))$")
CASE_OUTCOMES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
OUTCOMES = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
NAMED_AT_MOST = 3


def gtest_cases(text):
    """(outcome, name, reason) of each GoogleTest case that finished, in the order of a program's output."""
    cases, reason, reason_follows = [], "", False
    for line in text.splitlines():
        if reason_follows:
            reason, reason_follows = line.strip(), False
        elif line.endswith(": Skipped"):
            reason_follows = True
        elif match := CASE.match(line):
            outcome = CASE_OUTCOMES[match[1]]
            cases.append((outcome, match[2], reason if outcome == "skipped" else ""))
            reason = ""
    return cases


def program_rows(build, entry):
    """What one program did: its GoogleTest cases where it has any, else the program itself."""
    program = build + " / " + entry["name"]
    outcome = OUTCOMES.get(entry["result"], "failed")
    text = entry.get("stdout", "")
    if outcome == "passed" and "0 tests from 0 test suites ran" in text:
        return [("failed", program, "ran no test")]
    cases = gtest_cases(text)
    if not cases:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        reason = {"passed": "", "failed": entry["result"], "skipped": lines[-1] if lines else ""}[outcome]
        return [(outcome, program, reason)]
    rows = [(case, program + " / " + name, reason) for case, name, reason in cases]
    # A crash, a time limit or a leak found at the end fails the program although each finished case passed.
    if outcome == "failed" and not any(case == "failed" for case, _, _ in cases):
        rows.append(("failed", program, entry["result"]))
    return rows


def collect(build, path):
    try:
        with open(path, encoding="utf-8") as log:
            entries = [json.loads(line) for line in log if line.strip()]
    except FileNotFoundError:
        return 1
    for entry in entries:
        for row in program_rows(build, entry):
            print("\t".join(field.replace("\t", " ").replace("\n", " ") for field in row))
    return 0 if entries else 1


def name_skipped(rows):
    """Names what was skipped; many cases of one program with one reason on one line."""
    groups = {}
    for _, name, reason in rows:
        groups.setdefault((name.rsplit(" / ", 1)[0], reason), []).append(name)
    for (program, reason), names in groups.items():
        shown = names if len(names) <= NAMED_AT_MOST else ["{} ({} cases)".format(program, len(names))]
        for name in shown:
            print("SKIPPED", name + (": " + reason if reason else ""))


def total(path):
    with open(path, encoding="utf-8") as results:
        rows = [tuple(line.rstrip("\n").split("\t")) for line in results if line.strip()]
    named = {outcome: [row for row in rows if row[0] == outcome] for outcome in ("passed", "failed", "skipped")}
    print()
    name_skipped(named["skipped"])
    for _, name, reason in named["failed"]:
        print("FAILED", name + (": " + reason if reason else ""))
    print("{} passed, {} failed, {} skipped".format(*(len(named[key]) for key in ("passed", "failed", "skipped"))))
    return 1 if named["failed"] or not named["passed"] else 0


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "collect":
        return collect(arguments[1], arguments[2])
    if len(arguments) == 2 and arguments[0] == "total":
        return total(arguments[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
