"""Busy files as calendar programs write them: what is busy, what is free, and what is named because it is not read."""

import warnings
from datetime import UTC, date, datetime, timedelta

import pytest

from dmcmc.calendars.file.busy_files import busy_events, known_zone
from dmcmc.inference.runtime.errors import FileWarning

pytest.importorskip("recurring_ical_events")

GOOD = ["BEGIN:VEVENT", "UID:good", "SUMMARY:Good", "DTSTART:20270301T080000Z", "DTEND:20270301T090000Z", "END:VEVENT"]
AT_EIGHT = ["08:00 Good"]


def calendar(*lines):
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", *lines, "END:VCALENDAR", ""])


def event(*lines):
    return ["BEGIN:VEVENT", "UID:other", "SUMMARY:Other", *lines, "END:VEVENT"]


def zone(name, offset):
    part = ["BEGIN:STANDARD", "DTSTART:19700101T000000", f"TZOFFSETFROM:{offset}", f"TZOFFSETTO:{offset}"]
    return ["BEGIN:VTIMEZONE", f"TZID:{name}", *part, "END:STANDARD", "END:VTIMEZONE"]


def read(text, person="Ann"):
    """Return the busy times of 1 March in UTC, with the texts of the warnings."""
    content = text if isinstance(text, bytes) else text.encode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = busy_events(content, "ann.ics", date(2027, 3, 1), date(2027, 3, 2), person)
    times = [(x.begin.astimezone(UTC) if x.begin.tzinfo else x.begin, x.summary) for x in found]
    assert all(issubclass(x.category, FileWarning) for x in caught)
    return [f"{begin:%H:%M} {summary}" for begin, summary in times], [str(x.message) for x in caught]


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (event("DTSTART:20270230T100000Z"), "'Other' has the invalid line DTSTART:20270230T100000Z"),
        (event("COMMENT:none"), "'Other' has no DTSTART"),
        (event("DTSTART:20270301T080000Z", "DTSTART:20270301T090000Z"), "'Other' has DTSTART twice"),
        (event("DTSTART:20270301T080000Z", "DTEND:20270301T070000Z"), "'Other' ends before it begins"),
        (event("DTSTART:20270301T080000Z", "RRULE:FREQ=OFTEN;COUNT=3"), "FREQ=OFTEN"),
        (event("DTSTART:20270301T080000Z", "RRULE:RSCALE=CHINESE;FREQ=DAILY;COUNT=3"), "RSCALE=CHINESE"),
        (["BEGIN:VAVAILABILITY", "UID:q", "END:VAVAILABILITY"], "VAVAILABILITY 'q' is not understood"),
        (["BEGIN:X-ABSENCE", "DTSTART:20270301", "END:X-ABSENCE"], "X-ABSENCE is not understood"),
        (["BEGIN:VTODO", "DTSTART:20270301T080000Z", "END:VTODO"], "VTODO is not understood"),
        (["BEGIN:VFREEBUSY", "FREEBUSY:20270301/noon", "END:VFREEBUSY"], "'20270301/noon' of VFREEBUSY"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line_and_the_rest_is_read(lines, note):
    times, (warning,) = read(calendar(*lines, *GOOD))
    assert times == AT_EIGHT
    assert warning.startswith(f"ann.ics: line {4 if 'noon' in note else 3}: ") and note in warning
    assert warning.endswith("is not counted as busy")


def test_one_warning_names_the_first_parts_and_the_number_of_the_others():
    _, (warning,) = read(calendar(*event() * 9))
    assert warning.count("has no DTSTART") == 5 and warning.endswith("; 4 more")


@pytest.mark.parametrize(
    "lines",
    [
        ["TRANSP:TRANSPARENT"],
        ["STATUS:CANCELLED"],
        ["X-MICROSOFT-CDO-BUSYSTATUS:FREE", "TRANSP:OPAQUE"],
        ["ATTENDEE;CN=Ann;PARTSTAT=DECLINED:mailto:someone@example.org"],
        ['ATTENDEE;CN="A. B.";PARTSTAT=DECLINED:mailto:Ann@example.org', "ATTENDEE;CN=Bob:mailto:bob@example.org"],
        ["ATTENDEE;PARTSTAT=DECLINED:mailto:smith@example.org"],  # the name of the calendar
    ],
)
def test_events_that_leave_the_person_free(lines):
    text = calendar("X-WR-CALNAME:smith@example.org", *event("DTSTART:20270301T080000Z", "DURATION:PT1H", *lines))
    assert read(text) == ([], [])


@pytest.mark.parametrize(
    "lines",
    [
        ["STATUS:TENTATIVE"],
        ["X-MICROSOFT-CDO-BUSYSTATUS:OOF"],
        ["ATTENDEE;CN=Bob;PARTSTAT=DECLINED:mailto:bob@example.org"],
        ["ATTENDEE;CN=Ann;PARTSTAT=ACCEPTED:mailto:ann@example.org"],
        ["a line that no program understands"],
        ["BEGIN:VALARM", "TRIGGER:often", "DTSTART:20270230", "END:VALARM"],
    ],
)
def test_events_that_do_not(lines):
    assert read(calendar(*event("DTSTART:20270301T080000Z", "DURATION:PT1H", *lines))) == (["08:00 Other"], [])


def test_one_occurrence_may_be_declined():
    series = event("DTSTART:20270228T080000Z", "DURATION:PT1H", "RRULE:FREQ=DAILY;COUNT=3")
    declined = ["RECURRENCE-ID:20270301T080000Z", "ATTENDEE;CN=Ann;PARTSTAT=DECLINED:mailto:ann@example.org"]
    assert read(calendar(*series))[0] == ["08:00 Other"]
    assert read(calendar(*series, *event("DTSTART:20270301T080000Z", "DURATION:PT1H", *declined)))[0] == []


def test_free_and_busy_periods_are_read():
    periods = [
        "FREEBUSY;FBTYPE=BUSY:20270301T080000Z/20270301T090000Z,20270301T100000Z/PT1H",
        "FREEBUSY;FBTYPE=FREE:20270301T110000Z/PT1H",
        "FREEBUSY:20270301T120000Z/PT1H",
        "FREEBUSY;FBTYPE=BUSY-TENTATIVE:20270301T130000Z/PT1H",
    ]
    text = calendar("BEGIN:VFREEBUSY", *periods, "END:VFREEBUSY")
    assert read(text) == ([f"{hour:02d}:00 busy" for hour in (8, 10, 12, 13)], [])
    assert busy_events(text.encode(), "", date(2027, 3, 1), date(2027, 3, 2))[1].end == datetime(
        2027, 3, 1, 11, tzinfo=UTC
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_files_in_several_encodings_and_with_several_calendars_are_read(encoding):
    umlaut = event("DTSTART:20270301T100000Z", "DURATION:PT1H", "DESCRIPTION:Gruß")
    text = calendar(*GOOD) + calendar(*umlaut).replace("SUMMARY:Other", "SUMMARY:Büro")
    assert read(text.encode(encoding)) == ([*AT_EIGHT, "10:00 Büro"], [])


@pytest.mark.parametrize(
    ("name", "hour"),
    [
        ("Europe/Berlin", 9),
        ("W. Europe Standard Time", 9),
        ("/example.org/2027_1/Europe/Berlin", 9),
        ("europe/berlin", 9),
        ("tzone://Microsoft/Utc", 10),
        ("Etc/GMT+5", 15),
    ],
)
def test_zones_are_known_by_the_names_that_programs_write(name, hour):
    for written in (name, f'"{name}"'):
        assert read(calendar(*event(f"DTSTART;TZID={written}:20270301T100000"))) == ([f"{hour:02d}:00 Other"], [])


@pytest.mark.parametrize(
    ("name", "hour", "offset"),
    [
        ("(UTC-05:00) Eastern Time (US & Canada)", 15, "-0500"),
        ("(UTC+05:30) Chennai, Kolkata", 4, "+0530"),
        ("GMT+0100", 9, "+0100"),
        ("UTC+1", 9, "+0100"),
        ("(UTC) Somewhere", 10, "+0000"),
    ],
)
def test_a_zone_is_read_from_the_offset_in_its_name_with_a_warning(name, hour, offset):
    times, (warning,) = read(calendar(*event(f'DTSTART;TZID="{name}":20270301T100000', "RRULE:FREQ=DAILY;COUNT=2")))
    minute = 30 if offset == "+0530" else 0
    assert times == [f"{hour:02d}:{minute:02d} Other"]
    assert warning == f"ann.ics: line 6: the time zone {name!r} is read as UTC{offset}, without daylight saving"
    assert read(calendar(*event(f"DTSTART;TZID={name}:20270301T100000")))[0] == times  # without quotation marks


def test_an_unknown_zone_is_refused_unless_the_file_defines_it():
    own = event("DTSTART;TZID=Customized Time Zone:20270301T100000")
    with pytest.raises(ValueError, match=r"ann.ics: .* line 6: the time zone 'Customized Time Zone' is not known"):
        read(calendar(*own))
    assert read(calendar(*zone("Customized Time Zone", "-0300"), *own)) == (["13:00 Other"], [])
    _, (warning,) = read(calendar("X-WR-TIMEZONE:Nowhere", *GOOD))
    assert warning == "ann.ics: the time zone 'Nowhere' of X-WR-TIMEZONE is not known; local times are the calendar's"


def test_zones_of_one_name_in_two_files_are_two_zones():
    """The library keeps the definitions of all files of a process under their names."""
    for offset, hour in (("-0300", 13), ("+0200", 8), ("-0300", 13)):
        text = calendar(*zone("Own", offset), *event("DTSTART;TZID=Own:20270301T100000"))
        assert read(text)[0] == [f"{hour:02d}:00 Other"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected BEGIN:VCALENDAR"),
        ("<html>", "line 1: unexpected '<html>'"),
        (calendar(*GOOD)[:-26], "it ends within VEVENT, which begins in line 3"),
        ("\r\n".join(GOOD), "expected BEGIN:VCALENDAR"),
        (calendar(*GOOD[:-1]), "line 8: unexpected 'END:VCALENDAR'"),
        (calendar(*zone("Own", "late"), *event("DTSTART;TZID=Own:20270301T100000")), "late"),
    ],
)
def test_files_that_are_cut_off_or_of_another_kind_are_refused(text, message):
    with pytest.raises(ValueError, match=r"ann.ics: is not a valid iCalendar file: ") as caught:
        read(text)
    assert message in str(caught.value)


def test_folded_lines_are_joined_and_names_of_zones_have_no_case():
    folded = event("DTSTART;TZID=Euro", " pe/Berlin:202703", "\t01T100000", "DURATION:PT1H")
    assert read(calendar(*folded))[0] == ["09:00 Other"]
    assert [known_zone(x) for x in ("EUROPE/BERLIN", "Nowhere", "", "Europe")] == ["Europe/Berlin", "", "", ""]


def test_events_of_other_days_are_left_out():
    later = event("DTSTART:20270305T080000Z", "DURATION:PT1H")
    assert read(calendar(*GOOD, *later))[0] == AT_EIGHT
    found = busy_events(calendar(*later).encode(), "", date(2027, 3, 1), date(2027, 3, 9))
    assert [x.end - x.begin for x in found] == [timedelta(hours=1)]
