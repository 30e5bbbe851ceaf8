"""The tables of an explained program, in HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def tables(made: Mapping[str, Any], second: Mapping[str, Any] | None = None) -> list[str]:
    """Everything that is known of a program, as pieces of HTML.

    Args:
        made: as kernels.tpu.explain.facts or .refusal gives it.
        second: the same of what it is compared with.
    """
    from kernels.machines.tpu import explain as words

    parts = []
    if "error" in made:
        parts.append(f'<p class="wrong">{html.escape(made["error"]["message"])}</p>')
    else:
        parts.append(
            f"<p><b>{words.format_seconds(made['seconds'])}</b> estimated, "
            f"{made['cycles']:,.0f} cycles, {html.escape(made['band'])}: "
            f"{html.escape(words.BINDS[made['bound']])}. Nothing here was measured.</p>"
        )
        if told := words.decided_by_data(made):
            parts.append(f"<p>{html.escape(told)}</p>")
    if made["advice"]:
        items = "".join(f"<li>{html.escape(each)}</li>" for each in made["advice"])
        parts.append(f"<h2>What to change first</h2><ol>{items}</ol>")
    if second is not None:
        heads = ("", f"{made['title']}", f"{second['title']} (other)", "change")
        parts += ["<h2>Side by side</h2>", table(heads, words.compared(made, second))]
    if "error" not in made:
        parts += ["<h2>Against the chip</h2>", table(("", "", "of"), _roofline(made))]
        parts += [
            "<h2>Operations, the longest first</h2>",
            table(
                ("operation", "kind", "cycles", "share", "HBM", "binds"),
                (
                    (
                        op["name"] + (f" ×{op['times']}" if op["times"] > 1 else ""),
                        op["kind"],
                        f"{op['cycles']:,.0f}",
                        f"{op['share']:.0%}",
                        words.size(op["hbm_bytes"]),
                        op["bound"],
                    )
                    for op in made["operations"][:20]
                ),
            ),
        ]
    for kernel in made["kernels"][:3]:
        parts += _kernel(kernel)
    if made["dtypes"]:
        items = "".join(f"<li>{html.escape(each)}</li>" for each in made["dtypes"])
        parts.append(f"<h2>Dtypes on {made['chip']}</h2><ul>{items}</ul>")
    if "method" in made:
        told = f"By {made['method']}; libtpu {made['libtpu']}."
        parts.append(f"<p><small>{html.escape(told)}</small></p>")
    return parts


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text."""
    head = "".join(f"<th>{html.escape(each)}</th>" for each in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _roofline(made: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    from kernels.machines.tpu import explain as words

    seconds = made["seconds"] or 1e-12
    rows = [
        (
            "matrix products",
            f"{made['flops'] / seconds / 1e12:.3g} TFLOP/s ({made['utilisation']:.0%})",
            f"{made['peak_flops'] / 1e12:.0f} TFLOP/s (bf16)",
        ),
        (
            "HBM",
            f"{made['hbm_bytes'] / seconds / 1e9:.0f} GB/s ({made['hbm_utilisation']:.0%})",
            f"{made['hbm_bytes_per_second'] / 1e9:.0f} GB/s",
        ),
        ("bytes moved", words.size(made["hbm_bytes"]), ""),
    ]
    if made["flops"]:
        intensity = made["flops"] / max(made["hbm_bytes"], 1)
        ridge = made["peak_flops"] / made["hbm_bytes_per_second"]
        rows.append(("FLOP a byte", f"{intensity:.3g}", f"ridge at {ridge:.0f}"))
    return rows


def _kernel(kernel: Mapping[str, Any]) -> list[str]:
    from kernels.machines.tpu import explain as words
    from kernels.machines.tpu.diagnose import mib

    parts = [f"<h2>{html.escape(kernel['name'])}</h2>"]
    if "operands" in kernel:
        vmem = kernel["vmem"]
        rows = [(name, mib(size)) for name, size in vmem["buffers"]]
        rows += [("together", mib(vmem["held"])), ("it may have", mib(vmem["limit"]))]
        if vmem["laid_out"]:
            rows.append(("laid out by the compiler", mib(vmem["laid_out"])))
        grid = "×".join(map(str, kernel["grid"])) or "1"
        semantics = ", ".join(kernel["semantics"])
        parts += [f"<p>Grid {grid} ({html.escape(semantics)})</p>", table(("VMEM", ""), rows)]
        parts.append(
            table(
                ("operand", "array", "block", "in", "fetches", "bytes", "first fetches"),
                (
                    (
                        f"{o['role']} {o['name']}",
                        f"{o['dtype']}[{', '.join(map(str, o['shape']))}]",
                        "×".join(map(str, o["block"])),
                        o["memory"],
                        f"{o['fetches']:,}",
                        words.size(o["traffic"]),
                        "; ".join(f"{p}: {s}" for p, s, _ in o["moves"][:6]),
                    )
                    for o in kernel["operands"]
                ),
            )
        )
    if "slots" in kernel:
        rows = [(slot, f"{share:.0%}") for slot, share in kernel["slots"].items()]
        rows += [(name, f"{kernel[name]:,}") for name in ("bundles", "spills", "fills")]
        parts += ["<h3>Schedule</h3>", table(("slot", "full in the loop"), rows)]
        parts.append(
            table(
                ("bundles", "how many", "loops around", "fullest slot", "spills"),
                (
                    (
                        f"from {r['start']:,}",
                        f"{r['bundles']:,}",
                        str(r["depth"]),
                        f"{r['fullest']} {r['share']:.0%}",
                        str(r["spills"]),
                    )
                    for r in kernel["regions"][:40]
                ),
            )
        )
    if kernel.get("lines"):
        keys = ("flops", "eup", "xlu", "vpu", "bytes")
        parts += [
            "<h3>What each line asks of a program</h3>",
            table(
                ("line", "source", "FLOP", "EUP", "XLU", "VPU", "bytes"),
                (
                    (
                        each["source"],
                        each["text"],
                        *(f"{each[k]:,}" if each[k] else "" for k in keys),
                    )
                    for each in kernel["lines"][:40]
                ),
            ),
        ]
    return parts
