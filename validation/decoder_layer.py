"""A decoder layer of a language model: by XLA alone, with this package, and with some of each.

    python -m validation decoder-layer [FORM …] [--chip v5e] [--pass forward]

estimates it part by part and keeps the figures in results/decoder_layer.csv: over a sequence, with
its gradients, or over one new token of each of several sequences. The sizes are those of
SmolLM3-3B, as its published configuration has them. Nothing here is measured.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from kernels.attention import attention
from kernels.figures.schema import Key, Named
from kernels.figures.store import add, read
from kernels.machines import checks
from kernels.machines.tpu.estimate.bands import ahead, ratio_band
from kernels.matmul import matmul
from kernels.norm import rms_norm
from kernels.paged_attention import paged_attention, update_pages
from validation.in_parts import ProgramInParts, part_records

__all__ = ["FORMS", "PARTS", "SMOLLM3", "STAGES", "Form", "LayerSizes", "Weights"]
__all__ += ["best_of_xla", "decode_step", "estimate_forms", "forms_of", "gain", "layer", "moved"]
__all__ += ["narrow_gain", "recorded", "rotary_table", "spent", "verdict"]
FILE, WORKLOAD, TOKENS = "decoder_layer.csv", "a layer of SmolLM3-3B", 4096
# Of decoding: how many sequences, how many tokens of each with the new one, and those of a page.
SEQUENCES, CACHED, PAGE = 32, 1024, 16
BLOCKS = 8  # of queries in a head
TIMEOUT = 1800.0  # seconds for one compilation
EPS = 1e-6  # of the norms
COPIES = "copies"  # what belongs to no part: arguments on their way, and other layouts of them
PARTS = (
    *("attention_norm", "qkv", "rotary", "attention"),
    *("output", "mlp_norm", "gate_up", "down"),
)
STAGES = {  # what a reader compares: XLA's fusions cross the borders of parts, not of these
    "norm, q k v": ("attention_norm", "qkv"),
    "rotary, attention": ("rotary", "attention"),
    "output": ("output",),
    "feed-forward": ("mlp_norm", "gate_up", "down"),
    COPIES: (COPIES,),
}


class Weights(NamedTuple):
    """d features, H heads of queries, G of keys and values, D a head, f in the middle."""

    attention_norm: Any  # [d]
    qkv: Any  # [d, (H + 2 G) D]
    output: Any  # [H D, d]
    mlp_norm: Any  # [d]
    gate: Any  # [d, f]
    up: Any  # [d, f]
    down: Any  # [f, d]


class Form(NamedTuple):
    """Who does what: three functions, each written for XLA or a kernel."""

    norm: Callable[..., Any]  # [B, N, d], [d] → [B, N, d]
    product: Callable[..., Any]  # [B, N, k], [k, n], activation=None → [B, N, n]
    attend: Callable[..., Any]  # [B, N, H, D], twice [B, N, G, D] → [B, N, H, D]


def layer(x: Any, weights: Weights, table: Any, form: Form) -> Any:
    """[B, N, d] → [B, N, d]."""
    scope, w = jax.named_scope, weights  # names that the operations keep
    with scope("attention_norm"):
        h = form.norm(x, w.attention_norm)
    with scope("qkv"):
        qkv = form.product(h, w.qkv)
    with scope("rotary"):
        q, k, v = split_heads(qkv, len(w.output), 2 * table.shape[-1])
        q, k = rotated(q, table), rotated(k, table)
    with scope("attention"):
        o = form.attend(q, k, v)
    with scope("output"):
        x = x + form.product(o.reshape(*x.shape[:2], -1), w.output)
    with scope("mlp_norm"):
        h = form.norm(x, w.mlp_norm)
    with scope("gate_up"):
        h = form.product(h, w.gate, activation=jax.nn.silu) * form.product(h, w.up)
    with scope("down"):
        return x + form.product(h, w.down)


def decode_step(x: Any, weights: Weights, table: Any, form: Form, cache: Any, how: str) -> Any:
    """One new token of each sequence: [S, 1, d] → [S, 1, d], and the pages with its key and value.

    cache: k_pages, v_pages, lengths and page_table, as update_pages takes them. how:
    paged_attention's implementation.
    """
    k_pages, v_pages, lengths, page_table = cache
    pages: list[Any] = []

    def attend(q, k, v):
        pages[:] = update_pages(k_pages, v_pages, k[:, 0], v[:, 0], lengths, page_table)
        o = paged_attention(q[:, 0], *pages, lengths + 1, page_table, implementation=how)
        return o[:, None]

    with jax.named_scope("rotary"):
        table = table[:, lengths][:, :, None]  # each sequence at its own place
    return layer(x, weights, table, form._replace(attend=attend)), *pages


def split_heads(qkv: Any, width: int, d: int) -> list[Any]:
    """[B, N, (H + 2 G) D] → [B, N, H, D] and twice [B, N, G, D]; width is H D."""
    by_head = qkv.reshape(*qkv.shape[:2], -1, d)
    h = width // d
    return jnp.split(by_head, [h, (by_head.shape[2] + h) // 2], axis=2)


def rotary_table(tokens: int, d: int, theta: float) -> Any:
    """cos and sin of token × theta^(−2 i / D), i below D / 2; [2, N, 1, D / 2]."""
    angle = jnp.arange(tokens)[:, None, None] * theta ** (-2.0 * jnp.arange(d // 2) / d)
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def rotated(x: Any, table: Any) -> Any:
    """Each head's pairs (i, i + D / 2) turned by the token's angles; [B, N, H, D]."""
    cos, sin = table
    left, right = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
    return turned.astype(x.dtype)


def xla_norm(x: Any, weight: Any) -> Any:
    """x over the root of the mean of its squares, weighted."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + EPS)
    return (wide * weight.astype(jnp.float32)).astype(x.dtype)


