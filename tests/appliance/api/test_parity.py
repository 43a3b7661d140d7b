"""The API has what the portal has: an operation for each page, or a reason."""

from __future__ import annotations

from appliance.api.urls import OPERATIONS
from tests.appliance.accounts import access
from tests.appliance.accounts.access import Least
from tests.appliance.api.parity import TABLE

LISTS = (
    "changelist",
    "history",
    "index",
)  # of the administration: Django's pages take a POST, which changes nothing here
BY_NAME = {each.name: each for each in OPERATIONS if not each.name.startswith("control_")}  # test_control.py has those


def test_every_page_has_an_operation_or_a_reason() -> None:
    pages = {name for name in access.TABLE if not name.startswith("api:")}
    assert TABLE.keys() == pages, "a new page: say in tests/appliance/api/parity.py which operation has its values"


def test_the_operations_of_the_table_are_there_and_the_reasons_are_sentences() -> None:
    for page, found in TABLE.items():
        if isinstance(found, str):
            assert len(found.split()) >= 4, page
        else:
            assert found
            assert not set(found) - BY_NAME.keys(), page


def test_a_page_that_changes_something_has_an_operation_that_does() -> None:
    for page, (_, least) in access.TABLE.items():
        found = TABLE.get(page, "")
        if least is Least.NEVER or isinstance(found, str) or page.endswith(LISTS):
            continue
        assert any(BY_NAME[name].method == "POST" for name in found), page


def test_no_operation_needs_a_lower_role_than_each_of_its_pages() -> None:
    """A token opens no way past the roles of the pages."""
    for name, operation in BY_NAME.items():
        pages = [access.TABLE[page] for page, found in TABLE.items() if not isinstance(found, str) and name in found]
        least = min((look if operation.method == "GET" else change for look, change in pages), default=Least.OPERATOR)
        if name == "message_data":
            assert least is Least.ADMINISTRATOR, "or with the right to read bodies, which this operation asks for"
        else:
            assert operation.least >= least, name


def test_every_operation_belongs_to_a_page() -> None:
    named = {name for found in TABLE.values() if not isinstance(found, str) for name in found}
    assert BY_NAME.keys() - named == {"send"}, "sending has no page"
