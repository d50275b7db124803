"""Allocation logs: what was allocated and freed, in order. Reads and writes the CSV files that RMM's logging makes."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator
from pathlib import Path

HEADER = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"]
GRANULE = 2 << 20
"""What physical memory comes in."""


class Log:
    """Events in one flat array, so that a replay's loop stays thin: a positive number allocates so many bytes, and the
    blocks are numbered 0, 1, 2, ... in that order; zero or a negative number frees the block of that number negated."""

    def __init__(self, name: str, one_stream: bool = True) -> None:
        self.name = name
        self.events = array("q")
        self.streams: array[int] | None = None if one_stream else array("H")
        """The stream of each event, as a small number; None where all are on one."""
        self.blocks = 0
        self.skipped = 0
        """Lines left out on reading: failed allocations, frees of what the log did not see allocated."""

    def alloc(self, size: int, stream: int = 0) -> int:
        """The number of the new block. A block of no bytes counts as one of one byte."""
        self.events.append(max(size, 1))
        if self.streams is not None:
            self.streams.append(stream)
        self.blocks += 1
        return self.blocks - 1

    def free(self, block: int, stream: int = 0) -> None:
        self.events.append(-block)
        if self.streams is not None:
            self.streams.append(stream)

    def __len__(self) -> int:
        return len(self.events)

    def live(self) -> Iterator[int]:
        """Live bytes after each event."""
        sizes, now = array("q"), 0
        for event in self.events:
            if event > 0:
                sizes.append(event)
                now += event
            else:
                now -= sizes[-event]
            yield now

    def peak_live(self) -> int:
        """The most bytes that were live at once, as they were asked for."""
        return max(self.live(), default=0)


def granules(size: int) -> int:
    """Bytes rounded up to whole granules."""
    return -(-size // GRANULE) * GRANULE


def read(path: Path) -> Log:
    """A log in RMM's CSV form. Pointers and streams are taken as names, so any notation will do."""
    log = Log(path.stem, one_stream=False)
    numbers: dict[str, int] = {}
    streams: dict[str, int] = {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(line for line in file if not line.startswith("#"))
        columns = {name.strip(): index for index, name in enumerate(next(rows, []))}
        try:
            action, pointer, size, stream = (columns[name] for name in HEADER[2:])
        except KeyError as missing:
            raise ValueError(f"{path}: no column {missing}; a log has the columns {','.join(HEADER)}") from None
        for row in rows:
            if row:
                _event(log, f"{path}:{rows.line_num}", row, (action, pointer, size, stream), numbers, streams)
    if len(streams) <= 1:
        log.streams = None
    return log


def _event(
    log: Log,
    where: str,
    row: list[str],
    columns: tuple[int, int, int, int],
    numbers: dict[str, int],
    streams: dict[str, int],
) -> None:
    try:
        action, pointer, size, stream = (row[index].strip() for index in columns)
        if action == "allocate":
            if pointer in numbers:
                raise ValueError(f"{pointer} is allocated a second time")
            numbers[pointer] = log.alloc(int(size), streams.setdefault(stream, len(streams)))
        elif action == "free":
            if pointer in numbers:
                log.free(numbers.pop(pointer), streams.setdefault(stream, len(streams)))
            else:
                log.skipped += 1
        elif action.startswith("allocate"):  # "allocate failure"
            log.skipped += 1
        else:
            raise ValueError(f"{action!r} is neither allocate nor free")
    except IndexError:
        raise ValueError(f"{where}: too few columns") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def write(log: Log, path: Path) -> None:
    """The log in RMM's CSV form: one thread, a microsecond an event, made-up pointers that are never used twice."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        sizes = array("q")
        for number, event in enumerate(log.events):
            if event > 0:
                sizes.append(event)
            block = len(sizes) - 1 if event > 0 else -event
            seconds, micro = divmod(number, 1_000_000)
            time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micro:06}"
            stream = log.streams[number] if log.streams is not None else 0
            action = "allocate" if event > 0 else "free"
            writer.writerow([1, time, action, f"{0x7F0000000000 + (block << 8):#x}", sizes[block], f"{stream:#x}"])
