"""Allocs and frees that simply fit: the compiled half of Pool and Block. pool.py and block.py have the rest of both."""

from collections import deque
from typing import TypeVar

from .block import Block
from .gate import Gate
from .pool import Pool

B = TypeVar("B", bound=QuickBlock)

class QuickPool:
    """alloc, alloc_address and free_address, for plain ints: a size or an address, and perhaps a stream. What is not
    simple goes to the same names with an underscore, which also say what can be asked for."""

    def _open(
        self, gate: Gate, cell: int, home: int, kind: type[Block], dropped: deque[tuple[Gate, int, int | None]], /
    ) -> None: ...
    def _block(self, address: int, nbytes: int, tag: int, stream: int | None, /) -> Block:
        """The owner of memory that was allocated otherwise."""
    def _outlive(self) -> None:
        """Its blocks are gone, but the pool still stands."""

class QuickBlock:
    """free, close and `with`, likewise. The destructor frees at once what is simple, and leaves the rest to _drop."""

    @property
    def pool(self) -> Pool:
        """The pool; a block keeps it alive."""
    @property
    def nbytes(self) -> int:
        """Bytes asked for."""
    @property
    def tag(self) -> int:
        """The number it was allocated with."""
    @property
    def _address(self) -> int: ...
    @property
    def _stream(self) -> int | None: ...
    @property
    def _live(self) -> bool: ...
    @property
    def _outlived(self) -> bool: ...
    def _take(self) -> bool: ...
    def __enter__(self: B) -> B: ...
    def __exit__(self, *unused: object) -> None: ...
