STAGES = "max_concurrent_steps="
ALONE = {"threads=2": "threads=1", "== 1": "== 0", ", plgpu.Barrier()": "", ", filled)": ")"}
ALONE |= dict.fromkeys(("barrier_arrive(filled)", "barrier_wait(filled)"), "commit_smem()")

WRONG = (
    ("hopper_turns", {"plgpu.barrier_wait(arrived)": ""}, "simulate", "race: "),
    ("hopper_turns", {"plgpu.commit_smem()": ""}, "compile", "no FENCE in its machine code"),
    ("hopper_handover", {"x_smem[...] + 1": "x_gmem[...] + 1"}, "interpret", "the reference"),
    ("hopper_handover", ALONE, "compile", "no SYNCS in its machine code"),
    ("hopper_product", {f"{STAGES}2": f"{STAGES}4"}, "compile", "1 block an SM because of shared"),
    ("hopper_lean", {"deep = 128": "deep = 64"}, "speed", "in the loop; the bar is 24.0"),
    ("hopper_lean", {f"{STAGES}2": f"{STAGES}1"}, "compile", "two stages have 6"),
)
