"""Short texts from exceptions and stack dumps: the frames of the rank program, not of what runs it."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from dataclasses import dataclass

_MAX_FRAMES = 16
_MAX_MESSAGE = 4000
_OWN = re.compile(r"/parproof/(ranks|ledger)/|/multiprocessing/|/c10d_logger\.py|^<frozen|^<string>")
_LIBRARY = (sysconfig.get_path("stdlib") + os.sep, "<")
_TORCH = re.compile(r"/(torch|numpy)/")
_WAITING = re.compile(r"/torch/(distributed|autograd|cuda)/|/torch/_ops\.py")


def message_of(exception: BaseException) -> str:
    """str(exception), however long it is or whatever its __str__ does."""
    try:
        text = str(exception)
    except Exception as broken:
        return f"<its __str__ raised {type(broken).__name__}>"
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]} … ({len(text)} characters)"


def traceback_of(exception: BaseException) -> str:
    """The traceback without our own frames, innermost last, with causes."""
    try:
        shown = traceback.TracebackException.from_exception(exception, compact=True)
        part: traceback.TracebackException | None = shown
        while part is not None:
            frames = [frame for frame in part.stack if not _OWN.search(frame.filename)]
            part.stack = traceback.StackSummary.from_list(frames[-_MAX_FRAMES:])
            part = part.__cause__ or part.__context__
        text = "".join(shown.format())
    except Exception:
        text = f"{type(exception).__name__}: {message_of(exception)}\n"
    return (
        text if len(text) <= 4 * _MAX_MESSAGE else text[: 2 * _MAX_MESSAGE] + "\n…\n" + text[-_MAX_MESSAGE:]
    )


@dataclass(frozen=True)
class Frame:
    """One line of a stack dump."""

    path: str
    line: int
    function: str

    @property
    def is_the_programs(self) -> bool:
        """Neither torch's nor Python's own."""
        return not (_TORCH.search(self.path) or self.path.startswith(_LIBRARY))

    def __str__(self) -> str:
        return f"{self.path.rpartition('/site-packages/')[2]}:{self.line} in {self.function}"


@dataclass(frozen=True)
class Stacks:
    """A dump of faulthandler: innermost frame first, the main thread apart."""

    heading: str = ""
    main: tuple[Frame, ...] = ()
    others: tuple[tuple[str, tuple[Frame, ...]], ...] = ()

    @property
    def place(self) -> Frame | None:
        """Where the program is: its innermost own frame."""
        return next((f for f in self.main if f.is_the_programs), self.main[0] if self.main else None)

    @property
    def seems_to_wait(self) -> bool:
        """True when the main thread is where ranks wait for each other."""
        if not self.main:
            return False
        return bool(_WAITING.search(self.main[0].path)) or "wait(" in _source_line(self.main[0])

    def __str__(self) -> str:
        blocks = [("main thread" if self.others else "", self.main), *self.others]
        lines = [self.heading] if self.heading else []
        for title, frames in blocks:
            if not frames:
                continue
            lines += [f"{title}:"] if title else []
            lines += [f"  {frame}" for frame in frames[:_MAX_FRAMES]]
            lines += [f"  … {len(frames) - _MAX_FRAMES} more"] if len(frames) > _MAX_FRAMES else []
        return "\n".join(lines)


_FRAME = re.compile(r'  File "([^"]*)", line (\d+) in (.*)')
_THREAD = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")


def read_stacks(dump: str, main_thread: int) -> Stacks:
    """Parse what faulthandler wrote. The last dump counts when there are several."""
    heading = ""
    others: dict[str, list[Frame]] = {}
    current: list[Frame] | None = None
    blocks: dict[int, list[Frame]] = {}
    for line in dump.splitlines():
        thread, frame = _THREAD.match(line), _FRAME.match(line)
        if line.startswith("Fatal Python error"):
            heading = line
        if thread:
            current = blocks[int(thread[1], 16)] = []
            others[f"thread {thread[2] or thread[1].lstrip('0')}"] = current
        elif frame and current is not None and not _OWN.search(frame[1]):
            current.append(Frame(frame[1], int(frame[2]), frame[3]))
    main_block = blocks.get(main_thread)
    main = tuple(main_block or ())
    rest = tuple((name, tuple(f)) for name, f in others.items() if f is not main_block and _is_worth(f))
    return Stacks(heading, main, rest)


def _is_worth(frames: list[Frame]) -> bool:
    """Helper threads of Python and torch that only wait say nothing."""
    return any(frame.is_the_programs for frame in frames)


def _source_line(frame: Frame) -> str:
    import linecache

    return linecache.getline(frame.path, frame.line)
