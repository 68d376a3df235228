"""Readings of a data sheet figure: dense and sparse, GB and GiB, one way and both ways."""

from dataclasses import dataclass

from penstock.audit.claims.hardware_claims import FORMATS_OF_FLOPS, FlopsBasis, Scope
from penstock.catalog.accelerator import Accelerator, Precision, Source
from penstock.units import GB, GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecReading:
    """One value that a figure may mean."""

    name: str
    value: float
    source: Source
    plain: bool = True
    """Whether it is the literal reading; a sparse rate, for example, is not."""


def spec_readings(
    part: Accelerator, quantity: str, scope: Scope = "device", basis: FlopsBasis = "unstated"
) -> tuple[SpecReading, ...]:
    """List the possible values of an accelerator's quantity, literal reading first."""
    times = _devices(part, scope)
    found = _flops(part, quantity, basis) if quantity in FORMATS_OF_FLOPS else _others(part, quantity)
    where = {"device": "", "node": f" of {times:g} devices", "rack": f" of {times:g} devices", "unit": " of one unit"}[
        scope
    ]
    return tuple(
        SpecReading(name=reading.name + where, value=reading.value * times, source=reading.source, plain=reading.plain)
        for reading in found
    )


def _devices(part: Accelerator, scope: Scope) -> float:
    if scope == "node":
        return part.node.devices
    if scope == "rack":
        return (part.link.domain_devices if part.link is not None else None) or part.node.devices
    return 1 / part.compute_units if scope == "unit" and part.compute_units else 1.0


def _flops(part: Accelerator, quantity: str, basis: FlopsBasis) -> list[SpecReading]:
    kind = Precision(quantity)
    found = []
    if kind in part.dense_flops_per_s:
        source = part.source_of(f"dense_flops_per_s.{kind}")
        found.append(
            SpecReading(
                name=f"the dense {kind} rate",
                value=part.dense_flops_per_s[kind],
                source=source,
                plain=basis != "sparse",
            )
        )
    sparse = part.sparse_flops_per_s or {}
    if kind in sparse:
        source = part.source_of(f"sparse_flops_per_s.{kind}")
        found.append(
            SpecReading(
                name=f"the {kind} rate with 2:4 sparsity",
                value=sparse[kind],
                source=source,
                plain=basis == "sparse",
            )
        )
    return sorted(found, key=lambda reading: not reading.plain)


def _others(part: Accelerator, quantity: str) -> list[SpecReading]:
    def reading(name: str, value: float | None, field: str) -> list[SpecReading]:
        return [] if value is None else [SpecReading(name=name, value=float(value), source=part.source_of(field))]

    memory, link = part.memory, part.link
    if quantity == "memory":
        return [
            *reading("the memory on the box", memory.nominal_gb * GB, "memory.nominal_gb"),
            *reading("the physical memory in 10^9 bytes", memory.hbm_bytes, "memory.hbm_bytes"),
            *reading("the physical memory in GiB", memory.hbm_bytes / GIB * GB, "memory.hbm_bytes"),
        ]
    if quantity == "link":
        one_way = None if link is None else link.aggregate_bytes_per_s_one_way
        peer = None if link is None else link.per_peer_bytes_per_s_one_way
        return [
            *reading("the link to all peers, one way,", one_way, "link.aggregate_bytes_per_s_one_way"),
            *reading(
                "the link to all peers, both ways,",
                None if one_way is None else 2 * one_way,
                "link.aggregate_bytes_per_s_one_way",
            ),
            *reading("the link to one peer, one way,", peer, "link.per_peer_bytes_per_s_one_way"),
            *reading(
                "the link to one peer, both ways,",
                None if peer is None else 2 * peer,
                "link.per_peer_bytes_per_s_one_way",
            ),
        ]
    value, field, name = {
        "bandwidth": (memory.hbm_bytes_per_s, "memory.hbm_bytes_per_s", "the memory bandwidth"),
        "tdp": (part.tdp_watts, "tdp_watts", "the TDP"),
        "compute_units": (part.compute_units, "compute_units", "the number of compute units"),
        "wavefront": (part.wavefront_size, "wavefront_size", "the threads that execute together"),
        "link_domain": (
            None if link is None else link.domain_devices,
            "link.domain_devices",
            "the devices one link joins",
        ),
    }[quantity]
    return reading(name, value, field)
