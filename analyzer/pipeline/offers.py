"""What can be rented, as the options ask for it: the catalogue's machines and the user's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analyzer.devices import catalogue
from analyzer.devices.instances import Instance
from analyzer.options import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What can be rented.

    Attributes:
        instances: Of all providers, in the way of paying and the regions that were asked for.
        own: What the user's own price list says, whatever was asked for: a record keeps it.
    """

    instances: tuple[Instance, ...]
    own: tuple[Instance, ...]


def offers_of(options: Options, *, own: Iterable[Instance] = ()) -> Offers:
    """What the catalogue gives, and the options' price list or else ``own``, as the options ask for it.

    Raises:
        DeviceError: A hole in the list, a region that nobody knows, or no price at all for what is asked.
    """
    listed = catalogue.own_offers(options.prices, own=own)
    found = catalogue.instances(own=listed, pricing=options.pricing, regions=options.regions)
    return Offers(instances=found, own=listed)
