"""Prices by way of paying and region: of the catalogue's lists, of the user's own, and what is refused."""

import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from analyzer.devices import catalogue
from analyzer.devices.catalogue import FOLDER, areas, listed_prices
from analyzer.devices.device import Instance
from analyzer.errors import DeviceError
from analyzer.options import PRICINGS, Pricing


def by_name(**asked: object) -> dict[str, Instance]:
    return {item.name: item for item in catalogue.instances(**asked)}  # type: ignore[arg-type]


def price(name: str, pricing: Pricing, region: str) -> Instance:
    one = by_name()[name]
    return next(p for p in catalogue.prices_of(one) if (p.pricing, p.region) == (pricing, region))


def test_without_a_way_of_paying_or_a_region_the_catalogue_is_as_it_was() -> None:
    assert catalogue.instances() == catalogue.instances(pricing="on-demand", regions=())
    assert {item.pricing for item in catalogue.instances()} == {"on-demand"}
    assert {item.region for item in catalogue.instances()} == {"us-east-1", "us-central1", "eastus", "US"}


@pytest.mark.parametrize(
    ("name", "pricing", "region", "usd", "date"),
    [
        # apache-libcloud's pricing.json.
        ("g4dn.xlarge", "on-demand", "eu-west-1", 0.587, "2025-03-02"),
        ("g6.xlarge", "on-demand", "eu-central-1", 1.0064, "2025-03-02"),
        # Vantage's export of 2023-11.
        ("g5.xlarge", "reserved-1y", "us-east-1", 0.6338, "2023-11"),
        ("g4dn.xlarge", "spot", "us-east-1", 0.1609, "2023-11"),
        # What Google writes of resource-based committed use: 37 % off for one year, 55 % for three.
        ("g2-standard-4", "reserved-1y", "us-central1", 0.70683 * 0.63, "2025-03-06"),
        ("g2-standard-4", "reserved-3y", "us-central1", 0.70683 * 0.45, "2025-03-06"),
        ("g2-standard-4", "spot", "us-central1", 0.39734, "2026-08-03"),
        ("a2-highgpu-1g", "on-demand", "europe-west4", 3.74797, "2026-08-03"),
        # What Azure writes of Dsv5: 41 % off for one year.
        ("Standard_D16s_v5", "reserved-1y", "eastus", 0.768 * 0.59, "2024-04"),
        ("Standard_NC4as_T4_v3", "on-demand", "westeurope", 0.658, "2023-12-18"),
    ],
)
def test_published_prices_are_in_the_lists(
    name: str, pricing: Pricing, region: str, usd: float, date: str
) -> None:
    found = price(name, pricing, region)
    assert found.usd_per_hour == pytest.approx(usd, rel=2e-3)
    assert found.price_date == date


def test_every_price_has_a_source_a_date_or_none_and_stands_once() -> None:
    names = {(item.provider.lower(), item.name.lower()) for item in catalogue.instances()}
    assert set(listed_prices()) <= names
    for key, prices in listed_prices().items():
        places = Counter((one["pricing"], one["region"]) for one in prices)
        assert max(places.values()) == 1, key
        for one in prices:
            assert one["pricing"] in PRICINGS
            assert one["source"]
            assert one["usd_per_hour"] > 0
            assert re.fullmatch(r"(\d{4}-\d\d(-\d\d)?)?", one["price_date"])


def test_what_binds_its_user_costs_less_than_on_demand_in_the_same_region() -> None:
    # Nobody would pay for a year, or risk the machine, for nothing.
    for item in catalogue.instances():
        prices = {(one.pricing, one.region): one.usd_per_hour for one in catalogue.prices_of(item)}
        for (pricing, region), usd in prices.items():
            if pricing != "on-demand" and ("on-demand", region) in prices:
                assert usd < prices["on-demand", region], (item.name, pricing, region)
        for region in {region for _, region in prices}:
            if {("reserved-1y", region), ("reserved-3y", region)} <= set(prices):
                assert prices["reserved-3y", region] < prices["reserved-1y", region]


