"""What an installed lazycron can do with nothing but its own dependencies."""

from datetime import UTC, datetime, timedelta
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec

from lazycron import LazyCron
from lazycron.testing import ManualClock

for framework in ("starlette", "flask", "django"):
    assert find_spec(framework) is None, f"{framework}: not an empty environment"
for edge in ("asgi", "wsgi"):
    import_module(f"lazycron.{edge}")
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
