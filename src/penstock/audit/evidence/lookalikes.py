"""Finds other meanings of a claimed figure that matches no data sheet value: a variant, a package, or another row."""

from collections.abc import Iterator

from penstock.audit.claims.hardware_claims import FORMATS_OF_FLOPS, Scope, SpecStatement
from penstock.audit.evidence.data_sheet import SpecReading, spec_readings
from penstock.audit.reference_library import Library, Package, PrintedFigure
from penstock.catalog.accelerator import Accelerator, Basis, Source

_COUNTED_ALIKE = ("memory", "bandwidth", "compute_units", *FORMATS_OF_FLOPS)
"""Quantities whose value for a package is the sum over its devices."""


def matching_lookalikes(statement: SpecStatement, accelerator: Accelerator, library: Library) -> SpecReading | None:
    """Return the variant, package or other printed figure that matches the claim, or None.

    If a variant, package or other figure matches, the claim may mean it, so the data sheet value does not refute the
    claim.
    """
    if statement.scope != "device":
        return None
    readings = (
        *_printed_readings(statement, accelerator, library),
        *_package_readings(statement, accelerator, library),
    )
    found = (*readings, *_of_variants(statement, accelerator, library))
    return min(
        (reading for reading in found if statement.amount.closely(reading.value)),
        key=lambda reading: not reading.plain,
        default=None,
    )


def _of_variants(statement: SpecStatement, accelerator: Accelerator, library: Library) -> Iterator[SpecReading]:
    for ident in statement.variants:
        if ident == accelerator.id:
            continue
        other = library.accelerator_of(ident)
        for reading in spec_readings(other, statement.quantity, "device", statement.basis):
            yield SpecReading(
                name=f"{reading.name} of {other.name}", value=reading.value, source=reading.source, plain=reading.plain
            )


def _package_readings(statement: SpecStatement, accelerator: Accelerator, library: Library) -> Iterator[SpecReading]:
    package = library.facts.package_of(accelerator.id)
    if package is None or statement.quantity not in _COUNTED_ALIKE:
        return
    for reading in spec_readings(accelerator, statement.quantity, "device", statement.basis):
        yield SpecReading(
            name=f"{reading.name} of {package.says}",
            value=package.devices * reading.value,
            source=_source(package),
            plain=reading.plain,
        )


def _printed_readings(statement: SpecStatement, accelerator: Accelerator, library: Library) -> Iterator[SpecReading]:
    for printed in library.facts.printed:
        if printed.bare and not statement.variants:
            continue
        if (printed.accelerator, printed.quantity) == (accelerator.id, statement.quantity):
            yield SpecReading(
                name=printed.says,
                value=printed.value,
                source=_source(printed),
            )


def _source(told: PrintedFigure | Package) -> Source:
    return Source(fields=(), title=told.title, url=told.url, checked_on=told.checked_on, basis=Basis.VENDOR_SPEC)


def mistaken_spec(statement: SpecStatement, accelerator: Accelerator) -> str | None:
    """Name another figure that matches the claim: the rate in another format, or the value per node or per device."""
    others = FORMATS_OF_FLOPS if statement.quantity in FORMATS_OF_FLOPS else ()
    scopes: tuple[Scope, ...] = ("device", "node")
    asked = [(quantity, statement.scope) for quantity in others if quantity != statement.quantity]
    asked += [(statement.quantity, scope) for scope in scopes if scope != statement.scope]
    found = [
        (not reading.plain, scope != statement.scope, scope, reading)
        for quantity, scope in asked
        for reading in spec_readings(accelerator, quantity, scope)
        if statement.amount.meets(reading.value)
    ]
    if not found:
        return None
    _, _, scope, reading = min(found, key=lambda entry: entry[:2])
    return f"{reading.name} of one device" if scope != statement.scope == "node" else reading.name
