"""All suites, and the table of ratios with what is met and what is missed.

    python -m bench                               everything, every kernel of this CPU; `make bench`
    python -m bench --quick                       about a minute, the best kernel; `make bench-quick`
    python -m bench --suite codec --suite log     some of it
    python -m bench --baseline bench/baseline.json   also what has changed since; nothing is judged by it

A figure is the ratio of two medians of interleaved repeats in this run, over sets of a megabyte, hot in the cache; in
brackets the ratio of the quickest of each. What is measured is CPU time: of the thread; of the process where threads
work together; of both ends where that is said. All answers are compared before anything is timed. ``--classpath``, or
KAFKA_CLASSPATH, has the jars of a Kafka broker of today (org.apache.kafka:kafka_2.13).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import growth
from bench.measuring import SIZES, Ratio, interleaved, machine, ratios
from bench.served import SERVED_SUITES
from bench.suites import CODEC_SUITES, Context, Suite
from kafka07c import _crc32

SUITES = {suite.name: suite for suite in (*CODEC_SUITES, *SERVED_SUITES)}
_QUICK_SIZES = ("100 B", "1 KB")
_WIDE = 1.5  # times better or worse than the baseline: beyond that a line is marked


def run(suite: Suite, sizes: Iterable[str], kernels: list[str], seconds: float, context: Context) -> list[Any]:
    """(ratio, costs) of a suite, size after size"""
    found: list[Any] = []
    for size in sizes:
        with suite.works(SIZES[size], context) as works:
            costs = interleaved(works, kernels, seconds)
        found.append((size, ratios(suite.name, suite.rows, size, costs), costs))
    return found


def verdict(ratio: Ratio) -> str:
    bound = "" if ratio.limit is None else f" {'>=' if ratio.rate else '<='}{ratio.limit:g}"
    mark = {True: " met", False: " MISSED", None: ""}[ratio.met]
    return f"{ratio.ratio:.4g} ({ratio.best:.4g}){bound}{mark}"


def print_suite(suite: Suite, found: list[Ratio]) -> None:
    print(f"\n{suite.name:30}" + "".join(f"{size:>30}" for size in SIZES))
    for row in suite.rows:
        cells = [ratio for ratio in found if ratio.row == row.name]
        print(f"  {row.name}")
        for kernel in dict.fromkeys(ratio.kernel for ratio in cells):
            by_size = {ratio.size: verdict(ratio) for ratio in cells if ratio.kernel == kernel}
            print(f"    {kernel or '-':26}" + "".join(f"{by_size.get(size, ''):>30}" for size in SIZES), flush=True)


def print_summary(found: list[Ratio], missing: dict[str, str]) -> None:
    first = _crc32.kernels()[0]
    judged = [ratio for ratio in found if ratio.met is not None and ratio.kernel in ("", first)]
    missed = [ratio for ratio in judged if not ratio.met]
    print(f"\nwith the best kernel, {first}: {len(judged) - len(missed)} figures met, {len(missed)} missed")
    for ratio in missed:
        print(f"  missed: {ratio.row}, {ratio.size}: {verdict(ratio)}")
    for name, why in missing.items():
        print(f"  not run: {name}: {why}")


def print_changes(found: list[Ratio], baseline: Path) -> None:
    before = json.loads(baseline.read_text())
    there = {(each["suite"], each["row"], each["size"], each["kernel"]): each for each in before["ratios"]}
    print(f"\nagainst {baseline}, taken on {before['machine']['cpu']}; marked beyond {_WIDE} times, and not judged")
    for ratio in found:
        was = there.get((ratio.suite, ratio.row, ratio.size, ratio.kernel))
        if was is None:
            continue
        better = ratio.ratio / was["ratio"] if ratio.rate else was["ratio"] / ratio.ratio
        mark = "  <-- worse" if better < 1 / _WIDE else "  better" if better > _WIDE else ""
        place = f"{ratio.row[:62]:62} {ratio.size:>6} {ratio.kernel:14}"
        print(f"  {place} {was['ratio']:9.3g} -> {ratio.ratio:9.3g}{mark}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the best kernel, fewer sizes and less data")
    parser.add_argument("--suite", action="append", choices=[*SUITES, "growth"], help="only this; may be repeated")
    parser.add_argument("--kernel", action="append", choices=_crc32.kernels(), help="only this kernel")
    parser.add_argument("--seconds", type=float, help="for each suite and size (6; --quick: 0.4)")
    parser.add_argument("--classpath", default=os.environ.get("KAFKA_CLASSPATH", ""), help="of a Kafka broker of today")
    parser.add_argument("--output", type=Path, default=Path("build/bench/bench.json"), help="where the JSON goes")
    parser.add_argument("--baseline", type=Path, help="an earlier JSON to hold this run against")
    options = parser.parse_args()
    seconds = options.seconds or (0.4 if options.quick else 6.0)
    kernels = options.kernel or (_crc32.kernels()[:1] if options.quick else _crc32.kernels())
    chosen = options.suite or [*SUITES, *([] if options.quick else ["growth"])]
    context = Context(quick=options.quick, classpath="" if options.quick else options.classpath)
    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, load {about['load']}; {about['build']}")

    began, found, rates = time.monotonic(), [], []
    for suite in (SUITES[name] for name in SUITES if name in chosen):
        few = options.quick and suite in SERVED_SUITES
        sizes = [size for size in suite.sizes if size in _QUICK_SIZES] if few else suite.sizes
        of_suite: list[Ratio] = []
        for size, its_ratios, costs in run(suite, sizes, kernels, seconds, context):
            of_suite += its_ratios
            rates += [
                {"suite": suite.name, "size": size, "work": name, "kernel": kernel} | growth.summary(cost)
                for (name, kernel), cost in costs.items()
            ]
        print_suite(suite, of_suite)
        found += of_suite
    checks = growth.run() if "growth" in chosen else []
    print_summary(found, context.missing)
    if options.baseline:
        print_changes(found, options.baseline)
    about |= {"load after": round(os.getloadavg()[0], 1), "seconds": round(time.monotonic() - began)}
    print(f"load {about['load']} at the start, {about['load after']} at the end; {about['seconds']} s")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": about, "ratios": [asdict(each) for each in found], "works": rates,
        "growth": [asdict(each) for each in checks], "missing": context.missing,
    }  # fmt: skip
    options.output.write_text(json.dumps(result, indent=1))
    print(f"written: {options.output}")


if __name__ == "__main__":
    main()
