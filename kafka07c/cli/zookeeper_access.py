"""How ZooKeeper lets us in, for all commands: a properties file, for a password has no place on a command line.

::

    auth.digest = user:password          # auth.SCHEME = credentials; one line for each scheme
    acl = creator                        # of nodes that are made: open (the default), creator, creator-read
    tls = true                           # and, by files in PEM:
    tls.ca = /etc/kafka07c/ca.pem        # who signs the server's certificate
    tls.cert = /etc/kafka07c/client.pem  # our own certificate, where the server asks for one
    tls.key = /etc/kafka07c/client.key
    tls.key.password = secret
    tls.verify = true                    # false takes any server
"""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafka07c.cli.exit_codes import UsageError

if TYPE_CHECKING:
    from kafka07c.zookeeper import Access

__all__ = ["ACCESS_VARIABLE", "add_access", "with_access"]

ACCESS_VARIABLE = "KAFKA07C_ZOOKEEPER_ACCESS"

_FILES = {"tls.ca": "ca", "tls.cert": "certfile", "tls.key": "keyfile", "tls.key.password": "keyfile_password"}
_SWITCHES = {"tls": "use_ssl", "tls.verify": "verify_certs"}
_BOOLEANS = {"true": True, "false": False}
_NAMES = ("acl", "auth.digest", *_FILES, *_SWITCHES)


def add_access(parser: argparse._ActionsContainer, flag: str = "--zk-access") -> None:
    """``--zk-access``, beside an option that names a ZooKeeper."""
    parser.add_argument(
        flag,
        metavar="FILE",
        help=f"how ZooKeeper lets us in, a properties file: auth.digest = user:password, tls = true, tls.ca, tls.cert, "
        f"tls.key, tls.key.password, tls.verify, acl = open | creator | creator-read (default: ${ACCESS_VARIABLE})",
    )


def with_access(zookeeper: str, path: str | None) -> str | Access:
    """``zookeeper`` with what the file says that `add_access` asked for; UsageError if it cannot be understood.

    ``path`` None: the file that the environment names, or none.
    """
    from kafka07c.properties import read_properties
    from kafka07c.zookeeper import Access

    path = path or os.environ.get(ACCESS_VARIABLE)
    if not path:
        return zookeeper
    try:
        return Access(zookeeper, **_options(read_properties(path)))
    except OSError as error:
        raise UsageError(f"cannot read {path!r}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None


def _options(properties: Mapping[str, str]) -> dict[str, Any]:
    from kafka07c.zookeeper import ACLS

    options: dict[str, Any] = {}
    auth: list[tuple[str, str]] = []
    for name, value in properties.items():
        if name.startswith("auth.") and name != "auth.":
            auth.append((name.removeprefix("auth."), value))
        elif name in _FILES:
            options[_FILES[name]] = value
        elif name in _SWITCHES:
            options[_SWITCHES[name]] = _one_of(name, value, _BOOLEANS)
        elif name == "acl":
            options["default_acl"] = _one_of(name, value, ACLS)
        else:
            near = difflib.get_close_matches(name, _NAMES, 1)
            raise ValueError(f"there is no {name!r}" + (f"; is {near[0]} meant?" if near else f": {', '.join(_NAMES)}"))
    if not options.get("use_ssl") and (given := [name for name in properties if name.startswith("tls.")]):
        raise ValueError(f"{', '.join(given)} without tls = true")
    return options | {"auth_data": auth}


def _one_of(name: str, value: str, choices: Mapping[str, Any]) -> Any:
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
    return choices[value]
