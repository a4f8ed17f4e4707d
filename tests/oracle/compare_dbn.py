#!/usr/bin/env python3
"""Compares `scantape inspect` with the vendor's own decoder, file by file and record by record.

The vendor's decoder is the package databento-dbn; install it in a virtual environment of its own:

    python3 -m venv venv && venv/bin/pip install databento-dbn
    venv/bin/python tests/oracle/compare_dbn.py --scantape build/tools/scantape/scantape FOLDER

Every .dbn, .dbn.zst, .dbn.frag and .dbn.frag.zst below FOLDER is compared; a .dbz has to be refused with exit code 3.
Exit code: 0 where all agree, 1 where any differs, 77 where there is nothing to compare.
"""

import argparse
import csv
import io
import json
import pathlib
import re
import subprocess
import sys

try:
    import databento_dbn as dbn
except ImportError:
    print("databento-dbn is not installed: nothing is compared")
    sys.exit(77)

UNDEFINED = 2**64 - 1
ZSTD_MAGIC = bytes.fromhex("28b52ffd")
BAR_TYPES = {0x11, 0x20, 0x21, 0x22, 0x23, 0x24}


def run(scantape, *arguments):
    return subprocess.run([scantape, "inspect", *arguments], capture_output=True, text=True)


def fragment_version(path):
    """The version a fragment's name states, or the one its record sizes show (1: 360 bytes of a definition)."""
    match = re.search(r"\.v([123])\.", path.name)
    return int(match.group(1)) if match else None


def vendor_decode(data, version=None):
    """Metadata (None for a fragment) and records as the vendor sees them, with no upgrade of old versions."""
    compression = dbn.Compression.ZSTD if data[:4] == ZSTD_MAGIC else dbn.Compression.NONE
    decoder = dbn.DBNDecoder(
        has_metadata=version is None,
        input_version=version,
        upgrade_policy=dbn.VersionUpgradePolicy.AS_IS,
        compression=compression,
    )
    decoder.write(data)
    items = decoder.decode()
    metadata = None
    if version is None:
        metadata, items = items[0], items[1:]
    # ts_out, where there is any, comes as a pair with the record.
    return metadata, [item[0] if isinstance(item, tuple) else item for item in items]


def vendor_row(record):
    rtype = int(getattr(record.rtype, "value", record.rtype)) if not isinstance(record.rtype, int) else record.rtype
    row = [rtype, record.publisher_id, record.instrument_id, record.ts_event]
    if rtype in BAR_TYPES:
        row += [record.open, record.high, record.low, record.close, record.volume]
    return row


def our_rows(text):
    rows = []
    for row in csv.DictReader(io.StringIO(text)):
        numbers = [row[key] for key in ("rtype", "publisher_id", "instrument_id", "ts_event")]
        numbers += [row[key] for key in ("open", "high", "low", "close", "volume")]
        rows.append([int(number) for number in numbers if number != ""])
    return rows


def name_of(value):
    return None if value is None else str(value)


def compare_metadata(ours, theirs):
    problems = []
    pairs = [
        ("version", ours["version"], theirs.version),
        ("dataset", ours["dataset"], theirs.dataset),
        ("schema", ours["schema"], name_of(theirs.schema)),
        ("stype_in", ours["stype_in"], name_of(theirs.stype_in)),
        ("stype_out", ours["stype_out"], name_of(theirs.stype_out)),
        ("start", ours["start"], theirs.start),
        ("end", ours["end"], None if theirs.end in (None, 0, UNDEFINED) else theirs.end),
    ]
    for what, mine, other in pairs:
        if not (mine == other):
            problems.append(f"{what} is {mine!r}, the vendor has {other!r}")
    return problems


