LAST = "pl.when((j + 2) * page < length)(lambda: copy(j + 2).start())"
SUM = "x = jnp.where(token < length - j * page, buffer_ref[j % 2], 0)"
PAGE_AT_A_TIME = {"at[slot, j]": "at[slot, 0]", "[block % 2].reshape": "[block % 2, 0].reshape"}
PAGE_AT_A_TIME |= {"_, pages, page, d =": "pages, (_, _, page, d) = 1,"}

WRONG = (
    ("page_sum", {"jnp.where(token < left, page_ref[...], 0)": "page_ref[...]"},
     "interpret", "is nan"),
    ("page_sum", {"jnp.where(token < left, page_ref[...], 0)": "page_ref[...] * (token < left)"},
     "interpret", "is nan"),
    ("page_race", {"arrived.at[j % 2]": "arrived.at[0]"}, "simulate", "race"),
    ("page_race", {f"        {LAST}": "", SUM: f"{LAST}; {SUM}"}, "interpret", "on ragged"),
    ("page_sum_fast", {"lax.fori_loop(0, owned, of_page, None)": "None"}, "interpret", "on ragged"),
    ("page_sum_fast", PAGE_AT_A_TIME, "speed", "the bar is 24,000"),
)  # fmt: skip
