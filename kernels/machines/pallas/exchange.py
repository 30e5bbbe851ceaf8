"""When a kernel's messages to other chips are under way, beside what it multiplies.

All chips run the same program in step, so a message arrives on a chip when its own one arrives on a
neighbour: the k-th wait for a semaphore ends when the k-th message that raises it has arrived.
"""

from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """A message is sent, or waited for."""

    share: float  # of the kernel's products, 0 to 1, that were multiplied before
    # That it raises, at the sender's and at the receiver's; or that is waited for.
    semaphores: tuple[Hashable, ...]
    device: Hashable = None  # that it goes to; None for a wait
    size: float = 0.0  # in bytes


def duration(messages: Sequence[Message], working: float, per_byte: float, hop: float) -> float:
    """How long the kernel takes, its waits for messages included; at least `working`, the time of
    its own work, of which each product takes its share. `per_byte` and `hop` are the time that a
    link takes for a byte, and until the first one is there. Any unit, the same for all."""
    waited = 0.0
    links: dict[Hashable, float] = defaultdict(float)  # until when each is busy
    arrivals: dict[Hashable, deque[float]] = defaultdict(deque)
    for message in messages:
        now = message.share * working + waited
        if message.device is None:
            arrived = arrivals[message.semaphores[0]]
            waited += max(arrived.popleft() - now, 0.0) if arrived else 0.0
            continue
        links[message.device] = max(links[message.device], now) + message.size * per_byte
        for semaphore in message.semaphores:
            arrivals[semaphore].append(links[message.device] + hop)
    return working + waited
