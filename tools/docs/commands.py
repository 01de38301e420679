#!/usr/bin/env python3
"""Prints docs/reference/commands.md: the help of every command and subcommand.

    tools/docs/commands.py build/discreet > docs/reference/commands.md
"""

import json
import subprocess
import sys

HEAD = """# Commands

<!-- Written by tools/docs/commands.py; do not edit. -->

Every command has `--help` with an example; `discreet` alone prints the list of commands. Results go to standard output, errors
to standard error. A misspelt command, option or value is answered with the nearest one that exists.

| exit status | meaning |
|---|---|
| 0 | done, or the check says yes |
| 1 | the check says no: verification failed, gate denied, budget exceeded |
| 2 | bad usage, configuration or input |
| 3 | the machine failed: disk, memory, permissions |

With `--json` a command prints one JSON object. An error is then one JSON object too, in one line on standard error, and
standard output is empty:

```json
{"error":{"code":"INVALID_INPUT","message":"cannot open 'ledger.db': No such file or directory; check the path","status":2}}
```

`discreet --help --json` prints every command and option as one JSON object.

A file or directory that a command cannot open gives the same error in every command: `cannot open 'PATH': REASON; WHAT TO DO`.
The status is 2 if it is missing or of the wrong kind, and 3 if you may not read it.

`discreet completion bash`, `zsh` or `fish` prints a completion script. `make install` installs these scripts and a manual page
for every command: `man discreet`, `man discreet-account`.
"""


def help_of(program, *names):
    return subprocess.run([program, *names, "--help"], check=True, capture_output=True, text=True).stdout.rstrip()


def section(program, command, level):
    """The help of a command and of its subcommands."""
    path = command["command"]
    yield f"{'#' * level} {path}\n\n```text\n{help_of(program, *path.split()[1:])}\n```\n"
    for inner in command["commands"]:
        yield from section(program, inner, level + 1)


def page(program):
    table = json.loads(help_of(program, "--json"))
    groups = {}
    for command in table["commands"]:
        groups.setdefault(command["group"], []).append(command)
    out = [HEAD]
    for group, commands in groups.items():
        names = ", ".join(f"[{c['command'].split()[-1]}](#{c['command'].replace(' ', '-')})" for c in commands)
        out.append(f"- {group}: {names}")
    out[-1] += "\n"
    out[1:] = ["\n".join(out[1:])]
    for command in table["commands"]:
        out += section(program, command, 2)
    return "\n".join(out)


if __name__ == "__main__":
    print(page(sys.argv[1] if len(sys.argv) > 1 else "build/discreet"), end="")
