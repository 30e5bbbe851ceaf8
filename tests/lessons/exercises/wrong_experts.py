NO_EMPTY = {"counts = last - first + 1": "counts = jnp.where(sizes > 0, last - first + 1, 0)"}
ONCE = "(groups_ref[jnp.maximum(visit - 1, 0)] != group)"

WRONG = (
    ("expert_walk", NO_EMPTY, "interpret", "on edges"),
    ("expert_walk", {"jnp.minimum(tiles, (m - 1) // bm)": "tiles"}, "interpret", "on last_empty"),
    ("expert_walk", {"+ len(sizes))": ")"}, "interpret", "on edges"),
    ("expert_gradient", {f"(visit == 0) | {ONCE}": "visit == 0"}, "interpret", "on edges"),
    ("expert_gradient", {"jnp.where(inside, ref[...], 0)": "ref[...]*inside"}, "interpret", "nan"),
    ("expert_gate", {"jnp.where(inside, z, old)": "z"}, "interpret", "on edges"),
    ("expert_gate", {"gate.shape[2], 64": "gate.shape[2], 512"}, "speed", "the bar is"),
)  # fmt: skip
