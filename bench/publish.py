"""Makes a run the published one: the baseline, the plots and the tables of docs/benchmarks.md.

    python -m bench.publish build/bench/bench.json
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measuring import SIZES
from bench.plots import best_kernel, caption, draw

DOCS = Path("docs")
BASELINE = Path("bench/baseline.json")
_BEGIN, _END = "<!-- figures: python -m bench.publish -->", "<!-- end of figures -->"


def tables(run: dict[str, Any]) -> Iterator[str]:
    yield f"{caption(run)} The run took {run['machine']['seconds']} s."
    kernels = run["machine"]["kernels"]
    yield from ("", "Each cell: the ratio, in brackets its limit where there is one; **bold** where that is missed.")
    for kernel in kernels:
        yield from ("", f"### {'The best kernel, ' if kernel == kernels[0] else 'The kernel '}`{kernel}`", "")
        yield "| what is compared | " + " | ".join(SIZES) + " |"
        yield "|---" * (1 + len(SIZES)) + "|"
        wanted = (kernel, "") if kernel == kernels[0] else (kernel,)
        chosen = [each for each in run["ratios"] if each["kernel"] in wanted]
        for row in dict.fromkeys(each["row"] for each in chosen):
            cells = {each["size"]: _cell(each) for each in chosen if each["row"] == row}
            yield f"| {row} | " + " | ".join(cells.get(size, "") for size in SIZES) + " |"
    if run["growth"]:
        yield from ("", "### What stays straight", "")
        for check in run["growth"]:
            verdict = "met" if check["met"] else "**missed**"
            yield f"- {check['name']}: {check['told']} ({verdict}; limit {check['limit']:g})"
    for name, why in run["missing"].items():
        yield from ("", f"Not run: {name} ({why}).")


def _cell(ratio: dict[str, Any]) -> str:
    figure = f"{ratio['ratio']:.3g}" if ratio["ratio"] < 100 else f"{ratio['ratio']:.0f}"
    if ratio["met"] is None:
        return figure
    bound = f" ({'≥' if ratio['rate'] else '≤'} {ratio['limit']:g})"
    return f"{figure}{bound}" if ratio["met"] else f"**{figure}**{bound}"


def main(source: str) -> None:
    run = json.loads(Path(source).read_text())
    page = DOCS / "benchmarks.md"
    before, _, rest = page.read_text().partition(_BEGIN)
    after = rest.partition(_END)[2]
    page.write_text(f"{before}{_BEGIN}\n" + "\n".join(tables(run)) + f"\n{_END}{after}")
    shutil.copyfile(source, BASELINE)
    for path in draw(run, DOCS / "plots"):
        print(f"written: {path}")
    print(f"written: {page}, {BASELINE}; kernel {best_kernel(run)}")


if __name__ == "__main__":
    main(sys.argv[1])