def compare_summary(ours, rows):
    problems = []
    counts = {}
    for row in rows:
        key = f"0x{row[0]:02x}"
        counts[key] = counts.get(key, 0) + 1
    bars = [row for row in rows if row[0] in BAR_TYPES]
    wanted = {
        "count": len(bars),
        "sum_close": str(sum(row[7] for row in bars)),
        "sum_volume": str(sum(row[8] for row in bars)),
        "first_ts": min((row[3] for row in bars), default=None),
        "last_ts": max((row[3] for row in bars), default=None),
    }
    if not (ours["records"] == counts):
        problems.append(f"records are {ours['records']}, the vendor has {counts}")
    if not (ours["bars"] == wanted):
        problems.append(f"bars are {ours['bars']}, the vendor has {wanted}")
    per_instrument = {}
    for instrument in ours["instruments"]:
        key = instrument["instrument_id"]
        per_instrument[key] = per_instrument.get(key, 0) + instrument["bars"]
    for key, count in per_instrument.items():
        if not (count == sum(1 for row in bars if row[2] == key)):
            problems.append(f"instrument {key} has {count} bars, the vendor has another number")
    return problems


def compare_symbols(ours, theirs):
    """Each symbol we name has to be one that the vendor maps to the same id."""
    if theirs is None or str(theirs.stype_out) != "instrument_id":
        return []
    pairs = {
        (interval["symbol"], raw_symbol)
        for raw_symbol, intervals in theirs.mappings.items()
        for interval in intervals
    }
    return [
        f"instrument {item['instrument_id']} is named {item['symbol']!r}, which the vendor does not map"
        for item in ours["instruments"]
        if item["symbol"] is not None and pairs and (str(item["instrument_id"]), item["symbol"]) not in pairs
    ]


def compare_file(scantape, path):
    """What differs, as sentences; and the number of records."""
    fragment = ".dbn.frag" in path.name
    version = None
    extra = []
    if fragment:
        refused = run(scantape, "--json", str(path))
        if refused.returncode != 3:
            return [f"without --fragment it ends with {refused.returncode}, wants 3"], 0
        version = fragment_version(path)
        extra = ["--fragment", str(version or 1)]
        if version is None and run(scantape, "--json", *extra, str(path)).returncode != 0:
            version = 2
            extra = ["--fragment", "2"]
        version = version or 1
    summary = run(scantape, "--json", *extra, str(path))
    dump = run(scantape, "--records", *extra, str(path))
    if summary.returncode or dump.returncode:
        return [summary.stderr.strip() or dump.stderr.strip()], 0
    ours = json.loads(summary.stdout)["files"][0]
    metadata, records = vendor_decode(path.read_bytes(), version)
    theirs = [vendor_row(record) for record in records]
    mine = our_rows(dump.stdout)
    problems = []
    if metadata is not None:
        problems += compare_metadata(ours, metadata)
    problems += compare_summary(ours, theirs)
    problems += compare_symbols(ours, metadata)
    if not (len(mine) == len(theirs)):
        problems.append(f"{len(mine)} records, the vendor has {len(theirs)}")
    for number, (a, b) in enumerate(zip(mine, theirs), 1):
        if not (a == b):
            problems.append(f"record {number} is {a}, the vendor has {b}")
            break
    return problems, len(mine)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scantape", required=True, help="the program")
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()
    files = [p for p in sorted(arguments.folder.rglob("*")) if re.search(r"\.(dbn(\.frag)?(\.zst)?|dbz)$", p.name)]
    passed = failed = refused = total = 0
    for path in files:
        if path.name.endswith(".dbz"):
            result = run(arguments.scantape, "--json", str(path))
            good = result.returncode == 3 and "DBZ" in result.stderr and result.stdout == ""
            problems = [] if good else [f"exit {result.returncode}, {result.stderr.strip()!r}; wants 3 and the word DBZ"]
            refused += good
        else:
            problems, count = compare_file(arguments.scantape, path)
            total += count
        passed += not problems
        failed += bool(problems)
        for problem in problems:
            print(f"FAIL {path.relative_to(arguments.folder)}: {problem}")
    print(f"{passed} files agree ({total} records; {refused} .dbz refused as they should be), {failed} differ")
    if not files or total == 0:
        print("nothing was compared")
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
