"""Readings of a data sheet figure: dense or sparse, GB or GiB, one direction or both directions."""

from dataclasses import dataclass

from penstock.audit.claims.hardware_claims import FORMATS_OF_FLOPS, FlopsBasis, Scope
from penstock.catalog.accelerator import Accelerator, Precision, Source
from penstock.units import GB, GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecReading:
    """One value that a data sheet figure may mean."""

    name: str
    value: float
    source: Source
    plain: bool = True
    """Whether this is a literal reading of the figure.

    A sparse rate is a literal reading only if the claim says sparse.
    """

    @property
    def short_name(self) -> str:
        """Name without its article, for lines of arithmetic."""
        return self.name.removeprefix("the ")


def spec_readings(
    accelerator: Accelerator, quantity: str, scope: Scope = "device", basis: FlopsBasis = "unstated"
) -> tuple[SpecReading, ...]:
    """List the values that an accelerator's quantity may mean, with the literal reading first."""
    times = _devices(accelerator, scope)
    found = _flops(accelerator, quantity, basis) if quantity in FORMATS_OF_FLOPS else _others(accelerator, quantity)
    where = {
        "device": "",
        "node": f" of {times:g} devices",
        "rack": f" of {times:g} devices",
        "unit": " of one compute unit",
    }[scope]
    return tuple(
        SpecReading(name=reading.name + where, value=reading.value * times, source=reading.source, plain=reading.plain)
        for reading in found
    )


def _devices(accelerator: Accelerator, scope: Scope) -> float:
    if scope == "node":
        return accelerator.node.devices
    if scope == "rack":
        return (accelerator.link.domain_devices if accelerator.link is not None else None) or accelerator.node.devices
    return 1 / accelerator.compute_units if scope == "unit" and accelerator.compute_units else 1.0


def _flops(accelerator: Accelerator, quantity: str, basis: FlopsBasis) -> list[SpecReading]:
    kind = Precision(quantity)
    found = []
    if kind in accelerator.dense_flops_per_s:
        source = accelerator.source_of(f"dense_flops_per_s.{kind}")
        found.append(
            SpecReading(
                name=f"the dense {kind} rate",
                value=accelerator.dense_flops_per_s[kind],
                source=source,
                plain=basis != "sparse",
            )
        )
    sparse = accelerator.sparse_flops_per_s or {}
    if kind in sparse:
        source = accelerator.source_of(f"sparse_flops_per_s.{kind}")
        found.append(
            SpecReading(
                name=f"the {kind} rate with 2:4 sparsity",
                value=sparse[kind],
                source=source,
                plain=basis == "sparse",
            )
        )
    return sorted(found, key=lambda reading: not reading.plain)


def _others(accelerator: Accelerator, quantity: str) -> list[SpecReading]:
    def reading(name: str, value: float | None, field: str) -> list[SpecReading]:
        return (
            [] if value is None else [SpecReading(name=name, value=float(value), source=accelerator.source_of(field))]
        )

    memory, link = accelerator.memory, accelerator.link
    if quantity == "memory":
        return [
            *reading("the nominal memory", memory.nominal_gb * GB, "memory.nominal_gb"),
            *reading("the physical memory", memory.hbm_bytes, "memory.hbm_bytes"),
            *reading("the physical memory in GiB", memory.hbm_bytes / GIB * GB, "memory.hbm_bytes"),
        ]
    if quantity == "link":
        one_way = None if link is None else link.aggregate_bytes_per_s_one_way
        peer = None if link is None else link.per_peer_bytes_per_s_one_way
        return [
            *reading("the one-way link bandwidth to all peers", one_way, "link.aggregate_bytes_per_s_one_way"),
            *reading(
                "the two-way link bandwidth to all peers",
                None if one_way is None else 2 * one_way,
                "link.aggregate_bytes_per_s_one_way",
            ),
            *reading("the one-way link bandwidth to one peer", peer, "link.per_peer_bytes_per_s_one_way"),
            *reading(
                "the two-way link bandwidth to one peer",
                None if peer is None else 2 * peer,
                "link.per_peer_bytes_per_s_one_way",
            ),
        ]
    value, field, name = {
        "bandwidth": (memory.hbm_bytes_per_s, "memory.hbm_bytes_per_s", "the memory bandwidth"),
        "tdp": (accelerator.tdp_watts, "tdp_watts", "the TDP"),
        "compute_units": (accelerator.compute_units, "compute_units", "the number of compute units"),
        "wavefront": (accelerator.wavefront_size, "wavefront_size", "the warp or wavefront size"),
        "link_domain": (
            None if link is None else link.domain_devices,
            "link.domain_devices",
            "the number of devices in a link domain",
        ),
    }[quantity]
    return reading(name, value, field)
