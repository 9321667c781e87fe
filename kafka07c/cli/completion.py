"""``kafka07c completion``: a script for bash, zsh or fish, made from the parsers that there are.

Each script has the same two tables: which word leads where (a command below a command), and which option takes which
kind of value. It walks the words in front of the cursor by them, and then offers what may stand at that place. Nothing
of Python runs when a key is pressed.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kafka07c.cli.arguments import Commands, add_command
from kafka07c.cli.exit_codes import OK

__all__ = ["SHELLS", "add_parser", "script"]

_EXAMPLE = """\
  kafka07c completion bash > ~/.local/share/bash-completion/completions/kafka07c
  kafka07c completion zsh > ~/.zfunc/_kafka07c       # with ~/.zfunc in fpath, before compinit
  kafka07c completion fish > ~/.config/fish/completions/kafka07c.fish"""

#: a description in a list of proposals is no longer
_HELP_CHARACTERS = 70


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "completion",
        run,
        help="a script that completes kafka07c in a shell",
        description="Prints a script that makes the Tab key complete commands, options and their values.\n"
        "To try it in bash: source <(kafka07c completion bash)",
        example=_EXAMPLE,
    )
    parser.add_argument("shell", choices=SHELLS, help="whose script")


def run(args: argparse.Namespace) -> int:
    from kafka07c.cli import make_parser

    print(script(args.shell, make_parser()), end="")
    return OK


# --- what there is to complete ------------------------------------------------------------------------------------

#: a value that is a file's name, a folder's name, or that nothing is known of; else its choices, a blank between two
_FILE, _FOLDER, _ANY = "<file>", "<folder>", "<any>"


@dataclass(frozen=True)
class _Option:
    flags: tuple[str, ...]
    help: str
    #: None: it takes no value
    value: str | None


@dataclass(frozen=True)
class _Place:
    """A command with all words that lead to it, ``"kafka07c offsets before"``, and what may follow."""

    words: str
    #: commands below this one, with their help
    below: dict[str, str]
    options: list[_Option]
    #: what stands without an option
    value: str


def _places(parser: argparse.ArgumentParser) -> Iterator[_Place]:
    below: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    options, value = [], _ANY
    formatter = parser._get_formatter()

    def help_of(action: argparse.Action) -> str:
        return _short(formatter._expand_help(action) if action.help else action.metavar)

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
            helps = {str(choice.dest): _short(choice.help) for choice in action._choices_actions}
        elif action.option_strings:
            takes_none = action.nargs == 0
            options.append(_Option(tuple(action.option_strings), help_of(action), None if takes_none else _kind(action)))
        elif value == _ANY:
            value = _kind(action)
    yield _Place(parser.prog, {name: helps.get(name, "") for name in below}, options, value)
    for each in below.values():
        yield from _places(each)


def _short(text: object) -> str:
    """The first part of a help text that says enough, in one line."""
    line = " ".join(str(text or "").split())
    return line if len(line) <= _HELP_CHARACTERS else line[: _HELP_CHARACTERS - 1].rstrip() + "…"


def _kind(action: argparse.Action) -> str:
    if action.choices:
        return " ".join(map(str, action.choices))
    if action.metavar == "DIR":
        return _FOLDER
    return _FILE if action.metavar == "FILE" or action.type is Path else _ANY


# --- the scripts --------------------------------------------------------------------------------------------------


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """The script for one of SHELLS."""
    return _SCRIPTS[shell](list(_places(parser)))


_q = shlex.quote


def _walk_cases(places: list[_Place]) -> str:
    """For bash and zsh: what a word at a place does, be it to lead on or to want a value."""
    lines = []
    for place in places:
        for name in place.below:
            lines.append(f"{_q(f'{place.words} {name}')}) place={_q(f'{place.words} {name}')} ;;")
        for option in place.options:
            if option.value is not None:
                lines.append(f"{_either(f'{place.words} {flag}' for flag in option.flags)}) wanted={_q(option.value)} ;;")
    return _indented(lines, 12)


def _either(words: Iterable[str]) -> str:
    return "|".join(map(_q, words))


def _indented(lines: Iterable[str], depth: int) -> str:
    return "\n".join(" " * depth + line for line in lines)


def _bash(places: list[_Place]) -> str:
    offers = []
    for place in places:
        flags = " ".join(flag for option in place.options for flag in option.flags)
        value = " ".join(place.below) or place.value
        offers.append(f"{_q(place.words)}) flags={_q(flags)} others={_q(value)} ;;")
    return f"""\
# bash completion of kafka07c; made by: kafka07c completion bash

