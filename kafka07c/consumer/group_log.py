"""The consumer's log lines: each with its group, and the partition that it is about."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["GroupLog"]

_log = logging.getLogger("kafka07c.consumer")


class GroupLog(logging.LoggerAdapter[logging.Logger]):
    """Puts the group in front of each line, and ``group``, ``topic``, ``partition`` onto each record.

    The partition a line is about is given as ``extra={"tp": tp}`` and stands behind the group.
    """

    def __init__(self, group: str | None):
        super().__init__(_log, {})
        self._group = group

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """As in any logger."""
        if not self.isEnabledFor(level):
            return
        tp = (kwargs.get("extra") or {}).get("tp")
        place = [f"group {self._group}"] if self._group else []
        place += [str(tp)] if tp is not None else []
        kwargs["extra"] = {
            "group": self._group,
            "topic": tp.topic if tp is not None else None,
            "partition": tp.name if tp is not None else None,
        }
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the line is our caller's
        text, prefix = str(msg) % args if args else str(msg), "".join(f"{each}: " for each in place)
        # what is raised names its group too
        self.logger.log(level, "%s%s", "" if text.startswith(prefix) else prefix, text, **kwargs)
