"""Prints each failure when it comes: a run that is ended from outside has then said what it knew."""

import pytest


class FailuresAtOnce:
    """Writes the reason of a failure, and which process saw it, below the dots."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called with each report; with several processes by the one that collects them."""
        if report.failed:
            self._reporter.write_line("")
            self._reporter.write_line(f"FAILED {report.nodeid} ({report.when}, {report.duration:.1f} s)")
            self._reporter.write_line("\n".join(report.longreprtext.splitlines()[-12:]))


def register(config: pytest.Config) -> None:
    """Take part in the process that prints."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(reporter, pytest.TerminalReporter) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(reporter))