_kafka07c() {{
    local place=kafka07c wanted= flags= others= word index current=${{COMP_WORDS[COMP_CWORD]}}
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${{COMP_WORDS[index]}}
        [[ $word == "=" ]] && continue # bash cuts --option=value there
        if [[ $wanted ]]; then
            wanted=
            continue
        fi
        case "$place $word" in
{_walk_cases(places)}
        esac
    done
    [[ $current == "=" ]] && current=
    case "$place" in
{_indented(offers, 8)}
    esac
    if [[ ! $wanted ]]; then
        [[ $current == -* ]] && wanted=$flags || wanted=$others
    fi
    case "$wanted" in
        {_q(_FILE)}) compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
        {_q(_FOLDER)}) compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
        {_q(_ANY)}) ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$wanted" -- "$current") ;;
    esac
}}
complete -F _kafka07c kafka07c
"""


def _zsh(places: list[_Place]) -> str:
    offers = []
    for place in places:
        flags = " ".join(_described(flag, option.help) for option in place.options for flag in option.flags)
        below = " ".join(_described(name, help) for name, help in place.below.items())
        offers.append(f"{_q(place.words)}) flags=({flags}) below=({below}) others={_q(place.value)} ;;")
    return f"""\
#compdef kafka07c
# zsh completion of kafka07c; made by: kafka07c completion zsh

_kafka07c() {{
    local place=kafka07c wanted= others= word index
    local -a flags below
    for ((index = 2; index < CURRENT; index++)); do
        word=${{words[index]}}
        if [[ -n $wanted ]]; then
            wanted=
            continue
        fi
        case "$place $word" in
{_walk_cases(places)}
        esac
    done
    case "$place" in
{_indented(offers, 8)}
    esac
    if [[ -z $wanted && ${{words[CURRENT]}} == -* ]]; then
        _describe -o option flags
        return
    fi
    if [[ -z $wanted ]] && (( $#below )); then
        _describe command below
        return
    fi
    case "${{wanted:-$others}}" in
        {_q(_FILE)}) _files ;;
        {_q(_FOLDER)}) _files -/ ;;
        {_q(_ANY)}) _message value ;;
        *) compadd -- ${{=${{wanted:-$others}}}} ;;
    esac
}}
if [[ $funcstack[1] == _kafka07c ]]; then
    _kafka07c "$@"
else
    compdef _kafka07c kafka07c
fi
"""


def _described(name: str, help: str) -> str:
    return _q(f"{name.replace(':', chr(92) + ':')}:{help}")


def _fish(places: list[_Place]) -> str:
    steps, offers = [], []
    for place in places:
        for name in place.below:
            steps.append(f"case {_f(f'{place.words} {name}')}")
            steps.append(f"    set place {_f(f'{place.words} {name}')}")
        valued = [flag for option in place.options if option.value is not None for flag in option.flags]
        if valued:
            steps.append("case " + " ".join(_f(f"{place.words} {flag}") for flag in valued))
            steps.append("    set wanted yes")
        here = f"complete -c kafka07c -n {_f(f'__kafka07c_at {_f(place.words)}')}"
        offers += [f"{here} -f -a {_f(name)} -d {_f(help)}" for name, help in place.below.items()]
        if not place.below and place.value != _ANY:
            offers.append(f"{here} {_FISH_VALUES.get(place.value) or f'-f -a {_f(place.value)}'}")
        offers += [f"{here} {_fish_option(option)} -d {_f(option.help)}" for option in place.options]
    return f"""\
# fish completion of kafka07c; made by: kafka07c completion fish

function __kafka07c_at --description 'whether the words before the cursor have led to this command'
    set -l place kafka07c
    set -l wanted
    for word in (commandline -opc)[2..-1]
        if set -q wanted[1]
            set -e wanted
            continue
        end
        switch "$place $word"
{_indented(steps, 12)}
        end
    end
    test "$place" = "$argv[1]"
end

complete -c kafka07c -f
{chr(10).join(offers)}
"""


_FISH_VALUES = {_FILE: "-F", _FOLDER: "-f -a '(__fish_complete_directories)'"}


def _fish_option(option: _Option) -> str:
    names = " ".join(
        f"-l {_f(flag[2:])}" if flag.startswith("--") else f"-s {_f(flag[1:])}" if len(flag) == 2 else f"-o {_f(flag[1:])}"
        for flag in option.flags
    )
    if option.value is None:
        return names
    if option.value == _ANY:
        return f"{names} -x"
    return f"{names} -r {_FISH_VALUES.get(option.value) or f'-f -a {_f(option.value)}'}"


def _f(text: str) -> str:
    """Quoted for fish, where only a backslash and a quote mean something between single quotes."""
    if re.fullmatch(r"[\w.,/=-]+", text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS: dict[str, Callable[[list[_Place]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
SHELLS = tuple(_SCRIPTS)
