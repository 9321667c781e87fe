"""What all commands have in common: exit codes, one-line errors, help, output without a terminal."""

from __future__ import annotations

import io
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kafka07c import _crc32, build_message_set, cli, errors
from kafka07c.build_info import build_info
from kafka07c.cli import exit_codes, main, output
from kafka07c.cli.exit_codes import exit_code

COMMANDS = (
    "ingest", "cat", "dump", "broker", "topics", "brokers", "groups", "lag", "offsets", "verify-rebalance",
)  # fmt: skip


def segment(folder: Path, *payloads: bytes) -> Path:
    path = folder / f"{0:020d}.kafka"
    path.write_bytes(build_message_set(payloads))
    return path


def test_every_error_class_has_its_exit_code():
    expected = {
        "BrokerConnectionError": 3, "BrokerTimeoutError": 3, "ZooKeeperError": 3, "BrokerIdInUseError": 3,
        "CorruptMessageError": 4, "InvalidTopicError": 2, "UnknownTopicError": 2, "MissingExtraError": 2,
        "OutputFolderError": 2, "UndecodableError": 4,
    }  # fmt: skip
    for name in errors.__all__:
        cls = getattr(errors, name)
        if isinstance(cls, type):
            assert exit_code(cls("it")) == expected.get(name, 5), name
    assert exit_code(OSError(28, "full")) == 5
    assert exit_code(exit_codes.UsageError("it")) == 2
    assert exit_code(KeyError("ours")) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"  kafka07c {command} " in capsys.readouterr().out.partition("example:\n")[2]


def test_version(capsys):
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    out = capsys.readouterr().out
    assert (ended.value.code, out) == (0, f"{build_info()}\n")
    assert out.startswith(f"kafka07c {project['version']} (") and f"crc {_crc32.kernel()}" in out and "gzip " in out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["dump"], ["cat"], ["ingest", "--topic", "t"]])
def test_a_wrong_command_line_is_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


def failing(monkeypatch, error: BaseException) -> None:
    def run(args):
        raise error

    monkeypatch.setattr(cli.dump, "run", run)


def test_an_error_is_one_line_and_debug_shows_the_trace(monkeypatch, capsys):
    failing(monkeypatch, errors.ZooKeeperError("nobody\nthere"))
    assert main(["dump", "x"]) == 3
    assert capsys.readouterr().err == "kafka07c dump: nobody there\n"
    assert main(["dump", "x", "--debug"]) == 3
    printed = capsys.readouterr().err
    assert "Traceback" in printed and printed.endswith("kafka07c dump: nobody there\n")


def test_our_own_faults_say_so(monkeypatch, capsys):
    failing(monkeypatch, ZeroDivisionError("oh"))
    assert main(["dump", "x"]) == 1
    expected = "kafka07c dump: ZeroDivisionError: oh (a fault of kafka07c; --debug shows where)\n"
    assert capsys.readouterr().err == expected


def test_ctrl_c_is_130(monkeypatch):
    failing(monkeypatch, KeyboardInterrupt())
    assert main(["dump", "x"]) == 130


def test_python_m_and_a_pipe_that_is_closed(tmp_path):
    path = segment(tmp_path, *(b"%d" % i for i in range(100_000)))
    process = subprocess.Popen(
        [sys.executable, "-m", "kafka07c", "dump", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"Dumping %b\n" % str(path).encode()
    process.stdout.close()
    assert (process.wait(timeout=30), process.stderr.read()) == (0, b"")
    process.stderr.close()


def test_light_commands_import_neither_spark_nor_arrow(tmp_path):
    """What needs an extra must not be needed by commands that do without it."""
    segment(tmp_path, b"x")
    script = (
        "import sys; from kafka07c.cli import main; code = main(sys.argv[1:]);"
        "loaded = {'pyspark', 'pyarrow', 'pandas', 'rich'} & set(sys.modules); sys.exit(f'{code} {loaded}')"
    )
    arguments = ["dump", str(tmp_path / f"{0:020d}.kafka")]
    ended = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=30)
    assert ended.stderr.strip() == "0 set()"


def test_without_the_spark_extra_ingest_says_what_to_install(tmp_path):
    script = "import sys; sys.modules['pyarrow'] = None; from kafka07c.cli import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["ingest", "--logs", f"0:{tmp_path}", "--topic", "t", "--out", str(tmp_path / "out")]
    ended = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "kafka07c ingest: pyarrow is not installed: pip install 'kafka07c[spark]'\n"


@pytest.mark.parametrize("command", [["cat", "-t", "t"], ["offsets", "before", "latest", "-t", "t"]])
def test_logs_that_are_not_there_are_2(command, tmp_path, capsys):
    assert main([*command, "--logs", f"0:{tmp_path},1:{tmp_path / 'no'}"]) == 2
    assert capsys.readouterr().err.endswith(f"--logs: there is no folder '{tmp_path / 'no'}'\n")


def test_an_output_folder_that_is_none_is_2(tmp_path, capsys):
    (tmp_path / "logs" / "t-0").mkdir(parents=True)
    segment(tmp_path / "logs" / "t-0", b"x")
    for name, said in (("logs/t-0/00000000000000000000.kafka", "is not a folder"), ("logs", "holds files that no ingest")):
        arguments = ["--logs", f"0:{tmp_path / 'logs'}", "--topic", "t", "--out", str(tmp_path / name)]
        assert main(["ingest", *arguments]) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1


# --- output -------------------------------------------------------------------------------------------------------


def test_a_table():
    rows = [("a", 1234567, "0.5"), ("long name", None, "-")]
    assert output.table(("name", "count", "share"), rows, left=("name",)) == (
        "name           count  share\n"
        "---------  ---------  -----\n"
        "a          1,234,567    0.5\n"
        "long name          -      -"
    )


def test_no_progress_bar_without_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with output.progress_bar("it") as progress:
        assert progress is None


def test_a_progress_bar_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with output.progress_bar("ingest") as progress:
        progress(1_000_000, 4_000_000)
        progress(4_000_000, 4_000_000)
    printed = terminal.getvalue()
    assert "ingest" in printed and "4.0/4.0 MB" in printed


def test_no_progress_bar_without_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    with output.progress_bar("it") as progress:
        assert progress is None


@pytest.mark.parametrize(
    ("value", "fields"),
    [(b"ab", {"payload": "ab"}), ("ü".encode(), {"payload": "ü"}), (b"\xff", {"payload_base64": "/w=="})],
)
def test_payload_fields(value, fields):
    assert output.payload_fields(value) == fields
