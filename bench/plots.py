"""SVG plots of a run's JSON: ``python -m bench.plots [--from build/bench/bench.json] [--into build/bench]``.

Rates by payload size on log axes, a line for each peer; shares of the roofs; and where others win. The caption has the
machine, the versions and the load that the run itself recorded.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: E402

from bench.measuring import SIZES  # noqa: E402

Run = dict[str, Any]
Series = tuple[str, str, str, str, str]  # suite, work, kernel ("best": the quickest), label, color

_OURS, _OURS_2, _OURS_3 = "#1b5fa8", "#5b9bd5", "#a5c8ec"
_ROOF, _PLAIN, _AIO, _KAFKA_PYTHON, _CONFLUENT = "#777777", "#c0504d", "#e08e2b", "#8b6bb1", "#4f8f4f"
_BEST = "best"

DECODE: tuple[Series, ...] = (
    ("codec", "memcpy", "", "memcpy of the same bytes", _ROOF),
    ("codec", "columns", _BEST, "kafka07c to columns, 512 bit", _OURS),
    ("codec", "columns", "pclmulqdq", "kafka07c to columns, 128 bit", _OURS_2),
    ("codec", "columns", "slice16", "kafka07c to columns, portable", _OURS_3),
    ("values", "iterate", _BEST, "kafka07c, Message objects", "#0b8f8c"),
    ("codec", "aiokafka", "", "aiokafka, its format v2", _AIO),
    ("codec", "kafka-python", "", "kafka-python, its format v2", _KAFKA_PYTHON),
    ("codec", "plain Python", "", "plain Python, struct + zlib", _PLAIN),
)
ENCODE: tuple[Series, ...] = (
    ("encode", "memcpy", "", "memcpy of the same bytes", _ROOF),
    ("encode", "from columns", _BEST, "kafka07c from columns", _OURS),
    ("encode", "from a list", _BEST, "kafka07c from a list of bytes", _OURS_2),
    ("encode", "aiokafka", "", "aiokafka, its format v0", _AIO),
    ("encode", "kafka-python", "", "kafka-python, its format v0", _KAFKA_PYTHON),
    ("encode", "plain Python", "", "plain Python, struct + zlib", _PLAIN),
)
NETWORK: tuple[Series, ...] = (
    ("network", "recv only", "", "recv only, CPU of both ends", _ROOF),
    ("network", "fetch", _BEST, "SimpleConsumer.fetch to columns, CPU of both ends", _OURS),
    ("live", "live broker", _BEST, "SimpleConsumer from a live broker, CPU of the client", "#0b8f8c"),
    ("consumer", "in a group", _BEST, "Consumer.batches() in a group, CPU of the client", _OURS_2),
    ("live", "confluent-kafka", "", "confluent-kafka from a Kafka 4 broker, CPU of the client", _CONFLUENT),
)
LOST: tuple[Series, ...] = (
    ("codec", "one message", _BEST, "kafka07c, a set of one message to columns", _OURS),
    ("codec", "one, plain Python", "", "plain Python, a set of one message", _PLAIN),
    ("producer", "send", "", "Producer.send() for each message", _OURS_2),
    ("producer", "brod's way", "", "struct and a write for each message", _AIO),
)
SHARES = (
    ("codec", "scan + CRC + columns, time : memcpy", "scan + CRC + columns, of memcpy", _OURS),
    ("encode", "encode from columns, CRC included, time : memcpy", "encode from columns, of memcpy", "#0b8f8c"),
    ("network", "SimpleConsumer.fetch to columns, loopback, rate : recv only", "fetch to columns, of recv only", _AIO),
    ("log", "archive scan of a 1-GB log to columns, rate : readinto", "archive scan, of readinto", _KAFKA_PYTHON),
)


def caption(run: Run) -> str:
    about = run["machine"]
    # what the build itself names is not said twice
    versions = ", ".join(f"{name} {each}" for name, each in about["versions"].items() if name not in about["build"])
    return (
        f"{about['cpu']}, {about['cores']} cores shared with others, load {about['load']} to {about['load after']}; "
        f"CPU time of one core, medians of interleaved repeats, sets of 1 MB. "
        f"{about['build']}; {versions}."
    )


def best_kernel(run: Run) -> str:
    return str(run["machine"]["kernels"][0])


def rates(run: Run, series: Series) -> tuple[list[int], list[float]]:
    """Payload bytes and messages a second"""
    suite, work, kernel, _, _ = series
    kernel = best_kernel(run) if kernel == _BEST else kernel
    points = sorted(
        (SIZES[each["size"]], 1e9 / each["cpu_ns"])
        for each in run["works"]
        if (each["suite"], each["work"], each["kernel"]) == (suite, work, kernel)
    )
    return [size for size, _ in points], [rate for _, rate in points]


def shares(run: Run, suite: str, row: str) -> tuple[list[int], list[float]]:
    points = sorted(
        (SIZES[each["size"]], 100 * (each["ratio"] if each["rate"] else 1 / each["ratio"]))
        for each in run["ratios"]
        if (each["suite"], each["row"]) == (suite, row) and each["kernel"] in ("", best_kernel(run))
    )
    return [size for size, _ in points], [share for _, share in points]


def _size_name(size: float, _: object = None) -> str:
    return next((name for name, each in SIZES.items() if each == size), "")


def _rate_name(rate: float, _: object = None) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= unit:
            return f"{rate / unit:g} {name}"
    return f"{rate:g}"


def _draw(run: Run, lines: list[tuple[str, str, list[int], list[float]]], title: str, unit: str, path: Path) -> None:
    figure, axes = pyplot.subplots(figsize=(8.6, 5.2))
    for label, color, sizes, values in lines:
        if sizes:
            dashed = "--" if color == _ROOF else "-"
            axes.plot(sizes, values, dashed, color=color, label=label, marker="o", markersize=4, linewidth=1.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(list(SIZES.values()))
    axes.xaxis.set_major_formatter(FuncFormatter(_size_name))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(_rate_name if unit != "%" else lambda share, _: f"{share:g} %"))
    everything = [value for _, _, _, values in lines for value in values]
    if max(everything) < 30 * min(everything):  # too few powers of ten to read a rate by
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_minor_locator(NullLocator())
    if unit == "%":
        axes.set_yticks([10, 20, 50, 100, 200, 300])
        axes.yaxis.set_minor_locator(NullLocator())
        axes.axhline(100, color=_ROOF, linewidth=1, linestyle="--")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel("payload")
    axes.set_ylabel("share of the roof" if unit == "%" else unit)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)
    figure.text(0.01, 0.0, "\n".join(textwrap.wrap(caption(run), 175)), fontsize=6.5, color="#555555", va="top")
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)


def draw(run: Run, into: Path, suffix: str = "svg") -> list[Path]:
    """The files that were written"""
    into.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams["svg.hashsalt"] = "kafka07c"  # the same run gives the same file
    written = []
    for name, title, series in (
        ("decode", "Decoding with CRC, one core", DECODE),
        ("encode", "Encoding with CRC, one core", ENCODE),
        ("network", "Fetching over loopback", NETWORK),
        ("lost", "Where others win: one message at a time", LOST),
    ):
        lines = [(each[3], each[4], *rates(run, each)) for each in series]
        if any(sizes for _, _, sizes, _ in lines):
            written.append(into / f"{name}.{suffix}")
            _draw(run, lines, title, "messages a second", written[-1])
    lines = [(label, color, *shares(run, suite, row)) for suite, row, label, color in SHARES]
    if any(sizes for _, _, sizes, _ in lines):
        written.append(into / f"roof.{suffix}")
        _draw(run, lines, "How near the roof: the rate, in percent of what does less", "%", written[-1])
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, default=Path("build/bench/bench.json"))
    parser.add_argument("--into", type=Path, default=Path("build/bench"))
    parser.add_argument("--format", choices=["svg", "png"], default="svg")
    options = parser.parse_args()
    for path in draw(json.loads(options.source.read_text()), options.into, options.format):
        print(f"written: {path}")


if __name__ == "__main__":
    main()
