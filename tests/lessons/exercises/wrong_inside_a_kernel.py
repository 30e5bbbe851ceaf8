WRONG = (
    ("cumulative", {"o_ref[pl.ds(i, 1), :] =": "o_ref[0:1, :] ="}, "interpret", "is nan"),
    ("column_means", {"row < rows": "row < 512"}, "interpret", "is nan"),
    ("column_means", {"jnp.sum(x,": "jnp.sum(x.astype(jnp.bfloat16),"}, "interpret", "allowed"),
    ("column_means", {")(x)": ")(jnp.pad(x, ((0, -rows % 128), (0, 0))))"}, "compile", "outside"),
)
