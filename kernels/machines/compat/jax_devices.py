"""Several devices of JAX's simulated TPU, one at a time, in an order that a seed draws.

JAX runs each device in a thread and leaves their order to the operating system; it delivers a copy
when its semaphore is waited for; and where all wait, it waits too. Within `turns` one device runs
at a time, until it touches a semaphore or starts a copy; then a seed draws who goes on, of devices
and copies alike, each at a speed of its own. So a seed is an order of arrival, the same each time;
where nobody can go on, that is a deadlock, at once and in words; and what a device leaves behind,
such as a copy that nobody waited for, is an error. Without a seed devices go in step, copies arrive
at once, and what is left behind does not matter.

Private: `shared_memory` and `interpret_pallas_call` of `jax._src.pallas.mosaic.interpret`,
`source_info_util` of `jax._src`. Seen in JAX 0.10.2; since 0.12 a clock is an
object, and cores are named by pairs.
"""

import contextlib
import itertools
import linecache
import random
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

FIRST = 2000  # the number of a kernel's first semaphore; those below are barriers, by collective_id
SKEW = 6  # powers of two up to which one device or copy is slower or faster than another


@dataclass
class _Turns:
    """Who may go on, of the devices of one kernel and the copies in flight."""

    memory: Any
    seed: int | None
    failed: list[Any]  # the first failure in words, and what was raised
    turn: int | None = None
    ended: set[int] = field(default_factory=set)
    # A device between two of its steps → whether it may go on, and what it waits for.
    paused: dict[int, tuple[Callable[[], bool], Callable[[], str]]] = field(default_factory=dict)
    copies: list[Any] = field(default_factory=list)
    speeds: dict[Any, float] = field(default_factory=dict)
    raised: dict[tuple[int, int], str] = field(default_factory=dict)  # semaphore, device → by whom
    moving: Any = None  # the copy that went on last, since a device did
    last: int = -1  # device that went on, of those in step
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        for device in range(self.memory.num_devices):
            self._speed(device)

    def _speed(self, key: Any) -> float:
        return self.speeds.setdefault(key, 2 ** self.random.uniform(-SKEW, SKEW))

    def pause(self, device: int, ready: Callable[[], bool], words: Callable[[], str]) -> None:
        """Let others go on, until it is this device's turn again, and it is ready."""
        with self.changed:
            self.paused[device] = ready, words
            self._pass_on(device)
            while self.turn != device or self.failed:
                if self.failed:
                    raise RuntimeError(self.failed[0])
                self.changed.wait()
            del self.paused[device]
            self.moving = None

    def end(self, device: int) -> None:
        """The device leaves the kernel; RuntimeError for what it leaves behind."""
        left = _left(self.memory, device, self.raised, self.copies)
        if left and self.seed is not None:
            words = f"device {device} leaves the kernel with {left}"
            self.fail(words)
            raise RuntimeError(words)
        with self.changed:
            self.ended.add(device)
            self._pass_on(device)

    def fail(self, words: str, cause: Exception | None = None) -> None:
        """End the kernel on all devices; the first reason holds."""
        with self.changed:
            if not self.failed:
                self.failed += [words, cause]
            self.changed.notify_all()

    def _pass_on(self, device: int) -> None:
        """Draw who goes on after a device, once all have arrived; copies take their turns here."""
        if self.turn == device:
            self.turn = None
        while self.turn is None and len(self.paused) + len(self.ended) == self.memory.num_devices:
            if self.failed:
                return
            paused = sorted(self.paused.items())
            steps = [number for number, (ready, _) in paused if ready()]
            steps += self.copies
            if not steps:
                if self.paused:
                    waits: dict[str, list[str]] = {}
                    for waiting, (_, words) in paused:
                        waits.setdefault(words(), []).append(f"{waiting}")
                    gone = [f"device {d} has left the kernel" for d in sorted(self.ended)]
                    lines = [f"{_waiting(d)} {said}" for said, d in waits.items()]
                    self.fail("deadlock: " + "; ".join(lines + gone))
                return
            step = self._drawn(steps)
            if isinstance(step, int):
                self.turn = step
                self.changed.notify_all()
            else:
                self._move(step)

    def _drawn(self, steps: list[Any]) -> Any:
        """One of the steps, a device or a copy, that may be next."""
        if self.seed is None:
            if copies := [step for step in steps if not isinstance(step, int)]:
                return copies[0]
            self.last = next((device for device in steps if device > self.last), steps[0])
            return self.last
        speeds = [self._speed(s if isinstance(s, int) else ("copy", s.id)) for s in steps]
        return self.random.choices(steps, speeds)[0]

    def _move(self, copy: Any) -> None:
        """Let a copy read its source; or write its destination, and be gone."""
        self.moving = copy
        try:
            if copy.state.name == "STARTED" and copy.src_sem is not None:
                copy.execute_read()
                return
            self.copies.remove(copy)
            # Each device ticks when it enters, and a copy's clock holds what its sender knows of.
            known = getattr(copy.clock, "clock", copy.clock)
            if self.seed is not None and copy.detect_races and not known[copy.dst_device_id]:
                self.fail(
                    f"a copy from device {copy.src_device_id} may arrive before device "
                    f"{copy.dst_device_id} has entered the kernel: no barrier keeps it back "
                    f"({line_of(copy.source_info)})"
                )
                return
            copy.execute_read_and_write()
        except Exception as error:
            self.fail(f"{type(error).__name__}: {error}")


