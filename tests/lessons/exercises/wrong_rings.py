FIRST = "@pl.when(me > 0)\n    def _():\n        hop.wait_recv()"
MEET = "meet(left, right)\n\n    @pl.when(me == 0)"
LAST = {"@pl.when(me < n - 1)": "@pl.when(me < n)"}
WAIT = "pl.semaphore_wait(free, 1)"
FREE = 'pl.semaphore_signal(free, 1, device_id={"x": left})'
ONE_WAY = {
    "sides = ((0, 1, right, left), (1, -1, left, right))": "sides = "
    "((0, 1, right, left), (1, 1, right, left))"
}

WRONG = (
    ("ring_pass_on", {FIRST: "hop.wait_recv()"}, "interpret",
        "deadlock: devices 0, 1, 2 and 3 wait at"),
    ("ring_pass_on", LAST, "simulate", "race"),
    ("ring_pass_on", {MEET: MEET[17:]}, "simulate", "has entered the kernel"),
    ("ring_slots", {WAIT: "pass", FREE: "pass"}, "simulate", "race"),
    ("ring_slots", {FREE: "pass"}, "interpret", "deadlock"),
    ("ring_slots", {"if step < n - 2:": "if True:"}, "simulate", "never waited for"),
    ("ring_largest", {"me + step + 2": "me + step + 1"}, "interpret", "on four"),
    ("ring_largest", {'{"x": right}': '{"x": left}'}, "simulate", "race"),
    ("ring_fast", ONE_WAY, "speed", "the bar is 125,000"),
    ("ring_fast", {"fetches[side].wait()": ""}, "simulate", "never waited for"),
)  # fmt: skip
