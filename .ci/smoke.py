"""What an installed lazycron can do with nothing but its own dependencies."""

import importlib.util
from datetime import UTC, datetime, timedelta
from importlib.resources import files

import lazycron.asgi
import lazycron.wsgi
from lazycron import LazyCron
from lazycron.testing import ManualClock

for framework in ("starlette", "flask", "django"):
    assert importlib.util.find_spec(framework) is None, f"{framework}: not an empty environment"
assert files("lazycron").joinpath("py.typed").is_file()

clock = ManualClock(datetime(2026, 11, 30, 3, 0, tzinfo=UTC))
cron = LazyCron("sqlite:///smoke.db", clock=clock)


@cron.task(every="1h")
def nightly() -> str:
    """Sweep the floor."""
    return "Swept."


first = cron.run_due()
assert [first.decisions["nightly"].verdict, first.runs] == ["deferred", []], first

clock.set(clock.now() + timedelta(hours=1))
second = cron.run_due()
assert [run.message for run in second.runs] == ["Swept."], second

history = cron.history()
assert [(run.task, run.status) for run in history] == [("nightly", "ok")], history
for run in history:
    print(run)
cron.close()
