#!/usr/bin/env python3
"""The verdicts of Hadoop's suites as one table: reports of Maven, and the list of what is excluded.

hadoop_verdicts.py REPORTS EXCLUDED
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

COLUMNS = ("passed", "skipped", "excluded", "failed")


def excluded(file: Path) -> list[re.Pattern[str]]:
    """The patterns of a list, of which `#` begins the reasons."""
    lines = (line.strip() for line in file.read_text().splitlines())
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def verdict(case: ET.Element) -> str:
    """What became of a test."""
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"


def main() -> int:
    """Prints the table."""
    reports, patterns = Path(sys.argv[1]), excluded(Path(sys.argv[2]))
    table: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    unused = {pattern.pattern for pattern in patterns}
    for report in sorted(reports.glob("TEST-*.xml")):
        for case in ET.parse(report).getroot().iter("testcase"):
            suite = case.get("classname", "").rsplit(".", 1)[-1]
            name = f"{suite}.{case.get('name', '')}"
            result = verdict(case)
            reasons = [pattern.pattern for pattern in patterns if pattern.search(name)]
            if reasons and result != "passed":
                unused.difference_update(reasons)
                result = "excluded"
            elif result != "passed":
                wrong.append(f"{result}: {name}")
            table.setdefault(suite, Counter())[result] += 1
    print(f"{'suite':28}" + "".join(f"{column:>10}" for column in COLUMNS))
    total: Counter[str] = Counter()
    for suite, results in table.items():
        total += results
        print(f"{suite:28}" + "".join(f"{results[column]:10}" for column in COLUMNS))
    print(f"{'all':28}" + "".join(f"{total[column]:10}" for column in COLUMNS))
    wrong += [f"excluded, but no test needs it: {pattern}" for pattern in sorted(unused)]
    for line in wrong:
        print(line)
    return 1 if wrong or not table else 0


if __name__ == "__main__":
    sys.exit(main())
