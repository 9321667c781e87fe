"""The suite ``live``; what it compares, and how, stands in suites.py and served.py."""

from bench.conftest import suite_tests

opened, test_work = suite_tests("live")
