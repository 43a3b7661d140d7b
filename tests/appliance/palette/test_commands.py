"""The commands that match what was typed, by role."""

from __future__ import annotations

import pytest

from appliance.accounts.roles import Role
from appliance.palette.commands import FOUND_MAX, commands, matching
from appliance.palette.views import TYPED_MAX
from tests.appliance.fake_core import FakeCore
from tests.appliance.markup import markup_of
from tests.appliance.tuning.test_pages import signed_in

SETTINGS = (("relay.domains", "recipient domains that mail is accepted for"), ("receiver.listen", "addresses"))
HOSTILE = "smtp:<script>alert(1)</script>"


def texts(
    typed: str, role: Role = Role.ADMINISTRATOR, destinations: tuple[str, ...] = ("smtp:example.org",)
) -> list[str]:
    return [each.text for each in matching(typed, commands(role, destinations, SETTINGS))]


def test_a_page_a_destination_and_a_setting_are_found_by_parts_of_their_names() -> None:
    assert texts("que")[0] == "Queue"
    assert texts("example lim")[0] == "Limits of smtp:example.org"
    assert texts("domains accepted")[0].startswith("Set relay.domains")
    assert "Destination smtp:example.org" in texts("EXAMPLE.ORG")
    assert texts("zzz") == ["Find mail: zzz"]


def test_an_address_or_a_queue_id_is_searched_for_first_and_any_other_text_last() -> None:
    assert texts("a@example.org")[0] == "Find mail: a@example.org"
    assert texts("1K0RDGV4BE900")[0] == "Find mail: 1K0RDGV4BE900"
    assert texts("log")[-1] == "Find mail: log"
    assert texts("")[0] == "Overview"


def test_a_role_is_offered_what_it_may_open() -> None:
    assert not any(each.startswith("Set ") for each in texts("relay", Role.OPERATOR))
    assert "Audit" not in texts("audit", Role.VIEWER)
    assert "Administration" in texts("admin")


def test_many_destinations_are_cut_and_the_search_stays() -> None:
    many = tuple(f"smtp:d{number}.example" for number in range(500))
    found = texts("smtp", destinations=many)
    assert len(found) == FOUND_MAX
    assert found[-1] == "Find mail: smtp"


@pytest.mark.django_db
def test_hostile_and_long_texts_are_harmless() -> None:
    with FakeCore({}):
        client = signed_in("viewer")
        page = markup_of(client.get("/go/", {"q": HOSTILE + "x" * 10_000}))
    assert "<script>" not in page
    assert len(page) < 20 * TYPED_MAX
