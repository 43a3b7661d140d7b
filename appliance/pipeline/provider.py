"""Returns the owner of a host that received mail: the registrable domain of its name."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["provider_of"]

# Where a country sells names below a second level of its own: mx.example.co.uk belongs to example.co.uk. Of the Public
# Suffix List only what such second levels are called; a provider below a rarer one is shown under it.
SECOND_LEVELS = ("ac", "co", "com", "edu", "gob", "go", "gov", "gv", "mil", "ne", "net", "nom", "or", "org", "sch")


def provider_of(relay: Column) -> Column:
    """Returns the provider of a relay: "example.net" for "mx1.mail.example.net[192.0.2.1]:25"; "[192.0.2.1]" for a host
    without a name; "" if there was no host."""
    host = F.lower(F.rtrim(F.substring_index(relay, "[", 1), F.lit(".")))
    two = F.substring_index(host, ".", -2)
    below = F.substring_index(two, ".", 1).isin(*SECOND_LEVELS) & (F.length(F.substring_index(host, ".", -1)) == 2)
    name = F.when(below, F.substring_index(host, ".", -3)).otherwise(two)
    no_name = (F.translate(host, "0123456789.", "") == "") | host.contains(
        ":"
    )  # also of an address literal, before its [
    address = F.concat(F.lit("["), F.lower(F.substring_index(F.substring_index(relay, "[", -1), "]", 1)), F.lit("]"))
    return F.when(relay.isNull() | relay.isin("", "none"), F.lit("")).when(no_name, address).otherwise(name)
