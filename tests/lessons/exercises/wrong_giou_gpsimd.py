DEALT = "core * part; first < pairs; first += cores * part"
LAST = "float last = score(preds.at, targets.at);"
READ = "if (first) scores_accessor.tensor_to_tcm<float>(scores.at, first - 1, 1);"
OVER_BOXES = {
    "preds.at[i] = score": "preds.at[3 * n + i] = score",
    "tcm_to_tensor<float>(preds.at,": "tcm_to_tensor<float>(preds.at + 3 * n,",
}
FETCH = """if (sample != held) {
      targets_accessor.tensor_to_tcm<float>(anchor.at, 4 * sample * boxes, 4);
      held = sample;
    }"""
ALL = "targets_accessor.tensor_to_tcm<float>(anchor.at, 4 * {}, 4 * n);"
ROOM = {"anchor(4)": "anchor(4 * part)", "size_t held = SIZE_MAX;": ""}
ITS_OWN = ROOM | {FETCH: ALL.format("first"), ", anchor.at)": ", anchor.at + 4 * i)"}
SHARE, END = "(pairs / cores + 1)", "std::min(pairs, (core + 1) * (pairs / cores + 1))"
LONG = {DEALT: f"core * {SHARE}; first < {END}; first += part", "pairs - first": f"{END} - first"}
ALONE = {DEALT: "core ? pairs : 0; first < pairs; first += part"}

BACK = {"first = core * part": "first = (cores - 1 - core) * part"}
RIGHT = (("giou_loss", {"part = 448": "part = 100"} | BACK),)
WRONG = (
    ("giou_loss", LONG, "simulate", "pairs in a row"),
    ("giou_loss", ALONE, "simulate", "in a row"),
    ("giou_loss", {DEALT: "0; first < pairs; first += part"}, "simulate",
        "Two cores met at one place"),
    ("giou_loss", {"first = core * part;": "first = core;"}, "simulate", "on prime"),
    ("giou_smoothed", {LAST: LAST + READ}, "simulate", "which it has not written"),
    ("giou_smoothed", {"first > 0;": "first > begin;"}, "simulate", "on prime"),
    ("gpsimd_in_place", {"part = 456": "part = 448"}, "speed",
        "30 copies of the busiest core; the bar"),
    ("gpsimd_in_place", {"part = 456": "part = 513"}, "simulate", "abort"),
    ("gpsimd_in_place", OVER_BOXES, "interpret", "allowed"),
    ("gpsimd_anchor", ROOM | {FETCH: ALL.format("sample * boxes")}, "speed",
        "512,000 bytes to TCM; the bar is 260,000, 97% away"),
    ("gpsimd_anchor", ITS_OWN, "interpret", "on prime"),
)  # fmt: skip