@dataclass
class _Entrance:
    """All devices meet before a kernel that has no barrier of its own, in JAX as on a TPU."""

    machine: _Turns
    arrived: int = 0

    def wait(self) -> None:
        from jax._src.pallas.mosaic.interpret import interpret_pallas_call

        machine, devices = self.machine, self.machine.memory.num_devices
        self.arrived += 1
        due = -(-self.arrived // devices) * devices
        if self.arrived == due:
            interpret_pallas_call._update_clocks_for_global_barrier()
        assert machine.turn is not None  # that of whoever calls
        words = lambda: "waits for the others to enter the kernel"
        machine.pause(machine.turn, lambda: self.arrived >= due, words)

    def abort(self) -> None:
        """Of no effect: a failure ends all turns."""


def _waiting(devices: list[str]) -> str:
    *others, last = devices
    return f"devices {', '.join(others)} and {last} wait" if others else f"device {last} waits"


def _left(memory: Any, device: int, raised: dict[Any, str], copies: Sequence[Any] = ()) -> str:
    """The first thing that a device leaves behind at the end of a kernel, in words, or nothing:
    of the copies, of those that JAX keeps with their semaphores, and of what is raised."""
    semaphores = [*memory.sem.values(), *memory.fixed_id_sem.values()]
    queued = [task.__self__ for s in semaphores for tasks in s.tasks for task in tasks]
    for copy in (*copies, *queued):
        state, indices = copy.state.name, [getattr(t, "indices", ()) for t in copy.src_transforms]
        unread = device == copy.src_device_id and state == "STARTED"
        mine = unread or (device == copy.dst_device_id and state != "COMPLETED")
        # A wait for a copy of no bytes ends before JAX has run it.
        if mine and 0 not in (getattr(index, "size", 1) for index in itertools.chain(*indices)):
            way = f" from device {copy.src_device_id} to device {copy.dst_device_id}"
            return (
                f"a copy{way if memory.num_devices > 1 else ''} under way that nobody waits for "
                f"({line_of(copy.source_info)}): each start() needs its wait(); this one's raises "
                f"{_name(copy.dst_sem)}"
            )
    for semaphore in semaphores:
        for core in memory.get_global_core_ids(device):
            if count := int(semaphore.count_by_core[core]):
                by = raised.get((semaphore.id, core), "nobody")
                return f"{_name(semaphore)} raised to {count} by {by}, never waited for"
    return ""


@contextlib.contextmanager
def alone() -> Iterator[list[Any]]:
    """Within it what a kernel leaves behind on one device is an error, as it is within `turns`."""
    from jax._src.pallas.mosaic.interpret.shared_memory import Semaphore, SharedMemory

    raised: dict[tuple[int, int], str] = {}
    signal = Semaphore.signal

    def signals(self: Any, inc: int, core: int, clock: Any, logging_info: Any = None) -> None:
        raised[self.id, int(core)] = line_of(logging_info.source_info)
        signal(self, inc, core, clock, logging_info)

    def leave(self: Any, device: int) -> list[Any]:
        if left := _left(self, int(device), raised):
            raise RuntimeError(f"the kernel ends with {left}")
        return []

    watched = mock.patch.object(SharedMemory, "get_sempahores_with_nonzero_count", leave)
    with watched, mock.patch.object(Semaphore, "signal", signals):
        yield []


def _name(semaphore: Any) -> str:
    if semaphore.id < FIRST:
        return f"the barrier of collective_id {semaphore.id}"
    return f"semaphore {semaphore.id - FIRST} of the kernel"


def line_of(source_info: Any, unknown: str = "an unknown line") -> str:
    """A line of code: its file, its number, what it says; JAX has none of pl.semaphore_wait."""
    from jax._src import source_info_util

    text = source_info_util.summarize(source_info) if source_info is not None else ""
    place = re.search(r"([^\s]*?([^/\s]+\.py)):(\d+)", text)
    if not place:
        return unknown
    code = linecache.getline(place[1], int(place[3])).strip()
    return f"{place[2]}:{place[3]}" + (f", `{code}`" if code else "")


@contextlib.contextmanager
def turns(seed: int | None) -> Iterator[list[Any]]:
    """Within it simulated devices take turns as a seed draws; the list gets the first failure, in
    words, and what was raised.
    Patches methods of SharedMemory and Semaphore, which are looked up while a kernel runs: what was
    traced once runs in every order."""
    from jax._src.pallas.mosaic.interpret import shared_memory, vector_clock

    failed: list[Any] = []
    lock = threading.Lock()
    memory, semaphore = shared_memory.SharedMemory, shared_memory.Semaphore
    semaphores = memory.get_semaphores_and_increment_clock
    next_buffer, set_failed = memory.get_next_buffer_id, memory.set_failed
    wait, signal = semaphore.wait, semaphore.signal

    def of(shared: Any) -> _Turns:
        with lock:
            if not hasattr(shared, "turns"):
                shared.turns = _Turns(shared, seed, failed)
                shared.barrier = _Entrance(shared.turns)
            return shared.turns

    def enter(self: Any, *core: Any) -> Any:
        device = int(core[0] if len(core) > 1 else core[0][0])
        if self.next_buffer_id.get((device, 0)) is None:
            of(self).pause(device, lambda: True, lambda: "enters the kernel")
            if hasattr(vector_clock, "inc_vector_clock"):
                vector_clock.inc_vector_clock(self.clocks[device], device)
            else:
                self.incr_clock((device, 0))
        return next_buffer(self, *core)

    def touch(self: Any, numbers: Any, device: Any) -> Any:
        of(self).pause(int(device), lambda: True, lambda: "goes on")
        return semaphores(self, numbers, device)

    def start(self: Any, number: int, device: int, task: Any) -> None:
        copies = of(self).copies
        if task.__self__ not in copies:
            copies.append(task.__self__)

    def waits(self: Any, value: int, device: int, **more: Any) -> None:
        machine, line = of(self.shared_memory), more["logging_info"].source_info

        def words() -> str:
            has = f"{_name(self)}, which has {self.count_by_core[device]} of {value}"
            by = {d: who for (number, d), who in machine.raised.items() if number == self.id}
            other = f" here; on device {min(by)} it was {by[min(by)]}" if by else " on any device"
            last = f"was raised last by {by[device]}" if device in by else f"nobody raised{other}"
            return f"at {line_of(line, 'pl.semaphore_wait')} for {has} and {last}"

        machine.pause(device, lambda: self.count_by_core[device] >= value, words)
        wait(self, value, device, **more)

    def signals(self: Any, inc: int, device: int, clock: Any, logging_info: Any = None) -> None:
        machine, who = of(self.shared_memory), f"device {logging_info.device_id}"
        if copy := machine.moving:
            who = f"the bytes of a copy from device {copy.src_device_id}"
        machine.raised[self.id, int(device)] = f"{who} at {line_of(logging_info.source_info)}"
        signal(self, inc, device, clock, logging_info)

    def leave(self: Any, device: int) -> Any:
        of(self).end(int(device))
        return []

    def fails(self: Any, exception: Exception, *core: Any, **more: Any) -> None:
        of(self).fail(f"{type(exception).__name__}: {exception}", exception)
        set_failed(self, exception, *core, **more)

    with contextlib.ExitStack() as patched:
        for owner, name, new in (
            (memory, "get_next_buffer_id", enter),
            (memory, "get_semaphores_and_increment_clock", touch),
            (memory, "append_semaphore_task", start),
            (memory, "get_sempahores_with_nonzero_count", leave),
            (memory, "set_failed", fails),
            (semaphore, "wait", waits),
            (semaphore, "signal", signals),
        ):
            patched.enter_context(mock.patch.object(owner, name, new))
        yield failed
