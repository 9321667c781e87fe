"""``kafka07c completion``: the scripts complete in the shells themselves; those that are not on the machine are skipped."""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import time

import pytest

from kafka07c.cli import main, make_parser
from kafka07c.cli.completion import SHELLS, script

from group_cluster import PATIENCE

FOLDER = "some folder"


def needs(shell: str) -> str:
    return shutil.which(shell) or pytest.skip(f"{shell} is not installed")


@pytest.fixture
def folder(tmp_path):
    """A folder to stand in: a script for each shell, and files to complete."""
    for shell in SHELLS:
        (tmp_path / f"script.{shell}").write_text(script(shell, make_parser()))
    (tmp_path / "00.kafka").touch()
    (tmp_path / FOLDER).mkdir()
    return tmp_path


def run(shell: str, folder, lines: list[str]) -> str:
    command = [needs(shell), *({"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]), "-c", "\n".join(lines)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


#: the line after what is offered for one line
END = "%%%"


def offers(printed: str) -> list[set[str]]:
    """What is in front of each END: one offer a line, with a description behind a tab."""
    found: list[set[str]] = [set()]
    for line in printed.splitlines():
        if line == END:
            found.append(set())
        elif line:
            found[-1].add(line.partition("\t")[0].replace("\\ ", " "))
    assert not found[-1]
    return found[:-1]


def bash(folder, *typed: list[str]) -> list[set[str]]:
    """What bash offers for each line: its words, the last of which is being typed."""
    lines = ["source script.bash"]
    for words in typed:
        quoted = " ".join(map(shlex.quote, words))
        lines.append(f'COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _kafka07c; printf "%s\\n" "${{COMPREPLY[@]}}" {END}')
    return offers(run("bash", folder, lines))


def fish(folder, *typed: list[str]) -> list[set[str]]:
    """The same of fish, which escapes blanks in what it offers."""
    lines = ["source script.fish"]
    for words in typed:
        line = " ".join(map(shlex.quote, words[:-1])) + " " + words[-1]
        lines += [f"complete -C {shlex.quote(line)}", f"echo {END}"]
    return offers(run("fish", folder, lines))


OFFER = {"bash": bash, "fish": fish}

#: the words in front of the cursor, the last one begun, and what is offered
CASES = [
    (["kafka07c", "verify"], {"verify-rebalance"}),
    (["kafka07c", "offsets", ""], {"show", "export", "import", "reset", "before"}),
    (["kafka07c", "--debug", "perf", "f"], {"fetch"}),
    (["kafka07c", "offsets", "before", "--lo"], {"--logs"}),
    (["kafka07c", "produce", "--codec", ""], {"none", "gzip", "snappy"}),
    (["kafka07c", "produce", "--zookeeper", "mirror", "--dead"], {"--dead-letter"}),  # a value, not a command
    (["kafka07c", "produce", "--topic", ""], set()),
    (["kafka07c", "cat", "--zookeeper", "h:1/x", "-t", "lag", "--exc"], {"--exclude"}),
    (["kafka07c", "completion", "z"], {"zsh"}),
    (["kafka07c", "dump", "0"], {"00.kafka"}),
    (["kafka07c", "nonsense", "--topi"], set()),
]


@pytest.mark.parametrize("shell", OFFER)
def test_what_is_offered(shell, folder):
    for (words, expected), offered in zip(CASES, OFFER[shell](folder, *(words for words, _ in CASES)), strict=True):
        assert offered == expected, words
    (offered,) = OFFER[shell](folder, ["kafka07c", "ingest", "--out", "so"])
    assert {name.rstrip("/") for name in offered} == {FOLDER}


def test_what_bash_cuts_at_an_equals_sign_and_a_colon(folder):
    typed = [["kafka07c", "produce", "--codec", "=", "g"], ["kafka07c", "produce", "--codec", "="],
             ["kafka07c", "produce", "-b", "h", ":", "1", "--codec", "g"]]  # fmt: skip
    assert bash(folder, *typed) == [{"gzip"}, {"none", "gzip", "snappy"}, {"gzip"}]


def flags(it: argparse.ArgumentParser) -> dict[str, set[str]]:
    """The long options of each command, by its words."""
    found = {it.prog: {flag for action in it._actions for flag in action.option_strings if flag.startswith("--")}}
    for action in it._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found |= flags(below)
    return found


@pytest.mark.parametrize("shell", OFFER)
def test_every_option_of_every_command_is_offered(shell, folder):
    wanted = flags(make_parser())
    assert len(wanted) > 20
    typed = [[*words.split(), "--"] for words in wanted]
    for (words, expected), offered in zip(wanted.items(), OFFER[shell](folder, *typed), strict=True):
        assert {flag for flag in offered if flag.startswith("--")} == expected, words


# a person at the terminal


class Terminal:
    """An interactive shell in a pseudo-terminal; what it shows is kept without colours and cursor movements."""

    def __init__(self, command: list[str], folder):
        self.pid, self._fd = pty.fork()
        if not self.pid:
            environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
            os.chdir(folder)
            os.execve(command[0], command, environment)
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc_info) -> None:
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self._fd)

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def wait(self, pattern: str) -> None:
        """Until what is shown from now on matches; that is then forgotten."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.shown)):
            assert time.monotonic() < deadline and select.select([self._fd], [], [], PATIENCE)[0], self.shown
            data = os.read(self._fd, 1 << 16).decode(errors="replace")
            self.shown += re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>])|[\r\x07\x08]", "", data)
        self.shown = self.shown[found.end() :]


START = {
    "bash": (["--norc", "--noprofile", "-i"], "source script.bash"),
    "zsh": (["-f", "-i"], "autoload -Uz compinit && compinit -u -D && source script.zsh"),
}


@pytest.mark.parametrize("shell", START)
def test_the_tab_key(shell, folder):
    arguments, source = START[shell]
    with Terminal([needs(shell), *arguments], folder) as terminal:
        terminal.type(f"{source}; PS1='now> '; echo rea''dy\n")
        terminal.wait("ready\n")
        terminal.wait("now> ")
        for typed, completed in [
            ("kafka07c verif\t", r"verify-rebalance "),
            ("kafka07c offsets bef\t", r"before "),
            ("kafka07c offsets before --zookeeper h -t --json --lo\t", r"--logs "),
            ("kafka07c produce --codec sn\t", r"snappy "),
            ("kafka07c ingest --out some\t", r"some\\ folder/"),
            ("kafka07c dump 00\t", r"00\.kafka "),
        ]:
            terminal.type(typed)
            terminal.wait(completed)
            terminal.type("\x15\n")  # the line is given up
            terminal.wait("now> ")


def test_zsh_finds_it_in_its_folder_of_functions(folder):
    (folder / "functions").mkdir()
    (folder / "script.zsh").rename(folder / "functions" / "_kafka07c")
    with Terminal([needs("zsh"), "-f", "-i"], folder) as terminal:
        terminal.type("fpath=($PWD/functions $fpath); autoload -Uz compinit && compinit -u -D; PS1='now> '; echo rea''dy\n")
        terminal.wait("ready\n")
        for _ in range(2):  # the first use loads it
            terminal.type("kafka07c verif\t")
            terminal.wait("verify-rebalance ")
            terminal.type("\x15\n")
            terminal.wait("now> ")


# the command


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell, capsys):
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == script(shell, make_parser())


def test_a_shell_that_there_is_none_for(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["completion", "tcsh"])
    assert ended.value.code == 2
