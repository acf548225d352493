"""Report: one line of figures, a table, JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.table import Table

from tests.chaos.checker import DRY_WITHIN, SHOWN, Verdict
from tests.chaos.meetings import BREAKS
from tests.chaos.plan import WEATHERS

#: What the line says of faults: name → kinds.
GROUPS = {
    "kills": ("kill node", "kill supervisor", "kill tree", "kill producer", "kill helper", "kill fork server"),
    "pauses": ("pause node", "pause supervisor"),
    "restarts": ("term supervisor", "hup supervisor"),
    "Redis restarts": ("kill redis",),
    "failovers": ("kill primary", "fail over"),
    "slot moves": ("move slots",),
    "flushes": ("flush scripts",),
    "proxy faults": WEATHERS,
    "reshards": ("reshard",),
}

#: What the table has of the figures, in its order.
COUNTED = (
    "payloads", "unsure", "performed", "buried", "lost", "lost_to_failover", "loss_before_ms", "loss_after_ms",
    "disordered_by_failover", "doubled_by_failover",
    "still_queued", "out_of_order", "overlaps", "overlaps_refused", "innocents_buried",
    "garbled", "framed", "resumed", "stale_checkpoints", "cancelled", "came_back", "miscounted_tags", "paused_queues",
    "started_paused", "started_paused_explained", "rated", "overfull", "overfull_explained",
    "superseded", "not_kept", "too_early", "too_early_explained",
    "waiting", "let_go", "too_soon", "recurred", "out_of_time", "dry_after",
)  # fmt: skip


#: Seconds that stand for "never": infinity is no JSON.
LONGEST = 9_999.0


def figures(verdict: Verdict, faults: Counter[str], seconds: float, on: str, seed: int) -> dict[str, Any]:
    return {
        "on": on,
        "seed": seed,
        "seconds": round(seconds),
        "faults": dict(sorted(faults.items())),
        "payloads": verdict.payloads,
        "unsure": verdict.unsure,
        "performed": verdict.performed,
        "buried": verdict.buried,
        "still_queued": verdict.queued,
        "lost": len(verdict.lost),
        "lost_to_failover": verdict.lost_to_failover,
        "loss_before_ms": round(verdict.loss_before * 1000),
        "loss_after_ms": round(verdict.loss_after * 1000),
        "disordered_by_failover": verdict.disordered_by_failover,
        "doubled_by_failover": verdict.doubled_by_failover,
        "out_of_order": len(verdict.out_of_order),
        "overlaps": verdict.refused + len(verdict.overlaps),
        "overlaps_refused": verdict.refused,
        "innocents_buried": len(verdict.innocents),
        "garbled": len(verdict.garbled),
        "framed": verdict.framed,
        "resumed": verdict.resumed,
        "stale_checkpoints": len(verdict.stale),
        "cancelled": verdict.cancelled,
        "came_back": len(verdict.came_back),
        "miscounted_tags": len(verdict.miscounted),
        "paused_queues": verdict.paused,
        "started_paused": len(verdict.started_paused),
        "crowded": len(verdict.crowded),
        "crowded_explained": verdict.crowded_explained,
        "started_paused_explained": verdict.paused_explained,
        "rated": verdict.rated,
        "overfull": len(verdict.overfull),
        "overfull_explained": verdict.overfull_explained,
        "superseded": verdict.superseded,
        "not_kept": len(verdict.not_kept),
        "too_early": len(verdict.too_early),
        "too_early_explained": verdict.too_early_explained,
        "met": {what: dict(counts) for what, counts in verdict.met.items()},
        "waiting": verdict.waiting,
        "let_go": verdict.let_go,
        "too_soon": len(verdict.too_soon),
        "recurred": verdict.recurred,
        "out_of_time": len(verdict.out_of_time),
        "duplicates": dict(verdict.duplicates.most_common()),
        "unexplained": len(verdict.unexplained),
        "dry_after": round(min(verdict.dry_after, LONGEST), 1),
        "good": verdict.is_good,
    }


def line(figures: dict[str, Any]) -> str:
    faults = figures["faults"]
    counts = {name: sum(faults.get(kind, 0) for kind in kinds) for name, kinds in GROUPS.items()}
    parts = [f"{figures['seconds']} s on {figures['on']}, seed {figures['seed']}"]
    parts += [f"{count:,} {name}" for name, count in counts.items() if count]
    parts += [f"{figures['payloads']:,} payloads", f"{figures['performed']:,} performed", f"{figures['lost']} lost"]
    if figures["lost_to_failover"]:
        lost, before, after = (figures[name] for name in ("lost_to_failover", "loss_before_ms", "loss_after_ms"))
        parts.append(f"{lost} lost to failovers, acked from {before} ms before to {after} ms after one began")
    if figures["disordered_by_failover"]:
        parts.append(f"{figures['disordered_by_failover']} overtook what a failover may have lost")
    if figures["doubled_by_failover"]:
        parts.append(f"{figures['doubled_by_failover']} ran beside a run that a failover may have lost")
    parts.append(f"{figures['out_of_order']} out of order")
    parts.append(f"{figures['overlaps']:,} overlaps ({figures['overlaps_refused']:,} refused)")
    parts.append(f"{figures['innocents_buried']} innocents buried")
    if figures["paused_queues"]:
        parts.append(f"{figures['started_paused']} started in {figures['paused_queues']:,} pauses of queues")
    if figures["rated"]:
        parts.append(f"{figures['overfull']} windows overfull of {figures['rated']:,} rated starts")
    if figures["waiting"]:
        parts.append(f"{figures['too_soon']} of {figures['waiting']:,} that wait too soon")
        parts.append(f"{figures['out_of_time']} of {figures['recurred']:,} recurring runs out of time")
    if figures["dry_after"]:
        parts.append(f"dry after {figures['dry_after']} s")
    causes = ", ".join(f"{count:,} {cause}" for cause, count in figures["duplicates"].items())
    parts.append(f"{sum(figures['duplicates'].values()):,} duplicates" + (f" ({causes})" if causes else ""))
    return " · ".join(parts)


def table(figures: dict[str, Any]) -> Table:
    made = Table("", "figure", title="chaos", show_header=False)
    for kind, count in figures["faults"].items():
        made.add_row(kind, f"{count:,}")
    made.add_section()
    for name in COUNTED:
        made.add_row(name.replace("_", " "), f"{figures[name]:,}", end_section=name in {"buried", COUNTED[-1]})
    for cause, count in figures["duplicates"].items():
        made.add_row(f"done twice: {cause}", f"{count:,}")
    return made


def met(figures: dict[str, Any]) -> Table:
    """Which capabilities jobs had where something broke."""
    made = Table("jobs that had", *BREAKS, title="pairs that were played live")
    for name in sorted({name for counts in figures["met"].values() for name in counts}):
        made.add_row(name, *(f"{figures['met'][what].get(name, 0):,}" for what in BREAKS))
    return made


def violations(verdict: Verdict) -> list[str]:
    found = [f"lost: {queue} {id} {number}" for queue, id, number in verdict.lost[:SHOWN]]
    found += [f"out of order: {what}" for what in verdict.out_of_order[:SHOWN]]
    found += [f"overlap: {what}" for what in verdict.overlaps[:SHOWN]]
    found += [f"duplicate: {what}" for what in verdict.unexplained[:SHOWN]]
    found += [f"innocent: {what}" for what in verdict.innocents[:SHOWN]]
    found += [f"stale checkpoint: {what}" for what in verdict.stale[:SHOWN]]
    found += [f"garbled: {what}" for what in verdict.garbled[:SHOWN]]
    found += [f"came back: {what}" for what in verdict.came_back[:SHOWN]]
    found += [f"tags: {what}" for what in verdict.miscounted[:SHOWN]]
    found += [f"paused: {what}" for what in verdict.started_paused[:SHOWN]]
    found += [f"crowded: {what}" for what in verdict.crowded[:SHOWN]]
    found += [f"overfull: {what}" for what in verdict.overfull[:SHOWN]]
    found += [f"not kept: {what}" for what in verdict.not_kept[:SHOWN]]
    found += [f"too early: {what}" for what in verdict.too_early[:SHOWN]]
    found += [f"too soon: {what}" for what in verdict.too_soon[:SHOWN]]
    found += [f"out of time: {what}" for what in verdict.out_of_time[:SHOWN]]
    if not verdict.performed:
        found.append("nothing was performed: see what the logs say")
    if verdict.dry_after > DRY_WITHIN:
        found.append(f"not dry: what is not long was done {verdict.dry_after:.0f} s after the last fault")
    if verdict.queued:
        found.append(f"still queued: {verdict.queued} payloads")
    return found
