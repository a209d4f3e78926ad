"""Days and instants of any year: the calendar of today, into the past and the future, and the offsets of zones.

Python's own dates end with the years 1 and 9999, columns do not. The rules of a time zone are the same in years that
are 400 apart, far from those that its history is about, so that they are looked up in a year that Python knows.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from dataclasses import dataclass
from functools import lru_cache

from ebla.values.grammar import Unfit

UTC = "UTC"
DAY_US = 86_400_000_000
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_REGION = re.compile(r"[A-Za-z]+(?:/[A-Za-z0-9_+-]+)+")
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A date, the microseconds of the day, and the zone if one was named."""

    year: int
    month: int
    day: int
    us: int = 0
    zone: str | None = None


def days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01; raises `Unfit` if there is no such day."""
    if not 1 <= month <= 12:
        raise Unfit("no such month")
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= day <= _MONTH_DAYS[month - 1] + leap:
        raise Unfit("no such day")
    since = year - 1 if month <= 2 else year  # years begin in March, so that the leap day is the last one
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return since * 365 + since // 4 - since // 100 + since // 400 + of_year - 719_468


def civil(day: int) -> tuple[int, int, int]:
    """The year, month and day of a number of days since 1970-01-01."""
    era, of_era = divmod(day + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    moved = (5 * of_year + 2) // 153
    month = moved + 3 if moved < 10 else moved - 9
    return year + era * 400 + (month <= 2), month, of_year - (153 * moved + 2) // 5 + 1


def instant(clock: Clock, default_zone: str) -> int:
    """Microseconds since 1970 in UTC. Of a time that comes twice the first is meant; one that is skipped is `Unfit`."""
    zone = default_zone if clock.zone is None else clock.zone
    local = days(clock.year, clock.month, clock.day) * DAY_US + clock.us
    offset = offset_of(zone)
    if offset is None:
        offset = _offset_at(clock, zone)
    return local - offset * 1_000_000


@lru_cache(maxsize=256)
def offset_of(zone: str) -> int | None:
    """The seconds that a zone is ahead of UTC; `None` for a region, where that depends on the time."""
    if zone.upper() in ("Z", "UTC", "GMT", "UT"):
        return 0
    if match := _OFFSET.fullmatch(zone):
        sign, hours, minutes, seconds = match.groups()
        found = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
        if found > 18 * 3600 or int(minutes or 0) > 59 or int(seconds or 0) > 59:
            raise Unfit(f"no such time zone: {zone}")
        return -found if sign == "-" else found
    _region(zone)
    return None


@lru_cache(maxsize=256)
def _region(zone: str) -> zoneinfo.ZoneInfo:
    try:
        if _REGION.fullmatch(zone):
            return zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise Unfit(f"no such time zone: {zone}")


def _offset_at(clock: Clock, zone: str) -> int:
    region = _region(zone)
    year = clock.year
    if not 2 <= year <= 9998:
        year = 9200 + year % 400 if year > 9998 else 400 + year % 400
    seconds, micros = divmod(clock.us, 1_000_000)
    local = dt.datetime(year, clock.month, clock.day, tzinfo=region) + dt.timedelta(seconds=seconds)
    local = local.replace(microsecond=micros, fold=0)
    offset = local.utcoffset()
    assert offset is not None
    back = (local.replace(tzinfo=None) - offset).replace(tzinfo=dt.UTC).astimezone(region)
    if back.replace(tzinfo=None, fold=0) != local.replace(tzinfo=None):
        raise Unfit(f"no such time in {zone}: its clocks skip it")
    return int(offset.total_seconds())