def test_a_family_costs_the_same_times_as_much_in_a_region_whatever_the_size() -> None:
    # AWS has one factor a family and region; a dedicated machine's price (up to a tenth more) would break it.
    factors: dict[tuple[str, str], list[float]] = {}
    for item in catalogue.instances():
        if item.provider == "AWS":
            for one in catalogue.prices_of(item)[1:]:
                if one.pricing == "on-demand":
                    family = item.name.split(".")[0]
                    factors.setdefault((family, one.region), []).append(one.usd_per_hour / item.usd_per_hour)
    assert len(factors) > 100
    for key, found in factors.items():
        assert max(found) / min(found) < 1.005, key


def test_a_machine_of_twice_the_size_costs_twice_as_much_in_every_list_of_gcp() -> None:
    # Google adds up prices of cores, bytes and GPUs: what is a multiple in Iowa is that multiple everywhere.
    listed = {
        item.name: {(one.pricing, one.region): one.usd_per_hour for one in catalogue.prices_of(item)}
        for item in catalogue.instances()
        if item.provider == "GCP"
    }
    home: tuple[Pricing, str] = ("on-demand", "us-central1")
    compared = 0
    for small, large in itertools.permutations(listed, 2):
        times = listed[large][home] / listed[small][home]
        if small.rsplit("-", 1)[0] != large.rsplit("-", 1)[0] or abs(times - round(times)) > 1e-4:
            continue
        for place in set(listed[small]) & set(listed[large]) - {home}:
            assert listed[large][place] / listed[small][place] == pytest.approx(round(times), rel=5e-4), (
                small, large, place,
            )  # fmt: skip
            compared += 1
    assert compared > 100


def test_every_region_is_in_one_area_and_every_big_provider_in_all_three() -> None:
    everywhere = Counter(region for regions in areas().values() for region in regions)
    assert max(everywhere.values()) == 1
    listed = [(item, one) for item in catalogue.instances() for one in catalogue.prices_of(item)]
    assert {one.region for _, one in listed} == set(everywhere)
    for area in ("us", "europe", "asia"):
        there = {item.provider for item, one in listed if one.region in areas()[area]}
        assert {"AWS", "GCP", "Azure"} <= there


def test_of_several_regions_an_instance_is_listed_once_where_it_costs_least() -> None:
    found = by_name(regions=("eu-west-1", "eu-central-1"))
    # In apache-libcloud's pricing.json 0.1472 in Ireland and 0.1536 in Frankfurt.
    assert (found["t4g.xlarge"].region, found["t4g.xlarge"].usd_per_hour) == ("eu-west-1", 0.1472)
    assert price("t4g.xlarge", "on-demand", "eu-central-1").usd_per_hour == 0.1536
    assert all(item.region in ("eu-west-1", "eu-central-1") for item in found.values())


def test_an_area_stands_for_its_regions() -> None:
    assert by_name(regions=("europe",)) == by_name(regions=areas()["europe"])
    assert by_name(regions=("EUROPE",)) == by_name(regions=("europe",))


def test_instances_without_such_a_price_are_left_out() -> None:
    reserved = by_name(pricing="reserved-3y")
    assert "g2-standard-4" in reserved
    assert "g6.xlarge" not in reserved  # no source gave AWS's prices for three years
    assert {item.pricing for item in reserved.values()} == {"reserved-3y"}


def test_the_machine_is_the_same_whatever_is_paid() -> None:
    spot, usual = by_name(pricing="spot")["g2-standard-4"], by_name()["g2-standard-4"]
    assert (spot.vcpus, spot.memory_bytes, spot.gpu, spot.cpu) == (
        usual.vcpus, usual.memory_bytes, usual.gpu, usual.cpu,
    )  # fmt: skip


def test_all_prices_of_an_instance_begin_with_its_own() -> None:
    usual, spot = by_name()["g2-standard-4"], by_name(pricing="spot")["g2-standard-4"]
    assert catalogue.prices_of(usual)[0].pricing == "on-demand"
    assert catalogue.prices_of(spot)[0].pricing == "spot"
    assert set(catalogue.prices_of(usual)) == set(catalogue.prices_of(spot))


