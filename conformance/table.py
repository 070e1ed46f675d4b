"""Turns the JUnit report of Kubernetes' tests into a table: table.py REPORT REASONS OUTPUT; differences.md follows it.

REASONS has a line `part of the test's name = why it fails` for each failure that is known and explained; the exit code is 1 when there is another.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

GROUP = re.compile(r"\[sig-[a-z-]+\] (CustomResourceDefinition (?:resources|Watch)|Servers with support for (?:API chunking|Table transformation)|server version|\S+)")


def main(report, reasons_file, output):
    reasons = [line.rstrip("\n").split(" = ", 1) for line in open(reasons_file) if " = " in line]
    groups = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        name = case.get("name")
        if "[It]" not in name or case.find("skipped") is not None:
            continue
        name = re.sub(r"^\[It\] ", "", name)
        group = GROUP.match(name)
        failed = case.find("failure") is not None or case.find("error") is not None
        groups.setdefault(group.group(1) if group else "other", []).append((name, failed))
    passed = sum(not failed for cases in groups.values() for _, failed in cases)
    total = sum(map(len, groups.values()))
    lines = [
        "# Conformance",
        "",
        "Kubernetes' own end-to-end tests of its API, run against the embedded API server by `make conformance`, which writes this page.",
        "",
        f"{passed} of {total} pass.",
        "",
        "| group | passed | failed |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {group} | {sum(not f for _, f in cases)} | {sum(f for _, f in cases)} |" for group, cases in sorted(groups.items())]
    unexplained = 0
    failures = [name for cases in groups.values() for name, failed in cases if failed]
    if failures:
        lines += ["", "## What fails, and why", ""]
        for name in sorted(failures):
            why = next((why for part, why in reasons if part in name), None)
            unexplained += why is None
            why = why or "not explained yet"
            lines.append(f"- {name}: {why}")
    lines += ["", (pathlib.Path(__file__).parent / "differences.md").read_text().rstrip("\n")]
    with open(output, "w") as file:
        file.write("\n".join(lines) + "\n")
    print(f"{passed} passed, {total - passed} failed, {unexplained} of them not explained")
    return 1 if unexplained or not total else 0


sys.exit(main(*sys.argv[1:]))
