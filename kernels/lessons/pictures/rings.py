"""A ring of chips, message by message: an exact model of a reduce-scatter through two slots."""

from collections.abc import Iterator
from typing import Any

from kernels.lessons.pictures.canvas import COLOURS, Canvas, Player

DEVICES = 4
FLIGHT = 2  # ticks that a message is under way; a device does one thing a tick
SLOW = 1  # the device that may be slow
SPEEDS = (1, 4, 16)  # ticks that it takes for one thing
CELLS = 4  # texts of a device: slot 0, slot 1, its link to the right, what it waits for
LOST = "!"  # before the text of a slot that was overwritten too early


def ring() -> Player:
    """A reduce-scatter on a ring, event by event, for one slow device, with and without `free`.

    A device sends the sum in a slot to the other slot of its right neighbour, and adds its own part
    to what came from the left. With `free` it first waits until the neighbour has sent on what that
    slot held.
    """
    choices: list[dict[str, Any]] = []
    for guarded in (True, False):
        for slow in SPEEDS:
            speed = f"device {SLOW} takes {slow} times as long" if slow > 1 else "all alike"
            label = f"{speed}, {'with' if guarded else 'without'} free"
            choices.append({"label": label, "events": events(slow, guarded)})
    shown, texts = choices[1], [""] * CELLS * DEVICES
    half = shown["events"][: len(shown["events"]) // 2]
    for place, text in (change for _, changes in half for change in changes):
        texts[place] = text
    says = f"A reduce-scatter on {DEVICES} chips, {shown['label']}: {half[-1][0]}"
    data = {"devices": DEVICES, "cells": CELLS, "lost": LOST, "choices": choices, "start": 1}
    return _draw(texts).player(says, "ring", data)


def events(slow: int, guarded: bool) -> list[tuple[str, list[tuple[int, str]]]]:
    """What happens, in order: words, and the texts that change, each with its place; device SLOW
    takes `slow` ticks for one thing, and `guarded` devices wait for `free`."""
    devices = DEVICES
    slots: list[list[Any]] = [[None, None] for _ in range(devices)]  # (chunk, devices added up)
    kept = [[False, False] for _ in range(devices)]  # whether a slot is still to be sent on
    lost = [[False, False] for _ in range(devices)]
    free, states = [0] * devices, [""] * devices
    arrived = [[0, 0] for _ in range(devices)]
    flying: list[list[Any]] = []  # ticks left, sender, slot there, sum
    history: list[tuple[str, list[tuple[int, str]]]] = []
    texts = [""] * CELLS * devices

    def tell(words: str) -> None:
        now = []
        for device in range(devices):
            links = [f"{_text(total)} → slot {slot}" for _, s, slot, total in flying if s == device]
            marks = [LOST * lost[device][slot] + _text(slots[device][slot]) for slot in range(2)]
            now += [*marks, ", ".join(links), states[device]]
        history.append((words, [(i, t) for i, t in enumerate(now) if t != texts[i]]))
        texts[:] = now

    def program(me: int) -> Iterator[None]:
        left, right = (me - 1) % devices, (me + 1) % devices
        slots[me][0], kept[me][0] = ((me - 1) % devices, (me,)), True
        tell(f"Device {me} puts its part of chunk {left} into slot 0.")
        yield
        for step in range(devices - 1):
            now, then = step % 2, (step + 1) % 2
            if guarded and step:
                states[me] = "waits: free"
                while not free[me]:
                    yield
                free[me] -= 1
            flying.append([FLIGHT, me, then, slots[me][now]])
            kept[me][now] = False
            raised = guarded and step < devices - 2
            free[left] += raised
            states[me] = f"waits: slot {then}"
            more = f", and raises free on device {left}" if raised else ""
            tell(f"Device {me} sends slot {now} to slot {then} of device {right}{more}.")
            yield
            while not arrived[me][then]:
                yield
            arrived[me][then] -= 1
            chunk, parts = slots[me][then]
            slots[me][then], kept[me][then] = (chunk, (*parts, me)), True
            states[me] = "" if step < devices - 2 else "done"
            tell(f"Device {me} adds its part of chunk {chunk} to slot {then}.")
            yield

    running = {me: program(me) for me in range(devices)}
    for own in running.values():
        next(own)
    tick = 0
    while running or flying:
        tick += 1
        for message in list(flying):
            message[0] -= 1
            if not message[0]:
                flying.remove(message)
                _, sender, slot, total = message
                device = (sender + 1) % devices
                early = kept[device][slot] or arrived[device][slot] > 0
                slots[device][slot], lost[device][slot] = total, early
                arrived[device][slot] += 1
                why = f", which device {device} had not sent on: that sum is lost" if early else ""
                tell(f"The message of device {sender} is in slot {slot} of device {device}{why}.")
        for me, own in list(running.items()):
            if tick % (slow if me == SLOW else 1) == 0 and next(own, "end") == "end":
                del running[me]
    sums = [own[(devices - 1) % 2] for own in slots]
    right = [(me, [*range(devices)]) for me in range(devices)]
    wrong = [str(me) for me, (c, parts) in enumerate(sums) if (c, sorted(parts)) != right[me]]
    names = f"device{'s'[: len(wrong) - 1]} {' and '.join(', '.join(wrong).rsplit(', ', 1))}"
    end = f"wrong on {names}" if wrong else "each device has its chunk's sum"
    tell(f"The end: {end}.")
    return history


def _text(total: Any) -> str:
    return f"{total[0]}: {'+'.join(map(str, total[1]))}" if total else ""


def _draw(texts: list[str]) -> Canvas:
    """The still picture: what players/ring.js draws, of one event."""
    wide, tall = 160, 30
    canvas = Canvas(wide * len(texts) // CELLS, 150)
    for device in range(len(texts) // CELLS):
        x = device * wide
        *slots, link, state = texts[CELLS * device : CELLS * (device + 1)]
        canvas.text(x, 14, f"device {device}", weight=600)
        canvas.text(x + wide - 22, 14, state, size=11, anchor="end")
        for slot, text in enumerate(slots):
            y = 24 + slot * (tall + 6)
            canvas.rect(x, y, wide - 22, tall, fill=COLOURS[slot], opacity=0.25 * bool(text))
            canvas.text(x + 8, y + 20, text.removeprefix(LOST))
        canvas.text(x, 116, f"⇒ {link}" if link else "", size=11)
    canvas.text(0, 142, "In a slot, a chunk and the devices whose parts are added up; ⇒ a message")
    return canvas
