import sys
from typing import final

@final
class Block:
    @property
    def nbytes(self) -> int: ...
    if sys.version_info >= (3, 12):
        def __buffer__(self, flags: int, /) -> memoryview: ...