def xla_product(x: Any, w: Any, activation: Callable[..., Any] = lambda z: z) -> Any:
    """activation(x w)."""
    return activation(jnp.matmul(x, w, preferred_element_type=jnp.float32)).astype(x.dtype)


def package_product(x: Any, w: Any, activation: Callable[..., Any] | None = None) -> Any:
    """The same by our kernel, which takes matrices."""
    rows = x.reshape(-1, x.shape[-1])
    return matmul(rows, w, activation=activation).reshape(*x.shape[:-1], -1)


def package_attend(q: Any, k: Any, v: Any, implementation: str = "pallas") -> Any:
    """Causal attention, which wants heads before tokens."""
    q, k, v = (a.swapaxes(1, 2) for a in (q, k, v))
    return attention(q, k, v, causal=True, implementation=implementation).swapaxes(1, 2)


def sliced_attend(q: Any, k: Any, v: Any) -> Any:
    """The same by XLA, a head of queries at a time, each with its own keys."""
    k, v = (jnp.repeat(a, q.shape[2] // a.shape[2], axis=2) for a in (k, v))
    return package_attend(q, k, v, implementation="xla_sliced")


def blocked_attend(q: Any, k: Any, v: Any) -> Any:
    """The same by XLA, the queries of a head of keys in BLOCKS blocks: each takes the keys up to
    its own end, so that most of what the mask hides is never computed."""
    tokens, groups = k.shape[1:3]
    size = -(-tokens // BLOCKS)

    @jax.checkpoint
    def group(arrays):
        q, k, v = arrays
        blocks = []
        for start in range(0, tokens, size):
            end = min(start + size, tokens)
            seen = jnp.tril(jnp.ones((end - start, end), bool), start)[None, None]
            near = (a[:, :end, None] for a in (k, v))
            blocks.append(jax.nn.dot_product_attention(q[:, start:end], *near, mask=seen))
        return jnp.concatenate(blocks, axis=1)

    by_group = q.reshape(*q.shape[:2], groups, -1, q.shape[3])
    o = jax.lax.map(group, [jnp.moveaxis(a, 2, 0) for a in (by_group, k, v)])
    return jnp.moveaxis(o, 0, 2).reshape(q.shape)


xla_attend = functools.partial(jax.nn.dot_product_attention, is_causal=True)
package_norm = functools.partial(rms_norm, eps=EPS)
FORMS = {
    "xla": Form(xla_norm, xla_product, xla_attend),
    "xla_sliced": Form(xla_norm, xla_product, sliced_attend),
    "xla_blocks": Form(xla_norm, xla_product, blocked_attend),
    "package": Form(package_norm, package_product, package_attend),
    "mixed": Form(xla_norm, xla_product, package_attend),
}
PAGED = {"xla": "xla", "xla_sliced": "xla_in_turn", "package": "pallas", "mixed": "pallas"}


@dataclass(frozen=True)
class LayerSizes:
    """Features, heads of queries, heads of keys and values, their features, those in the middle."""

    d: int
    heads: int
    groups: int
    head_dim: int
    f: int
    theta: float

    def shapes(self, batch: int, tokens: int, dtype: Any = jnp.bfloat16) -> tuple[Any, ...]:
        """Of x, the weights and the table."""
        array = lambda *shape: jax.ShapeDtypeStruct(shape, dtype)
        d, width = self.d, self.heads * self.head_dim
        weights = Weights(
            *(array(d), array(d, width + 2 * self.groups * self.head_dim), array(width, d)),
            *(array(d), array(d, self.f), array(d, self.f), array(self.f, d)),
        )
        table = jax.ShapeDtypeStruct((2, tokens, 1, self.head_dim // 2), jnp.float32)
        return array(batch, tokens, d), weights, table


SMOLLM3 = LayerSizes(2048, 16, 4, 128, 11008, 5e6)


def program(form: str, pass_: str = "forward") -> Callable[..., Any]:
    """A function of x, the table, the weights one by one and, of the gradient, of what comes back.

    Args:
        form: of FORMS; a single query has no blocks, so "decode" has no "xla_blocks".
        pass_: "forward"; "gradient", of x and of all weights, forward pass included; or "decode",
            which takes a cache behind the table and writes into its pages.

    Raises:
        ValueError: for another form or pass.
    """
    checks.one_of("pass", pass_, ("forward", "gradient", "decode"))
    checks.one_of("form", form, PAGED if pass_ == "decode" else FORMS)

    def forward(x, table, *weights):
        return layer(x, Weights(*weights), table, FORMS[form])

    def gradient(x, table, *rest):
        *weights, back = rest
        return jax.vjp(lambda x, *weights: forward(x, table, *weights), x, *weights)[1](back)

    def decode(x, table, *rest):
        cache, weights = rest[:4], Weights(*rest[4:])
        return decode_step(x, weights, table, FORMS[form], cache, PAGED[form])

    chosen = {"forward": forward, "gradient": gradient, "decode": decode}[pass_]
    chosen.__name__ = f"decoder_layer_{form}_{pass_}"
    return jax.jit(chosen, donate_argnums=(2, 3)) if pass_ == "decode" else chosen


def estimate_forms(
    forms: Sequence[str] = (),
    *,
    chip: str = "v5e",
    pass_: str = "forward",
    sizes: LayerSizes = SMOLLM3,
    tokens: int = 0,
) -> list[ProgramInParts]:
    """Estimate a layer in each of `forms` (none: forms_of the pass), in their order.

    It is of one sequence of so many tokens or, of "decode", of one more token of SEQUENCES which
    then have so many.

    Raises:
        ValueError: as `program` does.
        MissingPackage: without libtpu.
        TpuCompileError: for what the compiler refuses.
    """
    from kernels.machines.tpu.diagnose import TpuCompileError
    from kernels.machines.tpu.estimate import estimate_all
    from kernels.machines.tpu.export import export

    forms, decodes = forms or forms_of(pass_), pass_ == "decode"
    tokens = tokens or (CACHED if decodes else TOKENS)
    x, weights, table = sizes.shapes(SEQUENCES if decodes else 1, tokens)
    if decodes:
        x = jax.ShapeDtypeStruct((SEQUENCES, 1, sizes.d), x.dtype)
        pages = np.arange(SEQUENCES * -(-tokens // PAGE), dtype=np.int32).reshape(SEQUENCES, -1)
        cached = jax.ShapeDtypeStruct((sizes.groups, pages.size, PAGE, sizes.head_dim), x.dtype)
        table = (table, cached, cached, np.full(SEQUENCES, tokens - 1, np.int32), pages)
    shapes = (x, *jax.tree.leaves(table), *weights, *((x,) if pass_ == "gradient" else ()))
    programs = [export(program(form, pass_), *shapes, chip=chip) for form in forms]
    layers = []
    estimates = estimate_all(programs, timeout=TIMEOUT, large=True)
    for form, estimate in zip(forms, estimates, strict=True):
        if isinstance(estimate, TpuCompileError):
            raise estimate
        key = _key(form, pass_, chip, sizes, tokens)
        records = part_records(key, estimate, WORKLOAD, _place, "jax", "libtpu")
        layers.append(ProgramInParts(form, key, tuple(records), estimate))
    return layers


def forms_of(pass_: str) -> tuple[str, ...]:
    """Those that are estimated: a single query has no blocks."""
    return tuple(PAGED if pass_ == "decode" else FORMS)


def _key(form: str, pass_: str, chip: str, sizes: LayerSizes, tokens: int) -> Key:
    named = {"batch": 1, "tokens": tokens}
    if pass_ == "decode":
        named, pass_ = {"batch": SEQUENCES, "tokens": 1, "cached": tokens, "page": PAGE}, "forward"
    features = {"d": sizes.d, "heads": sizes.heads, "groups": sizes.groups}
    return Key(
        operator="decoder_layer",
        implementation=form,
        sizes=Named(named | features | {"head_dim": sizes.head_dim, "f": sizes.f}),
        dtype="bfloat16",
        pass_=pass_,
        chip=chip,
    )


def _place(op: Any) -> str:
    """The part that an operation is named after; a fusion is named after its last operation."""
    scope = re.search(rf"\b({'|'.join(PARTS)})\b", op.origin)
    return scope[1] if scope else COPIES


def save(layers: Sequence[ProgramInParts]) -> None:
    """Keep `layers` in results/."""
    add(FILE, [record for program in layers for record in program.records])


def recorded(chip: str = "v5e", pass_: str = "forward") -> dict[str, ProgramInParts]:
    """Form → the layer at full size, as results/ has it; in the order of FORMS.

    Raises:
        ValueError: where one of `forms_of` the pass is not recorded for this chip and pass.
    """
    known = read(FILE)
    layers = {}
    for form in forms_of(pass_):
        key = _key(form, pass_, chip, SMOLLM3, CACHED if pass_ == "decode" else TOKENS)
        program = ProgramInParts.recorded(form, key, known)
        if program is None:
            checks.fail("layer", f"{form}, {pass_} on {chip}", "one that results/ has")
        layers[form] = program
    return layers


def best_of_xla(layers: dict[str, ProgramInParts]) -> str:
    """The fastest one of the forms that hold no kernel of ours."""
    by_xla = [form for form in layers if form.startswith("xla")]
    return min(by_xla, key=lambda form: layers[form].seconds)


def spent(program: ProgramInParts, stage: str = "") -> float:
    """Seconds of a stage; of the whole layer for none."""
    return sum(map(program.spent, STAGES[stage])) if stage else program.seconds


def moved(program: ProgramInParts, stage: str) -> int:
    """Bytes of a stage between HBM and the chip."""
    return sum(map(program.moved, STAGES[stage]))


def verdict(layers: dict[str, ProgramInParts], form: str, stage: str = "") -> str:
    """Where a form stands against the best one of XLA, by the error of ratios."""
    times = [spent(layers[name], stage) for name in (best_of_xla(layers), form)]
    places = {0: "behind", 1: "ahead", None: "a tie"}
    band = ratio_band(layers[form].key.chip, compiler=layers[form].records[0].versions)
    return places[ahead(times, band)]


def gain(program: ProgramInParts, stage: str, factor: float) -> float:
    """How many times as fast the layer is when a stage is `factor` times as fast (Amdahl)."""
    share = spent(program, stage) / program.seconds
    return 1 / (1 - share + share / factor)


def narrow_gain(program: ProgramInParts, weights: str) -> tuple[float, float, float]:
    """What "int8" or "int4" weights would bring, worked out from records and never compiled: the
    time of quantized_matmul for each weight of its figure stands for that of the layer's products.

    Returns:
        Seconds of the products now and then, and how many times as fast the layer would be.
    """
    wanted = "quantized_matmul", "pallas", f"decode_{weights}", program.key.chip
    named = lambda r: (r.operator, r.implementation, r.workload, r.chip)
    figure = max((r for r in read("estimated.csv") if named(r) == wanted), key=lambda r: r.date)
    matrices = [w.shape for w in SMOLLM3.shapes(1, 1)[1] if len(w.shape) == 2]
    share = sum(k * n for k, n in matrices) / (figure.sizes["k"] * figure.sizes["n"])
    now = sum(program.spent(part, "kernel") for part in ("qkv", "output", "gate_up", "down"))
    then = figure.value / 1e3 * share
    return now, then, program.seconds / (program.seconds - now + then)
