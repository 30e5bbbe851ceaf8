COPIED = """nl.ndarray((128, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=c, src=total)"""
STREAMED = {
    "total = nl.ndarray((128, n)": "total = nl.ndarray((n, 128)",
    "stationary=a, moving=nl.load(y[here, :])": "stationary=nl.load(y[here, :]), moving=a",
    f"        c = {COPIED}": f"""\
        upright = nl.ndarray((n, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=upright, src=total)
        turned = nl.ndarray((128, n), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_transpose(dst=turned, data=upright, engine=nisa.engine.tensor)
        c = {COPIED.replace("total", "turned")}""",
}
ALONE = {"(b + 7) // 8": "b", "min(8, b - group * 8)": "1", "group * 8": "group"}
TOGETHER = {"some * n": "n", "i * n : i * n + n": "0:n"}
LIVE = {
    "    for i in range(": "    sums = []\n    for i in range(",
    "        c = ": "        sums.append((first, last, total))\n"
    "    for first, last, total in sums:\n        c = ",
}
REDUCED = """nisa.activation_reduce(
            dst=powers,
            op=nl.exp,
            data=a,
            reduce_op=nl.add,
            reduce_res=total,
        )"""
BY_VECTOR = """nisa.activation(dst=powers, op=nl.exp, data=a)
        nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=1)"""
FETCHED_AGAIN = {
    "=a[:, i * 128 : i * 128 + 128]": "=nl.load(xt[here : here + 128, i * 128 : i * 128 + 128])",
    "=b[:, j * 512 : j * 512 + 512]": "=nl.load(y[here : here + 128, j * 512 : j * 512 + 512])",
}

WRONG = (
    ("nki_matrix_stays", STREAMED, "simulate", "cycles, and may for"),
    ("nki_shared_bank", ALONE, "simulate", "16 products out of PSUM; 2 can"),
    ("nki_shared_bank", TOGETHER, "interpret", "allowed"),
    ("nki_psum", LIVE, "simulate", "which has 16 KiB"),
    ("nki_exp_sums", {REDUCED: BY_VECTOR}, "simulate", "the Vector engine has 1 instructions"),
    ("nki_fast_product", FETCHED_AGAIN, "speed", "the bar is 24.0"),
)
