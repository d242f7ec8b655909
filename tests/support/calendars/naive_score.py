"""The best score of a small calendar by enumeration, from the contents of its file, in minutes instead of slots."""

from itertools import combinations, product

DAYS = {"Mon": 0, "Tue": 1}
OPENS, SLOT = 9 * 60, 60  # minutes


def span(text):
    """Return the begin and end of '09:00-10:00' in minutes after midnight."""
    return tuple(int(t[:2]) * 60 + int(t[3:]) for t in text.split("-"))


def inside(rule, day, begin, end):
    """Return whether a time lies within a rule such as 'Mon 09:00-11:00'."""
    name, hours = rule.split()
    low, high = span(hours)
    return DAYS[name] == day and low <= begin and end <= high


def touches(rule, day, begin, end):
    """Return whether a time overlaps a rule."""
    name, hours = rule.split()
    low, high = span(hours)
    return DAYS[name] == day and begin < high and low < end


def best_score(content):
    """Return the best score of a calendar; None if it is impossible."""
    names = list(content["meetings"])
    options = []
    for name in names:
        entry = content["meetings"][name]
        starts = [(d, OPENS + SLOT * s) for d in range(len(DAYS)) for s in range(slots_of(content))]
        starts = [(d, t) for d, t in starts if t + SLOT * entry["slots"] <= OPENS + SLOT * slots_of(content)]
        rooms = list(content["rooms"]) if "rooms" in content and entry.get("room") != "none" else [None]
        held = [(d, t, r) for d, t in starts for r in rooms if possible_alone(content, entry, d, t, r)]
        attendances = list(product([True, False], repeat=len(entry.get("optional", {}))))
        options.append([(h, a) for h in held for a in attendances] + ([(None, ())] if "weight" in entry else []))
    scores = [
        s for chosen in product(*options) if (s := score(content, dict(zip(names, chosen, strict=True)))) is not None
    ]
    return max(scores, default=None)


def slots_of(content):
    """Return the number of slots of a day."""
    low, high = span(content["hours"])
    return (high - low) // SLOT


def possible_alone(content, entry, day, begin, room):
    """Return whether all participants are free, and the meeting is at an allowed time."""
    end = begin + SLOT * entry["slots"]
    if "when" in entry and not inside(entry["when"], day, begin, end):
        return False
    if "fixed" in entry and (day, begin) != (DAYS[entry["fixed"][:3]], span(f"{entry['fixed'][4:]}-00:00")[0]):
        return False
    return all(is_free(content, entry, person, day, begin, end) for person in entry["people"])


def is_free(content, entry, person, day, begin, end):
    """Return whether a person is free, with the buffer around busy times, and at work."""
    data = content["people"][person]
    gap = max(entry.get("buffer", 0), data.get("buffer", 0))
    if "hours" in data and not (span(data["hours"])[0] <= begin and end <= span(data["hours"])[1]):
        return False
    hard = [rule for rule in data.get("busy", []) if not isinstance(rule, dict)]
    return not any(touches(rule, day, begin - gap, end + gap) for rule in hard)


def score(content, chosen):
    """Return the score of a (day, begin, room) or None for each meeting, with attendances; None if impossible."""
    total, events = 0, {person: [] for person in content["people"]}
    for name, (place, attending) in chosen.items():
        entry = content["meetings"][name]
        if place is None:
            total -= move_cost(content, entry) if "booked" in entry else 0
            continue
        day, begin, room = place
        end = begin + SLOT * entry["slots"]
        total += entry.get("weight", 0) - day * content.get("early", 0) + entry.get("prefer_rooms", {}).get(room, 0)
        if "booked" in entry and (day, begin) != (DAYS[entry["booked"][:3]], span(f"{entry['booked'][4:]}-00:00")[0]):
            total -= move_cost(content, entry)
        people = list(entry["people"])
        for (person, weight), goes in zip(entry.get("optional", {}).items(), attending, strict=True):
            if goes:
                if not is_free(content, entry, person, day, begin, end):
                    return None
                total, people = total + weight, [*people, person]
        for person in people:
            soft = [x for x in content["people"][person].get("busy", []) if isinstance(x, dict)]
            total -= sum(x["cost"] for x in soft if touches(x["when"], day, begin, end))
            events[person].append((day, begin, end, name, room))
    if not all(fits_person(content, person, attended) for person, attended in events.items()):
        return None
    if not fits_rooms(content, chosen) or not fits_order(content, chosen):
        return None
    points = {p: sum(points_of(content, p, event) for event in attended) for p, attended in events.items()}
    total += sum(points.values()) - sum(gaps(content, p, attended) for p, attended in events.items())
    counted = [points[p] for p in points if content["people"][p].get("prefer") and is_invited(content, p)]
    fairness = content.get("fairness", {})
    if counted:
        total += fairness.get("least_worst", 0) * min(counted) - fairness.get("spread", 0) * (
            max(counted) - min(counted)
        )
    return total