@pytest.mark.parametrize(
    ("pricing", "regions", "message", "hint"),
    [
        ("on-demand", ("mars",), "--region mars", "westeurope"),
        ("on-demand", ("europe-west5",), "--region europe-west5", "Did you mean europe-west4"),
        ("reserved-3y", ("eastus",), "No reserved-3y price is known in eastus", "us-central1"),
        ("reserved-3y", ("eastus",), "No reserved-3y price", "There is on-demand, reserved-1y, spot in eastus"),
    ],
)
def test_what_has_no_price_is_one_error_that_says_what_there_is(
    pricing: Pricing, regions: tuple[str, ...], message: str, hint: str
) -> None:
    with pytest.raises(DeviceError) as error:
        catalogue.instances(pricing=pricing, regions=regions)
    assert message in str(error.value)
    assert hint in str(error.value.hint)


OWN = """
[[instances]]
provider = "AWS"
name = "g6.xlarge"
pricing = "reserved-1y"
usd_per_hour = 0.4
[[instances]]
provider = "AWS"
name = "g6.xlarge"
usd_per_hour = 0.7
[[instances]]
provider = "our rack"
name = "box"
usd_per_hour = 0.2
gpu = "t4"
[[instances]]
provider = "our rack"
name = "far box"
region = "nuuk"
usd_per_hour = 0.1
gpu = "t4"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(OWN)
    return path


def test_own_prices_hold_for_their_way_of_paying_alone(own: Path) -> None:
    usual, reserved = by_name(prices=own), by_name(prices=own, pricing="reserved-1y")
    assert (usual["g6.xlarge"].usd_per_hour, reserved["g6.xlarge"].usd_per_hour) == (0.7, 0.4)
    assert reserved["g6.xlarge"].gpu == "l4"
    assert "box" in usual
    assert "box" not in reserved
    assert "g6.xlarge" not in by_name(pricing="reserved-1y")


def test_an_own_price_without_a_region_holds_in_every_one(own: Path) -> None:
    assert "box" in by_name(prices=own, regions=("europe",))
    assert "far box" not in by_name(prices=own, regions=("europe",))
    assert set(by_name(prices=own, regions=("nuuk",))) == {"g6.xlarge", "box", "far box"}


def test_so_does_one_of_a_machine_that_the_catalogue_lists_in_one_region(own: Path) -> None:
    # The catalogue's g6.xlarge costs 1.0064 dollars in Frankfurt, by apache-libcloud's list.
    for regions in ((), ("eu-central-1",), ("europe",), ("nuuk",)):
        mine = by_name(prices=own, regions=regions)["g6.xlarge"]
        assert (mine.usd_per_hour, mine.region, mine.gpu) == (0.7, "", "l4")


def test_a_price_list_that_was_read_gives_what_its_file_gave(own: Path) -> None:
    offers = catalogue.own_offers(own)
    assert len(offers) == 4
    for pricing in PRICINGS[:2]:
        again = catalogue.instances(own=offers, pricing=pricing)
        assert again == catalogue.instances(own, pricing=pricing)


@pytest.mark.parametrize(
    "text",
    [
        'currency = "EUR"\n[[instances]]\nprovider = "A"\nname = "b"\nusd_per_hour = 1\n',
        '[[instances]]\nprovider = "A"\nname = "b"\nusd_per_hour = 1\ncurrency = "EUR"\n',
        '[[instances]]\nprovider = "A"\nname = "b"\nusd_per_hour = 1\ncurrency = 5\n',
        '[[instances]]\nprovider = "A"\nname = "b"\nusd_per_hour = 1\ncurrency = "usd"\n',
    ],
)
def test_another_currency_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(DeviceError, match=r"currency: (unknown value|expected a text)") as error:
        catalogue.instances(path)
    assert "US dollars" in str(error.value.hint)


def test_us_dollars_may_be_said(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text('currency = "USD"\n[[instances]]\nprovider = "A"\nname = "b"\nusd_per_hour = 1\n')
    assert by_name(prices=path)["b"].usd_per_hour == 1


@pytest.mark.parametrize("value", ['"reserved"', "1", "[]", "true"])
def test_a_way_of_paying_that_is_none_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(f'[[instances]]\nprovider = "A"\nname = "b"\nusd_per_hour = 1\npricing = {value}\n')
    with pytest.raises(DeviceError, match=r"A b: pricing: (unknown value|expected a text)") as error:
        catalogue.instances(path)
    assert "reserved-3y" in str(error.value.hint)


def test_the_lists_stay_small() -> None:
    assert (FOLDER / "prices.toml").stat().st_size < 400_000
