"""Readings are fair, complete, and end when the results are there; seconds are one type."""

import dataclasses
import json
import pickle
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refused import refuses

from kernels import stopwatch
from kernels.machines.base import Seconds
from kernels.machines.stopwatch import Timing, measure


class Clock:
    """A clock that moves only when something takes time."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: self.now)


class Promise:
    """A result that an asynchronous device has promised for `ready`."""

    def __init__(self, clock, ready):
        self.clock, self.ready = clock, ready

    def block_until_ready(self):
        self.clock.now = max(self.clock.now, self.ready)
        return self


class Device:
    """A queue: starting a program takes `start` seconds of the caller, running it `run`."""

    def __init__(self, clock, start, run):
        self.clock, self.start, self.run, self.free = clock, start, run, 0.0

    def __call__(self, *_):
        self.clock.now += self.start
        self.free = max(self.free, self.clock.now) + self.run
        return Promise(self.clock, self.free)


READ = [(10.0, 1, 11.0), (10.0, 100, 10.01), (0.1, 100, 1.001)]  # nothing hides a longer start


@pytest.mark.parametrize(("run", "calls", "seconds"), READ)
def test_a_reading_ends_when_the_result_is_there_and_a_queue_hides_the_start(
    run, calls, seconds, monkeypatch
):
    device = Device(Clock(monkeypatch), start=1.0, run=run)
    timing = measure({"it": device}, repeats=3, calls=calls)["it"]
    assert timing.seconds == pytest.approx((seconds,) * 3)


def test_a_machine_that_slows_down_is_nobodys_disadvantage(monkeypatch):
    clock = Clock(monkeypatch)

    def slower():
        clock.now += 1 + clock.now / 100

    found = measure({"a": slower, "b": slower}, repeats=10)
    assert found["a"].median == pytest.approx(found["b"].median, rel=0.03)
    assert found["a"].slowest > 1.1 * found["a"].fastest


def test_processor_time_leaves_out_what_others_do():
    found = measure({"waits": lambda: time.sleep(0.05)}, repeats=2, clock=time.process_time)
    assert found["waits"].slowest < 0.02
    assert measure({"waits": lambda: time.sleep(0.05)}, repeats=2)["waits"].fastest > 0.04


def test_functions_take_turns_after_a_warm_up_that_is_not_timed(monkeypatch):
    order = []
    functions = {name: lambda name=name: order.append(name) for name in "abc"}
    measure(functions, repeats=4)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab" + "abc"
    clock, compiled = Clock(monkeypatch), []

    def compiles(_):
        clock.now += 1.0 if compiled else 1000.0
        compiled.append(True)

    assert measure({"it": compiles}, None, repeats=2)["it"].slowest == 1.0


def test_what_a_timing_says():
    it = Timing("it", (0.003, 0.001, 0.002, 0.1), "cpu")
    assert (it.fastest, it.median, it.slowest) == (0.001, 0.0025, 0.1)
    assert str(it) == ("it: median 2.500 ms, 1.000 to 100.000 ms in 4 readings on cpu, measured")
    with pytest.raises(dataclasses.FrozenInstanceError):
        it.name = "other"


def test_a_real_function_on_the_device_that_is_here():
    x = jnp.ones((64, 64))
    found = measure({"plus": jax.jit(jnp.add), "times": jax.jit(jnp.matmul)}, x, x, repeats=5)
    assert list(found) == ["plus", "times"]
    with pytest.raises(ZeroDivisionError):
        measure({"it": lambda: 1 / 0})
    for name, it in found.items():
        assert it.name == name and len(it.seconds) == 5 and 0 < it.fastest <= it.median
        assert it.device == jax.devices()[0].device_kind


test_what_cannot_be_timed_is_refused = refuses(
    lambda functions, options: measure(functions, 1, **options),
    ({}, {}, "functions is empty"),
    ({"it": abs}, {"repeats": 0}, "repeats is 0"),
    ({"it": abs}, {"calls": 0}, "calls is 0"),
    ({"it": abs}, {"calls": 1.5}, "calls is 1.5"),
)


FIGURE, RANGE = Seconds(1.5e-6), Seconds(1e-6, float("inf"))


def test_a_figure_is_a_float_like_any_other():
    assert FIGURE == 1.5e-6 == float(FIGURE) and hash(FIGURE) == hash(1.5e-6)
    assert (FIGURE * 2, 2 / FIGURE, sum([FIGURE, FIGURE])) == (3e-6, 2 / 1.5e-6, 3e-6)
    assert FIGURE < 1 and max(FIGURE, 2e-6) == 2e-6
    assert f"{FIGURE:.1e} {FIGURE * 1e6:.0f}" == "1.5e-06 2" and json.dumps(FIGURE) == "1.5e-06"
    assert np.asarray([FIGURE, FIGURE]).tolist() == [1.5e-6] * 2 and pytest.approx(FIGURE) == 1.5e-6


@pytest.mark.parametrize("seconds", [FIGURE, RANGE])
def test_both_unpack_as_low_and_high(seconds):
    low, high = seconds
    assert (low, high) == (seconds.low, seconds.high) == (seconds[0], seconds[1])
    assert seconds.is_range == (low != high)
    again = pickle.loads(pickle.dumps(seconds))
    assert again == seconds and (again.low, again.high) == (low, high)


@pytest.mark.parametrize(
    "calculate",
    [
        float,
        lambda seconds: seconds * 1e6,
        lambda seconds: 2 / seconds,
        lambda seconds: seconds < 1,
        lambda seconds: max(seconds, FIGURE),
        lambda seconds: sum([FIGURE, seconds]),
    ],
)
def test_a_range_is_no_number(calculate):
    with pytest.raises(ValueError, match=r"seconds is a range, 1e-06 to inf; accepted: a figure"):
        calculate(RANGE)
    assert f"{RANGE:.0e}" == "1e-06 to inf" and Seconds(1e-6) != RANGE and Seconds(*RANGE) == RANGE
