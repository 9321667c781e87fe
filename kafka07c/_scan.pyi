from typing import final

@final
class Columns: ...

@final
class Frame: ...

class Damage:
    __slots__ = ("position", "reason", "next_position")
    position: int
    reason: str
    next_position: int | None
    def __init__(self, position: int, reason: str, next_position: int | None) -> None: ...

@final
class Scan:
    def __init__(
        self, view: memoryview, base: int, *, final: bool, shallow: bool, max_inflated_bytes: int
    ) -> None: ...
    @property
    def columns(self) -> Columns: ...
    @property
    def valid_bytes(self) -> int: ...
    @property
    def error(self) -> Damage | None: ...