def move_cost(content, entry):
    """Return the cost of moving or dropping a booked meeting."""
    cost = entry.get("move_cost", content.get("move_cost", 5))
    return cost["per_participant"] * len(entry["people"]) if isinstance(cost, dict) else cost


def is_invited(content, person):
    """Return whether a person attends or may attend a meeting."""
    return any(person in m["people"] or person in m.get("optional", {}) for m in content["meetings"].values())


def points_of(content, person, event):
    """Return the points of a person's preferences for an event."""
    day, begin, end, *_ = event
    rules = content["people"][person].get("prefer", {})
    return sum(points for rule, points in rules.items() if inside(rule, day, begin, end))


def gaps(content, person, attended):
    """Return what the free slots between the meetings of each day cost."""
    weight, total = content["people"][person].get("no_gaps", 0), 0
    for day in DAYS.values():
        times = [(begin, end) for d, begin, end, *_ in attended if d == day]
        if times:
            total += max(e for _, e in times) - min(b for b, _ in times) - sum(e - b for b, e in times)
    return weight * total // SLOT


def fits_person(content, person, attended):
    """Return whether the meetings of a person do not overlap and keep all limits."""
    data = content["people"][person]
    for (d, b, e, m, r), (d2, b2, e2, m2, r2) in combinations(attended, 2):
        gap = max(data.get("buffer", 0), *(content["meetings"][x].get("buffer", 0) for x in (m, m2)))
        if r is not None and r2 is not None and r != r2:
            gap = max(gap, content.get("travel", {}).get(" - ".join(sorted((r, r2))), 0))
        if d == d2 and b < e2 + -(-gap // SLOT) * SLOT and b2 < e + -(-gap // SLOT) * SLOT:
            return False
    for day in DAYS.values():
        times = sorted((b, e) for d, b, e, *_ in attended if d == day)
        if len(times) > data.get("max_per_day", 99):
            return False
        longest, run, last = 0, 0, None
        for begin, end in times:
            run = run + end - begin if begin == last else end - begin
            longest, last = max(longest, run), end
        if longest > data.get("max_in_a_row", 9999):
            return False
        if "lunch" in data and not has_lunch(content, data, day, times):
            return False
    return True


def has_lunch(content, data, day, times):
    """Return whether a break stays free within the hours of lunch, or busy times leave none anyway."""
    low, high = span(data["lunch"]["between"])
    length = max(SLOT, -(-data["lunch"]["minutes"] // SLOT) * SLOT)
    begins = list(range(low, high - length + 1, SLOT))
    hard = [rule for rule in data.get("busy", []) if not isinstance(rule, dict)]
    possible = [b for b in begins if not any(touches(r, day, b, b + length) for r in hard)]
    if "hours" in data:
        possible = [b for b in possible if span(data["hours"])[0] <= b and b + length <= span(data["hours"])[1]]
    return not possible or any(all(b + length <= t or b >= e for t, e in times) for b in possible)


def fits_rooms(content, chosen):
    """Return whether no more meetings than rooms of a name take place at any time."""
    held = [(*place, content["meetings"][name]["slots"]) for name, (place, _) in chosen.items() if place is not None]
    for room, data in content.get("rooms", {}).items():
        for day, time in product(DAYS.values(), range(OPENS, OPENS + 24 * 60, SLOT)):
            use = sum(r == room and d == day and b <= time < b + SLOT * n for d, b, r, n in held)
            if use > data.get("count", 1):
                return False
    return True


def fits_order(content, chosen):
    """Return whether meetings start after those that they have to follow."""
    for name, entry in content["meetings"].items():
        for earlier, gap in entry.get("after", {}).items():
            first, second = chosen[earlier][0], chosen[name][0]
            if first is None or second is None:
                continue
            end = first[0] * 1440 + first[1] + SLOT * content["meetings"][earlier]["slots"]
            if second[0] * 1440 + second[1] < end + gap:
                return False
    return True
