"""examples/: each script, and the notebook's cells in order, in processes of their own, against a real broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafka07c.broker import Broker

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "clicks.ipynb"


def run(*command: str | Path, cwd: Path) -> str:
    """What it prints; it has to succeed."""
    environment = os.environ | {"MPLBACKEND": "Agg", "TMPDIR": str(cwd)}
    ended = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=250
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


def cells() -> list[dict]:
    return json.loads(NOTEBOOK.read_text())["cells"]


def test_the_scripts(hosts, tmp_path):
    """What one produces the others read; the group's second run, and the second ingest, find only what is new."""
    with Broker(tmp_path / "kafka", zookeeper=hosts, partitions=2, properties={"log.flush.interval": 1}):
        assert run(EXAMPLES / "produce.py", hosts, "clicks", "3000", cwd=tmp_path) == "3000 clicks written to clicks\n"
        *pages, total = run(EXAMPLES / "count_by_page.py", hosts, "clicks", "reports", cwd=tmp_path).splitlines()
        assert total == "    3000 clicks"
        assert sum(int(line.split()[0]) for line in pages) == 3000
        said = run(EXAMPLES / "ingest.py", hosts, "clicks", tmp_path / "out", cwd=tmp_path)
        assert "3000 clicks in" in said and "3000 of them different" in said

        run(EXAMPLES / "produce.py", hosts, "clicks", "500", cwd=tmp_path)
        counted = run(EXAMPLES / "count_by_page.py", hosts, "clicks", "reports", cwd=tmp_path)
        assert counted.splitlines()[-1] == "     500 clicks"


def test_the_notebook(tmp_path):
    """Its code as one program: the same cells in the same order, in one process."""
    pytest.importorskip("matplotlib")
    program = tmp_path / "clicks.py"
    program.write_text("\n".join("".join(cell["source"]) + "\n" for cell in cells() if cell["cell_type"] == "code"))
    said = run(program, cwd=tmp_path)
    assert re.search(r"^39,001 clicks in \d+ batches$", said, re.MULTILINE), said
    picture = Path(said.splitlines()[-1]) / "clicks.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_notebook_is_kept_without_outputs():
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in cells()}) == len(cells())
    for cell in cells():
        assert cell["cell_type"] in ("code", "markdown")
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
