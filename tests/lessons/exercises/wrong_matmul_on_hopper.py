STAGES = "max_concurrent_steps="
ONE_BLOCK = "1 block an SM because of shared memory, 2 wanted"
ONE_STAGE = "4 copies by TMA in its code; two stages have 6"

WRONG = (
    ("hopper_turns", {"plgpu.barrier_wait(arrived)": ""}, "simulate", "race: "),
    ("hopper_handover", {"x_smem[...] + 1": "x_gmem[...] + 1"}, "interpret", "the reference"),
    ("hopper_product", {f"{STAGES}2": f"{STAGES}4"}, "compile", ONE_BLOCK),
    ("hopper_lean", {"deep = 128": "deep = 64"}, "speed",
        "cycles a product in the loop; the bar is 24.0"),
    ("hopper_lean", {f"{STAGES}2": f"{STAGES}1"}, "compile", ONE_STAGE),
)  # fmt: skip
